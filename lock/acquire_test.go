package lock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// busyBecause fails the test unless err is that of a lock that was not had for the reason.
func busyBecause(t testing.TB, err error, why BusyReason) *BusyError {
	t.Helper()
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Reason != why || !errors.Is(err, ErrBusy) {
		t.Fatalf("err = %v, want ErrBusy, reason %q", err, why)
	}
	return busy
}

// A05 and B06: one attempt has three answers that are never mixed up: a lease, busy, unavailable.
func TestOneAttemptHasThreeAnswers(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		rival := with(t, m.client())
		defer rival.Close(t.Context())

		lease, ok, err := l.TryAcquire(t.Context(), keys("a"))
		if lease == nil || !ok || err != nil {
			t.Fatalf("free: %v, %v, %v", lease, ok, err)
		}
		for name, who := range map[string]*Locker{"in this process": l, "in another one": rival} {
			start := time.Now()
			if x, ok, err := who.TryAcquire(t.Context(), keys("a")); x != nil || ok || err != nil {
				t.Errorf("held %s: TryAcquire %v, %v, %v; want nil, false, nil", name, x, ok, err)
			}
			_, err = who.Acquire(t.Context(), keys("a"), Wait(0))
			busyBecause(t, err, NoWait)
			if errors.Is(err, ErrUnavailable) {
				t.Errorf("held %s: the error is ErrUnavailable too", name)
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("held %s: the answers took %v", name, d)
			}
		}
		free(t, lease)

		heal := m.failing(func(string, string) (bool, error) { return false, ErrUnavailable })
		if x, ok, err := l.TryAcquire(t.Context(), keys("a")); x != nil || ok || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBusy) {
			t.Errorf("away: TryAcquire %v, %v, %v; want ErrUnavailable alone", x, ok, err)
		}
		if _, err := l.Acquire(t.Context(), keys("a")); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBusy) {
			t.Errorf("away: Acquire %v, want ErrUnavailable alone", err)
		}
		heal()
	})
}

// D25 and D40: a key that is never released is asked for as the back-off table allows, and the answer comes within its
// sum. The budget bounds the waiting from the call on.
func TestWaitingIsBoundedAndDoesNotSpin(t *testing.T) {
	bubble(t, []Option{TTL(time.Minute)}, func(t *testing.T, l *Locker, m *memory) {
		m.set("lock:a", "somebody else", time.Hour)
		start := time.Now()
		_, err := l.Acquire(t.Context(), keys("a"))
		busy := busyBecause(t, err, Budget)
		if d := time.Since(start); d != DefaultWait || busy.Waited != d {
			t.Errorf("answered after %v (says %v), want the budget of %v", d, busy.Waited, DefaultWait)
		}
		// 20 attempts by the table, up to a few more where jitter shortens waits, and one by the watch that begins.
		if busy.Attempts < 18 || busy.Attempts > 26 || m.count("acquire") != busy.Attempts {
			t.Errorf("%d attempts (%d seen), want about 20", busy.Attempts, m.count("acquire"))
		}
		if d := busy.RetryAfter(); d < 50*time.Minute || d > time.Hour {
			t.Errorf("RetryAfter %v, want the rest of the holder's lease", d)
		}
	})
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		m.set("lock:a", "somebody else", time.Hour)
		_, err := l.Acquire(t.Context(), keys("a"), Wait(time.Second))
		busyBecause(t, err, Budget)
		if n := m.count("acquire"); n > 8 { // at 0, 40, 120, 280, 600 at the earliest, at 1 s, and by the watch
			t.Errorf("%d commands in one second, the table allows 7", n)
		}
	})
}

