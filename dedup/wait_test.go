package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
)

// counted counts the calls of a store.
func counted(s dedup.Store) (*gate, func(call string) int) {
	var mu sync.Mutex
	calls := map[string]int{}
	g := &gate{Store: s, before: func(_ context.Context, call string) error {
		mu.Lock()
		defer mu.Unlock()
		calls[call]++
		calls[""]++
		return nil
	}}
	return g, func(call string) int {
		mu.Lock()
		defer mu.Unlock()
		return calls[call]
	}
}

// answers collects what many calls of Begin got.
type answers struct {
	mu   sync.Mutex
	recs []*dedup.Record
	errs []error
	ran  []*dedup.Claim
	wg   sync.WaitGroup
}

func (a *answers) begin(ctx context.Context, d *dedup.Dedup, req dedup.Request) {
	a.wg.Go(func() {
		claim, rec, err := d.Begin(ctx, req)
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case claim != nil:
			a.ran = append(a.ran, claim)
		case rec != nil:
			a.recs = append(a.recs, rec)
		default:
			a.errs = append(a.errs, err)
		}
	})
}

func TestThousandDuplicatesInOneProcessCostTwoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(deduptest.NewMemory())
		d := engineOn(t, s)
		var runs atomic.Int32
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				res, _, err := d.Do(t.Context(), buy("k"), func(context.Context) ([]byte, error) {
					runs.Add(1)
					<-time.After(time.Second)
					return []byte("order 1"), nil
				})
				if err != nil || string(res) != "order 1" {
					t.Errorf("got %q, %v", res, err)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 || calls("") != 2 {
			t.Errorf("%d executions with %d commands, want 1 with 2", runs.Load(), calls(""))
		}
	})
}

func TestWaiterGetsTheAnswerOfTheLeader(t *testing.T) {
	ok := &dedup.Result{Code: 201, Data: []byte("order")}
	bad := &dedup.Result{Code: 400, Data: []byte("bad")}
	boom := errors.New("boom")
	tests := map[string]struct {
		end        func(c *dedup.Claim) error
		wantRec    *dedup.Result
		wantStored bool
		wantErr    error
		wantCalls  int // of begin, by two waiters
	}{
		"completed":             {func(c *dedup.Claim) error { return c.Complete(context.Background(), *ok, 0) }, ok, true, nil, 0},
		"failed, shared":        {func(c *dedup.Claim) error { return c.Fail(context.Background(), bad, nil) }, bad, false, nil, 0},
		"forgotten, shared":     {func(c *dedup.Claim) error { return c.Forget(context.Background(), bad, nil) }, bad, false, nil, 0},
		"failed, with a cause":  {func(c *dedup.Claim) error { return c.Fail(context.Background(), nil, boom) }, nil, false, boom, 0},
		"forgotten, with cause": {func(c *dedup.Claim) error { return c.Forget(context.Background(), nil, boom) }, nil, false, boom, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, calls := counted(deduptest.NewMemory())
				d := engineOn(t, s)
				leader := begun(t, d, buy("k"))
				var waiters answers
				for range 2 {
					waiters.begin(t.Context(), d, buy("k"))
				}
				synctest.Wait()
				if d.Waiting() != 2 {
					t.Fatalf("%d wait, want 2", d.Waiting())
				}
				if err := tt.end(leader); err != nil {
					t.Fatal(err)
				}
				waiters.wg.Wait()
				if tt.wantRec != nil {
					for _, rec := range waiters.recs {
						if rec.Code != tt.wantRec.Code || string(rec.Data) != string(tt.wantRec.Data) || rec.Stored != tt.wantStored || !rec.Waited || rec.Attempt != 1 {
							t.Errorf("a waiter got %+v, want %+v, stored %v, waited", rec, tt.wantRec, tt.wantStored)
						}
					}
					if len(waiters.recs) != 2 {
						t.Errorf("%d of 2 waiters got a record; errors %v", len(waiters.recs), waiters.errs)
					}
				}
				if tt.wantErr != nil && (len(waiters.errs) != 2 || !errors.Is(waiters.errs[0], tt.wantErr)) {
					t.Errorf("waiters got errors %v, want %v twice", waiters.errs, tt.wantErr)
				}
				if got := calls("begin") - 1; got != tt.wantCalls {
					t.Errorf("waiters asked the store %d times, want %d", got, tt.wantCalls)
				}
			})
		})
	}
}

