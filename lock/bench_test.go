package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Pairs of acquire and release of distinct keys, against the same scripts sent by go-redis, without queue, lease and
// batches. Interleaved rounds: go test -run - -bench Pair -count 5.
func BenchmarkPair(b *testing.B) {
	srv := testserver.NewRedis(b)
	for _, flight := range []int{1, 8, 64, 256} {
		rdb := srv.Client(b, func(o *redis.Options) { o.PoolSize = max(flight, 10) })
		l := over(b, rdb)
		b.Run(fmt.Sprintf("plain/%d", flight), func(b *testing.B) {
			var n atomic.Int64
			inFlight(b, flight, func(ctx context.Context, key string) error { return plainPair(ctx, rdb, key, n.Add(1)) })
		})
		b.Run(fmt.Sprintf("lock/%d", flight), func(b *testing.B) {
			inFlight(b, flight, func(ctx context.Context, key string) error {
				lease, err := l.Acquire(ctx, []string{key})
				if err != nil {
					return err
				}
				return lease.Release(ctx)
			})
		})
	}
}

var (
	plainAcquire = redis.NewScript(acquireLua)
	plainRelease = redis.NewScript(releaseLua)
)

func plainPair(ctx context.Context, rdb *redis.Client, key string, n int64) error {
	token := fmt.Sprint("plain:", n)
	k := "lock:" + key
	if err := plainAcquire.Run(ctx, rdb, []string{k, fenceKey(k)}, token, 30000, 86400000, 0).Err(); err != nil {
		return err
	}
	return plainRelease.Run(ctx, rdb, []string{k}, token, "PUBLISH", "x", freeChannel(k)).Err()
}

// inFlight runs pairs on that many goroutines, each with keys of its own.
func inFlight(b *testing.B, flight int, pair func(ctx context.Context, key string) error) {
	b.ReportAllocs()
	var ids atomic.Int64
	b.SetParallelism(flight)
	start := time.Now()
	// As many goroutines as are to be in flight, not times the processors.
	work := make(chan int, flight)
	done := make(chan error, flight)
	for range flight {
		go func() {
			id, i := ids.Add(1), 0
			var err error
			for range work {
				i++
				if e := pair(context.Background(), fmt.Sprintf("%d:%d", id, i%100)); e != nil {
					err = e
				}
			}
			done <- err
		}()
	}
	for b.Loop() {
		work <- 0
	}
	close(work)
	for range flight {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "pairs/s")
}

// One key that everybody wants, with 1 ms of work inside: the ideal is an in-process mutex around the same work.
func BenchmarkHotKey(b *testing.B) {
	srv := testserver.NewRedis(b)
	l := over(b, srv.Client(b), Wait(time.Minute))
	work := func() {
		for end := time.Now().Add(time.Millisecond); time.Now().Before(end); { // a timer would add its own slack
			<-time.After(time.Until(end))
		}
	}
	for _, waiters := range []int{8, 64} {
		b.Run(fmt.Sprintf("mutex/%d", waiters), func(b *testing.B) {
			mu := make(chan struct{}, 1)
			inFlight(b, waiters, func(context.Context, string) error {
				mu <- struct{}{}
				work()
				<-mu
				return nil
			})
		})
		b.Run(fmt.Sprintf("lock/%d", waiters), func(b *testing.B) {
			inFlight(b, waiters, func(ctx context.Context, _ string) error {
				return l.Do(ctx, []string{"hot"}, func(context.Context) error { work(); return nil })
			})
		})
	}
}

// What the package costs without a server: everything but the two commands.
func BenchmarkOverhead(b *testing.B) {
	for name, backend := range map[string]Backend{"nothing": instant{}} {
		b.Run(name, func(b *testing.B) {
			l, err := NewWith(backend, WithLogger(quietLogger()))
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close(context.Background())
			ctx, k := context.Background(), []string{"a"}
			b.ReportAllocs()
			for b.Loop() {
				lease, err := l.Acquire(ctx, k)
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// instant grants everything.
type instant struct{}

func (instant) Acquire(context.Context, Request) (Grant, error) {
	return Grant{Held: true, Fence: 1}, nil
}
func (instant) Renew(context.Context, Held) (State, error)      { return Ours, nil }
func (instant) Release(context.Context, Held) (Released, error) { return Released{}, nil }
