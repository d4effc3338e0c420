package lock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// goroutines waits until there are no more than n of them.
func goroutines(t *testing.T, n int) {
	t.Helper()
	testserver.Eventually(t, soon, func() bool { return runtime.NumGoroutine() <= n }, "the number of goroutines is what it was")
}

// F003, (8): 10 000 fast rounds, with renewals due meanwhile. Afterwards no lock is there, no TTL ever rises again, and
// no goroutine is left: no renewal survives its lease.
func TestTenThousandRoundsLeaveNothing(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t, func(o *redis.Options) { o.PoolSize = 20 })
	before := runtime.NumGoroutine()
	l, err := New(rdb, TTL(300*time.Millisecond), Wait(time.Minute), WithLogger(quietLogger())) // renewals every 100 ms
	check(t, err)
	rounds := 10_000
	if testing.Short() {
		rounds = 500
	}
	lost := 0
	var mu sync.Mutex
	parallel(32, rounds, func(i int) {
		lease, err := l.Acquire(t.Context(), keys([]string{"a", "b", "c", "d", "e", "f", "g", "h"}[i%8]))
		if err != nil {
			t.Error(err)
			return
		}
		if i%100 == 0 { // long enough for a renewal to be on its way when it is released
			<-time.After(100 * time.Millisecond)
		}
		if err := lease.Release(t.Context()); errors.Is(err, ErrLost) { // a stall of the machine for 300 ms
			mu.Lock()
			lost++
			mu.Unlock()
		} else if err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d of %d leases were lost to stalls", lost, rounds)
	testserver.Eventually(t, soon, func() bool { return len(srv.Keys(t, "lock:")) == 0 }, "no lock is there")
	testserver.Eventually(t, soon, func() bool { return l.renewals.Len() == 0 }, "nothing is registered, second looks after a stall included")
	mon := srv.Monitor(t)
	deadline := time.Now().Add(300 * time.Millisecond)
	testserver.Eventually(t, soon, func() bool { return time.Now().After(deadline) }, "some renewal periods pass")
	if n := mon.Count(t, "EVALSHA"); n > 0 || len(srv.Keys(t, "lock:")) > 0 {
		t.Errorf("%d commands after the last release, keys %v", n, srv.Keys(t, "lock:"))
	}
	check(t, l.Close(t.Context()))
	check(t, rdb.Close())
	goroutines(t, before+2) // the monitor's
}

// B12, F004: a thousand rounds with panics and cancelled contexts: the number of goroutines does not grow, and after
// Close it is what it was.
func TestRoundsThatEndBadlyLeaveNoGoroutine(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t)
	check(t, rdb.Ping(t.Context()).Err())
	before := runtime.NumGoroutine()
	l, err := New(rdb, WithLogger(quietLogger()))
	check(t, err)
	grown := 0
	for i := range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		func() {
			defer func() { _ = recover() }()
			_ = l.Do(ctx, keys("a"), func(context.Context) error {
				switch i % 4 {
				case 0:
					panic("out")
				case 1:
					cancel()
				case 2:
					return errors.New("wrong")
				}
				return nil
			})
		}()
		cancel()
		if i == 100 {
			grown = runtime.NumGoroutine()
		}
	}
	goroutines(t, grown+2)
	check(t, l.Close(t.Context()))
	goroutines(t, before)
	if left := srv.Keys(t, "lock:"); len(left) > 0 {
		t.Errorf("keys left: %v", left)
	}
}

// D25: a thousand waiters that give up leave no goroutine.
func TestWaitersThatGiveUpLeaveNoGoroutine(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	prefix := srv.Prefix(t)
	check(t, rdb.Set(t.Context(), prefix+"lock:a", "somebody else", time.Minute).Err())
	l := over(t, rdb, Prefix(prefix), Wait(300*time.Millisecond))
	check(t, rdb.Ping(t.Context()).Err())
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			_, err := l.Acquire(t.Context(), keys("a"))
			busyBecause(t, err, Budget)
		})
	}
	wg.Wait()
	goroutines(t, before+8) // the scheduler, the watch of the key
}

// F007: a lease acquired at once after another was released is renewed by itself: a rival never enters.
func TestLeaseRightAfterAnotherIsRenewed(t *testing.T) {
	bubble(t, []Option{TTL(time.Second)}, func(t *testing.T, l *Locker, m *memory) {
		rival := with(t, m.client(), Wait(0))
		free(t, must(t, l, keys("a")))
		lease := must(t, l, keys("a"))
		for range 300 {
			pass(10 * time.Millisecond)
			if _, ok, err := rival.TryAcquire(t.Context(), keys("a")); ok || err != nil {
				t.Fatalf("a rival entered: %v, %v", ok, err)
			}
		}
		free(t, lease)
		if err := rival.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
