package dedup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/renew"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Claim is the right to run a request, and the duty to say how it ended: call one of Complete, Fail and Forget, once; a
// further call of any of them does nothing and returns what the first one did, so a deferred Fail is a safety net. The
// claim is renewed until then, for at most 5 min. Safe for concurrent use.
type Claim struct {
	Execution

	d       *Dedup
	owner   Owner
	ttl     time.Duration
	first   string // traceparent of the first execution
	hash    string
	rule    *reqctx.Rule
	started time.Time

	bypassed bool   // there is no record
	release  func() // with bypassed: called at the end

	once sync.Once
	err  error // what the ending returned

	mu       sync.Mutex
	flight   *flight
	renewal  renew.Entry
	renewing bool
	leaseEnd time.Time               // by the local clock, not later than by the store's
	cancel   context.CancelCauseFunc // of all contexts given out
	lost     error
	over     bool
}

func (d *Dedup) newClaim(q *call, f *flight, b BeginRequest, a Answer, sent time.Time, rule *reqctx.Rule) *Claim {
	c := &Claim{d: d, flight: f, owner: b.Owner, ttl: b.TTL, first: a.TraceParent, hash: q.req.Hash(), rule: rule, started: sent}
	c.Execution.id, c.attempt, c.takeover = q.id, a.Attempt, a.Takeover
	c.owner.Attempt = a.Attempt
	c.leaseEnd = sent.Add(d.cfg.lease)
	c.start(sent.Add(d.cfg.lease / 3))
	return c
}

// newBypass returns a claim without a record.
func (d *Dedup) newBypass(q *call, f *flight, b BeginRequest, release func(), rule *reqctx.Rule) *Claim {
	if release == nil {
		release = func() {}
	}
	c := &Claim{d: d, flight: f, owner: b.Owner, hash: q.req.Hash(), rule: rule, started: time.Now(), bypassed: true, release: release}
	c.Execution.id = q.id
	c.start(c.started.Add(d.cfg.maxRun))
	return c
}

func (c *Claim) start(due time.Time) {
	c.d.flights.run(c.flight, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.d.renewal.Start(&c.renewal, due, (*renewable)(c))
}

// Bypassed reports whether the request runs without a record, because the store is away and Request.Bypass allowed it.
// Attempt is then 0.
func (c *Claim) Bypassed() bool { return c.bypassed }

// TraceParent returns the W3C traceparent of the first execution, or empty.
func (c *Claim) TraceParent() string { return c.first }

// Context returns a context for the work: it carries the request id and the attempt for the other parts of holdfast and
// for [FromContext], and is cancelled with the cause ErrLeaseLost when another has taken over, when the work takes more
// than 5 min, or when Close stops waiting. It ends when the claim ends. A lease that merely could not be renewed does
// not cancel it: nobody else may have come.
func (c *Claim) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	ctx = reqctx.WithRequest(ctx, reqctx.Request{ID: c.Execution.id, Attempt: c.attempt, Hash: c.hash})
	ctx = context.WithValue(ctx, executionKey{}, &c.Execution)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lost != nil:
		cancel(c.lost)
	case c.over:
		cancel(context.Canceled)
	case c.cancel == nil:
		c.cancel = cancel
	default:
		outer := c.cancel
		c.cancel = func(cause error) { outer(cause); cancel(cause) }
	}
	return ctx
}

// Complete stores the result; every repeat gets it for ttl from now, counted in milliseconds, rounded up. A ttl of 0 or
// less means the TTL of the request. It does not end with ctx, of which it takes only the values.
//
//   - nil: stored; or there is no record, see Bypassed.
//   - ErrLeaseLost: another has taken over; the result is not stored, and that of the other counts.
//   - ErrUnavailable, ErrUnknownOutcome: not stored within a second. The record stays as it is, those who wait in this
//     process get the result, and the store is tried on in the background until the lease ends. The answer may be sent.
//   - ErrCorrupt, ErrInvalid: not stored, and not tried again.
func (c *Claim) Complete(ctx context.Context, r Result, ttl time.Duration) error {
	return c.end(ctx, func(ctx context.Context) (string, int, error) {
		if ttl <= 0 {
			ttl = c.ttl
		}
		ttl = max(ttl, time.Millisecond)
		err := c.complete(ctx, r, ttl)
		switch {
		case errors.Is(err, ErrLeaseLost):
			return storedLost, 0, err
		case err != nil:
			return persistFailed, 0, err
		case r.Omitted:
			return storedTombstone, len(r.Data), nil
		}
		return storedResult, len(r.Data), nil
	})
}

// Fail gives the request up: its effect may have happened, and the same request may run again at once, as the next
// attempt. Those who wait for it in this process get share if it is not nil, else cause as their error; if both are nil,
// the next one of them begins. After Commit it is Complete, with share or, without it, a tombstone.
//
// It returns nil, or ErrLeaseLost, ErrUnavailable, ErrUnknownOutcome or ErrCorrupt like Complete. When the store is away
// the rest is done in the background, and the record lapses at the latest.
func (c *Claim) Fail(ctx context.Context, share *Result, cause error) error {
	return c.giveUp(ctx, share, cause, storedFailed, c.d.store.Fail)
}

