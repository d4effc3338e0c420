package dedup

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Begin asks whether the request may run. It returns one of three:
//
//   - a Claim: run, then call one of its Complete, Fail and Forget;
//   - a Record: the answer of an earlier or simultaneous repeat of the request;
//   - an error: ErrMismatch, ErrInFlight, ErrInterrupted, ErrCorrupt, ErrInvalid, ErrUnavailable, ErrUnknownOutcome or
//     ErrClosed, as an [*Error], and nothing may run; or, where this call has waited for one of the same process, what
//     that one gave to its Fail or Forget.
//
// If the same request is running, Begin waits for it up to 2 s, and never beyond ctx; both end with ErrInFlight, the
// latter also with the error of ctx. Repeats in one process wait without a command; one of them asks the store, with
// growing pauses, where the request runs elsewhere. One that finds its store away waits no longer than 250 ms, or, if
// its command is already on the wire, the client's ReadTimeout.
func (d *Dedup) Begin(ctx context.Context, req Request) (*Claim, *Record, error) {
	q := &call{d: d, req: req, started: time.Now()}
	inside, span := d.tel.begin(ctx)
	defer span.End() // for a panic; otherwise it has ended
	claim, rec, err := q.begin(inside)
	q.tell(ctx, span, claim, rec, err)
	return claim, rec, err
}

// call is one Begin.
type call struct {
	d       *Dedup
	req     Request
	id      string
	started time.Time
	waited  bool   // the request was running when this one came
	first   string // traceparent of the first execution

	// What came out, for telemetry.
	shared    bool // what another's claim has left for those who wait
	corrupt   bool
	cancelled bool // the caller left before the store answered
}

func (q *call) begin(ctx context.Context) (claim *Claim, rec *Record, err error) {
	if err := q.req.check(); err != nil {
		return nil, nil, err
	}
	if ctx.Err() != nil {
		return nil, nil, q.left(ctx, nil)
	}
	d := q.d
	if !d.work.enter() {
		return nil, nil, &Error{Err: ErrClosed}
	}
	defer func() {
		if claim == nil { // else the claim leaves when it ends
			d.work.leave()
		}
	}()

	q.id = q.req.ID()
	f, part, err := d.flights.join(q.id, &q.req)
	lead := part == leads
	switch part {
	case waits:
		rec, lead, err = q.follow(ctx, f)
	case landed:
		rec, err = q.landed(f)
	}
	if lead {
		claim, rec, err = q.lead(ctx, f)
	}
	if rec != nil {
		q.first = rec.TraceParent
		if q.req.StillTrue != nil {
			if err := q.req.StillTrue(ctx, rec); err != nil {
				q.waited, q.shared = false, false
				return nil, nil, err
			}
		}
	}
	return claim, rec, err
}

func (q *call) tell(ctx context.Context, span trace.Span, claim *Claim, rec *Record, err error) {
	t := told{outcome: q.outcomeOf(claim, rec, err), err: err, id: q.id, key: q.req.Key, first: q.first, started: q.started}
	switch {
	case claim != nil:
		t.attempt = claim.attempt
		if claim.attempt > 1 {
			t.first = claim.first
		}
	case rec != nil:
		t.attempt = rec.Attempt
	}
	q.d.tel.began(ctx, span, t)
}

// rest is how long the call may still wait.
func (q *call) rest() time.Duration { return q.d.cfg.wait - time.Since(q.started) }

