package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/stock"
)

const (
	emptyScript = "an empty script, batched alike"
	bareScript  = "the same commands, unchecked"
	locked      = "lock, read, write"
)

// stockSuite measures a purchase that one script decides against what it would cost without it.
func stockSuite() Suite {
	return Suite{
		Name:  "stock",
		About: "deduct: its cost, a crowd on one item, memory for each order",
		Cases: []Case{
			{Name: "deduct-64", Start: deductRate, Claims: []Claim{
				{Baseline: emptyScript, Unit: "deducts/s", Target: .5},
				{Baseline: bareScript, Unit: "deducts/s", Target: .5, Suffix: "-bare"},
			}},
			{Name: "crowd-500", Start: crowd, Claims: []Claim{
				{Baseline: locked, Unit: "decisions/s", Target: 5},
				{Figure: p99(holdfast), Baseline: p99(locked), Unit: "ms", Target: .25, LowerIsBetter: true, Suffix: "-p99"},
			}},
			{Name: "memory", Start: memory, Claims: []Claim{
				{Figure: "deducted", Baseline: "1200 bytes", Unit: "bytes/order", Target: 1, LowerIsBetter: true},
				{Figure: "landed", Baseline: "900 bytes", Unit: "bytes/order", Target: 1, LowerIsBetter: true, Suffix: "-landed"},
			}},
		},
	}
}

func p99(of string) string { return of + ", p99" }

const soldItem = 1001

func sold(e *Env, rdb redis.UniversalClient, opts ...stock.Option) *stock.Counter {
	e.Helper()
	c := must(e, func() (*stock.Counter, error) { return stock.New(rdb, append(opts, stock.WithLogger(quiet))...) })
	e.Cleanup(c.Close)
	_, err := c.Warm(context.Background(), stock.Sale{
		Item: soldItem, Activity: 9, Units: 1 << 50, Ends: time.Now().Add(time.Hour), Limit: stock.Limit{Units: 1},
	})
	if err != nil {
		e.Fatal(err)
	}
	return c
}

func bought(n int64) stock.Order {
	return stock.Order{Item: soldItem, Activity: 9, User: n, Units: 1, RequestID: fmt.Sprintf("%043d", n)}
}

func deductRate(e *Env) Round {
	rdb := must(e, func() (*redisx.Client, error) { return redisx.Wrap(e.Client()) })
	c := sold(e, rdb, stock.WithStream(), stock.WithMaxBacklog(10_000_000))
	empty := redisx.NewScript("empty.lua", "return {0}")
	bare := redisx.NewScript("bare.lua", bareCommands)
	var n atomic.Int64
	return interleave(
		Subject{holdfast, func(d time.Duration) (float64, error) {
			return rate(64, d, func(int) error {
				_, err := c.Deduct(context.Background(), bought(n.Add(1)))
				return err
			})
		}},
		Subject{emptyScript, func(d time.Duration) (float64, error) {
			return rate(64, d, func(int) error {
				_, err := rdb.Run(context.Background(), empty, []string{"x"})
				return err
			})
		}},
		Subject{bareScript, func(d time.Duration) (float64, error) {
			return rate(64, d, func(int) error {
				i := n.Add(1)
				order := fmt.Sprintf("%026d", i)
				_, err := rdb.Run(context.Background(), bare,
					[]string{"bare:switch", fmt.Sprintf("bare:req:%043d", i), fmt.Sprint("bare:user:", i), "bare:counter", "bare:orders"},
					order, fmt.Sprintf("%043d", i))
				return err
			})
		}},
	)
}

