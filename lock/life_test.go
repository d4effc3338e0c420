package lock

import (
	"context"
	"errors"
	"testing"
	"time"
)

// lostBecause fails the test unless err is that of a lease lost for the reason.
func lostBecause(t testing.TB, err error, why LostReason) {
	t.Helper()
	var lost *LostError
	if !errors.As(err, &lost) || lost.Reason != why || !errors.Is(err, ErrLost) {
		t.Errorf("err = %v, want ErrLost, reason %q", err, why)
	}
}

func tells(ctx context.Context) error { return context.Cause(ctx) }

// B10: work that takes longer than the TTL keeps its lock by renewal, and a rival never enters.
func TestWorkLongerThanTheTTLKeepsItsLock(t *testing.T) {
	for _, times := range []time.Duration{25, 100} { // tenths of the TTL
		bubble(t, []Option{TTL(time.Second), MaxHold(0)}, func(t *testing.T, l *Locker, m *memory) {
			rival := with(t, m.client(), Wait(0))
			defer rival.Close(t.Context())
			lease := must(t, l, keys("a"))
			ctx := lease.Context(t.Context())
			for range 10 * times {
				pass(10 * time.Millisecond)
				if _, ok, err := rival.TryAcquire(t.Context(), keys("a")); ok || err != nil {
					t.Fatalf("a rival entered: %v, %v", ok, err)
				}
			}
			if ctx.Err() != nil || lease.Err() != nil {
				t.Errorf("the work was told to stop: %v", tells(ctx))
			}
			free(t, lease)
		})
	}
}

// D36: renewal is due at a third of the TTL, so that two more attempts fit before the end.
// D33: each renewal starts the whole TTL anew, to the millisecond.
func TestRenewalIsDueAtAThirdOfTheTTL(t *testing.T) {
	bubble(t, []Option{TTL(1800 * time.Millisecond)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		for i := range 5 {
			pass(599 * time.Millisecond)
			if n := m.count("renew"); n != i {
				t.Fatalf("%d renewals before the time of number %d", n, i+1)
			}
			pass(time.Millisecond)
			if n := m.count("renew"); n != i+1 {
				t.Fatalf("%d renewals at the time of number %d", n, i+1)
			}
			if left := m.left("lock:a"); left != 1800*time.Millisecond {
				t.Errorf("TTL after a renewal is %v, want 1.8s", left)
			}
		}
		free(t, lease)
	})
}

// D36, B10 and (7): one renewal without an answer, or two in a row, are survived without a signal to the work.
func TestLeaseSurvivesRenewalsWithoutAnAnswer(t *testing.T) {
	for _, dropped := range []int{1, 2} {
		for name, fault := range map[string]error{"unknown": ErrUnknownOutcome, "unavailable": ErrUnavailable, "anything else": errors.New("script fault")} {
			t.Run(name, func(t *testing.T) {
				bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
					lease := must(t, l, keys("a"))
					ctx := lease.Context(t.Context())
					left := dropped
					m.failing(func(step, _ string) (bool, error) {
						if step != "renew" || left == 0 {
							return true, nil
						}
						left--
						return false, fault
					})
					pass(10 * time.Second)
					if err := lease.Err(); err != nil || ctx.Err() != nil {
						t.Errorf("after %d dropped renewals: %v, context %v", dropped, err, tells(ctx))
					}
					free(t, lease)
				})
			})
		}
	}
}

// A renewal that failed is repeated by the back-off table, not a third of the TTL later.
func TestFailedRenewalIsRepeatedEarly(t *testing.T) {
	bubble(t, []Option{TTL(30 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		m.failing(func(step, _ string) (bool, error) { return step != "renew", ErrUnavailable })
		pass(10*time.Second + 60*time.Millisecond)
		if n := m.count("renew"); n != 2 {
			t.Errorf("%d renewals 60 ms after the first failed, want 2", n)
		}
		pass(120 * time.Millisecond)
		if n := m.count("renew"); n != 3 {
			t.Errorf("%d renewals 180 ms after the first failed, want 3", n)
		}
		m.failing(func(string, string) (bool, error) { return true, nil })
		free(t, lease)
	})
}

// (6): when no renewal gets through, the work is told at the safe deadline, before the server's TTL can have ended.
func TestUnconfirmedLeaseEndsBeforeARivalCanEnter(t *testing.T) {
	bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		start := time.Now()
		lease := must(t, l, keys("a"))
		ctx := lease.Context(t.Context())
		m.failing(func(step, _ string) (bool, error) { return false, ErrUnknownOutcome })
		<-ctx.Done()
		lostBecause(t, tells(ctx), Unconfirmed)
		lostBecause(t, lease.Err(), Unconfirmed)
		if got, want := time.Since(start), 3*time.Second-30*time.Millisecond-2*time.Millisecond; got != want {
			t.Errorf("told after %v, want %v: TTL - 1 %% - 2 ms", got, want)
		}
		if m.left("lock:a") <= 0 {
			t.Error("the key had ended before the work was told")
		}
		lostBecause(t, lease.Release(t.Context()), Unconfirmed)
		m.failing(func(string, string) (bool, error) { return true, nil })
	})
}

