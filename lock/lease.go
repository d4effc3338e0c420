package lock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// A Lease is the right to be the only worker on its keys until it is released or lost. It is renewed by itself. Safe for
// concurrent use.
type Lease struct {
	h      *hold
	nested bool // within another lease, which owns the lock

	once   sync.Once
	answer error // of Release

	over bool // nested: released, guarded by h.mu
}

// Keys returns the keys of the lease, sorted and without duplicates, without the prefix.
func (x *Lease) Keys() []string { return slices.Clone(x.h.keys) }

// Fence returns the fencing token: a number greater than that of every earlier lease of each of these keys. A nested
// lease has the number of the one around it. It is at least 1 and below 2^53.
func (x *Lease) Fence() int64 { return x.h.fence }

// Err returns nil while the lease is held, by the clock at the moment of the call; else an error that matches ErrLost,
// or ErrReleased after a release. Nil is no promise for the next instant: what is written under the lease should carry
// its fence.
func (x *Lease) Err() error {
	x.h.mu.Lock()
	over := x.over
	x.h.mu.Unlock()
	if err := x.h.verdict(); err != nil || !over {
		return err
	}
	return x.h.errReleased()
}

// Context returns a context for the work under the lease. It ends with parent, with cause ErrLost as soon as the lease
// is lost, and with cause ErrReleased when it is released; see context.Cause. It carries the lease, so that an Acquire
// for the same keys is nested in it, and its fence. It may be called many times.
func (x *Lease) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	c := heldContext{lease: x, cancel: cancel, carrier: &reqctx.Lease{Keys: x.h.keys, Fence: x.h.fence, Verdict: x.Err, Owner: x}}
	if x.h.span.SpanContext().IsValid() {
		ctx = trace.ContextWithSpan(ctx, x.h.span)
	}
	c.ctx = reqctx.WithLease(ctx, c.carrier)
	if !x.h.addContext(c) {
		cancel(x.Err())
	}
	return c.ctx
}

// FromContext returns the lease that ctx carries, of several the innermost.
func FromContext(ctx context.Context) (*Lease, bool) {
	for c := range reqctx.Leases(ctx) {
		if x, ok := c.Owner.(*Lease); ok {
			return x, true
		}
	}
	return nil, false
}

// Detach returns the same context without any lease, for work that must compete for the lock like a stranger. It still
// ends when the lease does.
func Detach(ctx context.Context) context.Context { return reqctx.WithoutLeases(ctx) }

// nested returns a lease within one that ctx carries, if that is one of l over all of keys; an error if that one is
// lost. Neither means that there is none: one that was released counts for nothing.
func (l *Locker) nested(ctx context.Context, keys []string) (*Lease, error) {
	for c := range reqctx.Leases(ctx) {
		outer, ok := c.Owner.(*Lease)
		if !ok || outer.h.l != l || !containsAll(outer.h.keys, keys) {
			continue
		}
		err := outer.Err()
		if err == nil {
			return outer.h.nest(), nil
		}
		if errors.Is(err, ErrLost) {
			return nil, err
		}
	}
	return nil, nil
}

// noteOrder counts an acquire of keys of which one sorts before a key that ctx holds already: two of these, in opposite
// order, wait for each other until a budget ends.
func (l *Locker) noteOrder(ctx context.Context, a *acquisition) {
	for c := range reqctx.Leases(ctx) {
		outer, ok := c.Owner.(*Lease)
		if ok && outer.h.l == l && outer.Err() == nil && a.keys[0] < outer.h.keys[len(outer.h.keys)-1] {
			add(ctx, l.tel.outOfOrder, a.tel.rule)
			return
		}
	}
}

// containsAll reports whether the sorted list has has all of the sorted list want.
func containsAll(has, want []string) bool {
	i := 0
	for _, w := range want {
		for i < len(has) && has[i] < w {
			i++
		}
		if i == len(has) || has[i] != w {
			return false
		}
	}
	return true
}