// follow waits for the one with the baton. lead: the caller has it now.
func (q *call) follow(ctx context.Context, f *flight) (rec *Record, lead bool, err error) {
	q.waited = true
	timer := time.NewTimer(q.rest())
	defer timer.Stop()
	select {
	case <-f.done:
		q.d.flights.leave(f)
		rec, err = q.landed(f)
		return rec, false, err
	case <-f.turn:
		q.d.flights.take(f)
		return nil, true, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if q.d.flights.leave(f) {
		rec, err = q.landed(f)
		return rec, false, err
	}
	return nil, false, q.inFlight(ctx)
}

// landed returns the answer of a flight that has landed.
func (q *call) landed(f *flight) (*Record, error) {
	q.shared = f.shared
	if f.rec == nil {
		return nil, f.err
	}
	rec := *f.rec
	rec.Waited = true
	return &rec, nil
}

func (q *call) inFlight(ctx context.Context) error {
	return &Error{Err: ErrInFlight, Cause: context.Cause(ctx), Waited: time.Since(q.started)}
}

// lead asks the store, and lands the flight with the answer, passes the baton, or keeps it with a claim.
func (q *call) lead(ctx context.Context, f *flight) (claim *Claim, rec *Record, err error) {
	returned := false
	defer func() {
		if !returned { // a store or a hook has panicked
			q.d.flights.land(f, nil, &Error{Err: ErrUnavailable, Reason: "panic"})
		}
	}()
	claim, rec, err = q.ask(ctx, f)
	returned = true
	return claim, rec, err
}

// ask asks again and again while the request runs elsewhere.
func (q *call) ask(ctx context.Context, f *flight) (*Claim, *Record, error) {
	d := q.d
	b := BeginRequest{
		Owner:       Owner{ID: q.id, Token: rand.Text(), Fingerprint: q.req.Fingerprint},
		Lease:       d.cfg.lease,
		TTL:         q.req.ttl(),
		NoTakeover:  q.req.NoTakeover,
		TraceParent: telemetry.TraceParent(ctx),
	}
	for polls := 0; ; polls++ {
		sent := time.Now()
		a, err := d.ask(ctx, b)
		if err != nil {
			claim, err := q.refused(ctx, f, b, err)
			return claim, nil, err
		}
		var rec *Record
		switch a.Verdict {
		case VerdictRun:
			return d.newClaim(q, f, b, a, sent, reqctx.RuleOf(ctx)), nil, nil
		case VerdictInFlight:
			q.waited, q.first = true, a.TraceParent
			if q.pause(ctx, polls, a.Rest) {
				continue
			}
			d.flights.pass(f)
			return nil, nil, q.inFlight(ctx)
		case VerdictReplay:
			rec = &Record{Result: a.Result, Attempt: a.Attempt, Stored: true, Waited: q.waited, TraceParent: a.TraceParent}
		case VerdictMismatch:
			err = &Error{Err: ErrMismatch}
		case VerdictInterrupted:
			err = &Error{Err: ErrInterrupted}
		case VerdictCorrupt:
			rec, err = q.unreadable(a)
		default:
			err = &Error{Err: ErrUnknownOutcome, Reason: "the store gave no verdict"}
		}
		d.flights.land(f, rec, err)
		return nil, rec, err
	}
}

// refused ends a call whose store has not answered. Those who wait get the same error, so that they do not all run
// into the same silence, unless it was this caller's own context that ended the call, or it may run without a record.
func (q *call) refused(ctx context.Context, f *flight, b BeginRequest, err error) (*Claim, error) {
	d := q.d
	if errors.Is(err, ErrUnknownOutcome) {
		d.abandon(b.Owner)
	}
	switch {
	case ctx.Err() != nil:
		d.flights.pass(f)
		return nil, q.left(ctx, err)
	case q.req.Bypass != nil && unsettled(err):
		if release, ok := q.req.Bypass(); ok {
			return d.newBypass(q, f, b, release, reqctx.RuleOf(ctx)), nil
		}
	}
	d.flights.land(f, nil, err)
	return nil, err
}

// left is the error for a caller who has gone before the store answered, if it was asked at all.
func (q *call) left(ctx context.Context, err error) error {
	q.cancelled = true
	sentinel := error(ErrUnavailable)
	if errors.Is(err, ErrUnknownOutcome) {
		sentinel = ErrUnknownOutcome
	}
	return &Error{Err: sentinel, Cause: errors.Join(context.Cause(ctx), err), Reason: "the caller's context has ended"}
}

// pause waits before the store is asked again. It reports false when the call's time is over.
func (q *call) pause(ctx context.Context, polls int, lease time.Duration) bool {
	left := q.rest()
	if left <= 0 {
		return false
	}
	timer := time.NewTimer(min(left, pollPause(polls, mathrand.Float64()), max(lease, leastPause)+time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// leastPause keeps a store whose leases have always just ended from being asked without end.
const leastPause = 4 * time.Millisecond

// pollPause is the pause after the n-th question, from 0: 25, 50, 100, 200, 250 ms and so on, each +-20 %.
func pollPause(n int, random float64) time.Duration {
	base := min(25*time.Millisecond<<min(n, 10), 250*time.Millisecond)
	return time.Duration(float64(base) * (0.8 + 0.4*random))
}

// unreadable is the answer where a record cannot be read: its code if it is done and that much is readable, else an
// error. It is never run.
func (q *call) unreadable(a Answer) (*Record, error) {
	q.corrupt = true
	if a.State == "done" && a.Result.Code > 0 {
		return &Record{Result: Result{Code: a.Result.Code, Omitted: true}, Attempt: max(a.Attempt, 1), Stored: true, Waited: q.waited}, nil
	}
	return nil, &Error{Err: ErrCorrupt, Code: a.Result.Code}
}
