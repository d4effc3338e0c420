package dedup_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

func TestShortRequestCostsNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(deduptest.NewMemory())
		claim := begun(t, engineOn(t, s), buy("k"))
		<-time.After(9900 * time.Millisecond)
		if err := claim.Complete(t.Context(), dedup.Result{}, 0); err != nil || calls("renew") != 0 {
			t.Errorf("%v, %d renewals; want none in 9.9s", err, calls("renew"))
		}
		<-time.After(time.Minute)
		if calls("renew") != 0 {
			t.Error("renewed after its end")
		}
	})
}

func TestLongRequestIsRenewedAtAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(deduptest.NewMemory())
		d, other := engineOn(t, s), engineOn(t, s)
		claim := begun(t, d, buy("k"))
		<-time.After(95 * time.Second)
		if calls("renew") != 9 {
			t.Errorf("%d renewals in 95s, want 9", calls("renew"))
		}
		if _, _, err := other.Begin(t.Context(), buy("k")); !errors.Is(err, dedup.ErrInFlight) {
			t.Errorf("another got %v, want ErrInFlight", err)
		}
		if err := claim.Complete(t.Context(), dedup.Result{}, 0); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that fails is tried again soon, not at the next third, by when the lease would have ended.
func TestFailedRenewalsAreSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		memory := deduptest.NewMemory()
		s := &gate{Store: memory, before: func(_ context.Context, call string) error {
			if call == "renew" && away.Load() {
				return dedup.ErrUnavailable
			}
			return nil
		}}
		claim := begun(t, engineOn(t, s), buy("k"))
		ctx := claim.Context(t.Context())
		<-time.After(9 * time.Second)
		away.Store(true)
		<-time.After(14 * time.Second)
		away.Store(false)
		<-time.After(6 * time.Second) // 29 s: the next third would be due in 1 s, when the lease of the beginning ends
		other := dedup.BeginRequest{Owner: dedup.Owner{ID: claim.RequestID(), Token: "other"}, Lease: time.Second, TTL: time.Hour}
		if a, err := memory.Begin(t.Context(), other); err != nil || a.Verdict != dedup.VerdictInFlight || a.Rest < 20*time.Second {
			t.Errorf("another is told %+v, %v; want in flight for more than 20s", a, err)
		}
		if ctx.Err() != nil {
			t.Error("the work was cancelled")
		}
		if err := claim.Complete(t.Context(), dedup.Result{}, 0); err != nil {
			t.Error(err)
		}
	})
}

// A lease that could not be renewed is no reason to stop: as long as nobody has come, the result counts.
func TestLapseAloneNeitherCancelsNorCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		s := &gate{Store: deduptest.NewMemory(), before: func(_ context.Context, call string) error {
			if call == "renew" && away {
				return dedup.ErrUnavailable
			}
			return nil
		}}
		d := engineOn(t, s)
		claim := begun(t, d, buy("k"))
		ctx := claim.Context(t.Context())
		<-time.After(2 * time.Minute)
		if ctx.Err() != nil {
			t.Fatalf("cancelled with %v", context.Cause(ctx))
		}
		if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
			t.Fatalf("Complete: %v, want it accepted", err)
		}
		if rec := replayed(t, d, buy("k")); rec.Code != 201 || rec.Attempt != 1 {
			t.Errorf("replayed %+v", rec)
		}
	})
}

func TestTakeoverCancelsTheWorkAndItsResultIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		unrenewed := &gate{Store: memory, before: func(_ context.Context, call string) error {
			if call == "renew" && time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) < 35*time.Second {
				return dedup.ErrUnavailable
			}
			return nil
		}}
		d, other := engineOn(t, unrenewed), engineOn(t, memory)
		claim := begun(t, d, buy("k"))
		ctx := claim.Context(t.Context())
		<-time.After(31 * time.Second)
		second := begun(t, other, buy("k"))
		if second.Attempt() != 2 || !second.Takeover() {
			t.Errorf("attempt %d, takeover %v; want 2, true", second.Attempt(), second.Takeover())
		}
		var waiter answers
		waiter.begin(t.Context(), d, buy("k")) // waits for the first, which does not know yet
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, dedup.ErrLeaseLost) {
			t.Errorf("cause %v, want ErrLeaseLost", cause)
		}
		if late := claim.Context(t.Context()); !errors.Is(context.Cause(late), dedup.ErrLeaseLost) {
			t.Error("a context made after the loss is not cancelled")
		}
		if err := claim.Complete(t.Context(), dedup.Result{Code: 500}, 0); !errors.Is(err, dedup.ErrLeaseLost) {
			t.Errorf("Complete: %v, want ErrLeaseLost", err)
		}
		if err := second.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
			t.Error(err)
		}
		waiter.wg.Wait()
		if len(waiter.recs)+len(waiter.errs) != 1 || len(waiter.recs) == 1 && waiter.recs[0].Code != 201 {
			t.Errorf("the waiter got %v, %v; want the second's result or ErrInFlight", waiter.recs, waiter.errs)
		}
		if rec := replayed(t, d, buy("k")); rec.Code != 201 || rec.Attempt != 2 {
			t.Errorf("replayed %+v, want the second's", rec)
		}
	})
}

