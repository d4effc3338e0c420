package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/fault"
)

// execution is one run of a handler under a claim.
type execution struct {
	*dedupHandler
	at    *place
	ctx   context.Context // of the request, with the rule
	claim *dedup.Claim
	x     *exchange

	work context.Context // the handler's
	rw   *response
}

// errPanicked is for those who wait for a request whose handler has panicked.
var errPanicked error = &refusal{sentinel: dedup.ErrUnavailable, text: "the handler of the same request panicked"}

// serve runs the handler, ends the claim and sends the answer: in this order, so that what is seen is durable. What a
// Lock inside has left to do runs meanwhile.
//
//nolint:contextcheck // e.work is made of the request's context
func (e *execution) serve(w http.ResponseWriter, r *http.Request) {
	if e.claim.Bypassed() {
		w.Header().Set("Idempotency-Status", "bypassed")
	}
	e.rw = hold(w, e.rule.maxResponse, e.handOver)
	e.work = e.claim.Context(withExchange(e.ctx, e.rule.g, e.x))
	ended := false
	defer func() {
		if !ended { // by a panic, which goes on unchanged, or by runtime.Goexit
			e.panicked()
		}
	}()
	e.next.ServeHTTP(e.rw, r.WithContext(e.work))
	a := e.answer()
	e.end(a)
	ended = true
	e.x.wait()
	switch {
	case a.none && errors.Is(context.Cause(e.work), dedup.ErrLeaseLost):
		e.rule.refuse(w, r, e.at, context.Cause(e.work))
	case !a.none:
		e.rw.send()
	}
}

// handOver is called before the handler gets the connection: there will be no answer to store.
func (e *execution) handOver() error {
	e.rule.report(e.ctx, slog.LevelWarn, &e.rule.g.quiet.handedOver, e.at, "holdfast: the handler takes the connection over, its request is not recorded", fault.Misuse)
	return e.claim.Forget(e.ctx, nil, nil)
}

func (e *execution) panicked() {
	e.rw.finish()
	var share *dedup.Result
	if e.claim.Decision().Commit { // then this is the result, and no answer is better than that of Recoverer
		code := http.StatusInternalServerError
		if status, sent := e.rw.sentStatus(); sent {
			code = status
		}
		share = &dedup.Result{Code: code, Omitted: true}
	}
	_ = e.claim.Fail(e.ctx, share, errPanicked) // told by package dedup; the record lapses at the latest
	e.x.wait()
}

// answer is what the handler has left.
type answer struct {
	none     bool // nothing was written, and nothing will be
	hijacked bool
	status   int
	head     http.Header
	fields   []field
	body     []byte // nil if not all of it was kept
	raw      []byte // for encodeRecord
	omitted  bool
	over     bool // the handler's context had ended
}

// answer takes the answer from the handler, who can no longer change it.
func (e *execution) answer() answer {
	over := e.work.Err() != nil
	a := e.rw.take(!over)
	a.over = over
	return a
}

// end ends the claim as the answer, and what the handler has said about it, demand.
func (e *execution) end(a answer) {
	said := e.claim.Decision()
	switch {
	case a.hijacked:
		return // handOver has
	case a.none && !said.Commit:
		// The client has left or the time is over, and whoever cut it off answers. Not a stored empty 200.
		_ = e.claim.Fail(e.ctx, nil, nil)
	case a.none:
		_ = e.claim.Complete(e.ctx, dedup.Result{Code: http.StatusOK, Omitted: true}, said.PinTTL)
	case e.done(a, said):
		// An error is told by package dedup, which goes on trying. The answer is sent all the same: the work is done.
		_ = e.claim.Complete(e.ctx, a.result(false), said.PinTTL)
	case e.x.wasRefused() || 400 <= a.status && a.status <= 499:
		_ = e.claim.Forget(e.ctx, e.share(a), nil)
	default:
		_ = e.claim.Fail(e.ctx, e.share(a), nil)
	}
}

// done reports whether the answer counts as done.
func (e *execution) done(a answer, said dedup.Decision) bool {
	switch {
	case said.Commit:
		return true
	case said.NoStore || e.x.wasRefused():
		return false
	case said.Pin:
		return true
	}
	return e.rule.storeIf(a.status, a.head, a.body)
}

// share returns the answer for those who wait for it in this process, though it is not stored: else as many copies of
// one bad request as there are would run, one after the other. When the request's own client has left or its own time
// was over, that says nothing about theirs.
func (e *execution) share(a answer) *dedup.Result {
	if a.over {
		return nil
	}
	r := a.result(true)
	return &r
}

// result returns the answer as it is kept. One that is only shared with those who wait keeps its Retry-After.
func (a *answer) result(shared bool) dedup.Result {
	fields := a.fields
	if lines := a.head["Retry-After"]; shared && lines != nil {
		fields = append(fields, field{"Retry-After", lines})
	}
	return dedup.Result{Code: a.status, Data: encodeRecord(a.raw, fields), Omitted: a.omitted}
}