// Forget says that nothing has been done: no effect has happened, and the key is free for another request if this was
// the first attempt. Otherwise it is like Fail.
func (c *Claim) Forget(ctx context.Context, share *Result, cause error) error {
	stored := storedRemoved
	if c.attempt > 1 {
		stored = storedFailed
	}
	return c.giveUp(ctx, share, cause, stored, c.d.store.Forget)
}

// end ends the claim once, and tells how.
func (c *Claim) end(ctx context.Context, how func(ctx context.Context) (stored string, size int, err error)) error {
	c.once.Do(func() {
		c.stop()
		defer c.d.work.leave()
		if c.bypassed {
			defer c.release()
			_, _, c.err = how(ctx)
			return
		}
		ctx, span := c.d.tel.tracer.Start(ctx, telemetry.SpanDedupComplete)
		ctx = context.WithoutCancel(ctx)
		var stored string
		var size int
		returned := false
		defer func() {
			if !returned { // the store has panicked
				c.d.flights.share(c.flight, nil, &Error{Err: ErrUnavailable, Reason: "panic"})
				span.End()
			}
		}()
		stored, size, c.err = how(ctx)
		returned = true
		c.d.tel.ended(ctx, span, c, stored, size, c.err)
	})
	return c.err
}

// stop ends renewal and contexts.
func (c *Claim) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.d.renewal.Remove(&c.renewal)
	c.over = true
	if c.cancel != nil {
		c.cancel(context.Canceled)
	}
}

// lose tells the work that the claim is no longer its own.
func (c *Claim) lose(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.lost != nil {
		return
	}
	c.lost = &Error{Err: ErrLeaseLost, Reason: reason}
	if c.cancel != nil {
		c.cancel(c.lost)
	}
	if reason == taken { // whoever waits for this claim now waits for another's, and asks the store
		c.d.flights.pass(c.flight)
		c.flight = newFlight(c.owner.ID, &Request{})
	}
}

// The reasons of a loss.
const (
	taken   = "taken"
	maxHold = "max_hold"
	closed  = "closed"
)

func (c *Claim) lostAs(reason string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e *Error
	if errors.As(c.lost, &e) && e.Reason == reason {
		return e
	}
	return nil
}

func (c *Claim) complete(ctx context.Context, r Result, ttl time.Duration) error {
	d := c.d
	rec := &Record{Result: r, Attempt: c.attempt, Stored: true, Waited: true, TraceParent: c.first}
	if c.bypassed {
		rec.Stored = false
		d.flights.share(c.flight, rec, nil)
		return nil
	}
	if err := c.lostAs(taken); err != nil {
		return err
	}
	store := func(ctx context.Context) error { return d.store.Complete(ctx, c.owner, r, ttl) }
	err := d.insist(ctx, d.cfg.persist, store)
	rec.Stored = err == nil
	switch {
	case err == nil:
		d.flights.land(c.flight, rec, nil)
	case errors.Is(err, ErrLeaseLost):
		d.flights.pass(c.flight) // the other's result counts: whoever waits asks the store
	case unsettled(err):
		d.flights.keep(c.flight, rec)
		d.later(c.until(), store, func(ctx context.Context, err error) {
			d.flights.drop(c.flight)
			d.tel.settledLate(ctx, c, err)
		})
	default:
		d.flights.share(c.flight, rec, nil)
	}
	return err
}

// giveUp is Fail and Forget.
func (c *Claim) giveUp(ctx context.Context, share *Result, cause error, stored string, op func(context.Context, Owner) error) error {
	if c.Decision().Commit {
		r := Result{Omitted: true}
		if share != nil {
			r = *share
		}
		return c.Complete(ctx, r, 0)
	}
	return c.end(ctx, func(ctx context.Context) (string, int, error) {
		err := c.free(ctx, op)
		switch {
		case share != nil:
			rec := &Record{Result: *share, Attempt: c.attempt, Waited: true, TraceParent: c.first}
			c.d.flights.share(c.flight, rec, nil)
		case cause != nil:
			c.d.flights.share(c.flight, nil, cause)
		default:
			c.d.flights.pass(c.flight)
		}
		if errors.Is(err, ErrLeaseLost) {
			stored = storedLost
		}
		return stored, 0, err
	})
}

func (c *Claim) free(ctx context.Context, op func(context.Context, Owner) error) error {
	if c.bypassed {
		return nil
	}
	if err := c.lostAs(taken); err != nil {
		return err
	}
	send := func(ctx context.Context) error { return op(ctx, c.owner) }
	err := c.d.once(ctx, send)
	if errors.Is(err, ErrNoRecord) {
		return nil // gone already
	}
	if unsettled(err) {
		c.d.later(c.until(), send, nil)
	}
	return err
}

// until is how long an ending is tried in the background: to the end of the lease, and for a third of one at least, since
// as long as nobody has taken over it is accepted after that too.
func (c *Claim) until() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	least := time.Now().Add(c.d.cfg.lease / 3)
	if c.leaseEnd.After(least) {
		return c.leaseEnd
	}
	return least
}
