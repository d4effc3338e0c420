package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lock"
)

// open starts an embedded Redis, so that the examples run anywhere.
func open(opts ...lock.Option) (l *lock.Locker, end func()) {
	srv, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	l, err = lock.New(rdb, opts...)
	if err != nil {
		log.Fatal(err)
	}
	return l, func() {
		_ = l.Close(context.Background())
		_ = rdb.Close()
		srv.Close()
	}
}

// A job that must not run twice at once, on however many machines.
func ExampleLocker_Do() {
	locker, end := open()
	defer end()

	err := locker.Do(context.Background(), []string{"report:daily"}, func(ctx context.Context) error {
		fmt.Println("building the report, alone")
		return ctx.Err() // ctx ends if the lease is lost
	})
	fmt.Println("error:", err)
	// Output:
	// building the report, alone
	// error: <nil>
}

// Several keys are had all or none, in one order for everybody, so that transfers in both directions do not deadlock.
func ExampleLocker_Acquire() {
	locker, end := open()
	defer end()
	ctx := context.Background()

	lease, err := locker.Acquire(ctx, []string{"user:7", "user:3"}, lock.Wait(2*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println(lease.Keys(), lease.Fence() > 0)
	// Output: [user:3 user:7] true
}

// One attempt, for work that somebody else then does anyway.
func ExampleLocker_TryAcquire() {
	locker, end := open()
	defer end()
	ctx := context.Background()

	first, ok, err := locker.TryAcquire(ctx, []string{"cleanup"})
	fmt.Println(ok, err)
	_, ok, err = locker.TryAcquire(ctx, []string{"cleanup"})
	fmt.Println(ok, err)
	fmt.Println(first.Release(ctx))
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
}

// A lock that is not had in time says why, and when to come back.
func ExampleBusyError() {
	locker, end := open()
	defer end()
	ctx := context.Background()

	lease, _ := locker.Acquire(ctx, []string{"seat:12A"})
	defer lease.Release(ctx)

	_, err := locker.Acquire(ctx, []string{"seat:12A"}, lock.Wait(10*time.Millisecond))
	var busy *lock.BusyError
	if errors.As(err, &busy) {
		fmt.Println(busy.Reason, busy.RetryAfter() > 0, errors.Is(err, lock.ErrBusy))
	}
	// Output: budget true true
}

// A function that takes the lock itself may be called by one that has it: the lease in the context counts.
func ExampleLease_Context() {
	locker, end := open()
	defer end()

	inner := func(ctx context.Context) error {
		return locker.Do(ctx, []string{"balance:42"}, func(context.Context) error {
			fmt.Println("inside, twice")
			return nil
		})
	}
	err := locker.Do(context.Background(), []string{"balance:42"}, inner)
	fmt.Println("error:", err)
	// Output:
	// inside, twice
	// error: <nil>
}

// What must compete for the lock like a stranger takes the context without the lease.
func ExampleDetach() {
	locker, end := open()
	defer end()

	_ = locker.Do(context.Background(), []string{"balance:42"}, func(ctx context.Context) error {
		_, ok, err := locker.TryAcquire(lock.Detach(ctx), []string{"balance:42"})
		fmt.Println(ok, err)
		return nil
	})
	// Output: false <nil>
}

// A number that only grows goes with what is written, so that the database can refuse an old holder.
func ExampleLease_Fence() {
	locker, end := open()
	defer end()
	ctx := context.Background()

	var last int64
	for range 3 {
		lease, err := locker.Acquire(ctx, []string{"stock:1001"})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(lease.Fence() > last)
		last = lease.Fence()
		_ = lease.Release(ctx)
	}
	// Output:
	// true
	// true
	// true
}

// Who holds what, for an operator, and taking a lock away from a holder that will not come back.
func ExampleLocker_ForceRelease() {
	locker, end := open()
	defer end()
	ctx := context.Background()

	lease, _ := locker.Acquire(ctx, []string{"stock:1001"})
	holders, _ := locker.Holders(ctx, 100)
	for _, h := range holders {
		fmt.Println(h.Key, h.Fence == lease.Fence(), h.Local != nil)
	}
	forced, ok, err := locker.ForceRelease(ctx, "stock:1001", "jane: pod 7 is gone")
	fmt.Println(ok, err, forced.Raised > lease.Fence())
	fmt.Println(lease.Err())
	// Output:
	// stock:1001 true true
	// true <nil> true
	// lock: lost (gone)
}
