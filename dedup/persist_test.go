package dedup_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/dedup/deduptest"
)

// outage is a store that is away while it is down, and says what it was asked.
type outage struct {
	*gate
	down    atomic.Bool
	applied bool  // calls are carried out all the same: only the answers are missing
	err     error // what is answered while it is down
	n       func(call string) int
}

func newOutage(s dedup.Store) *outage {
	o := &outage{err: dedup.ErrUnavailable}
	o.gate, o.n = counted(s)
	count := o.before
	o.before = func(ctx context.Context, call string) error {
		_ = count(ctx, call)
		if o.down.Load() && !o.applied {
			return o.err
		}
		return nil
	}
	o.after = func(_ string, err error) error {
		if o.down.Load() {
			return o.err
		}
		return err
	}
	return o
}

// An answer that counts as done has left: whatever happens to the store, it is never the reason to run again.
func TestStoreIsAwayAtComplete(t *testing.T) {
	for name, lost := range map[string]bool{"nothing arrives": false, "only the replies are lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := deduptest.NewMemory()
				s := newOutage(memory)
				s.applied = lost
				if lost {
					s.err = dedup.ErrUnknownOutcome
				}
				d, other := engineOn(t, s), engineOn(t, memory)
				claim := begun(t, d, buy("k"))
				var waiter answers
				waiter.begin(t.Context(), d, buy("k"))
				synctest.Wait()

				s.down.Store(true)
				started := time.Now()
				err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0)
				if !errors.Is(err, s.err) {
					t.Errorf("Complete: %v, want %v", err, s.err)
				}
				if took := time.Since(started); took > 1100*time.Millisecond || took < 900*time.Millisecond || s.n("complete") < 4 {
					t.Errorf("%d tries in %v, want several in about a second", s.n("complete"), took)
				}
				waiter.wg.Wait()
				if len(waiter.recs) != 1 || waiter.recs[0].Code != 201 || waiter.recs[0].Stored {
					t.Errorf("who waited got %+v, %v; want the result, not stored", waiter.recs, waiter.errs)
				}
				begins := s.n("begin")
				if rec := replayed(t, d, buy("k")); rec.Code != 201 || s.n("begin") != begins {
					t.Errorf("who came later to this process got %+v with %d commands", rec, s.n("begin")-begins)
				}
				other2 := buy("k")
				other2.Fingerprint = []byte("another body")
				if _, _, err := d.Begin(t.Context(), other2); !errors.Is(err, dedup.ErrMismatch) {
					t.Errorf("another body got %v, want ErrMismatch", err)
				}
				if s.n("fail")+s.n("forget") != 0 {
					t.Error("the record was given up")
				}
				if !lost {
					if _, _, err := other.Begin(t.Context(), buy("k")); !errors.Is(err, dedup.ErrInFlight) {
						t.Errorf("elsewhere: %v, want ErrInFlight", err)
					}
				}

				<-time.After(10 * time.Second)
				s.down.Store(false)
				<-time.After(2 * time.Second)
				if d.Busy() != 0 {
					t.Error("still trying though the store is back")
				}
				if rec := replayed(t, other, buy("k")); rec.Code != 201 || !rec.Stored || rec.Attempt != 1 {
					t.Errorf("elsewhere, later: %+v, want the result", rec)
				}
			})
		})
	}
}

func TestGivingUpOnAResultEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		s := newOutage(memory)
		logs := &logbook{}
		d, other := engineOn(t, s, dedup.WithLogger(logs.logger())), engineOn(t, memory)
		claim := begun(t, d, buy("k"))
		s.down.Store(true)
		_ = claim.Complete(t.Context(), dedup.Result{Code: 201}, 0)
		<-time.After(28 * time.Second)
		if d.Busy() != 1 {
			t.Error("gave up before the lease has ended")
		}
		<-time.After(2 * time.Second)
		if d.Busy() != 0 {
			t.Error("still trying after the lease has ended")
		}
		if n := logs.count("outcome", "persist_failed"); n != 2 {
			t.Errorf("%d log records of persist_failed, want one at the request and one at the end", n)
		}
		next := begun(t, other, buy("k"))
		if !next.Takeover() || next.Attempt() != 2 {
			t.Errorf("attempt %d, takeover %v; want 2, true", next.Attempt(), next.Takeover())
		}
		_ = next.Fail(t.Context(), nil, nil)
	})
}

func TestDoReturnsAResultThatCouldNotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(deduptest.NewMemory())
		d := engineOn(t, s)
		res, _, err := d.Do(t.Context(), buy("k"), func(context.Context) ([]byte, error) {
			s.down.Store(true)
			time.AfterFunc(5*time.Second, func() { s.down.Store(false) })
			return []byte("done"), nil
		})
		if err != nil || string(res) != "done" {
			t.Errorf("got %q, %v; want the result: the work is done", res, err)
		}
		started, asked := time.Now(), s.n("begin")
		if rec := replayed(t, d, buy("k")); string(rec.Data) != "done" || time.Since(started) != 0 || s.n("begin") != asked {
			t.Errorf("the first who comes meanwhile gets %+v after %v", rec, time.Since(started))
		}
		<-time.After(10 * time.Second)
		if rec := replayed(t, d, buy("k")); string(rec.Data) != "done" || !rec.Stored {
			t.Errorf("later: %+v", rec)
		}
	})
}

// A failure that cannot be told frees the key as soon as the store is back, not only when the lease ends.
func TestStoreIsAwayAtFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		s := newOutage(memory)
		d, other := engineOn(t, s), engineOn(t, memory)
		claim := begun(t, d, buy("k"))
		s.down.Store(true)
		if err := claim.Fail(t.Context(), nil, nil); !errors.Is(err, dedup.ErrUnavailable) {
			t.Errorf("Fail: %v, want ErrUnavailable", err)
		}
		<-time.After(5 * time.Second)
		s.down.Store(false)
		<-time.After(2 * time.Second)
		next := begun(t, other, buy("k"))
		if next.Attempt() != 2 || next.Takeover() {
			t.Errorf("attempt %d, takeover %v; want 2, false", next.Attempt(), next.Takeover())
		}
		_ = next.Fail(t.Context(), nil, nil)
	})
}

func TestTooManyResultsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(deduptest.NewMemory())
		logs := &logbook{}
		d := engineOn(t, s, dedup.WithLogger(logs.logger()), dedup.Shorten{Pending: 2}.Option())
		var claims []*dedup.Claim
		for _, key := range []string{"a", "b", "c"} {
			claims = append(claims, begun(t, d, buy(key)))
		}
		s.down.Store(true)
		for _, c := range claims {
			_ = c.Complete(t.Context(), dedup.Result{}, 0)
		}
		if d.Busy() != 2 {
			t.Errorf("%d are tried in the background, want 2", d.Busy())
		}
		if n := logs.count("outcome", "persist_failed"); n != 4 {
			t.Errorf("%d log records of persist_failed, want 3 and one more for the third", n)
		}
		s.down.Store(false)
		<-time.After(3 * time.Second)
	})
}

// A begin whose reply never came is undone, so that the key is not blocked by nobody for a whole lease.
func TestLostBeginIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		s := newOutage(memory)
		s.applied, s.err = true, dedup.ErrUnknownOutcome
		s.down.Store(true)
		d, other := engineOn(t, s), engineOn(t, memory)
		if _, _, err := d.Begin(t.Context(), buy("k")); !errors.Is(err, dedup.ErrUnknownOutcome) {
			t.Fatalf("Begin: %v, want ErrUnknownOutcome", err)
		}
		if s.n("begin") != 2 {
			t.Errorf("asked %d times, want twice with the same token", s.n("begin"))
		}
		s.down.Store(false)
		<-time.After(100 * time.Millisecond)
		claim := begun(t, other, buy("k"))
		if claim.Attempt() != 1 {
			t.Errorf("attempt %d, want 1: nobody has run", claim.Attempt())
		}
		<-time.After(2 * time.Second)
		if s.n("forget") < 2 {
			t.Error("it was undone only once: the begin may have been carried out after that")
		}
		if err := claim.Complete(t.Context(), dedup.Result{}, 0); err != nil {
			t.Errorf("the undoing of the other has undone this: %v", err)
		}
	})
}

func TestLostReplyToBeginIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(deduptest.NewMemory())
		s.after = func(call string, err error) error {
			if s.n("begin") == 1 {
				return dedup.ErrUnknownOutcome
			}
			return err
		}
		claim := begun(t, engineOn(t, s), buy("k"))
		if claim.Attempt() != 1 || claim.Takeover() || s.n("begin") != 2 {
			t.Errorf("attempt %d, takeover %v, %d questions; want 1, false, 2", claim.Attempt(), claim.Takeover(), s.n("begin"))
		}
		_ = claim.Forget(t.Context(), nil, nil)
	})
}