// Where nothing is shared, n copies do not begin at once but one after the other.
func TestNextWaiterBeginsWhereNothingIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(deduptest.NewMemory())
		d := engineOn(t, s)
		leader := begun(t, d, buy("k"))
		var waiters answers
		for range 3 {
			waiters.begin(t.Context(), d, buy("k"))
		}
		synctest.Wait()
		if err := leader.Fail(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(waiters.ran) != 1 || d.Waiting() != 2 || calls("begin") != 2 {
			t.Fatalf("%d run, %d wait, %d begins; want 1, 2, 2", len(waiters.ran), d.Waiting(), calls("begin"))
		}
		next := waiters.ran[0]
		if next.Attempt() != 2 || next.Takeover() {
			t.Errorf("attempt %d, takeover %v; want 2, false", next.Attempt(), next.Takeover())
		}
		if err := next.Complete(t.Context(), dedup.Result{Code: 200}, 0); err != nil {
			t.Fatal(err)
		}
		waiters.wg.Wait()
		if len(waiters.recs) != 2 {
			t.Errorf("%d got the result, want 2; errors %v", len(waiters.recs), waiters.errs)
		}
	})
}

func TestWaitEndsAfterTwoSeconds(t *testing.T) {
	for _, where := range []string{"in this process", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := deduptest.NewMemory()
				here, there := engineOn(t, s), engineOn(t, s)
				running := begun(t, here, buy("k"))
				defer running.Forget(t.Context(), nil, nil)
				d := here
				if where == "elsewhere" {
					d = there
				}
				started := time.Now()
				_, _, err := d.Begin(t.Context(), buy("k"))
				var e *dedup.Error
				if !errors.Is(err, dedup.ErrInFlight) || !errors.As(err, &e) || e.RetryAfter() != time.Second || !e.Retryable() || e.Waited != 2*time.Second {
					t.Errorf("got %v, want ErrInFlight after 2s, to be tried again after 1s", err)
				}
				if waited := time.Since(started); waited != 2*time.Second {
					t.Errorf("waited %v, want 2s", waited)
				}
			})
		})
	}
}

func TestWaitEndsWithTheCaller(t *testing.T) {
	left := errors.New("the client left")
	for _, where := range []string{"in this process", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := deduptest.NewMemory()
				here, there := engineOn(t, s), engineOn(t, s)
				running := begun(t, here, buy("k"))
				defer running.Forget(t.Context(), nil, nil)
				d := here
				if where == "elsewhere" {
					d = there
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(300*time.Millisecond, func() { cancel(left) })
				started := time.Now()
				_, _, err := d.Begin(ctx, buy("k"))
				if !errors.Is(err, dedup.ErrInFlight) || !errors.Is(err, left) || time.Since(started) != 300*time.Millisecond {
					t.Errorf("got %v after %v, want ErrInFlight and the caller's cause after 300ms", err, time.Since(started))
				}
			})
		})
	}
}

func TestCallerWhoHasLeftAlreadySendsNothing(t *testing.T) {
	s, calls := counted(deduptest.NewMemory())
	d := engineOn(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := d.Begin(ctx, buy("k")); !errors.Is(err, context.Canceled) || !errors.Is(err, dedup.ErrUnavailable) {
		t.Errorf("got %v, want context.Canceled and ErrUnavailable", err)
	}
	if calls("") != 0 {
		t.Errorf("%d commands, want 0", calls(""))
	}
}

// Where the request runs elsewhere, one of a process asks for all, with growing pauses; when it leaves another asks on.
func TestOnePollerForAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		elsewhere := begun(t, engineOn(t, memory), buy("k"))
		s, calls := counted(memory)
		d := engineOn(t, s)
		var waiters answers
		impatient, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		waiters.begin(impatient, d, buy("k"))
		synctest.Wait()
		for range 50 {
			waiters.begin(t.Context(), d, buy("k"))
		}
		<-time.After(1500 * time.Millisecond)
		// 0, 25, 75, 175, 375 ms by the first, then at 500 ms the next one starts over; all +-20 %
		if n := calls("begin"); n < 9 || n > 14 {
			t.Errorf("%d questions in 1.5 s, want about 11", n)
		}
		if err := elsewhere.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
			t.Fatal(err)
		}
		waiters.wg.Wait()
		if len(waiters.recs) != 50 || len(waiters.errs) != 1 {
			t.Errorf("%d answers, %d errors; want 50 and that of the impatient one", len(waiters.recs), len(waiters.errs))
		}
		for _, rec := range waiters.recs {
			if !rec.Stored || !rec.Waited || rec.Code != 201 {
				t.Fatalf("a waiter got %+v", rec)
			}
		}
	})
}