// F009: TTL and wait budget are independent: neither shortens the other.
func TestWaitIsNotCappedByTheTTL(t *testing.T) {
	bubble(t, []Option{TTL(time.Second), Wait(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		holder := with(t, m.client(), TTL(time.Second))
		lease := must(t, holder, keys("a"))
		start := time.Now()
		_, err := l.Acquire(t.Context(), keys("a"))
		busyBecause(t, err, Budget)
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("waited %v, want 3s", d)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("the holder lost its lease: %v", err)
		}
		free(t, lease)
		if err := holder.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A04: a crash blocks the key for one TTL from the last renewal: a waiter enters then, never before and not much later.
func TestAfterACrashTheKeyIsFreeWithinTheTTL(t *testing.T) {
	bubble(t, []Option{TTL(10 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		m.set("lock:a", "somebody who crashed", 5*time.Second)
		start := time.Now()
		lease := must(t, l, keys("a"))
		if d := time.Since(start); d < 5*time.Second || d > 5*time.Second+10*time.Millisecond {
			t.Errorf("entered after %v, want 5s and at most 10 ms", d)
		}
		free(t, lease)
	})
}

// (3) and F010: a context that is over at entry sends nothing; one that ends during a wait ends it at once; one that ends
// while the lease is held changes nothing.
func TestContextBoundsTheWaitingAndNotTheHolding(t *testing.T) {
	cause := errors.New("why")
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		over, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, err := l.Acquire(over, keys("a"))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || errors.Is(err, ErrBusy) || m.steps() != 0 {
			t.Errorf("over at entry: %v after %d commands; want the context's error and cause, and none", err, m.steps())
		}
	})
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		m.set("lock:a", "somebody else", time.Hour)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 1010*time.Millisecond, cause)
		defer cancel()
		start := time.Now()
		_, err := l.Acquire(ctx, keys("a"))
		busyBecause(t, err, Cancelled)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) {
			t.Errorf("ended by its context: %v, want the context's error and cause too", err)
		}
		if d := time.Since(start); d != 1010*time.Millisecond {
			t.Errorf("returned after %v, want 1.01s", d)
		}
	})
	bubble(t, []Option{TTL(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := l.Acquire(ctx, keys("a"))
		if err != nil {
			t.Fatal(err)
		}
		work := lease.Context(ctx)
		cancel()
		if work.Err() == nil {
			t.Error("the work's context does not end with its parent")
		}
		pass(time.Minute)
		if err := lease.Err(); err != nil || m.token("lock:a") == "" {
			t.Errorf("the end of the caller's context ended the lease: %v", err)
		}
		if err := lease.Release(ctx); err != nil || m.token("lock:a") != "" {
			t.Errorf("release with a dead context: %v, key %q", err, m.token("lock:a"))
		}
	})
}

// F002: the client is gone when the handler releases; the key must not stay for its TTL.
func TestReleaseRunsOnAContextOfItsOwn(t *testing.T) {
	l, srv := mini(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := l.Do(ctx, keys("a"), func(context.Context) error {
		cancel()
		return nil
	})
	if err != nil || srv.Exists("lock:a") {
		t.Errorf("err = %v, key there: %v", err, srv.Exists("lock:a"))
	}
}

// An acquire whose caller leaves while its command is on the wire leaves nothing behind: the key is deleted at once, and
// looked for a second later again, since a command may still be in some buffer.
func TestCallerThatLeavesDuringTheCommandLeavesNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		ctx, cancel := context.WithCancel(t.Context())
		m.failing(func(step, _ string) (bool, error) {
			if step == "acquire" {
				cancel()
				return true, ErrUnknownOutcome
			}
			return true, nil
		})
		_, err := l.Acquire(ctx, keys("a"))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("err = %v, want both", err)
		}
		synctest.Wait()
		if m.token("lock:a") != "" || m.count("release") != 1 {
			t.Fatalf("key %q after %d releases; want it gone after one", m.token("lock:a"), m.count("release"))
		}
		pass(secondLook)
		if n := m.count("release"); n != 2 {
			t.Errorf("looked %d times, want a second look", n)
		}
	})
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		ctx, cancel := context.WithCancel(t.Context())
		m.failing(func(step, _ string) (bool, error) {
			if step == "acquire" {
				cancel()
			}
			return true, nil
		})
		_, err := l.Acquire(ctx, keys("a"))
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || m.token("lock:a") != "" {
			t.Errorf("granted to nobody: %v, key %q", err, m.token("lock:a"))
		}
	})
}

// (1): the reply to the acquire is lost, and it was executed: the same token asks again and is told that it has the key.
// The client's own resending would be told that somebody else has it (redis/go-redis#2985).
func TestLostReplyToAnAcquireIsStillOurs(t *testing.T) {
	for name, wait := range map[string]time.Duration{"waiting": time.Second, "one attempt": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
				lost := false
				m.failing(func(step, _ string) (bool, error) {
					if step == "acquire" && !lost {
						lost = true
						return true, ErrUnknownOutcome
					}
					return true, nil
				})
				lease := must(t, l, keys("a"), Wait(wait))
				if m.count("acquire") != 2 {
					t.Errorf("asked %d times, want twice", m.count("acquire"))
				}
				if want := m.fences["lock:a"]; lease.Fence() != want {
					t.Errorf("fence %d, want %d", lease.Fence(), want)
				}
				free(t, lease)
				pass(2 * time.Second)
				if m.count("release") != 2 || m.token("lock:a") != "" {
					t.Errorf("%d releases, want a second look for the send that had no answer", m.count("release"))
				}
			})
		})
	}
}

