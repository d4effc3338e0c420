package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// work is for how long each holder of the hot key keeps it: a query or two.
const work = time.Millisecond

// hotRun is what came of a while of many workers that all want one key.
type hotRun struct {
	Acquired int
	P99      time.Duration // of the wait for the lock
	Hold     time.Duration // mean; a timer of 1 ms takes a little more
}

func (r hotRun) rate(d time.Duration) float64 { return float64(r.Acquired) / d.Seconds() }

// hot has workers take the key in turn for d. Waits that the end cuts off do not count.
func hot(l locker, key string, workers int, d time.Duration) (hotRun, error) {
	end := time.Now().Add(d)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	var mu sync.Mutex
	var waits []float64
	var held time.Duration
	var failed error
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				wait, hold, err := turn(ctx, l, key, end)
				mu.Lock()
				if err != nil && failed == nil {
					failed = err
				}
				if hold > 0 {
					waits = append(waits, float64(wait))
					held += hold
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return hotRun{}, fmt.Errorf("%s: %w", l.name, failed)
	}
	r := hotRun{Acquired: len(waits)}
	if r.Acquired > 0 {
		r.P99, r.Hold = time.Duration(percentile(waits, 0.99)), held/time.Duration(r.Acquired)
	}
	return r, nil
}

// turn takes the key once, works and gives it back. hold is 0 if it came too late to count.
func turn(ctx context.Context, l locker, key string, end time.Time) (wait, hold time.Duration, err error) {
	asked := time.Now()
	release, err := l.acquire(ctx, key)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // it gave up at the end
		}
		return 0, 0, err
	}
	got := time.Now()
	if got.Before(end) {
		time.Sleep(work)
		hold = time.Since(got)
	}
	return got.Sub(asked), hold, release()
}

// hotLasts is by how much longer a run on a hot key lasts than other measurements: each worker should have many turns.
const hotLasts = 4

// hotKey has n workers in one process take turns on one key.
func hotKey(n int) Case {
	const p99, ideal, unit = "p99 wait", "waiters x hold", "acquired/s"
	return Case{
		Name: fmt.Sprintf("hot-%d", n),
		Claims: []Claim{
			{Baseline: mutexName, Unit: unit, Target: 0.93},
			{Baseline: redsyncName, Unit: unit},
			{Baseline: redislockName, Unit: unit},
			{Suffix: "-wait", Figure: p99, Baseline: ideal, Unit: "ms", Target: 1.2, LowerIsBetter: true},
		},
		Start: func(e *Env) Round {
			var last hotRun
			ls := []locker{newHoldfast(e, e.Client()), newMutex(), newRedsync(e.Client()), newRedislock(e.Client())}
			rates := inTurn(each(ls, func(l locker, d time.Duration) (float64, error) {
				r, err := hot(l, "hot", n, hotLasts*d)
				if l.name == holdfast {
					last = r
				}
				return r.rate(hotLasts * d), err
			})...)
			return func(d time.Duration) (Figures, error) {
				f, err := rates(d)
				if err != nil {
					return nil, err
				}
				f[p99] = last.P99.Seconds() * 1000
				f[ideal] = float64(n) * last.Hold.Seconds() * 1000
				return f, nil
			}
		},
	}
}

// hotCost counts what a turn on a hot key costs the network and the server, with n workers.
func hotCost(n int) Case {
	const roundTrips, commands, one = "round trips", "commands", "one"
	return Case{
		Name: fmt.Sprintf("hot-%d", n),
		Claims: []Claim{
			{Suffix: "-trips", Figure: roundTrips, Baseline: one, Unit: "round trips/turn", Target: 1.2, LowerIsBetter: true},
			{Suffix: "-commands", Figure: commands, Baseline: one, Unit: "commands/turn", Target: 6, LowerIsBetter: true},
		},
		Start: func(e *Env) Round {
			var sent trips
			rdb, asking := e.Client(&sent), e.Client()
			l := newHoldfast(e, rdb)
			return func(d time.Duration) (Figures, error) {
				ctx := context.Background()
				before, err := executed(ctx, asking)
				if err != nil {
					return nil, err
				}
				sentBefore := sent.n.Load()
				turns := 0
				counted := locker{l.name, func(ctx context.Context, key string) (func() error, error) {
					release, err := l.acquire(ctx, key)
					turns++ // under the lock
					return release, err
				}}
				if _, err := hot(counted, "hot", n, hotLasts*d); err != nil {
					return nil, err
				}
				after, err := executed(ctx, asking)
				if err != nil {
					return nil, err
				}
				return Figures{
					roundTrips: float64(sent.n.Load()-sentBefore) / float64(turns),
					commands:   (after - before) / float64(turns),
					one:        1,
				}, nil
			}
		},
	}
}
