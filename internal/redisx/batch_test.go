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

// panics is the key of a send in which the hook panics.
const panics = "panics"

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
	if keys[0] == panics {
		panic("hook")
	}
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

// As soon as a batch is in flight there is a crowd, and two sends at once are enough: fewer batches are larger. When it
// is over, four may be in flight again.
func TestInACrowdTwoSendsAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		callers := func(n int) {
			for range n {
				asCaller(t, &wg, c, "k")
				synctest.Wait()
			}
		}
		sends := func(when string, want ...int) {
			t.Helper()
			var got []int
			for _, keys := range g.seen() {
				got = append(got, len(keys))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: sends of %v calls, want %v", when, got, want)
			}
		}
		reply := func() {
			g.let <- struct{}{}
			synctest.Wait()
		}
		callers(maxInFlight + 2)
		reply()
		sends("one came back", 1, 1, 1, 1, 2)
		callers(3)
		reply()
		reply()
		sends("one of the first and the batch are in flight", 1, 1, 1, 1, 2)
		reply()
		sends("the batch is in flight", 1, 1, 1, 1, 2, 3)
		reply()
		reply()
		callers(maxInFlight)
		sends("the crowd is gone", 1, 1, 1, 1, 2, 3, 1, 1, 1, 1)
		close(g.let)
		wg.Wait()
	})
}

// Every send gives its slot back when it returns, not when it would have stalled.
func TestSendsGiveTheirSlotsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range 20 * maxInFlight { // some of them alone, the others in a batch
			asCaller(t, &wg, c, fmt.Sprint(i))
		}
		synctest.Wait()
		close(g.let)
		wg.Wait()
		mustBeIdle(t, c)
	})
}

func mustBeIdle(t *testing.T, c *Client) {
	t.Helper()
	b := c.batcher("")
	if b.inFlight != 0 || b.batches != 0 || b.queue.first != nil {
		t.Errorf("with nothing on its way %d sends and %d batches count as in flight", b.inFlight, b.batches)
	}
	for i, s := range b.slots {
		if !s.since.IsZero() {
			t.Errorf("with nothing on its way slot %d is taken", i)
		}
	}
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

// What one call leaves behind is used for the next one, also when its caller has left: each still gets its own reply.
func TestCallsAreUsedAgain(t *testing.T) {
	c, g := gated(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if n%3 == 0 {
					go cancel() // before, while or after it is in the queue
				}
				key := fmt.Sprint(i, ":", n)
				if got, err := c.Once(ctx, echo, []string{key}, 1); err == nil && got != key || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("key %s: got %v, %v", key, got, err)
				}
				cancel()
			}
		})
	}
	for done := awaited(&wg); ; {
		select {
		case g.let <- struct{}{}:
		case <-done:
			return
		}
	}
}

// awaited returns a channel that is closed when wg is done.
func awaited(wg *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	return done
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

// However many queue behind a server that hangs, none of them queues for longer than that: it then sends alone, and what
// its client does about a server that hangs bounds the rest.
func TestNobodyQueuesForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("hangs", i))
		}
		synctest.Wait()
		const many = 20 * maxInFlight * maxBatch
		for i := range many {
			asCaller(t, &wg, c, fmt.Sprint("waits", i))
		}
		<-time.After(stalled + time.Millisecond)
		synctest.Wait()
		sent := 0
		for _, send := range g.seen() {
			sent += len(send)
		}
		if sent != maxInFlight+many {
			t.Errorf("%d of %d calls are on their way after %v", sent, maxInFlight+many, stalled)
		}
		close(g.let)
		wg.Wait()
		mustBeIdle(t, c)
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

// A send that hung keeps no slot that it has lost: its late reply lets nobody in beside those that are in flight, and
// frees nothing twice.
func TestLateReplyOfAStalledSendFreesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("hangs", i))
		}
		synctest.Wait()
		time.Sleep(stalled) //nolint:forbidigo // a fake clock
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("instead", i))
			synctest.Wait()
		}
		asCaller(t, &wg, c, "waits")
		synctest.Wait()
		for range maxInFlight { // replies come in the order of the sends: those that had hung
			g.let <- struct{}{}
		}
		synctest.Wait()
		if got := g.seen(); len(got) != 2*maxInFlight {
			t.Errorf("%d sends were made, want %d: none for a reply that came too late", len(got), 2*maxInFlight)
		}
		close(g.let)
		wg.Wait()
		mustBeIdle(t, c)
	})
}

// When several sends hang at once, all their room is used at once.
func TestAllStalledSendsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("hangs", i))
		}
		synctest.Wait()
		for i := range 2 * maxBatch {
			asCaller(t, &wg, c, fmt.Sprint("waits", i))
		}
		synctest.Wait()
		time.Sleep(stalled) //nolint:forbidigo // a fake clock
		synctest.Wait()
		if got := g.seen(); len(got) != maxInFlight+maxBatches {
			t.Errorf("%d sends were made, want %d that hang and %d batches", len(got), maxInFlight, maxBatches)
		}
		close(g.let)
		wg.Wait()
		mustBeIdle(t, c)
	})
}