// A backend that does not answer is asked three times, with pauses, and then everybody who waits is told at once.
func TestBackendThatIsAway(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want error
	}{
		"certainly not executed": {ErrUnavailable, ErrUnavailable},
		"perhaps executed":       {ErrUnknownOutcome, ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
				m.failing(func(string, string) (bool, error) { return false, tt.err })
				start := time.Now()
				_, err := l.Acquire(t.Context(), keys("a"))
				if !errors.Is(err, tt.want) {
					t.Errorf("err = %v, want %v", err, tt.want)
				}
				if n := m.count("acquire"); n != 3 {
					t.Errorf("asked %d times, want 3", n)
				}
				if d := time.Since(start); d > 100*time.Millisecond {
					t.Errorf("answered after %v, want less than 100ms of pauses", d)
				}
				m.failing(func(string, string) (bool, error) { return true, nil })
				pass(time.Minute)
			})
		})
	}
}

func TestWaitersAreToldAtOnceThatTheBackendIsAway(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		var wg sync.WaitGroup
		start := time.Now()
		for range 50 {
			wg.Go(func() {
				_, err := l.Acquire(t.Context(), keys("a"))
				if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("err = %v, want ErrUnavailable", err)
				}
			})
		}
		synctest.Wait()
		m.failing(func(string, string) (bool, error) { return false, ErrUnavailable })
		asked := m.count("acquire")
		_ = lease.Release(t.Context())
		wg.Wait()
		if d := time.Since(start); d > 300*time.Millisecond {
			t.Errorf("all were told after %v", d)
		}
		if n := m.count("acquire") - asked; n != 3 {
			t.Errorf("%d questions by 50 waiters, want the 3 of the first", n)
		}
		m.failing(func(string, string) (bool, error) { return true, nil })
		pass(time.Minute)
	})
}