func TestBypass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(deduptest.NewMemory())
		s.down.Store(true)
		logs := &logbook{}
		d := engineOn(t, s, dedup.WithLogger(logs.logger()))
		free, released := 1, 0
		req := buy("k")
		req.Bypass = func() (func(), bool) {
			if free == 0 {
				return nil, false
			}
			free--
			return func() { free++; released++ }, true
		}
		claim := begun(t, d, req)
		ctx := claim.Context(t.Context())
		if e := dedup.FromContext(ctx); !claim.Bypassed() || e.Attempt() != 0 || e.RequestID() != req.ID() {
			t.Errorf("bypassed %v, attempt %d, id %q", claim.Bypassed(), e.Attempt(), e.RequestID())
		}
		other := req
		other.Key = "other"
		if _, _, err := d.Begin(t.Context(), other); !errors.Is(err, dedup.ErrUnavailable) {
			t.Errorf("the second at once got %v, want ErrUnavailable", err)
		}
		var waiter answers
		waiter.begin(t.Context(), d, req) // a repeat in this process waits all the same
		synctest.Wait()
		if err := claim.Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil || released != 1 {
			t.Errorf("Complete: %v, released %d times", err, released)
		}
		waiter.wg.Wait()
		if len(waiter.recs) != 1 || waiter.recs[0].Code != 201 || waiter.recs[0].Stored {
			t.Errorf("the waiter got %v, %v", waiter.recs, waiter.errs)
		}
		if s.n("complete")+s.n("renew")+s.n("fail")+s.n("forget") != 0 {
			t.Errorf("a request without a record has sent %d commands", s.n(""))
		}
		if logs.count("outcome", "bypassed") != 1 {
			t.Error("no log record of the bypass")
		}
		for _, end := range []func(c *dedup.Claim) error{
			func(c *dedup.Claim) error { return c.Fail(context.Background(), nil, nil) },
			func(c *dedup.Claim) error { return c.Forget(context.Background(), nil, nil) },
		} {
			if err := end(begun(t, d, req)); err != nil {
				t.Error(err)
			}
		}
		s.down.Store(false)
		claim = begun(t, d, req)
		if claim.Bypassed() || released != 3 || free != 1 {
			t.Errorf("bypassed %v though the store is back; released %d", claim.Bypassed(), released)
		}
		_ = claim.Forget(t.Context(), nil, nil)
	})
}

// A success can be withdrawn later: who asks before a replay decides.
func TestStillTrueDecidesBeforeAReplay(t *testing.T) {
	d := engineOn(t, deduptest.NewMemory())
	withdrawn := errors.New("the hold was released")
	req := buy("k")
	var asked []int
	var answer error
	req.StillTrue = func(_ context.Context, rec *dedup.Record) error {
		asked = append(asked, rec.Code)
		return answer
	}
	if err := begun(t, d, req).Complete(t.Context(), dedup.Result{Code: 201}, 0); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 0 {
		t.Error("asked before the first execution")
	}
	replayed(t, d, req)
	answer = withdrawn
	if _, rec, err := d.Begin(t.Context(), req); !errors.Is(err, withdrawn) || rec != nil {
		t.Errorf("got %v, %v; want the error of StillTrue", rec, err)
	}
	if len(asked) != 2 || asked[0] != 201 {
		t.Errorf("asked about %v, want 201 twice", asked)
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := engineOn(t, deduptest.NewMemory())
		claim := begun(t, d, buy("k"))
		ctx := claim.Context(t.Context())
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close with an open claim: %v, want the deadline", err)
		}
		if !errors.Is(context.Cause(ctx), dedup.ErrLeaseLost) {
			t.Errorf("the work's context ends with %v, want ErrLeaseLost", context.Cause(ctx))
		}
		if _, _, err := d.Begin(t.Context(), buy("other")); !errors.Is(err, dedup.ErrClosed) {
			t.Errorf("Begin after Close: %v, want ErrClosed", err)
		}
		if err := claim.Complete(t.Context(), dedup.Result{}, 0); err != nil {
			t.Errorf("the work ends all the same: %v", err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Errorf("Close with nothing open: %v", err)
		}
	})
}

func TestCloseWaitsForEveryClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := engineOn(t, deduptest.NewMemory())
		for n, key := range []string{"a", "b", "c"} {
			claim := begun(t, d, buy(key))
			time.AfterFunc(time.Duration(n+1)*time.Second, func() { _ = claim.Complete(context.Background(), dedup.Result{}, 0) })
		}
		started := time.Now()
		if err := d.Close(t.Context()); err != nil || time.Since(started) != 3*time.Second {
			t.Errorf("Close returned %v after %v, want nil after 3s", err, time.Since(started))
		}
	})
}

func TestCloseWaitsForResultsOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := deduptest.NewMemory()
		s := newOutage(memory)
		d := engineOn(t, s)
		claim := begun(t, d, buy("k"))
		s.down.Store(true)
		_ = claim.Complete(t.Context(), dedup.Result{Code: 201}, 0)
		time.AfterFunc(5*time.Second, func() { s.down.Store(false) })
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rec := replayed(t, engineOn(t, memory), buy("k")); rec.Code != 201 {
			t.Errorf("after Close: %+v", rec)
		}
	})
}
