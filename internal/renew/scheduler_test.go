package renew

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pass lets the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestFunctionsRunAtTheirTimeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Scheduler
		defer s.Close()
		start := time.Now()
		var got []time.Duration
		for _, d := range []time.Duration{30, 10, 20} {
			s.Add(start.Add(d*time.Second), func(now time.Time) time.Time {
				got = append(got, now.Sub(start))
				return time.Time{}
			})
		}
		pass(time.Minute)
		if len(got) != 3 || got[0] != 10*time.Second || got[1] != 20*time.Second || got[2] != 30*time.Second {
			t.Errorf("called at %v, want at 10s, 20s, 30s", got)
		}
	})
}

func TestAFunctionIsCalledAgainWhenItAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Scheduler
		defer s.Close()
		calls := 0
		s.Add(time.Now().Add(time.Second), func(now time.Time) time.Time {
			if calls++; calls == 3 {
				return time.Time{}
			}
			return now.Add(time.Second)
		})
		pass(time.Hour)
		if calls != 3 || s.Len() != 0 {
			t.Errorf("%d calls and %d entries left, want 3 and 0", calls, s.Len())
		}
	})
}

func TestAskingForNowDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Scheduler
		defer s.Close()
		at := time.Now().Add(time.Second)
		greedy, modest := 0, 0
		s.Add(at, func(now time.Time) time.Time {
			if greedy++; greedy == 1000 {
				return time.Time{}
			}
			return now
		})
		s.Add(at, func(time.Time) time.Time { modest = greedy; return time.Time{} })
		pass(2 * time.Second)
		if modest != 1 || greedy != 1000 {
			t.Errorf("the other one ran after %d calls of %d, want after 1 of 1000", modest, greedy)
		}
	})
}

// An entry that is removed before its time is not called, and costs the timer nothing.
func TestRemovedEntriesAreNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Scheduler
		defer s.Close()
		var calls int
		fn := func(time.Time) time.Time { calls++; return time.Time{} }
		for range 10_000 {
			e := s.Add(time.Now().Add(10*time.Second), fn)
			s.Remove(e)
			s.Remove(e)
		}
		last := s.Add(time.Now().Add(20*time.Second), fn)
		pass(15 * time.Second)
		if calls != 0 || s.Len() != 1 {
			t.Fatalf("%d calls, %d entries; want none and the last one", calls, s.Len())
		}
		pass(10 * time.Second)
		if calls != 1 {
			t.Errorf("%d calls, want that of the last entry", calls)
		}
		s.Remove(last) // after its last call
	})
}

func TestResetMovesTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Scheduler
		defer s.Close()
		start := time.Now()
		at := func(d time.Duration) time.Time { return start.Add(d * time.Second) }
		got := map[string]time.Duration{}
		note := func(name string) func(time.Time) time.Time {
			return func(now time.Time) time.Time { got[name] += now.Sub(start) / time.Second; return time.Time{} }
		}
		sooner, later, gone, twice := s.Add(at(50), note("sooner")), s.Add(at(10), note("later")), s.Add(at(10), note("gone")), s.Add(at(10), note("twice"))
		s.Reset(sooner, at(5))
		s.Reset(later, at(70))
		s.Remove(gone)
		s.Reset(gone, at(20))
		pass(30 * time.Second)
		s.Reset(twice, at(40))
		pass(time.Minute)
		for name, want := range map[string]time.Duration{"sooner": 5, "later": 70, "gone": 0, "twice": 10 + 40} {
			if got[name] != want {
				t.Errorf("%s: called at %d, want %d", name, got[name], want)
			}
		}
	})
}

// A reply may arrive while the function that sent the question is still running: neither time is lost.
func TestResetWhileRunningKeepsTheEarlierTime(t *testing.T) {
	for name, tt := range map[string]struct{ returned, reset, want time.Duration }{
		"the function's":   {10, 20, 10},
		"that of Reset":    {20, 10, 10},
		"the only one set": {0, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s Scheduler
				defer s.Close()
				start := time.Now()
				var self atomic.Pointer[Entry]
				var second time.Time
				self.Store(s.Add(start.Add(1), func(now time.Time) time.Time {
					if !second.IsZero() || now.After(start.Add(1)) {
						second = now
						return time.Time{}
					}
					s.Reset(self.Load(), start.Add(tt.reset*time.Second))
					if tt.returned == 0 {
						return time.Time{}
					}
					return start.Add(tt.returned * time.Second)
				}))
				pass(time.Minute)
				if got := second.Sub(start); got != tt.want*time.Second {
					t.Errorf("second call after %v, want %vs", got, int(tt.want))
				}
			})
		})
	}
}

func TestFunctionsMayUseTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Scheduler
		defer s.Close()
		var self atomic.Pointer[Entry]
		inner, outer := 0, 0
		self.Store(s.Add(time.Now().Add(time.Second), func(now time.Time) time.Time {
			outer++
			s.Add(now.Add(time.Second), func(time.Time) time.Time { inner++; return time.Time{} })
			s.Remove(self.Load())
			return now.Add(time.Second)
		}))
		pass(time.Minute)
		if outer != 1 || inner != 1 {
			t.Errorf("outer called %d times, inner %d; want 1 and 1", outer, inner)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s, unused Scheduler
		unused.Close()
		calls := 0
		fn := func(time.Time) time.Time { calls++; return time.Time{} }
		e := s.Add(time.Now().Add(time.Second), fn)
		s.Close()
		s.Close()
		s.Remove(e)
		s.Reset(e, time.Now())
		s.Reset(s.Add(time.Now(), fn), time.Now())
		pass(time.Minute)
		if calls != 0 || s.Len() != 0 {
			t.Errorf("%d calls and %d entries after Close", calls, s.Len())
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	var s Scheduler
	var called, due atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 2_000 {
				e := s.Add(time.Now().Add(rand.N(2*time.Millisecond)), func(now time.Time) time.Time { called.Add(1); return time.Time{} })
				switch i % 3 {
				case 0:
					s.Remove(e)
				case 1:
					s.Reset(e, time.Now().Add(time.Hour))
				default:
					due.Add(1)
				}
			}
		})
	}
	wg.Wait()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for called.Load() < due.Load() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d calls, want at least %d", called.Load(), due.Load())
		}
	}
	s.Close()
}

// What a lease costs that is released before its first renewal.
func BenchmarkAddRemove(b *testing.B) {
	var s Scheduler
	defer s.Close()
	at := time.Now().Add(time.Hour)
	fn := func(time.Time) time.Time { return time.Time{} }
	for i := range 1000 {
		s.Add(at.Add(time.Duration(i)), fn)
	}
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(1)
		s.Remove(s.Add(at, fn))
	}
}