func TestPollPausesGrowAndSpread(t *testing.T) {
	for n, base := range []time.Duration{25, 50, 100, 200, 250, 250, 250} {
		base *= time.Millisecond
		least, most := dedup.PollPause(n, 0), dedup.PollPause(n, 1)
		if least != base*8/10 || most != base*12/10 {
			t.Errorf("pause %d is %v to %v, want %v +-20 %%", n, least, most, base)
		}
	}
	if p := dedup.PollPause(1<<20, 0.5); p != 250*time.Millisecond {
		t.Errorf("a late pause is %v, want 250ms", p)
	}
}

// A lapsed lease elsewhere is taken over when it ends, not at the next round of questions.
func TestWaiterTakesOverWhenTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := deduptest.NewMemory()
		dead := dedup.BeginRequest{Owner: dedup.Owner{ID: buy("k").ID(), Token: "dead"}, Lease: 1100 * time.Millisecond, TTL: time.Hour}
		if _, err := s.Begin(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		claim := begun(t, engineOn(t, s), buy("k"))
		defer claim.Fail(t.Context(), nil, nil)
		if took := time.Since(started); took > 1110*time.Millisecond || claim.Attempt() != 2 || !claim.Takeover() {
			t.Errorf("taken over after %v as attempt %d, takeover %v; want 1.1s, 2, true", took, claim.Attempt(), claim.Takeover())
		}
	})
}

func TestWaitersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(deduptest.NewMemory())
		d := engineOn(t, s, dedup.Shorten{PerKey: 3, Waiters: 5}.Option())
		a, b := begun(t, d, buy("a")), begun(t, d, buy("b"))
		var waiters answers
		refused := func(key string) {
			t.Helper()
			started, before := time.Now(), calls("")
			if _, _, err := d.Begin(t.Context(), buy(key)); !errors.Is(err, dedup.ErrInFlight) || time.Since(started) != 0 || calls("") != before {
				t.Errorf("%s: got %v after %v and %d commands, want ErrInFlight at once", key, err, time.Since(started), calls("")-before)
			}
		}
		for range 3 {
			waiters.begin(t.Context(), d, buy("a"))
		}
		synctest.Wait()
		refused("a") // three wait for a
		for range 2 {
			waiters.begin(t.Context(), d, buy("b"))
		}
		synctest.Wait()
		refused("b") // five wait in all
		for _, c := range []*dedup.Claim{a, b} {
			if err := c.Complete(t.Context(), dedup.Result{}, 0); err != nil {
				t.Fatal(err)
			}
		}
		waiters.wg.Wait()
		if len(waiters.recs) != 5 || d.Waiting() != 0 {
			t.Errorf("%d got the result and %d wait, want 5 and 0", len(waiters.recs), d.Waiting())
		}
		c := begun(t, d, buy("c")) // the places are free again
		waiters.begin(t.Context(), d, buy("c"))
		synctest.Wait()
		_ = c.Complete(t.Context(), dedup.Result{}, 0)
		waiters.wg.Wait()
	})
}

// While the first is still asking, nobody knows which of two bodies the record belongs to: the store says.
func TestOnlyTheStoreSaysWhoseFingerprintItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		elsewhere := begun(t, engineOn(t, memory), buy("k"))
		asking := make(chan struct{})
		slow := &gate{Store: memory, before: func(_ context.Context, call string) error {
			if call == "begin" {
				<-asking
			}
			return nil
		}}
		d := engineOn(t, slow)
		other := buy("k")
		other.Fingerprint = []byte("another body")
		var wrong, right answers
		wrong.begin(t.Context(), d, other) // asks first, and is the wrong one
		synctest.Wait()
		right.begin(t.Context(), d, buy("k"))
		synctest.Wait()
		close(asking)
		wrong.wg.Wait()
		if len(wrong.errs) != 1 || !errors.Is(wrong.errs[0], dedup.ErrMismatch) {
			t.Errorf("the other body got %v, want ErrMismatch", wrong.errs)
		}
		if err := elsewhere.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
			t.Fatal(err)
		}
		right.wg.Wait()
		if len(right.recs) != 1 || right.recs[0].Code != 201 {
			t.Errorf("the same body got %v, %v; want the result", right.recs, right.errs)
		}
	})
}

