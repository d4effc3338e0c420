package lock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Acquire takes the lock on all keys, or on none. It waits for them until the wait budget is used up or ctx ends; ctx
// bounds the waiting, never the holding: its end neither stops the renewal nor frees the keys. The work belongs under
// [Lease.Context], and the lease must be released.
//
// If ctx carries a live lease of this Locker over all the keys, the new lease is nested in it: it costs no round trip,
// has the same fence, and the keys stay held until the outer one is released.
//
// Errors match one of ErrBusy, ErrUnavailable, ErrUnknownOutcome, ErrForeignKey, ErrInvalid, ErrClosed; ErrLost if the
// lease that ctx carries is lost; and the error of ctx if that ended the wait. After an error nothing is held, or for
// no longer than the TTL.
func (l *Locker) Acquire(ctx context.Context, keys []string, opts ...AcquireOption) (*Lease, error) {
	a := acquisition{l: l, parent: ctx, rule: reqctx.RuleOf(ctx), start: time.Now()}
	err := a.prepare(keys, opts)
	var lease *Lease
	if err == nil {
		if lease, err = l.nested(ctx, a.keys); lease != nil {
			return lease, nil
		}
	}
	a.tel = l.tel.of(a.rule)
	ctx, a.span = l.tel.tracer.Start(ctx, telemetry.SpanLockAcquire)
	if err == nil {
		lease, err = a.enter(ctx)
	}
	l.tel.decided(ctx, a.span, &a, err)
	return lease, err
}

// TryAcquire is Acquire without waiting: one attempt. If somebody else has one of the keys it returns nil, false, nil.
func (l *Locker) TryAcquire(ctx context.Context, keys []string, opts ...AcquireOption) (*Lease, bool, error) {
	lease, err := l.Acquire(ctx, keys, append(opts[:len(opts):len(opts)], Wait(0))...)
	var busy *BusyError
	if errors.As(err, &busy) && busy.Reason == NoWait {
		return nil, false, nil
	}
	return lease, lease != nil, err
}

// Do acquires the keys, runs fn under the lease's context and releases them, also when fn panics. It returns the error
// of Acquire, with fn not called; else those of fn and of Release. A nil error thus means that the lock was held until
// fn had returned.
func (l *Locker) Do(ctx context.Context, keys []string, fn func(context.Context) error, opts ...AcquireOption) (err error) {
	lease, err := l.Acquire(ctx, keys, opts...)
	if err != nil {
		return err
	}
	defer func() {
		released := lease.Release(ctx)
		switch {
		case err == nil:
			err = released
		case released != nil:
			err = errors.Join(err, released)
		}
	}()
	return fn(lease.Context(ctx))
}

// prepare takes the settings of the Locker, as the options of the call change them, and the keys.
func (a *acquisition) prepare(keys []string, opts []AcquireOption) error {
	var faults []error
	a.s = a.l.settings
	if len(opts) > 0 {
		a.s, faults = a.s.adjusted(opts)
	}
	if err := a.s.check(); err != nil {
		faults = append(faults, err)
	}
	sorted, full, err := a.l.lockKeys(keys)
	if err != nil {
		faults = append(faults, err)
	}
	a.keys, a.full = sorted, full
	return errors.Join(faults...)
}

// adjusted returns the settings as the options of a call change them, and what is wrong with these.
func (s settings) adjusted(opts []AcquireOption) (changed settings, faults []error) {
	for _, o := range opts {
		if o != nil {
			if err := o.adjust(&s); err != nil {
				faults = append(faults, err)
			}
		}
	}
	return s, faults
}
