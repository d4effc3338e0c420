package dedup

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// once is one call of the store, within the time that one call has.
func (d *Dedup) once(ctx context.Context, call func(context.Context) error) error {
	return d.within(ctx, d.cfg.call, call)
}

func (d *Dedup) within(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return typed(call(ctx))
}

// insist calls the store again and again while it does not answer, for the given time at most. If one of the calls may
// have been carried out, the error says so.
func (d *Dedup) insist(ctx context.Context, budget time.Duration, call func(context.Context) error) error {
	end := time.Now().Add(budget)
	unknown := false
	for n := 0; ; n++ {
		err := d.within(ctx, min(d.cfg.call, time.Until(end)), call)
		unknown = unknown || errors.Is(err, ErrUnknownOutcome)
		if !unsettled(err) {
			return err
		}
		if left := time.Until(end); left <= 0 || !sleep(ctx, min(left, insistPause(n))) || time.Until(end) <= 0 {
			if unknown && !errors.Is(err, ErrUnknownOutcome) {
				err = &Error{Err: ErrUnknownOutcome, Cause: err}
			}
			return err
		}
	}
}

// insistPause is the pause after the n-th call, from 0: 25, 50, 100 ... 1000 ms, each +-20 %.
func insistPause(n int) time.Duration {
	base := min(25*time.Millisecond<<min(n, 10), time.Second)
	return time.Duration(float64(base) * (0.8 + 0.4*rand.Float64()))
}

// later calls the store in the background until it answers or the time has come, and then calls after, which may be nil,
// with the last error. If too much waits in the background already, after is called at once.
func (d *Dedup) later(until time.Time, call func(context.Context) error, after func(context.Context, error)) {
	if after == nil {
		after = func(context.Context, error) {}
	}
	work := func(ctx context.Context) { after(ctx, d.insist(ctx, time.Until(until), call)) }
	if !d.background(d.work.ctx, d.pending, work) {
		after(d.work.ctx, &Error{Err: ErrUnavailable, Reason: "too much waits in the background"})
	}
}

// abandon undoes a begin whose reply never came, when nobody ran: once as soon as the store answers, and once more a
// second later, since the bytes of the begin may have been carried out in between. Close does not wait for it: what is left
// is a record that lapses.
func (d *Dedup) abandon(o Owner) {
	o.Attempt = 1 // not known, and not looked at
	forget := func(ctx context.Context) error { return d.store.Forget(ctx, o) }
	d.background(d.work.idlers, d.undoing, func(ctx context.Context) {
		if err := d.insist(ctx, d.cfg.lease, forget); unsettled(err) {
			return // the record lapses
		}
		if sleep(ctx, time.Second) {
			_ = d.insist(ctx, d.cfg.lease, forget) // as above
		}
	})
}

// background runs fn on a goroutine that Close waits for, unless ctx is that of idlers. It reports false if places has
// none free.
func (d *Dedup) background(ctx context.Context, places chan struct{}, fn func(ctx context.Context)) bool {
	select {
	case places <- struct{}{}:
	default:
		return false
	}
	d.work.hold()
	go func() {
		defer d.work.leave()
		defer func() { <-places }()
		fn(ctx)
	}()
	return true
}

// sleep reports whether ctx still lives after the pause.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
