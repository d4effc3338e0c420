package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/lock"
)

// lockTTL is how long a process that dies blocks the others.
const lockTTL = 3 * time.Second

// entry is a line that a worker prints: a run of the job, or its own death.
type entry struct {
	Process int       `json:"process"`
	Period  int       `json:"period"`
	Attempt int       `json:"attempt"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Outcome string    `json:"outcome"`
}

const done, failed, died = "done", "failed", "died with the lock"

// worker is one of the processes.
type worker struct {
	schedule
	n      int
	rdb    *redis.Client
	locker *lock.Locker
	once   *dedup.Dedup
	out    *json.Encoder
}

// args are how the parent tells a child its schedule.
func (s schedule) args(n int) []string {
	return []string{
		"worker", "-n", fmt.Sprint(n), "-redis", s.redis, "-prefix", s.prefix, "-start", s.start.Format(time.RFC3339Nano),
		"-period", s.period.String(), "-periods", fmt.Sprint(s.periods), "-fail", fmt.Sprint(s.fail), "-die", fmt.Sprint(s.die),
	}
}

func work(ctx context.Context, args []string, out io.Writer) (err error) {
	w := worker{out: json.NewEncoder(out)}
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	fs.IntVar(&w.n, "n", 0, "number of this process")
	fs.StringVar(&w.redis, "redis", "", "address of Redis")
	fs.StringVar(&w.prefix, "prefix", "", "prefix of all keys")
	fs.TextVar(&w.start, "start", time.Time{}, "when the first period begins")
	fs.DurationVar(&w.period, "period", 0, "how often the job runs")
	fs.IntVar(&w.periods, "periods", 0, "how many periods there are")
	fs.IntVar(&w.fail, "fail", -1, "period whose first run fails")
	fs.IntVar(&w.die, "die", -1, "period at which a process dies")
	if err := fs.Parse(args); err != nil {
		return err
	}
	w.rdb = redis.NewClient(&redis.Options{Addr: w.redis})
	defer func() { err = errors.Join(err, w.rdb.Close()) }()
	quiet := slog.New(slog.DiscardHandler)
	if w.locker, err = lock.New(w.rdb, lock.Prefix(w.prefix), lock.WithLogger(quiet)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.locker.Close(context.WithoutCancel(ctx))) }()
	if w.once, err = dedup.New(w.rdb, dedup.Prefix(w.prefix), dedup.WithLogger(quiet)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.once.Close(context.WithoutCancel(ctx))) }()
	return w.run(ctx)
}

// run works through the periods. What has failed, or what another process is at, is looked at again at the next tick.
func (w *worker) run(ctx context.Context) error {
	for next := 0; next < w.periods; {
		if err := w.sleepUntilTick(ctx); err != nil {
			return err
		}
		var err error
		next, err = w.catchUp(ctx, next)
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "process %d, period %d: %v\n", w.n, next, err)
		}
	}
	return nil
}

func (w *worker) sleepUntilTick(ctx context.Context) error {
	wait := time.Until(w.start)
	if wait <= 0 {
		wait = w.period - time.Since(w.start)%w.period
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// catchUp does the periods from next on that have begun, and returns the first one that is not done. Two things make it
// safe in any number of processes: the lock keeps runs from overlapping, however long one takes, and the record of a
// period keeps it from being done again by whoever finds the lock free later.
func (w *worker) catchUp(ctx context.Context, next int) (int, error) {
	lease, ok, err := w.locker.TryAcquire(ctx, []string{"job:settle"}, lock.TTL(lockTTL))
	if err != nil || !ok {
		return next, err // !ok: another process is at it
	}
	defer func() { _ = lease.Release(ctx) }() // a lock that was lost has been told by its context, and Redis frees it in time
	ctx = lease.Context(ctx)
	for ; next < w.periods && !time.Now().Before(w.begins(next)); next++ {
		if err := w.dieAt(ctx, next); err != nil {
			return next, err
		}
		period := w.begins(next).UTC().Format(time.RFC3339Nano)
		req := dedup.Request{Scope: "jobs", Name: "settle", Key: period, TTL: 24 * time.Hour}
		_, _, err := w.once.Do(ctx, req, func(ctx context.Context) ([]byte, error) { return nil, w.job(ctx, next) })
		if err != nil {
			return next, err
		}
	}
	return next, nil
}

func (w *worker) begins(period int) time.Time { return w.start.Add(time.Duration(period) * w.period) }

var errBank = errors.New("the bank does not answer")

// job is the work. Every third one takes longer than a period.
func (w *worker) job(ctx context.Context, period int) error {
	e := entry{Process: w.n, Period: period, Attempt: dedup.FromContext(ctx).Attempt(), Began: time.Now(), Outcome: done}
	takes := w.period / 5
	if period%3 == 1 {
		takes = w.period * 3 / 2
	}
	var err error
	select {
	case <-time.After(takes):
		if period == w.fail && e.Attempt == 1 {
			err = errBank
		}
	case <-ctx.Done(): // the lock is lost: another process may begin any moment
		err = context.Cause(ctx)
	}
	if err != nil {
		e.Outcome = failed
	}
	e.Ended = time.Now()
	return errors.Join(err, w.out.Encode(e))
}

// dieAt ends this process as a kill does, if it is the first one to have the lock at that period.
func (w *worker) dieAt(ctx context.Context, period int) error {
	if period != w.die {
		return nil
	}
	first, err := w.rdb.SetNX(ctx, w.prefix+"died", w.n, time.Hour).Result()
	if err != nil || !first {
		return err
	}
	now := time.Now()
	if err := w.out.Encode(entry{Process: w.n, Period: period, Began: now, Ended: now, Outcome: died}); err != nil {
		return err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return errors.Join(self.Kill(), context.Cause(ctx))
}
