package lock

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A release wakes the one in front of the line in another process: it is in at once, not after the back-off.
func TestReleaseWakesAnotherProcess(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		rival := with(t, m.client())
		lease := must(t, rival, keys("a"))
		in, wg := waiters(t, l, 1, 0, keys("a"))
		pass(10 * time.Second)
		start := time.Now()
		free(t, lease)
		wg.Wait()
		<-in
		if d := time.Since(start); d != 0 {
			t.Errorf("in after %v", d)
		}
		if err := rival.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// (13): woken and beaten ten times it still listens, is still bounded by its budget, and its back-off has not moved.
func TestWokenAndBeaten(t *testing.T) {
	bubble(t, []Option{Wait(3 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		m.set("lock:a", "somebody else", time.Hour)
		done := make(chan error)
		start := time.Now()
		go func() {
			_, err := l.Acquire(t.Context(), keys("a"))
			done <- err
		}()
		pass(10 * time.Millisecond)
		for range 10 {
			asked := m.count("acquire")
			m.mu.Lock()
			m.tell("lock:a", nil) // freed, and taken by somebody faster
			m.mu.Unlock()
			synctest.Wait()
			if m.count("acquire") != asked+1 {
				t.Fatal("it does not listen any more")
			}
		}
		asked := m.count("acquire")
		pass(60 * time.Millisecond)
		if m.count("acquire") != asked+1 {
			t.Error("being woken has moved the back-off")
		}
		busyBecause(t, <-done, Budget)
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("waited %v, want 3s", d)
		}
	})
}

// (14), F012: without any wake-up the back-off, or the end of the holder's lease, lets the waiter in. A wake-up only
// shortens the wait.
func TestLostWakeUpCostsTimeAndNothingElse(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
		m.set("lock:a", "somebody else", time.Hour)
		in, wg := waiters(t, l, 1, 0, keys("a"))
		pass(10 * time.Second)
		start := time.Now()
		m.mu.Lock()
		delete(m.locks, "lock:a") // nobody is told
		m.mu.Unlock()
		wg.Wait()
		<-in
		if d := time.Since(start); d > 600*time.Millisecond {
			t.Errorf("in after %v, want 600ms at most", d)
		}
	})
}

// The key is watched from the first time it was taken, for five seconds beyond the last waiter, and by one watch
// however many wait.
func TestWatchEndsAfterTheLastWaiter(t *testing.T) {
	bubble(t, []Option{Wait(time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		watched := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			n := 0
			for w := range m.watches {
				n += len(w.keys)
			}
			return n
		}
		free(t, must(t, l, keys("a")))
		if watched() != 0 {
			t.Error("a key that nobody waited for is watched")
		}
		m.set("lock:a", "somebody else", time.Hour)
		for range 2 {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, err := l.Acquire(t.Context(), keys("a"))
					busyBecause(t, err, Budget)
				})
			}
			wg.Wait()
			if watched() != 1 {
				t.Fatalf("%d watches, want 1", watched())
			}
			pass(keepWatch - time.Second)
			if watched() != 1 {
				t.Fatal("the watch ended before its time")
			}
		}
		pass(keepWatch)
		if watched() != 0 || len(l.wakes.keys) != 0 {
			t.Errorf("%d watches left", watched())
		}
	})
}

// After 16 hand-overs, or 250 ms, the lock is freed; if another process waits, the next one here stands back for a
// moment, deaf to wake-ups, so that the other one can get in. If nobody else waits it goes on at once.
func TestStandingBack(t *testing.T) {
	for name, others := range map[string]bool{"others wait": true, "nobody else": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []Option{Wait(time.Hour)}, func(t *testing.T, l *Locker, m *memory) {
				lease := must(t, l, keys("a"))
				if others {
					m.client().Watch(func(string) {}).Add("lock:a")
				}
				asked := m.count("acquire")
				in, wg := waiters(t, l, longestStreak+3, 0, keys("a"))
				start := time.Now()
				free(t, lease)
				wg.Wait()
				inOrder(t, in, longestStreak+3)
				if n := m.count("acquire") - asked; n != 1 {
					t.Errorf("%d acquires, want one after %d hand-overs", n, longestStreak)
				}
				if d := time.Since(start); others && (d < minStandby || d > maxStandby) || !others && d != 0 {
					t.Errorf("it took %v in all", d)
				}
			})
		})
	}
}

// A process that has kept the key to itself for 16 leases, or 250 ms, lets others go first if there are any.
func TestOtherProcessesAreNotStarved(t *testing.T) {
	bubble(t, []Option{Wait(time.Hour), TTL(10 * time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		const processes, workers, hold = 4, 8, time.Millisecond
		var held [processes]int
		var inside atomic.Int64
		all := []*Locker{l}
		for len(all) < processes {
			all = append(all, with(t, &lagging{m.client()}, Wait(time.Hour), TTL(10*time.Second)))
		}
		all[0] = with(t, &lagging{m.client()}, Wait(time.Hour), TTL(10*time.Second))
		end := time.Now().Add(20 * time.Second)
		var wg sync.WaitGroup
		for p, l := range all {
			for range workers {
				wg.Go(func() {
					for time.Now().Before(end) {
						lease := must(t, l, keys("hot"))
						if inside.Add(1) != 1 {
							t.Error("two inside")
						}
						held[p]++
						<-time.After(hold)
						inside.Add(-1)
						free(t, lease)
					}
				})
			}
		}
		wg.Wait()
		total := 0
		for _, n := range held {
			total += n
		}
		for p, n := range held {
			if n < total/processes/2 {
				t.Errorf("process %d was in %d of %d times, less than half of its share", p, n, total)
			}
		}
		// Each lease is 1 ms of work and a hand-over of 0.1 ms.
		if ideal := int(20 * time.Second / (hold + 100*time.Microsecond)); total < ideal*80/100 {
			t.Errorf("%d leases, want at least 80 %% of %d", total, ideal)
		}
		t.Logf("%v of %d", held, total)
		for _, l := range all {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