// bareCommands is what a deduct with limit, request record and stream reads and writes, and nothing else: no check, no
// decision, no time that depends on the sale. No script that keeps the same can be faster.
const bareCommands = `
redis.call('HMGET', KEYS[1], 'state', 'layout', 'act:9')
redis.call('GET', KEYS[4])
redis.call('HGETALL', KEYS[3])
redis.call('HGETALL', KEYS[2])
redis.call('XLEN', KEYS[5])
redis.call('TIME')
redis.call('DECRBY', KEYS[4], '1')
redis.call('HSET', KEYS[3], ARGV[1], '1')
redis.call('PEXPIRE', KEYS[3], '86400000')
redis.call('HSET', KEYS[2], 'what', '1001::9:1:1', 'order', ARGV[1], 'taken', '1 1 1')
redis.call('PEXPIRE', KEYS[2], '600000')
redis.call('XADD', KEYS[5], '*', 'order', ARGV[1], 'request', ARGV[2], 'what', '1001::9:1:1', 'taken', '1 1796000000000')
redis.call('PTTL', KEYS[5])
return {1, ARGV[1], 1, 1}`

// crowd is 500 buyers of one item: the script, and what it replaces.
func crowd(e *Env) Round {
	const buyers = 500
	c := sold(e, e.Client())
	rdb := e.Client()
	if err := rdb.Set(context.Background(), "n", 1<<50, time.Hour).Err(); err != nil {
		e.Fatal(err)
	}
	l := must(e, func() (*lock.Locker, error) {
		return lock.New(e.Client(), lock.WithLogger(quiet), lock.Wait(time.Minute))
	})
	e.Cleanup(func() { _ = l.Close(context.Background()) })
	var n atomic.Int64
	return timed(buyers, []string{holdfast, locked}, func(ctx context.Context) error {
		_, err := c.Deduct(ctx, bought(n.Add(1)))
		return err
	}, func(ctx context.Context) error {
		return l.Do(ctx, []string{"stock:1001"}, func(ctx context.Context) error {
			left, err := rdb.Get(ctx, "n").Int64()
			if err != nil {
				return err
			}
			return rdb.Set(ctx, "n", strconv.FormatInt(left-1, 10), time.Hour).Err()
		})
	})
}

// timed measures the rate and the 99th percentile of calls by n workers, subject by subject.
func timed(n int, names []string, calls ...func(context.Context) error) Round {
	return func(d time.Duration) (Figures, error) {
		f := Figures{}
		for i, call := range calls {
			var mu sync.Mutex
			var all []float64
			r, err := rate(n, d, func(int) error {
				start := time.Now()
				err := call(context.Background())
				took := float64(time.Since(start).Microseconds()) / 1000
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			slices.Sort(all)
			f[names[i]], f[p99(names[i])] = r, percentile(all, .99)
		}
		return f, nil
	}
}

// memory is what one order costs in Redis from its deduct on, with hold and stream, and once it is landed and confirmed.
func memory(e *Env) Round {
	rdb := e.Client()
	c := sold(e, rdb, stock.WithHold(30*time.Minute), stock.WithStream(), stock.WithMaxBacklog(10_000_000))
	var n atomic.Int64
	return func(time.Duration) (Figures, error) {
		const orders = 2000
		before, err := used(rdb)
		if err != nil {
			return nil, err
		}
		ids := make([]string, orders)
		for i := range ids {
			res, err := c.Deduct(context.Background(), bought(n.Add(1)))
			if err != nil {
				return nil, err
			}
			ids[i] = res.Order
		}
		full, err := used(rdb)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, err := c.Confirm(context.Background(), id); err != nil {
				return nil, err
			}
		}
		if err := rdb.Del(context.Background(), c.Streams()...).Err(); err != nil { // the worker has read it
			return nil, err
		}
		landed, err := used(rdb)
		return Figures{
			"deducted": (full - before) / orders, "1200 bytes": 1200, "landed": (landed - before) / orders, "900 bytes": 900,
		}, err
	}
}

func used(rdb *redis.Client) (float64, error) {
	stats, err := rdb.Do(context.Background(), "MEMORY", "STATS").Result()
	if err != nil {
		return 0, err
	}
	switch m := stats.(type) {
	case map[any]any:
		return float64(m["dataset.bytes"].(int64)), nil
	case []any:
		for i := 0; i+1 < len(m); i += 2 {
			if m[i] == "dataset.bytes" {
				return float64(m[i+1].(int64)), nil
			}
		}
	}
	return 0, fmt.Errorf("MEMORY STATS has no dataset.bytes: %T", stats)
}
