package dedup

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// Execution is what the code that does the work sees of its request, see [FromContext]. Its methods may be called on
// nil, from any goroutine, and any number of times; where nothing is recorded they do nothing.
type Execution struct {
	id       string
	attempt  int
	takeover bool

	mu       sync.Mutex
	decision Decision
}

// Decision is what the code that does the work has said about its result. Whoever ends the claim asks for it.
type Decision struct {
	Commit  bool          // the effect has happened: the record ends as done, whatever comes out
	NoStore bool          // the result is not to be stored
	Pin     bool          // the result is to be stored, whatever it is
	PinTTL  time.Duration // for how long; 0: the TTL of the request
}

type executionKey struct{}

// FromContext returns the execution that the context belongs to, nil where there is none.
func FromContext(ctx context.Context) *Execution {
	if e, ok := ctx.Value(executionKey{}).(*Execution); ok {
		return e
	}
	if r, ok := reqctx.RequestOf(ctx); ok { // an id without a record
		return &Execution{id: r.ID, attempt: r.Attempt}
	}
	return nil
}

// RequestID returns the record id, under which the effect should be unique in SQL: 43 characters. Empty on nil.
func (e *Execution) RequestID() string {
	if e == nil {
		return ""
	}
	return e.id
}

// Attempt returns which attempt this is, from 1, or 0 where nobody counts. Above 1 an earlier attempt has failed or was
// interrupted, and may have had its effect.
func (e *Execution) Attempt() int {
	if e == nil {
		return 0
	}
	return e.attempt
}

// Takeover reports whether an earlier attempt has lapsed without a word: it may have stopped anywhere, or be at work
// even now.
func (e *Execution) Takeover() bool { return e != nil && e.takeover }

// Pin has the result stored even if it is a refusal, for ttl: "sold out" for a minute, say. It is counted in
// milliseconds, rounded up; 0 or less means the TTL of the request.
func (e *Execution) Pin(ttl time.Duration) {
	e.decide(func(d *Decision) { d.Pin, d.PinTTL = true, max(ttl, 0) })
}

// NoStore has the result not stored, even if it is a success: the same request runs again. Commit outweighs it.
func (e *Execution) NoStore() {
	e.decide(func(d *Decision) { d.NoStore = true })
}

// Commit says that the effect has happened: the record ends as done and the request is never run again, even if an
// error, a panic or a refusal follows.
func (e *Execution) Commit() {
	e.decide(func(d *Decision) { d.Commit = true })
}

// Decision returns what has been said so far.
func (e *Execution) Decision() Decision {
	if e == nil {
		return Decision{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.decision
}

func (e *Execution) decide(change func(*Decision)) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.decision)
}
