package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// waiters starts n acquires one after the other and returns, in a channel, who gets in: each holds for hold.
func waiters(t *testing.T, l *Locker, n int, hold time.Duration, k []string, opts ...AcquireOption) (in <-chan int, wg *sync.WaitGroup) {
	t.Helper()
	ch := make(chan int, n)
	wg = &sync.WaitGroup{}
	for i := range n {
		wg.Go(func() {
			lease, err := l.Acquire(t.Context(), k, opts...)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			ch <- i
			<-time.After(hold)
			free(t, lease)
		})
		synctest.Wait() // it stands in the line
	}
	return ch, wg
}

func inOrder(t *testing.T, in <-chan int, n int) {
	t.Helper()
	for want := range n {
		if got := <-in; got != want {
			t.Fatalf("waiter %d got in as number %d: not in the order in which they came", got, want)
		}
	}
}

// (12): of 200 local waiters one talks to Redis; they get in in the order in which they came, each in one round trip
// after the one before.
func TestWaitersOfOneProcessAreServedInOrder(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		in, wg := waiters(t, l, 200, 5*time.Millisecond, keys("a"))
		asked := m.count("acquire")
		if asked != 1 {
			t.Errorf("%d questions while the key is held here, want that of the holder", asked)
		}
		start := time.Now()
		free(t, lease)
		wg.Wait()
		inOrder(t, in, 200)
		if d := time.Since(start); d > 1200*time.Millisecond {
			t.Errorf("200 holds of 5 ms took %v", d)
		}
		if n := m.steps() - 1; n > 2*201+201/longestStreak {
			t.Errorf("%d commands for 200 leases", n)
		}
		if n := m.count("handover"); n < 180 {
			t.Errorf("%d hand-overs, want nearly all", n)
		}
		if n := l.queue.waiting.Load(); n != 0 {
			t.Errorf("%d still counted as waiting", n)
		}
	})
}

// One long hold among short ones refuses nobody early.
func TestOneLongHoldAmongShortOnes(t *testing.T) {
	bubble(t, []Option{Wait(10 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		in, wg := waiters(t, l, 10, 5*time.Millisecond, keys("a"))
		slow := must(t, l, keys("a"))
		late, wgLate := waiters(t, l, 10, 5*time.Millisecond, keys("a"))
		<-time.After(3 * time.Second)
		free(t, slow)
		wg.Wait()
		wgLate.Wait()
		inOrder(t, in, 10)
		inOrder(t, late, 10)
	})
}

// With the cap of 1000 waiters for a key, or with Wait(0), a request is refused at once and without a command.
func TestFullQueueRefusesWithoutACommand(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range maxWaiting {
			wg.Go(func() {
				_, err := l.Acquire(ctx, keys("a"))
				busyBecause(t, err, Cancelled)
			})
		}
		synctest.Wait()
		asked, start := m.steps(), time.Now()
		_, err := l.Acquire(t.Context(), keys("a"))
		busy := busyBecause(t, err, QueueFull)
		_, err = l.Acquire(t.Context(), keys("a"), Wait(0))
		busyBecause(t, err, NoWait)
		if m.steps() != asked || time.Since(start) != 0 || busy.Attempts != 0 {
			t.Errorf("%d commands, %v", m.steps()-asked, time.Since(start))
		}
		if d := busy.RetryAfter(); d < 29*time.Second || d > 30*time.Second {
			t.Errorf("RetryAfter %v, want the rest of the holder's lease", d)
		}
		free(t, must(t, l, keys("b"))) // another key is another queue
		cancel()
		wg.Wait()
		free(t, lease)
		if n := l.queue.waiting.Load(); n != 0 {
			t.Errorf("%d still counted as waiting", n)
		}
	})
}

func TestQueueOfTheProcessIsBounded(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		l.queue.waiting.Store(maxWaitingAll)
		lease := must(t, l, keys("a"))
		_, err := l.Acquire(t.Context(), keys("a"))
		busyBecause(t, err, QueueFull)
		l.queue.waiting.Store(0)
		free(t, lease)
	})
}

// A hint of when to come back: the length of the queue times what a hold takes on average.
func TestRetryAfterGoesByTheQueue(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		in, wg := waiters(t, l, 20, 100*time.Millisecond, keys("a"))
		for range 11 { // ten have held it, one does
			<-in
		}
		_, err := l.Acquire(t.Context(), keys("a"), Wait(0))
		if d := busyBecause(t, err, NoWait).RetryAfter(); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Errorf("RetryAfter %v with 9 waiting and one holding for 100 ms each, want about 1s", d)
		}
		wg.Wait()
	})
}

// A waiter leaves at its own budget, or with its context, from any place in the line; the others move up.
func TestWaitersLeaveFromAnyPlace(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		var wg sync.WaitGroup
		var in []string
		enter := func(name string, budget time.Duration, ctx context.Context, want error) {
			wg.Go(func() {
				start := time.Now()
				x, err := l.Acquire(ctx, keys("a"), Wait(budget))
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
				if err == nil {
					in = append(in, name)
					free(t, x)
				} else if d := time.Since(start); d != time.Second {
					t.Errorf("%s left after %v, want 1s", name, d)
				}
			})
			synctest.Wait()
		}
		dead, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		enter("first", time.Second, t.Context(), ErrBusy)
		enter("second", time.Hour, t.Context(), nil)
		enter("third", time.Hour, dead, context.DeadlineExceeded)
		enter("fourth", time.Hour, t.Context(), nil)
		enter("last", time.Second, t.Context(), ErrBusy)
		pass(2 * time.Second)
		if m.count("acquire") != 1 {
			t.Errorf("%d questions, want none by a waiter", m.count("acquire"))
		}
		free(t, lease)
		wg.Wait()
		if fmt.Sprint(in) != "[second fourth]" {
			t.Errorf("got in: %v, want second and fourth", in)
		}
	})
}

