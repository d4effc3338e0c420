package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// B15: the rules that every backend keeps, one that a test writes as well as Redis. A backend is given as a place, which several processes share.
type place struct {
	process func(t *testing.T) Backend // one process's view of it
	key     func(name string) string   // a key of this test alone
	put     func(key, token string, ttl time.Duration)
	del     func(key string)
	left    func(key string) time.Duration
}

func TestBackends(t *testing.T) {
	for name, open := range map[string]func(*testing.T) place{
		"memory":    memoryPlace,
		"miniredis": miniPlace,
		"Redis":     realPlace,
		"Sentinel":  sentinelPlace,
		"cluster":   clusterPlace,
	} {
		t.Run(name, func(t *testing.T) { testBackend(t, open) })
	}
}

func memoryPlace(*testing.T) place {
	m := newMemory()
	return place{
		process: func(*testing.T) Backend { return m.client() },
		key:     func(name string) string { return name },
		put:     m.set,
		del:     func(key string) { m.set(key, "", 0) },
		left:    m.left,
	}
}

func redisPlace(t *testing.T, rdb redis.UniversalClient, prefix string) place {
	ctx := context.Background()
	return place{
		process: func(t *testing.T) Backend {
			c, err := redisx.Wrap(rdb)
			if err != nil {
				t.Fatal(err)
			}
			b := newRedisBackend(c, fmt.Sprint("process", senders.Add(1)), quietLogger())
			if !b.detect(ctx) {
				t.Fatal("the server does not say whether it is part of a cluster")
			}
			return b
		},
		key:  func(name string) string { return prefix + name },
		put:  func(key, token string, ttl time.Duration) { check(t, rdb.Set(ctx, key, token, ttl).Err()) },
		del:  func(key string) { check(t, rdb.Del(ctx, key).Err()) },
		left: func(key string) time.Duration { return rdb.PTTL(ctx, key).Val() },
	}
}

var senders atomic.Int64

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func miniPlace(t *testing.T) place {
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return redisPlace(t, rdb, "")
}

func realPlace(t *testing.T) place {
	srv := testserver.Redis(t)
	return redisPlace(t, srv.Client(t), srv.Prefix(t))
}

func sentinelPlace(t *testing.T) place {
	srv := testserver.Sentinel(t)
	return redisPlace(t, srv.Client(t), srv.Prefix(t))
}

func clusterPlace(t *testing.T) place {
	srv := testserver.Cluster(t)
	return redisPlace(t, srv.Client(t), srv.Prefix(t))
}