// A grant that arrives after its safe deadline is of no use: it is asked for again, with the same token.
func TestGrantAfterItsDeadlineCountsAsNone(t *testing.T) {
	bubble(t, []Option{TTL(time.Second)}, func(t *testing.T, _ *Locker, m *memory) {
		l := with(t, &slowAcquires{memoryClient: m.client(), delays: []time.Duration{1200 * time.Millisecond}}, TTL(time.Second))
		lease := must(t, l, keys("a"))
		if err := lease.Err(); err != nil {
			t.Errorf("the lease was over when it was had: %v", err)
		}
		if n := m.count("acquire"); n != 2 {
			t.Errorf("asked %d times, want twice", n)
		}
		free(t, lease)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slowAcquires answers late, by one delay after the other.
type slowAcquires struct {
	*memoryClient
	delays []time.Duration
}

func (s *slowAcquires) Acquire(ctx context.Context, r Request) (Grant, error) {
	g, err := s.memoryClient.Acquire(ctx, r)
	if len(s.delays) > 0 {
		d := s.delays[0]
		s.delays = s.delays[1:]
		<-time.After(d)
	}
	return g, err
}

// Something that is no lease lies under the key: an error at once, not a wait for what nobody will free.
func TestForeignValueIsNotWaitedFor(t *testing.T) {
	l, srv := mini(t)
	check(t, srv.Set("lock:eternal", "value without TTL"))
	_, err := srv.Lpush("lock:list", "x")
	check(t, err)
	_, err = srv.Lpush("{lock:fence}:fence", "x")
	check(t, err)
	check(t, srv.Set("{lock:word}:fence", "not a number"))
	before := srv.Dump()
	for _, key := range []string{"eternal", "list", "fence", "word"} {
		for _, k := range [][]string{keys(key), keys(key, "other")} { // a key alone is looked at in another way
			_, err := l.Acquire(t.Context(), k)
			if !errors.Is(err, ErrForeignKey) || errors.Is(err, ErrBusy) {
				t.Errorf("%v: err = %v, want ErrForeignKey", k, err)
			}
		}
	}
	if after := srv.Dump(); after != before {
		t.Errorf("something was written:\n%s\nwant\n%s", after, before)
	}
	check(t, srv.Set("lock:mortal", "somebody's lease"))
	srv.SetTTL("lock:mortal", time.Minute)
	_, err = l.Acquire(t.Context(), keys("mortal"), Wait(0))
	busyBecause(t, err, NoWait)
}

// B12 and C07: the lock is given back on every way out of Do.
func TestDoReleasesOnEveryWayOut(t *testing.T) {
	l, srv := mini(t)
	wrong := errors.New("wrong")
	for name, tt := range map[string]struct {
		fn   func(context.Context) error
		want error
	}{
		"return": {func(context.Context) error { return nil }, nil},
		"error":  {func(context.Context) error { return wrong }, wrong},
		"panic":  {func(context.Context) error { panic("out") }, nil},
		"exit":   {func(context.Context) error { runtime.Goexit(); return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error, 1)
			var ctx context.Context
			go func() {
				defer func() {
					if p := recover(); p != nil && p != "out" {
						t.Errorf("the panic came out as %v", p)
					}
					close(done)
				}()
				done <- l.Do(t.Context(), keys("a"), func(c context.Context) error {
					ctx = c
					if !srv.Exists("lock:a") {
						t.Error("the work runs without the lock")
					}
					return tt.fn(c)
				})
			}()
			if err := <-done; !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
			if srv.Exists("lock:a") || l.queue.holder("lock:a") != nil {
				t.Error("the lock is still held")
			}
			if !errors.Is(context.Cause(ctx), ErrReleased) {
				t.Errorf("the context of the work ended with %v, want ErrReleased", context.Cause(ctx))
			}
		})
	}
}

func TestDoTellsThatTheLockWasLost(t *testing.T) {
	l, srv := mini(t)
	wrong := errors.New("wrong")
	for _, work := range []error{nil, wrong} {
		err := l.Do(t.Context(), keys("a"), func(context.Context) error {
			srv.Del("lock:a")
			return work
		})
		if !errors.Is(err, ErrLost) || work != nil && !errors.Is(err, work) {
			t.Errorf("err = %v, want ErrLost and what the work returned: %v", err, work)
		}
	}
	called := false
	check(t, srv.Set("lock:a", "x"))
	srv.SetTTL("lock:a", time.Minute)
	err := l.Do(t.Context(), keys("a"), func(context.Context) error { called = true; return nil }, Wait(0))
	if busyBecause(t, err, NoWait); called {
		t.Error("the work ran without the lock")
	}
}

func TestClosedLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := with(t, m.client(), TTL(3*time.Second))
		lease := must(t, l, keys("a"))
		var wg sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			m.set("lock:b", "somebody else", time.Hour)
			wg.Go(func() {
				if _, err := l.Acquire(t.Context(), keys(key)); !errors.Is(err, ErrClosed) {
					t.Errorf("waiting for %s: %v, want ErrClosed", key, err)
				}
			})
		}
		synctest.Wait()
		wg.Go(func() {
			if err := l.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		pass(10 * time.Second)
		if err := lease.Err(); err != nil {
			t.Errorf("a lease ended while Close waits: %v", err)
		}
		if _, err := l.Acquire(t.Context(), keys("c")); !errors.Is(err, ErrClosed) {
			t.Errorf("acquire after Close: %v, want ErrClosed", err)
		}
		free(t, lease)
		wg.Wait()
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestCloseDoesNotWaitLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := with(t, m.client(), TTL(3*time.Second))
		lease, both := must(t, l, keys("a")), must(t, l, keys("b", "c"))
		work := lease.Context(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want the context's error", err)
		}
		lostBecause(t, context.Cause(work), LockerGone)
		lostBecause(t, both.Err(), LockerGone)
		for range 2 {
			lostBecause(t, lease.Release(t.Context()), LockerGone)
		}
		if m.left("lock:a") <= 0 {
			t.Error("the key was deleted, want it left to its TTL")
		}
	})
}

// A grant that arrives when Close does not wait any longer is no lease that nobody renews: it is over from the start.
func TestGrantAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := with(t, &slowAcquires{memoryClient: m.client(), delays: []time.Duration{3 * time.Second}})
		done := make(chan *Lease)
		go func() { done <- must(t, l, keys("a")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want the context's error", err)
		}
		lease := <-done
		lostBecause(t, lease.Err(), LockerGone)
		lostBecause(t, context.Cause(lease.Context(t.Context())), LockerGone)
		lostBecause(t, lease.Release(t.Context()), LockerGone)
	})
}