// B11: the key is deleted behind the holder. Within a third of the TTL the work is told, renewal ends, and nothing is
// made anew. The same if somebody else has it by then, whose lock stays untouched.
func TestHolderIsToldThatItsKeyIsGone(t *testing.T) {
	for why, token := range map[LostReason]string{Gone: "", Taken: "somebody else"} {
		t.Run(string(why), func(t *testing.T) {
			bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
				lease := must(t, l, keys("a"))
				ctx := lease.Context(t.Context())
				m.set("lock:a", token, time.Hour)
				pass(time.Second)
				if ctx.Err() == nil {
					t.Fatal("not told within a third of the TTL")
				}
				lostBecause(t, tells(ctx), why)
				renewals := m.count("renew")
				pass(time.Minute)
				if n := m.count("renew"); n != renewals {
					t.Errorf("%d renewals after the loss", n-renewals)
				}
				lostBecause(t, lease.Release(t.Context()), why)
				if got := m.token("lock:a"); got != token {
					t.Errorf("the key has %q, want %q", got, token)
				}
				if ctx := lease.Context(t.Context()); !errors.Is(tells(ctx), ErrLost) {
					t.Errorf("a context made after the loss: %v", tells(ctx))
				}
			})
		})
	}
}

// After MaxHold renewal stops and the work is told; the key is left to run out, so that the work has time to stop. With
// 0, written out, there is no limit.
func TestMaxHold(t *testing.T) {
	bubble(t, []Option{TTL(3 * time.Second), MaxHold(10 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		start := time.Now()
		lease := must(t, l, keys("a"))
		ctx := lease.Context(t.Context())
		<-ctx.Done()
		lostBecause(t, tells(ctx), HeldTooLong)
		if got := time.Since(start); got != 10*time.Second {
			t.Errorf("told after %v, want 10s", got)
		}
		if left := m.left("lock:a"); left < 2*time.Second {
			t.Errorf("%v left for the work to stop, want two thirds of the TTL", left)
		}
		lostBecause(t, lease.Release(t.Context()), HeldTooLong)
		if m.token("lock:a") != "" {
			t.Error("the work has stopped and released, and the key is still there")
		}
	})
	bubble(t, []Option{TTL(3 * time.Second), MaxHold(0)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		pass(time.Hour)
		if err := lease.Err(); err != nil {
			t.Errorf("without a limit: %v", err)
		}
		free(t, lease)
	})
}

// Err goes by the clock at the call: a process that was stopped may look before any timer has fired.
func TestErrIsByTheClock(t *testing.T) {
	bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		ctx := lease.Context(t.Context())
		lease.h.mu.Lock()
		lease.h.safe = time.Now() // as if the process had been stopped until now
		lease.h.mu.Unlock()
		lostBecause(t, lease.Err(), Unconfirmed)
		lostBecause(t, tells(ctx), Unconfirmed)
		lostBecause(t, lease.Release(t.Context()), Unconfirmed)
	})
}

// A reply to an old renewal that arrives after the lease was released, or lost, changes nothing.
func TestRenewalOnItsWayWhenTheLeaseEnds(t *testing.T) {
	bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		slow := &slowRenewals{memoryClient: m.client(), gate: make(chan struct{})}
		l2 := with(t, slow, TTL(3*time.Second))
		lease := must(t, l2, keys("a"))
		pass(time.Second)
		free(t, lease)
		close(slow.gate)
		pass(time.Minute)
		if m.token("lock:a") != "" {
			t.Error("the key came back")
		}
		if err := l2.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slowRenewals answers renewals when its gate opens.
type slowRenewals struct {
	*memoryClient
	gate chan struct{}
}

func (s *slowRenewals) Renew(ctx context.Context, h Held) (State, error) {
	<-s.gate
	return s.memoryClient.Renew(ctx, h)
}

// A backend that hangs is asked again, but not without end: a few questions for each lease are on their way at most, and
// the deadline does not wait for any of them.
func TestHangingRenewalsAreBoundedAndDoNotDelayTheDeadline(t *testing.T) {
	bubble(t, nil, func(t *testing.T, _ *Locker, m *memory) {
		slow := &slowRenewals{memoryClient: m.client(), gate: make(chan struct{})}
		l := with(t, slow, TTL(30*time.Second))
		start := time.Now()
		lease := must(t, l, keys("a"))
		ctx := lease.Context(t.Context())
		<-ctx.Done()
		if got := time.Since(start); got != safeUntil(start, 30*time.Second).Sub(start) {
			t.Errorf("told after %v", got)
		}
		lostBecause(t, tells(ctx), Unconfirmed)
		if lease.h.inFlight != mostInFlight {
			t.Errorf("%d renewals on their way, want %d", lease.h.inFlight, mostInFlight)
		}
		close(slow.gate)
		_ = lease.Release(t.Context())
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// B12 and D37: only leases that are held are registered for renewal; nothing is left after the release.
func TestReleasedLeaseIsNotRegistered(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		for range 100 {
			free(t, must(t, l, keys("a", "b")))
		}
		if n := l.renewals.Len(); n != 0 {
			t.Errorf("%d entries left for renewal, want 0", n)
		}
		pass(time.Hour)
		if n := m.count("renew"); n != 0 {
			t.Errorf("%d renewals of released leases", n)
		}
	})
}

// A lease over several keys that loses one of them gives the others back when it is released: nobody has to wait for the
// rest of their TTL.
func TestWhatIsLeftOfALostLeaseIsGivenBack(t *testing.T) {
	bubble(t, []Option{TTL(time.Minute)}, func(t *testing.T, l *Locker, m *memory) {
		for why, token := range map[LostReason]string{Gone: "", Taken: "another"} {
			lease := must(t, l, keys("a", "b", "c"))
			m.set("lock:b", token, time.Hour)
			pass(21 * time.Second) // to the first renewal
			lostBecause(t, lease.Err(), why)
			lostBecause(t, lease.Release(t.Context()), why)
			for _, key := range keys("lock:a", "lock:c") {
				if m.token(key) != "" {
					t.Errorf("%s: %s is still taken", why, key)
				}
			}
			if m.token("lock:b") != token {
				t.Errorf("%s: what is there now was taken away", why)
			}
			m.set("lock:b", "", 0)
		}
	})
}