// Those who wait for a claim that was taken over learn the other's result.
func TestWaitersOfALostClaimFollowTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		d := engineOn(t, memory, dedup.Shorten{Lease: 300 * time.Millisecond}.Option())
		claim := begun(t, d, buy("k"))
		var waiter answers
		waiter.begin(t.Context(), d, buy("k"))
		synctest.Wait()
		o := dedup.Owner{ID: claim.RequestID(), Token: "other", Attempt: 1}
		steal(t, memory, claim.RequestID(), o)
		<-claim.Context(t.Context()).Done()
		if err := memory.Complete(t.Context(), dedup.Owner{ID: o.ID, Token: o.Token, Attempt: 2}, dedup.Result{Code: 201}, time.Hour); err != nil {
			t.Fatal(err)
		}
		waiter.wg.Wait()
		if len(waiter.recs) != 1 || waiter.recs[0].Code != 201 {
			t.Errorf("the waiter got %v, %v; want the other's result", waiter.recs, waiter.errs)
		}
		_ = claim.Fail(t.Context(), nil, nil)
	})
}

// The same where nobody knew before the end: what the lost claim has answered is not passed on.
func TestWaitersOfAClaimFoundLostAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		d := engineOn(t, memory)
		claim := begun(t, d, buy("k"))
		var waiter answers
		waiter.begin(t.Context(), d, buy("k"))
		synctest.Wait()
		o := dedup.Owner{ID: claim.RequestID(), Token: "other", Attempt: 2}
		steal(t, memory, claim.RequestID(), o)
		if err := claim.Complete(t.Context(), dedup.Result{Code: 200}, 0); !errors.Is(err, dedup.ErrLeaseLost) {
			t.Errorf("Complete: %v, want ErrLeaseLost", err)
		}
		if err := memory.Complete(t.Context(), o, dedup.Result{Code: 201}, time.Hour); err != nil {
			t.Fatal(err)
		}
		waiter.wg.Wait()
		if len(waiter.recs) != 1 || waiter.recs[0].Code != 201 {
			t.Errorf("the waiter got %+v, %v; want the other's result", waiter.recs, waiter.errs)
		}
	})
}

// steal replaces a running record by one of another owner, as a takeover would that nobody noticed.
func steal(t *testing.T, m *deduptest.Memory, id string, o dedup.Owner) {
	t.Helper()
	m.Remove(id)
	if a, err := m.Begin(t.Context(), dedup.BeginRequest{Owner: o, Lease: time.Hour, TTL: time.Hour}); err != nil || a.Verdict != dedup.VerdictRun {
		t.Fatalf("steal: %+v, %v", a, err)
	}
}

// A record that Redis has lost is no takeover: the work goes on and its result is written anew.
func TestVanishedRecordIsWrittenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		d := engineOn(t, memory)
		claim := begun(t, d, buy("k"))
		ctx := claim.Context(t.Context())
		memory.Remove(claim.RequestID())
		<-time.After(time.Minute)
		if ctx.Err() != nil {
			t.Fatalf("cancelled with %v", context.Cause(ctx))
		}
		if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
			t.Fatal(err)
		}
		if rec := replayed(t, d, buy("k")); rec.Code != 201 {
			t.Errorf("replayed %+v", rec)
		}
		other := buy("k")
		other.Fingerprint = []byte("another body")
		if _, _, err := d.Begin(t.Context(), other); !errors.Is(err, dedup.ErrMismatch) {
			t.Errorf("another body got %v, want ErrMismatch", err)
		}
	})
}

func TestWorkIsCancelledAfterFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(deduptest.NewMemory())
		d := engineOn(t, s)
		started := time.Now()
		claim := begun(t, d, buy("k"))
		ctx := claim.Context(t.Context())
		<-ctx.Done()
		if took := time.Since(started); took != 5*time.Minute || !errors.Is(context.Cause(ctx), dedup.ErrLeaseLost) {
			t.Errorf("cancelled after %v with %v, want 5m and ErrLeaseLost", took, context.Cause(ctx))
		}
		n := calls("renew")
		<-time.After(time.Minute)
		if calls("renew") != n {
			t.Error("renewed after that")
		}
		if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
			t.Errorf("Complete: %v; nobody has taken over", err)
		}
	})
}

func TestContextCarriesTheRequestAndEndsWithTheClaim(t *testing.T) {
	d := engineOn(t, deduptest.NewMemory())
	claim := begun(t, d, buy("k"))
	ctx := claim.Context(t.Context())
	r, ok := reqctx.RequestOf(ctx)
	if want := (reqctx.Request{ID: buy("k").ID(), Attempt: 1, Hash: buy("k").Hash()}); !ok || r != want {
		t.Errorf("the context carries %+v, want %+v", r, want)
	}
	e := dedup.FromContext(ctx)
	if e.RequestID() != buy("k").ID() || e.Attempt() != 1 || e.Takeover() {
		t.Errorf("FromContext: %q, %d, %v", e.RequestID(), e.Attempt(), e.Takeover())
	}
	second := claim.Context(t.Context())
	if err := claim.Forget(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{ctx, second, claim.Context(t.Context())} {
		if ctx.Err() != context.Canceled || errors.Is(context.Cause(ctx), dedup.ErrLeaseLost) {
			t.Errorf("after the end: %v, cause %v; want Canceled, not lost", ctx.Err(), context.Cause(ctx))
		}
	}
}

func TestExecutionIsNilSafe(t *testing.T) {
	e := dedup.FromContext(t.Context())
	e.Pin(time.Minute)
	e.NoStore()
	e.Commit()
	if e != nil || e.RequestID() != "" || e.Attempt() != 0 || e.Takeover() || e.Decision() != (dedup.Decision{}) {
		t.Errorf("an empty context has the execution %+v", e)
	}
	ctx := reqctx.WithRequest(t.Context(), reqctx.Request{ID: "id", Attempt: 3})
	e = dedup.FromContext(ctx)
	e.Commit()
	if e.RequestID() != "id" || e.Attempt() != 3 {
		t.Errorf("an id without a record gives %q, attempt %d", e.RequestID(), e.Attempt())
	}
}

func TestFurtherEndingsChangeNothing(t *testing.T) {
	s, calls := counted(deduptest.NewMemory())
	d := engineOn(t, s)
	claim := begun(t, d, buy("k"))
	if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for name, err := range map[string]error{
			"Complete": claim.Complete(t.Context(), dedup.Result{Code: 500}, 0), "Fail": claim.Fail(t.Context(), nil, nil), "Forget": claim.Forget(t.Context(), nil, nil),
		} {
			if err != nil {
				t.Errorf("%s after Complete: %v, want its nil", name, err)
			}
		}
	}
	if calls("") != 2 || replayed(t, d, buy("k")).Code != 201 {
		t.Errorf("%d commands, want 2, and the first result", calls(""))
	}
}

func TestEndingDoesNotEndWithTheCaller(t *testing.T) {
	d := engineOn(t, deduptest.NewMemory())
	claim := begun(t, d, buy("k"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := claim.Complete(ctx, dedup.Result{Code: 201}, 0); err != nil {
		t.Fatal(err)
	}
	if rec := replayed(t, d, buy("k")); rec.Code != 201 {
		t.Errorf("replayed %+v", rec)
	}
}

// Commit: the effect has happened, so no error, refusal or panic makes the request run again.
func TestCommitOutweighsFailure(t *testing.T) {
	share := &dedup.Result{Code: 202, Data: []byte("accepted")}
	tests := map[string]struct {
		end  func(c *dedup.Claim) error
		want dedup.Result
	}{
		"fail":             {func(c *dedup.Claim) error { return c.Fail(context.Background(), nil, nil) }, dedup.Result{Omitted: true}},
		"fail with share":  {func(c *dedup.Claim) error { return c.Fail(context.Background(), share, nil) }, *share},
		"forget":           {func(c *dedup.Claim) error { return c.Forget(context.Background(), nil, errors.New("x")) }, dedup.Result{Omitted: true}},
		"complete as told": {func(c *dedup.Claim) error { return c.Complete(context.Background(), *share, 0) }, *share},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := engineOn(t, deduptest.NewMemory())
			claim := begun(t, d, buy("k"))
			dedup.FromContext(claim.Context(t.Context())).Commit()
			if err := tt.end(claim); err != nil {
				t.Fatal(err)
			}
			rec := replayed(t, d, buy("k"))
			if rec.Code != tt.want.Code || string(rec.Data) != string(tt.want.Data) || rec.Omitted != tt.want.Omitted || !rec.Stored {
				t.Errorf("replayed %+v, want %+v", rec, tt.want)
			}
		})
	}
}

func TestDoObeysWhatTheWorkSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := engineOn(t, deduptest.NewMemory())
		run := func(key string, say func(e *dedup.Execution), fail error) (runs int) {
			for range 2 {
				_, _, _ = d.Do(t.Context(), buy(key), func(ctx context.Context) ([]byte, error) {
					runs++
					say(dedup.FromContext(ctx))
					return []byte("x"), fail
				})
			}
			return runs
		}
		boom := errors.New("boom")
		for name, tt := range map[string]struct {
			say  func(e *dedup.Execution)
			fail error
			want int
		}{
			"nothing":              {func(*dedup.Execution) {}, nil, 1},
			"nothing, and fails":   {func(*dedup.Execution) {}, boom, 2},
			"no store":             {(*dedup.Execution).NoStore, nil, 2},
			"commit, and fails":    {(*dedup.Execution).Commit, boom, 1},
			"commit and no store":  {func(e *dedup.Execution) { e.NoStore(); e.Commit() }, nil, 1},
			"pin":                  {func(e *dedup.Execution) { e.Pin(time.Minute) }, nil, 1},
			"pin for the TTL":      {func(e *dedup.Execution) { e.Pin(0) }, nil, 1},
			"pin for no time":      {func(e *dedup.Execution) { e.Pin(-time.Second) }, nil, 1},
			"pin under a millisec": {func(e *dedup.Execution) { e.Pin(time.Microsecond) }, nil, 1},
		} {
			if got := run(name, tt.say, tt.fail); got != tt.want {
				t.Errorf("%s: ran %d times of 2, want %d", name, got, tt.want)
			}
		}
		<-time.After(61 * time.Second)
		if got := run("pin", func(*dedup.Execution) {}, nil); got != 1 {
			t.Errorf("a minute after Pin(1m) it ran %d times of 2, want 1", got)
		}
	})
}

func TestPanicIsAFailureAndGoesOn(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := engineOn(t, deduptest.NewMemory())
				var waiter answers
				done := make(chan any)
				go func() {
					defer func() { done <- recover() }()
					_, _, _ = d.Do(t.Context(), buy("k"), func(context.Context) ([]byte, error) {
						waiter.begin(t.Context(), d, buy("k"))
						<-time.After(time.Second)
						end()
						return nil, nil
					})
				}()
				if got := <-done; name == "panic" && got != "boom" {
					t.Errorf("recovered %v, want the same value", got)
				}
				waiter.wg.Wait()
				if len(waiter.errs) != 1 || !errors.Is(waiter.errs[0], dedup.ErrUnavailable) {
					t.Errorf("the waiter got %v, want ErrUnavailable", waiter.errs)
				}
				next := begun(t, d, buy("k"))
				if next.Attempt() != 2 || next.Takeover() {
					t.Errorf("attempt %d, takeover %v; want 2, false", next.Attempt(), next.Takeover())
				}
				_ = next.Forget(t.Context(), nil, nil)
			})
		})
	}
}

// Whose own caller leaves does not decide for those who wait.
func TestNextBeginsWhenTheCallerOfTheFirstLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := engineOn(t, deduptest.NewMemory())
		work := func(ctx context.Context) ([]byte, error) {
			if dedup.FromContext(ctx).Attempt() == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []byte("second"), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go d.Do(ctx, buy("k"), work)
		synctest.Wait()
		res, replay, err := d.Do(t.Context(), buy("k"), work)
		if err != nil || replay || string(res) != "second" {
			t.Errorf("the waiter got %q, %v, %v; want to run itself", res, replay, err)
		}
	})
}

func TestDoTellsOfALostClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		d := engineOn(t, memory)
		res, _, err := d.Do(t.Context(), buy("k"), func(ctx context.Context) ([]byte, error) {
			steal(t, memory, buy("k").ID(), dedup.Owner{ID: buy("k").ID(), Token: "other"})
			return []byte("mine"), nil
		})
		if !errors.Is(err, dedup.ErrLeaseLost) || string(res) != "mine" {
			t.Errorf("got %q, %v; want the result with ErrLeaseLost", res, err)
		}
	})
}