// testBackend runs the suite.
func testBackend(t *testing.T, open func(*testing.T) place) {
	ctx := context.Background()
	const ttl = time.Minute
	acquire := func(t *testing.T, b Backend, token string, keys ...string) Grant {
		t.Helper()
		slices.Sort(keys)
		g, err := b.Acquire(ctx, Request{Keys: keys, Token: token, TTL: ttl})
		check(t, err)
		return g
	}
	take := func(t *testing.T, b Backend, token string, keys ...string) int64 {
		t.Helper()
		g := acquire(t, b, token, keys...)
		if !g.Held || g.Fence < 1 {
			t.Fatalf("%s did not get %v: %+v", token, keys, g)
		}
		return g.Fence
	}
	held := func(token string, keys ...string) Held { return Held{Keys: keys, Token: token, TTL: ttl} }
	release := func(t *testing.T, b Backend, h Held) Released {
		t.Helper()
		rel, err := b.Release(ctx, h)
		check(t, err)
		return rel
	}
	within := func(t *testing.T, got, atMost time.Duration) {
		t.Helper()
		if got <= 0 || got > atMost || got < atMost-10*time.Second {
			t.Errorf("the rest of the TTL is %v, want up to %v", got, atMost)
		}
	}

	t.Run("a key has one holder, and the others are told for how long", func(t *testing.T) {
		p := open(t)
		b, k := p.process(t), p.key("k")
		take(t, b, "A", k)
		g := acquire(t, p.process(t), "B", k)
		if g.Held {
			t.Fatal("two holders")
		}
		within(t, g.Left, ttl)
		within(t, p.left(k), ttl)
	})
	t.Run("acquiring again with the token that is stored succeeds, with the same number and the TTL anew", func(t *testing.T) {
		p := open(t)
		b, k := p.process(t), p.key("k")
		first := take(t, b, "A", k)
		p.put(k, "A", time.Second)
		for range 2 {
			if again := take(t, b, "A", k); again != first {
				t.Errorf("the number went from %d to %d", first, again)
			}
		}
		within(t, p.left(k), ttl)
	})
	t.Run("numbers of a key only grow, whoever takes it", func(t *testing.T) {
		p := open(t)
		k, last := p.key("k"), int64(0)
		for i := range 100 {
			b, token := p.process(t), fmt.Sprint("token", i)
			n := take(t, b, token, k)
			if n <= last {
				t.Fatalf("number %d after %d", n, last)
			}
			last = n
			release(t, b, held(token, k))
		}
	})
	t.Run("several keys are had all or none, with one number above that of each", func(t *testing.T) {
		p := open(t)
		b := p.process(t)
		keys := []string{p.key("a"), p.key("b"), p.key("c"), p.key("d")}
		last := int64(0)
		for i, k := range keys {
			last = max(last, take(t, b, fmt.Sprint("single", i), k))
			release(t, b, held(fmt.Sprint("single", i), k))
		}
		n := take(t, b, "A", keys...)
		if n <= last {
			t.Errorf("number %d, want above %d", n, last)
		}
		if again := take(t, b, "A", keys...); again != n {
			t.Errorf("a repeat changed the number from %d to %d", n, again)
		}
		release(t, b, held("A", keys...))

		take(t, b, "B", keys[2])
		g := acquire(t, b, "C", keys...)
		if g.Held || keys[g.Taken] != keys[2] {
			t.Errorf("got %+v, want %s taken", g, keys[2])
		}
		for i, k := range keys {
			if i != 2 && p.left(k) > 0 {
				t.Errorf("%s is held by an acquire that failed", k)
			}
		}
	})
	t.Run("renewal starts the TTL anew for its own token", func(t *testing.T) {
		p := open(t)
		b, k := p.process(t), p.key("k")
		take(t, b, "A", k)
		p.put(k, "A", time.Second)
		if s, err := b.Renew(ctx, held("A", k)); s != Ours || err != nil {
			t.Fatalf("renewal: %v, %v", s, err)
		}
		within(t, p.left(k), ttl)
	})
	// D35, X15
	t.Run("renewal checks the token first: another's lock does not live longer by it", func(t *testing.T) {
		p := open(t)
		b, k := p.process(t), p.key("k")
		p.put(k, "B", 5*time.Second)
		s, err := b.Renew(ctx, held("A", k))
		if s != Foreign || err != nil {
			t.Errorf("renewal of another's lock: %v, %v; want Foreign", s, err)
		}
		if left := p.left(k); left > 5*time.Second {
			t.Errorf("its TTL was raised to %v", left)
		}
	})
	t.Run("renewal never creates a key, and prolongs all keys or none", func(t *testing.T) {
		p := open(t)
		b, k, other := p.process(t), p.key("k"), p.key("other")
		if s, err := b.Renew(ctx, held("A", k)); s != Missing || err != nil {
			t.Errorf("renewal of a missing lock: %v, %v; want Missing", s, err)
		}
		p.put(other, "A", 5*time.Second)
		if s, err := b.Renew(ctx, held("A", k, other)); s != Missing || err != nil {
			t.Errorf("renewal of half a lease: %v, %v; want Missing", s, err)
		}
		if p.left(k) > 0 {
			t.Error("renewal created a key")
		}
	})
	// A07, A08
	t.Run("release frees its own lock and no other", func(t *testing.T) {
		p := open(t)
		b, k := p.process(t), p.key("k")
		take(t, b, "A", k)
		if rel := release(t, b, held("B", k)); rel.State != Foreign {
			t.Errorf("release with another token: %v, want Foreign", rel.State)
		}
		within(t, p.left(k), ttl)
		if rel := release(t, b, held("A", k)); rel.State != Ours {
			t.Errorf("release: %v, want Ours", rel.State)
		}
		if rel := release(t, b, held("A", k)); rel.State != Missing {
			t.Errorf("second release: %v, want Missing", rel.State)
		}
		take(t, b, "C", k)
	})
	t.Run("release of several keys frees those that are still its own", func(t *testing.T) {
		p := open(t)
		b := p.process(t)
		keys := []string{p.key("a"), p.key("b"), p.key("c")}
		take(t, b, "A", keys...)
		p.put(keys[1], "B", ttl)
		if rel := release(t, b, held("A", keys...)); rel.State != Foreign {
			t.Errorf("release: %v, want Foreign", rel.State)
		}
		if p.left(keys[0]) > 0 || p.left(keys[2]) > 0 || p.left(keys[1]) <= 0 {
			t.Error("want the own keys gone and the other's there")
		}
	})
	t.Run("a lock is handed over without being free in between, with a greater number", func(t *testing.T) {
		p := open(t)
		b, ok := p.process(t).(HandoverBackend)
		if !ok {
			t.Fatal("no hand-over")
		}
		k := p.key("k")
		first := take(t, b, "A", k)
		to := Request{Keys: []string{k}, Token: "B", TTL: ttl}
		g, s, err := b.Handover(ctx, held("A", k), to)
		if s != Ours || err != nil || !g.Held || g.Fence <= first {
			t.Fatalf("hand-over: %+v, %v, %v", g, s, err)
		}
		again, s, err := b.Handover(ctx, held("A", k), to)
		if s != Ours || err != nil || again.Fence != g.Fence {
			t.Errorf("repeated: %+v, %v, %v; want number %d again", again, s, err, g.Fence)
		}
		if n := take(t, b, "B", k); n != g.Fence {
			t.Errorf("an acquire with the new token has number %d, want %d", n, g.Fence)
		}
		if rel := release(t, b, held("A", k)); rel.State != Foreign {
			t.Errorf("release by the old holder: %v, want Foreign", rel.State)
		}
	})
	t.Run("what is not held cannot be handed over", func(t *testing.T) {
		p := open(t)
		b := p.process(t).(HandoverBackend)
		k := p.key("k")
		to := Request{Keys: []string{k}, Token: "B", TTL: ttl}
		if _, s, err := b.Handover(ctx, held("A", k), to); s != Missing || err != nil {
			t.Errorf("hand-over of nothing: %v, %v; want Missing", s, err)
		}
		if p.left(k) > 0 {
			t.Error("it created a key")
		}
		take(t, b, "C", k)
		if _, s, err := b.Handover(ctx, held("A", k), to); s != Foreign || err != nil {
			t.Errorf("hand-over of another's: %v, %v; want Foreign", s, err)
		}
		if g := acquire(t, b, "B", k); g.Held {
			t.Error("the key changed hands")
		}
	})
	t.Run("a watch wakes when it begins and when another process frees the key", func(t *testing.T) {
		p := open(t)
		mine, other := p.process(t).(WatchBackend), p.process(t).(WatchBackend)
		defer other.Watch(func(string) {}).Close()
		k, quiet := p.key("k"), p.key("quiet")
		woken := make(chan string, 100)
		w := mine.Watch(func(key string) { woken <- key })
		wake := func(what string) {
			t.Helper()
			select {
			case key := <-woken:
				if key != k {
					t.Fatalf("%s: woken for %q", what, key)
				}
			case <-time.After(soon):
				t.Fatalf("%s: not woken", what)
			}
		}
		w.Add(k)
		wake("the watch begins")
		take(t, other, "A", k)
		release(t, other, held("A", k))
		wake("another process releases")

		take(t, mine, "B", k)
		if rel := release(t, mine, held("B", k)); rel.Others != 0 {
			t.Errorf("%d others wait, want none: the only one that listens is this process", rel.Others)
		}
		take(t, mine, "C", k)
		orphan := held("C", k)
		orphan.Orphan = true
		release(t, mine, orphan)
		wake("something that nobody held is cleaned up")

		take(t, other, "D", k, quiet)
		if rel := release(t, other, held("D", k, quiet)); rel.Others != 1 {
			t.Errorf("%d others wait, want 1", rel.Others)
		}
		wake("one of several keys is freed")
		w.Remove(k)
		w.Close()
		if len(woken) > 0 {
			t.Error("woken once more: what a process releases itself wakes nobody in it")
		}
	})
	t.Run("a TTL is exact to the millisecond", func(t *testing.T) {
		p := open(t)
		b := p.process(t)
		for _, ttl := range []time.Duration{800 * time.Millisecond, 1900 * time.Millisecond} {
			k := p.key(ttl.String())
			g, err := b.Acquire(ctx, Request{Keys: []string{k}, Token: "A", TTL: ttl})
			if err != nil || !g.Held {
				t.Fatal(g, err)
			}
			if left := p.left(k); left > ttl || left <= ttl-500*time.Millisecond {
				t.Errorf("TTL %v: %v left at once", ttl, left)
			}
			if _, err := b.Renew(ctx, Held{Keys: []string{k}, Token: "A", TTL: ttl}); err != nil {
				t.Fatal(err)
			}
			if left := p.left(k); left > ttl || left <= ttl-500*time.Millisecond {
				t.Errorf("TTL %v: %v left after a renewal", ttl, left)
			}
		}
	})
	t.Run("a context that is over sends nothing and says so", func(t *testing.T) {
		p := open(t)
		b, k := p.process(t), p.key("k")
		if _, isMemory := b.(*memoryClient); isMemory {
			return // it has nothing to wait for
		}
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := b.Acquire(ctx, Request{Keys: []string{k}, Token: "A", TTL: ttl}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("err = %v, want ErrUnavailable: nothing was done, for certain", err)
		}
		if p.left(k) > 0 {
			t.Error("it was sent")
		}
	})
}
