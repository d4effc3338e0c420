package stock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func benchEnv(b *testing.B) (*redisx.Client, string) {
	srv := testserver.Redis(b)
	rdb, err := redisx.Wrap(srv.Client(b, func(o *redis.Options) { o.PoolSize = 64 }))
	if err != nil {
		b.Fatal(err)
	}
	return rdb, srv.Prefix(b)
}

func benchCounter(b *testing.B, rdb *redisx.Client, prefix string, opts ...Option) *Counter {
	c, err := New(rdb, append(opts, Prefix(prefix))...)
	if err != nil {
		b.Fatal(err)
	}
	_, err = c.Warm(b.Context(), Sale{Item: 1001, Activity: 9, Units: maxUnits, Ends: time.Now().Add(time.Hour), Limit: Limit{Units: 1}})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func benchOrder(n int64) Order {
	return Order{Item: 1001, Activity: 9, User: n, Units: 1, RequestID: fmt.Sprintf("%043d", n)}
}

// many runs fn from 64 goroutines at once, with a number that is never the same.
func many(b *testing.B, fn func(n int64)) {
	b.Helper()
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			fn(n.Add(1))
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkDeduct compares a deduct with limit, request record and stream with the same script called by hand, and with an
// empty script, all from 64 goroutines through the same batcher.
func BenchmarkDeduct(b *testing.B) {
	b.Run("empty script", func(b *testing.B) {
		rdb, prefix := benchEnv(b)
		empty := redisx.NewScript("empty.lua", "return {0}")
		many(b, func(int64) {
			if _, err := rdb.Run(context.Background(), empty, []string{prefix + "x"}); err != nil {
				b.Error(err)
			}
		})
	})
	for name, opts := range map[string][]Option{"plain": nil, "stream": {WithStream(), WithMaxBacklog(mostBacklog)}, "hold and stream": {WithHold(time.Hour), WithStream(), WithMaxBacklog(mostBacklog)}} {
		b.Run("by hand, "+name, func(b *testing.B) {
			rdb, prefix := benchEnv(b)
			c := benchCounter(b, rdb, prefix, opts...)
			many(b, func(n int64) {
				o := benchOrder(n)
				r, err := c.check(context.Background(), &o)
				if err != nil {
					b.Error(err)
				}
				r.order = newOrderID()
				r.lines[0].place = c.usual("1001")
				keys, args := c.deductCall(r, r.lines, 0)
				if _, err := rdb.Run(context.Background(), c.scripts.deduct, keys, args...); err != nil {
					b.Error(err)
				}
			})
		})
		b.Run("Deduct, "+name, func(b *testing.B) {
			rdb, prefix := benchEnv(b)
			c := benchCounter(b, rdb, prefix, opts...)
			many(b, func(n int64) {
				if _, err := c.Deduct(context.Background(), benchOrder(n)); err != nil {
					b.Error(err)
				}
			})
		})
	}
	b.Run("sold out", func(b *testing.B) {
		rdb, prefix := benchEnv(b)
		c := benchCounter(b, rdb, prefix)
		rdb.Set(b.Context(), prefix+"stock:item:1001", 0, time.Hour)
		many(b, func(n int64) { _, _ = c.Deduct(context.Background(), benchOrder(n)) })
	})
	b.Run("sold out, filter", func(b *testing.B) {
		rdb, prefix := benchEnv(b)
		c := benchCounter(b, rdb, prefix, WithSoldOutFilter(time.Minute))
		defer c.Close()
		rdb.Set(b.Context(), prefix+"stock:item:1001", 0, time.Hour)
		many(b, func(n int64) { _, _ = c.Deduct(context.Background(), benchOrder(n)) })
	})
}

// BenchmarkCrowd compares how 500 buyers of one item fare with a deduct and with the lock they would need without it: lock,
// read, write, unlock. It reports decisions per second and the 99th percentile.
func BenchmarkCrowd(b *testing.B) {
	crowd := func(b *testing.B, buy func(n int64)) {
		const buyers = 500
		var n atomic.Int64
		times := make([][]time.Duration, buyers)
		b.ResetTimer()
		var wg sync.WaitGroup
		for w := range buyers {
			wg.Go(func() {
				for {
					i := n.Add(1)
					if i > int64(b.N) {
						return
					}
					began := time.Now()
					buy(i)
					times[w] = append(times[w], time.Since(began))
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		all := slices.Concat(times...)
		slices.Sort(all)
		b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "decisions/s")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	}
	b.Run("Deduct", func(b *testing.B) {
		rdb, prefix := benchEnv(b)
		c := benchCounter(b, rdb, prefix)
		crowd(b, func(n int64) {
			if _, err := c.Deduct(context.Background(), benchOrder(n)); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("lock, read, write", func(b *testing.B) {
		rdb, prefix := benchEnv(b)
		ctx := context.Background()
		rdb.Set(ctx, prefix+"n", 1<<40, time.Hour)
		unlock := redisx.NewScript("unlock.lua", "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
		crowd(b, func(n int64) {
			token := fmt.Sprint(n)
			for wait := time.Millisecond; ; wait = min(2*wait, 16*time.Millisecond) {
				if ok, err := rdb.SetNX(ctx, prefix+"lock", token, time.Minute).Result(); err == nil && ok {
					break
				}
				timer := time.NewTimer(wait)
				<-timer.C
			}
			left, _ := rdb.Get(ctx, prefix+"n").Int64()
			rdb.Set(ctx, prefix+"n", left-1, time.Hour)
			_, _ = rdb.Run(ctx, unlock, []string{prefix + "lock"}, token)
		})
	})
}