// Who waits behind several sends that hang is sent when the first of them has, and the next one with the second.
func TestSlotsOfSendsThatHangAreReclaimedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("hangs", i))
			synctest.Wait()
			time.Sleep(stalled / 10) //nolint:forbidigo // a fake clock
		}
		for i := range 2 {
			asCaller(t, &wg, c, fmt.Sprint("waits", i))
			synctest.Wait()
			time.Sleep(stalled * (6 - 4*time.Duration(i)) / 10) //nolint:forbidigo // until the first has hung, and then some
			synctest.Wait()
			if got := g.seen(); len(got) != maxInFlight+1+i {
				t.Errorf("%d sends, want %d", len(got), maxInFlight+1+i)
			}
		}
		close(g.let)
		wg.Wait()
	})
}

// The watchdog that was set for one waiter, who is long gone, looks after the next one.
func TestAStalledSendIsFoundForALaterWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("hangs", i))
			synctest.Wait()
			time.Sleep(stalled / 10) //nolint:forbidigo // a fake clock
		}
		asCaller(t, &wg, c, "first") // the watchdog is set for the end of the first send's time
		synctest.Wait()
		g.let <- struct{}{} // which is answered
		synctest.Wait()
		asCaller(t, &wg, c, "second")
		synctest.Wait()
		time.Sleep(stalled * 7 / 10) //nolint:forbidigo // the second send has hung for long enough
		synctest.Wait()
		if got := g.seen(); len(got) != maxInFlight+2 {
			t.Errorf("%d sends, want %d: the second waiter is forgotten", len(got), maxInFlight+2)
		}
		close(g.let)
		wg.Wait()
	})
}

// Whoever leaves the queue, from whatever place, is out of it, and the others go in their order.
func TestLeavingTheQueueKeepsTheOrderOfTheRest(t *testing.T) {
	for gone := range 4 {
		var b batcher
		for range maxBatch { // one batch is on its way already
			b.queue.push(&call{})
		}
		var calls []*call
		for range 4 {
			c := &call{turn: make(chan turn, 1)}
			b.queue.push(c)
			calls = append(calls, c)
		}
		b.queue.cut()
		if !b.leave(calls[gone]) || b.leave(calls[gone]) {
			t.Fatalf("call %d: leave must return true once", gone)
		}
		want := slices.Delete(slices.Clone(calls), gone, gone+1)
		var got []*call
		for c := b.queue.cut(); c != nil; c = c.next {
			got = append(got, c)
		}
		if !slices.Equal(got, want) || b.queue.first != nil || b.queue.last != nil {
			t.Errorf("without call %d: got %v, want %v and an empty queue", gone, got, want)
		}
	}
}

// A batch is cut where another node begins, and where it would be too large.
func TestWhereABatchIsCut(t *testing.T) {
	one, other := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), redis.NewClient(&redis.Options{Addr: "127.0.0.1:2"})
	defer one.Close()
	defer other.Close()
	for _, tc := range []struct {
		name  string
		calls []call
		want  []int
	}{
		{"another node", []call{{node: one}, {node: one}, {node: other}, {node: one}}, []int{2, 1, 1}},
		{"too many bytes", []call{{node: one}, {node: one, bytes: maxBytes}, {node: one, bytes: 1}}, []int{2, 1}},
		{"a large first call goes with small ones", []call{{node: one, bytes: 2 * maxBytes}, {node: one, bytes: 1}}, []int{2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var q callQueue
			for i := range tc.calls {
				q.push(&tc.calls[i])
			}
			var got []int
			for lead := q.cut(); lead != nil; lead = q.cut() {
				n := 0
				for c := lead; c != nil; c = c.next {
					n++
				}
				got = append(got, n)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("batches of %v calls, want %v", got, tc.want)
			}
		})
	}
}

// When a hook panics in a batch, its leader has the panic and the others an error: no answer is not an answer.
func TestPanicInABatchIsAnErrorForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := gated(t)
		var wg sync.WaitGroup
		for i := range maxInFlight {
			asCaller(t, &wg, c, fmt.Sprint("first", i))
		}
		synctest.Wait()
		wg.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the leader's panic was swallowed")
				}
			}()
			_, _ = c.Once(t.Context(), echo, []string{panics}, 1)
		})
		synctest.Wait()
		for i := range 2 {
			wg.Go(func() {
				if val, err := c.Once(t.Context(), echo, []string{fmt.Sprint("other", i)}, 1); KindOf(err) != Unknown {
					t.Errorf("got %v, %v; want an error of kind Unknown", val, err)
				}
			})
		}
		synctest.Wait()
		close(g.let)
		wg.Wait()
	})
}
