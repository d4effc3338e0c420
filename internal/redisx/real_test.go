package redisx

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// count adds one and tells; it is not repeatable on purpose, so that a send too many shows.
var count = NewScript("count.lua", `return redis.call('INCR', KEYS[1])`)

func behindProxy(t *testing.T) (*Client, *faultproxy.Proxy, string) {
	t.Helper()
	srv := testserver.Redis(t)
	proxy := faultproxy.Redis(t, srv.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := Wrap(rdb)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Preload(count, echo); err != nil {
		t.Fatal(err)
	}
	return c, proxy, srv.Prefix(t)
}

// redis/go-redis#2985: the client resends a command whose reply was lost. Ours are never resent unseen.
func TestGoRedis2985_LostReplyIsUnknownAndNotResentUnseen(t *testing.T) {
	c, proxy, prefix := behindProxy(t)
	proxy.On(faultproxy.Named("EVALSHA"), faultproxy.LoseReply())
	if _, err := c.Once(t.Context(), count, []string{prefix + "n"}); KindOf(err) != Unknown {
		t.Errorf("err = %v (kind %d), want Unknown", err, KindOf(err))
	}
	if got := proxy.Count(faultproxy.Named("EVALSHA")); got != 1 {
		t.Errorf("%d sends, want 1", got)
	}
}

func TestRunSaysThatItSentAgain(t *testing.T) {
	c, proxy, prefix := behindProxy(t)
	proxy.On(faultproxy.Named("EVALSHA"), faultproxy.LoseReply())
	got, err := c.Run(t.Context(), count, []string{prefix + "n"})
	if err != nil || got.Val != int64(2) || got.Sent != 2 {
		t.Errorf("got %+v, %v; want the second run's answer, sent twice", got, err)
	}
	proxy.Heal(t)
	proxy.On(faultproxy.Named("EVALSHA").Always(), faultproxy.LoseReply())
	if got, err = c.Run(t.Context(), count, []string{prefix + "n"}); KindOf(err) != Unknown || got.Sent != attempts {
		t.Errorf("got %+v, %v; want Unknown after %d sends", got, err, attempts)
	}
	proxy.Heal(t)
	proxy.Refuse()
	if _, err = c.Run(t.Context(), count, []string{prefix + "n"}); KindOf(err) != Unavailable {
		t.Errorf("err = %v (kind %d), want Unavailable: nothing was sent", err, KindOf(err))
	}
}

// One reply lost in a batch makes every call of that batch unknown, and each of them is repeated alone.
func TestLostReplyInABatch(t *testing.T) {
	c, proxy, prefix := behindProxy(t)
	proxy.On(faultproxy.Named("EVALSHA").Nth(20), faultproxy.LoseReply())
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			key := fmt.Sprint(prefix, i)
			got, err := c.Run(t.Context(), echo, []string{key}, i)
			if want := fmt.Sprint([]any{key, fmt.Sprint(i)}); err != nil || fmt.Sprint(got.Val) != want {
				t.Errorf("call %d: %v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
}

// F056: a server that has forgotten its scripts gets them again, alone and in a batch.
func TestScriptFlushIsRepaired(t *testing.T) {
	c, _, prefix := behindProxy(t)
	for round := range 5 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if _, err := c.Once(t.Context(), echo, []string{fmt.Sprint(prefix, i)}, round); err != nil {
					t.Errorf("round %d call %d: %v", round, i, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestCluster(t *testing.T) {
	srv := testserver.Cluster(t)
	c, err := Wrap(srv.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	prefix := srv.Prefix(t)
	if is, err := c.IsCluster(t.Context()); err != nil || !is {
		t.Errorf("IsCluster = %v, %v", is, err)
	}
	if err := c.Preload(echo); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 300 { // all three masters
		wg.Go(func() {
			key := fmt.Sprint(prefix, i)
			if got, err := c.Run(t.Context(), echo, []string{key}, i); err != nil || got.Sent != 1 {
				t.Errorf("key %s: %+v, %v", key, got, err)
			}
			if want := int(c.ClusterKeySlot(t.Context(), key).Val()); Slot(key) != want {
				t.Errorf("Slot(%q) = %d, the server says %d", key, Slot(key), want)
			}
		})
	}
	wg.Wait()
}

func TestStandaloneIsNoCluster(t *testing.T) {
	srv := testserver.Redis(t)
	c, err := Wrap(srv.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	if is, err := c.IsCluster(t.Context()); err != nil || is {
		t.Errorf("IsCluster = %v, %v", is, err)
	}
	if got := c.EvictionPolicy(t.Context()); got != "noeviction" {
		t.Errorf("EvictionPolicy = %q, want the default noeviction", got)
	}
}

func BenchmarkOnce(b *testing.B) {
	srv := testserver.Redis(b)
	rdb := srv.Client(b)
	c, err := Wrap(rdb)
	if err != nil {
		b.Fatal(err)
	}
	script := redis.NewScript(echo.src) //nolint:forbidigo // the baseline: what everybody else does
	for _, parallel := range []int{1, 8, 64, 256} {
		run := func(name string, call func(key string) error) {
			b.Run(fmt.Sprintf("%s/in-flight-%d", name, parallel), func(b *testing.B) {
				var wg sync.WaitGroup
				next := make(chan int)
				for range parallel {
					wg.Go(func() {
						for i := range next {
							if err := call(fmt.Sprint("k", i%1000)); err != nil {
								b.Error(err)
							}
						}
					})
				}
				for i := range b.N {
					next <- i
				}
				close(next)
				wg.Wait()
			})
		}
		run("batched", func(key string) error { _, err := c.Once(b.Context(), echo, []string{key}, 1); return err })
		run("plain", func(key string) error { return script.Run(b.Context(), rdb, []string{key}, 1).Err() })
	}
}