// A waiter whose budget ended while it was first in line, behind a holder elsewhere, is no reason for the next ones to
// ask again at once: they go on where it was in the back-off table.
func TestNextInLineGoesOnInTheBackoffTable(t *testing.T) {
	bubble(t, nil, func(t *testing.T, l *Locker, m *memory) {
		m.set("lock:a", "somebody else", time.Hour)
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				_, err := l.Acquire(t.Context(), keys("a"), Wait(2*time.Second))
				busyBecause(t, err, Budget)
			})
		}
		wg.Wait()
		if n := m.count("acquire"); n > 12 {
			t.Errorf("200 waiters asked %d times in 2 s, want what the table allows one", n)
		}
	})
}

// (5), (17): a loss frees the place in the queue at once, before the work has stopped and released.
func TestLossLetsTheNextOneTry(t *testing.T) {
	bubble(t, []Option{TTL(3 * time.Second), Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		in, wg := waiters(t, l, 1, 0, keys("a"))
		m.set("lock:a", "", 0) // expired behind its back
		pass(time.Second)
		select {
		case <-in:
		default:
			t.Error("the next waiter is not in though the lease is lost")
		}
		lostBecause(t, lease.Release(t.Context()), Gone)
		wg.Wait()
	})
}

// F005: a release that finds the key gone says so, and its place in the queue is free nevertheless.
func TestReleaseOfAnExpiredKeyFreesThePlace(t *testing.T) {
	for why, token := range map[LostReason]string{Gone: "", Taken: "somebody else"} {
		bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
			lease := must(t, l, keys("a"))
			in, wg := waiters(t, l, 1, 0, keys("a"))
			m.set("lock:a", token, 50*time.Millisecond)
			lostBecause(t, lease.Release(t.Context()), why)
			lostBecause(t, lease.Release(t.Context()), why)
			if n := l.renewals.Len(); n > 1 { // the waiter's, if it is in
				t.Errorf("%d entries left for renewal", n)
			}
			wg.Wait()
			<-in
		})
	}
}

// Hand-over is for single keys: who waits for several would have only the one that was handed over.
func TestWhoWaitsForSeveralKeysTakesThemAll(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		first := must(t, l, keys("a"))
		done := make(chan *Lease)
		go func() { done <- must(t, l, keys("a", "b")) }()
		synctest.Wait()
		free(t, first)
		both := <-done
		if m.count("handover") != 0 || m.token("lock:a") == "" || m.token("lock:b") != m.token("lock:a") {
			t.Errorf("%d hand-overs, a has %q, b has %q", m.count("handover"), m.token("lock:a"), m.token("lock:b"))
		}
		free(t, both)
	})
}

// F001: a key named twice is one key, so that nobody waits for himself. Several keys in opposite orders do not deadlock.
func TestSeveralKeysAreTakenInOneOrder(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a", "a"))
		if m.count("acquire") != 1 || m.token("lock:a") == "" {
			t.Error("want the key at once")
		}
		free(t, lease)
		if m.token("lock:a") != "" {
			t.Error("one release, and the key is still there")
		}
		rival := with(t, m.client(), Wait(time.Hour))
		var inside [2]atomic.Int64
		var wg sync.WaitGroup
		for i := range 100 {
			k := [][]string{keys("a", "b"), keys("b", "a")}[i%2]
			wg.Go(func() {
				err := []*Locker{l, rival}[i/2%2].Do(t.Context(), k, func(context.Context) error {
					for n := range inside {
						if inside[n].Add(1) != 1 {
							t.Error("two inside")
						}
					}
					<-time.After(time.Millisecond)
					for n := range inside {
						inside[n].Add(-1)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := rival.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// While waiting for one of several keys none is held: others may use the free ones.
func TestNothingIsHeldWhileWaiting(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		rival := with(t, m.client(), Wait(time.Hour))
		b := must(t, rival, keys("b"))
		in, wg := waiters(t, l, 1, 0, keys("a", "b", "c"))
		pass(10 * time.Second)
		for _, key := range []string{"a", "c"} {
			lease, ok, err := rival.TryAcquire(t.Context(), keys(key))
			if !ok || err != nil {
				t.Fatalf("%s is held by one that waits for b: %v", key, err)
			}
			free(t, lease)
		}
		free(t, b)
		wg.Wait()
		<-in
		if err := rival.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// D78, D25: one holder sleeps for seconds: every waiter is answered within its budget, and all goroutines end.
func TestSlowHolderDoesNotFillTheService(t *testing.T) {
	bubble(t, []Option{TTL(5 * time.Second), Wait(2 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		lease := must(t, l, keys("a"))
		var wg sync.WaitGroup
		start := time.Now()
		for range 1000 {
			wg.Go(func() {
				_, err := l.Acquire(t.Context(), keys("a"))
				busyBecause(t, err, Budget)
			})
		}
		wg.Wait()
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("the last was answered after %v, want 2s", d)
		}
		pass(time.Second)
		free(t, lease)
	})
}
