package redisx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// gate is a client hook that answers by itself, without a server: each send waits until it is let through.
type gate struct {
	mu    sync.Mutex
	sends [][]string // first key of each call, a slice a send
	let   chan struct{}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return g.pass(ctx, cmd) }
}

func (g *gate) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return g.pass(ctx, cmds...) }
}

func (g *gate) pass(ctx context.Context, cmds ...redis.Cmder) error {
	var keys []string
	for _, c := range cmds {
		keys = append(keys, c.Args()[3].(string))
	}
	g.mu.Lock()
	g.sends = append(g.sends, keys)
	g.mu.Unlock()
	<-g.let
	for _, c := range cmds {
		c.(command).SetVal(c.Args()[3])
		c.SetErr(ctx.Err())
	}
	return ctx.Err()
}

func (g *gate) seen() [][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sends)
}

func gated(t *testing.T) (*Client, *gate) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never dialled
	t.Cleanup(func() { _ = rdb.Close() })
	g := &gate{let: make(chan struct{})}
	rdb.AddHook(g)
	c, err := Wrap(rdb)
	if err != nil {
		t.Fatal(err)
	}
	return c, g
}

// asCaller runs a script on the key in a goroutine and checks that it gets its own reply.
func asCaller(t *testing.T, wg *sync.WaitGroup, c *Client, key string) {
	wg.Go(func() {
		if got, err := c.Once(t.Context(), echo, []string{key}, 1); err != nil || got != key {
			t.Errorf("key %s: got %v, %v", key, got, err)
		}
	})
}

func TestCallsGatherWhileFourAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("first", i))
			synctest.Wait()
		}
		for i := range 10 {
			asCaller(t, &wg, c, fmt.Sprint("later", i))
			synctest.Wait()
		}
		if got := g.seen(); len(got) != maxInFlight {
			t.Fatalf("%d sends are out, want %d", len(got), maxInFlight)
		}
		g.let <- struct{}{} // one returns: all that have gathered leave together, in order
		synctest.Wait()
		want := []string{"later0", "later1", "later2", "later3", "later4", "later5", "later6", "later7", "later8", "later9"}
		if got := g.seen(); len(got) != maxInFlight+1 || !slices.Equal(got[maxInFlight], want) {
			t.Fatalf("the fifth send is %v, want %v", got[maxInFlight:], want)
		}
		close(g.let)
		wg.Wait()
	})
}

func TestBatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight + 2*maxBatch {
			asCaller(t, &wg, c, fmt.Sprint(i))
			synctest.Wait()
		}
		g.let <- struct{}{}
		synctest.Wait()
		if got := g.seen(); len(got[maxInFlight]) != maxBatch {
			t.Errorf("a batch of %d calls, want %d at most", len(got[maxInFlight]), maxBatch)
		}
		close(g.let)
		wg.Wait()
	})
}

func TestWhoQueuesLeavesWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("first", i))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.Once(ctx, echo, []string{"impatient"}, 1)
		if KindOf(err) != Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v (kind %d), want Unavailable: it was never sent", err, KindOf(err))
		}
		close(g.let)
		wg.Wait()
		for _, send := range g.seen() {
			if slices.Contains(send, "impatient") {
				t.Error("a call whose caller had left was sent")
			}
		}
	})
}

// A batch whose leader's context ends on the way still serves the others.
func TestLeadersContextIsNotTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("first", i))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _, _ = c.Once(ctx, echo, []string{"leader"}, 1) })
		synctest.Wait()
		asCaller(t, &wg, c, "other")
		synctest.Wait()
		g.let <- struct{}{}
		synctest.Wait()
		if got := g.seen()[maxInFlight]; !slices.Equal(got, []string{"leader", "other"}) {
			t.Fatalf("the batch is %v", got)
		}
		cancel()
		synctest.Wait()
		close(g.let)
		wg.Wait()
	})
}

// A server that hangs keeps four callers waiting, not all that come after them.
func TestASendThatHangsStopsCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("hangs", i))
		}
		synctest.Wait()
		start := time.Now()
		asCaller(t, &wg, c, "waits")
		synctest.Wait()
		for len(g.seen()) == maxInFlight {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a fake clock
			synctest.Wait()
		}
		if took := time.Since(start); took > stalled+10*time.Millisecond {
			t.Errorf("sent after %v, want %v", took, stalled)
		}
		close(g.let)
		wg.Wait()
	})
}

func TestPanicOfAHookReachesItsCallerAlone(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	rdb.AddHook(panicking{})
	c, err := Wrap(rdb)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * maxInFlight { // a slot that is never given back would end this
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = c.Once(t.Context(), echo, []string{"k"}, 1)
		}()
	}
}

type panicking struct{}

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }
func (panicking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("hook") }
}
func (panicking) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { panic("hook") }
}
