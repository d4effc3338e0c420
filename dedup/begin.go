package dedup

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"time"
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
	if err := req.check(); err != nil {
		return nil, nil, err
	}
	return d.begin(ctx, &req)
}

func (d *Dedup) begin(ctx context.Context, req *Request) (*Claim, *Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, &Error{Err: ErrUnavailable, Cause: context.Cause(ctx), Reason: "the caller's context had ended"}
	}
	if !d.work.enter() {
		return nil, nil, &Error{Err: ErrClosed}
	}
	claim, rec, err := d.answer(ctx, req)
	if claim == nil { // else the claim leaves when it ends
		d.work.leave()
	}
	return claim, rec, err
}

func (d *Dedup) answer(ctx context.Context, req *Request) (*Claim, *Record, error) {
	q := &call{d: d, req: req, id: req.ID(), started: time.Now()}
	f, lead, err := d.flights.join(q.id, req)
	if err != nil {
		return nil, nil, err
	}
	if !lead {
		var rec *Record
		if rec, lead, err = q.follow(ctx, f); !lead {
			return nil, rec, err
		}
	}
	return q.lead(ctx, f)
}

// call is one Begin.
type call struct {
	d       *Dedup
	req     *Request
	id      string
	started time.Time
	waited  bool
}

// rest is how long the call may still wait.
func (q *call) rest() time.Duration { return q.d.cfg.wait - time.Since(q.started) }

// follow waits for the one with the baton. lead: the caller has it now.
func (q *call) follow(ctx context.Context, f *flight) (rec *Record, lead bool, err error) {
	q.waited = true
	if f.done == nil { // it had landed before anybody waited, and was kept
		return q.landed(f)
	}
	timer := time.NewTimer(q.rest())
	defer timer.Stop()
	select {
	case <-f.done:
		q.d.flights.leave(f)
		return q.landed(f)
	case <-f.turn:
		q.d.flights.take(f)
		return nil, true, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if q.d.flights.leave(f) {
		return q.landed(f)
	}
	return nil, false, q.inFlight(ctx)
}

func (q *call) landed(f *flight) (*Record, bool, error) {
	if f.rec == nil {
		return nil, false, f.err
	}
	rec := *f.rec
	rec.Waited = true
	return &rec, false, nil
}

func (q *call) inFlight(ctx context.Context) error {
	return &Error{Err: ErrInFlight, Cause: context.Cause(ctx), Waited: time.Since(q.started)}
}

// lead asks the store, again and again while the request runs elsewhere.
func (q *call) lead(ctx context.Context, f *flight) (*Claim, *Record, error) {
	d := q.d
	ask := BeginRequest{
		Owner:       Owner{ID: q.id, Token: rand.Text(), Fingerprint: q.req.Fingerprint},
		Lease:       d.cfg.lease,
		TTL:         q.req.ttl(),
		NoTakeover:  q.req.NoTakeover,
		TraceParent: traceParent(ctx),
	}
	ended := false
	defer func() {
		if !ended { // the store has panicked
			d.flights.land(f, nil, &Error{Err: ErrUnavailable, Reason: "panic"}, false)
		}
	}()
	for polls := 0; ; polls++ {
		sent := time.Now()
		a, err := d.ask(ctx, ask)
		ended = err != nil || a.Verdict != VerdictInFlight
		if err != nil {
			return nil, nil, q.refused(ctx, f, ask.Owner, err)
		}
		switch a.Verdict {
		case VerdictRun:
			return d.newClaim(q, f, ask, a, sent), nil, nil
		case VerdictReplay:
			rec := &Record{Result: a.Result, Attempt: a.Attempt, Stored: true, Waited: q.waited, TraceParent: a.TraceParent}
			d.flights.land(f, rec, nil, false)
			return nil, rec, nil
		case VerdictInFlight:
			q.waited = true
			if ended = !q.pause(ctx, polls, a.Rest); ended {
				d.flights.pass(f)
				return nil, nil, q.inFlight(ctx)
			}
			continue
		case VerdictMismatch:
			err = &Error{Err: ErrMismatch}
		case VerdictInterrupted:
			err = &Error{Err: ErrInterrupted}
		case VerdictCorrupt:
			rec, err := d.corrupt(ctx, q, a)
			d.flights.land(f, rec, err, false)
			return nil, rec, err
		default:
			err = &Error{Err: ErrUnknownOutcome, Reason: "the store gave no verdict"}
		}
		d.flights.land(f, nil, err, false)
		return nil, nil, err
	}
}

// refused ends a flight whose store has not answered. Those who wait get the same error, so that they do not all run
// into the same silence, unless it was this caller's own context that ended the call.
func (q *call) refused(ctx context.Context, f *flight, o Owner, err error) error {
	if !errors.Is(err, ErrUnavailable) {
		q.d.abandon(o)
	}
	if ctx.Err() != nil {
		q.d.flights.pass(f)
		var e *Error
		if errors.As(err, &e) {
			err = &Error{Err: e.Err, Cause: errors.Join(context.Cause(ctx), e.Cause), Reason: e.Reason}
		}
		return err
	}
	q.d.flights.land(f, nil, err, false)
	return err
}

// pause waits before the store is asked again. It reports false when the call's time is over.
func (q *call) pause(ctx context.Context, polls int, lease time.Duration) bool {
	left := q.rest()
	if left <= 0 {
		return false
	}
	timer := time.NewTimer(min(left, pollPause(polls, mathrand.Float64()), lease+time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pollPause is the pause after the n-th question, from 0: 25, 50, 100, 200, 250 ms and so on, each +-20 %.
func pollPause(n int, random float64) time.Duration {
	base := min(25*time.Millisecond<<min(n, 10), 250*time.Millisecond)
	return time.Duration(float64(base) * (0.8 + 0.4*random))
}

// corrupt is the answer where a record cannot be read: its code if it is done and that much is readable, else an error.
// It is never run.
func (d *Dedup) corrupt(ctx context.Context, q *call, a Answer) (*Record, error) {
	d.tel.corrupt(ctx, q, a)
	if a.State == "done" && a.Result.Code > 0 {
		return &Record{Result: Result{Code: a.Result.Code, Omitted: true}, Attempt: max(a.Attempt, 1), Stored: true, Waited: q.waited}, nil
	}
	return nil, &Error{Err: ErrCorrupt, Code: a.Result.Code}
}