func TestKnownMismatchCostsNoCommand(t *testing.T) {
	s, calls := counted(deduptest.NewMemory())
	d := engineOn(t, s)
	claim := begun(t, d, buy("k"))
	defer claim.Forget(t.Context(), nil, nil)
	other := buy("k")
	other.Fingerprint = []byte("another body")
	if _, _, err := d.Begin(t.Context(), other); !errors.Is(err, dedup.ErrMismatch) || calls("begin") != 1 {
		t.Errorf("got %v with %d questions, want ErrMismatch without one", err, calls("begin")-1)
	}
}

func TestStoreIsAwayForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(deduptest.NewMemory())
		count := s.before
		s.before = func(ctx context.Context, call string) error {
			_ = count(ctx, call)
			<-time.After(100 * time.Millisecond)
			return fmt.Errorf("refused: %w", dedup.ErrUnavailable)
		}
		d := engineOn(t, s)
		started := time.Now()
		var all answers
		for range 50 {
			all.begin(t.Context(), d, buy("k"))
		}
		all.wg.Wait()
		if len(all.errs) != 50 || time.Since(started) != 100*time.Millisecond || calls("") != 1 {
			t.Errorf("%d errors after %v and %d commands; want 50 after 100ms and 1", len(all.errs), time.Since(started), calls(""))
		}
		for _, err := range all.errs {
			if !errors.Is(err, dedup.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable", err)
			}
		}
	})
}

// A caller who leaves while the store is asked takes nobody along.
func TestLeavingAskerPassesTheQuestionOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		s := &gate{Store: deduptest.NewMemory(), before: func(ctx context.Context, call string) error {
			if call == "begin" && first {
				first = false
				<-ctx.Done()
				return &dedup.Error{Err: dedup.ErrUnavailable, Cause: ctx.Err()}
			}
			return nil
		}}
		d := engineOn(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var leaver, stayer answers
		leaver.begin(ctx, d, buy("k"))
		synctest.Wait()
		stayer.begin(t.Context(), d, buy("k"))
		leaver.wg.Wait()
		stayer.wg.Wait()
		if len(leaver.errs) != 1 || !errors.Is(leaver.errs[0], context.DeadlineExceeded) {
			t.Errorf("who left got %v", leaver.errs)
		}
		if len(stayer.ran) != 1 {
			t.Fatalf("who stayed got %v, %v; want to run", stayer.recs, stayer.errs)
		}
		_ = stayer.ran[0].Forget(t.Context(), nil, nil)
	})
}

// The last who waits leaves in the very moment in which it is its turn: the turn must not get lost.
func TestTurnIsNotLostWithAWaiterWhoLeaves(t *testing.T) {
	d := engineOn(t, deduptest.NewMemory())
	for range 3000 {
		leader := begun(t, d, buy("k"))
		ctx, cancel := context.WithCancel(t.Context())
		var waiter answers
		waiter.begin(ctx, d, buy("k"))
		for d.Waiting() == 0 {
			runtime.Gosched()
		}
		var wg sync.WaitGroup
		wg.Go(cancel)
		wg.Go(func() { _ = leader.Fail(context.Background(), nil, nil) })
		wg.Wait()
		waiter.wg.Wait()
		for _, next := range waiter.ran {
			_ = next.Fail(t.Context(), nil, nil)
		}
		if d.Busy() != 0 {
			t.Fatal("a turn is left that nobody takes")
		}
	}
}

func TestPanickingStoreHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		s := &gate{Store: deduptest.NewMemory(), before: func(context.Context, string) error {
			if broken {
				<-time.After(time.Millisecond)
				panic("broken")
			}
			return nil
		}}
		d := engineOn(t, s)
		var waiter answers
		func() {
			defer func() {
				if p := recover(); p != "broken" {
					t.Errorf("recovered %v, want the store's panic", p)
				}
			}()
			time.AfterFunc(time.Microsecond, func() { waiter.begin(t.Context(), d, buy("k")) })
			_, _, _ = d.Begin(t.Context(), buy("k"))
		}()
		waiter.wg.Wait()
		if len(waiter.errs) != 1 || !errors.Is(waiter.errs[0], dedup.ErrUnavailable) {
			t.Errorf("the waiter got %v, want ErrUnavailable", waiter.errs)
		}
		broken = false
		claim := begun(t, d, buy("k"))
		_ = claim.Forget(t.Context(), nil, nil)
	})
}
