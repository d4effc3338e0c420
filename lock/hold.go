package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/renew"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// sendLimit bounds a command that renews a lease: a sixth of its TTL leaves room for two more.
func sendLimit(ttl time.Duration) time.Duration { return min(time.Second, ttl/6) }

// safeUntil is how long a lease may be relied on whose last confirmed command was sent at since: a little less than the
// TTL, which the server counts from a later instant. The margin is for clocks that run at slightly different speeds and
// for the time it takes to tell the holder.
func safeUntil(since time.Time, ttl time.Duration) time.Time {
	return since.Add(ttl - ttl/100 - 2*time.Millisecond)
}

// A hold is the life of one lock from grant to release, shared by the lease that owns it and those nested in it.
type hold struct {
	l       *Locker
	keys    []string // the caller's
	held    Held
	fence   int64
	rule    *reqctx.Rule
	tel     *ruleInstruments
	ctx     context.Context // of the acquire, without its end: for what is told of the hold
	span    trace.Span
	started time.Time
	maxAt   time.Time // when MaxHold is over; zero: never
	lines   []*line   // in front of which it is, until it is free
	doubt   bool      // an early send had no answer: it might take the keys once more after they are free
	owner   Lease

	mu       sync.Mutex
	state    holdState
	lost     *LostError // why, in state lost
	safe     time.Time  // the safe deadline
	renewAt  time.Time
	entry    renew.Entry
	inFlight int // renewals without an answer so far
	failures int // in a row
	renewals int // confirmed
	nested   int // leases nested in it and not released
	contexts []heldContext
	pruneAt  int // length of contexts at which those that are over are dropped
}

type holdState uint8

const (
	live holdState = iota
	lost
	released
)

// mostInFlight bounds the renewals of one lease that wait for an answer: a server that hangs gets no more.
const mostInFlight = 4

// newHold makes the hold of a grant that was asked for at since, registered for its renewal.
func (l *Locker) newHold(a *acquisition, g Grant, since time.Time) *hold {
	now := time.Now()
	h := &hold{
		l: l, keys: a.keys, fence: g.Fence, rule: a.rule, tel: a.tel, started: now, doubt: a.doubt, held: a.request.held(), lines: a.lines,
		safe:    safeUntil(since, a.s.ttl),
		renewAt: since.Add(a.s.ttl / 3),
	}
	h.owner = Lease{h: h}
	h.began(a.parent, a.span)
	if a.s.maxHold > 0 {
		h.maxAt = now.Add(a.s.maxHold)
	}
	h.mu.Lock() // whoever finds it in a line waits until it is whole
	l.renewals.Start(&h.entry, h.next(), h)
	for _, ln := range h.lines {
		l.queue.occupy(ln, h, now)
	}
	h.mu.Unlock()
	if l.base.Err() != nil {
		h.end(LockerGone) // granted while Close did not wait any longer: nobody would renew it
	}
	return h
}

// next is when something is due. Called with h.mu held.
func (h *hold) next() time.Time {
	next := h.safe
	if !h.maxAt.IsZero() && h.maxAt.Before(next) {
		next = h.maxAt
	}
	if h.inFlight < mostInFlight && h.renewAt.Before(next) {
		next = h.renewAt
	}
	return next
}

// Due does what is due, on the scheduler's goroutine.
func (h *hold) Due(now time.Time) time.Time {
	h.mu.Lock()
	if h.expire(now) {
		return time.Time{}
	}
	defer h.mu.Unlock()
	if h.state != live {
		return time.Time{}
	}
	if h.inFlight < mostInFlight && !now.Before(h.renewAt) {
		repeat := h.failures+h.inFlight > 0
		h.inFlight++
		h.renewAt = now.Add(sendLimit(h.held.TTL)) // when the next one is due, if this one gets no answer
		h.l.background.start(func() { h.renew(repeat) })
	}
	return h.next()
}

// expire ends a live hold whose time is over by the clock. It is called with h.mu held, and gives it back if it returns
// true.
func (h *hold) expire(now time.Time) bool {
	switch {
	case h.state != live:
		return false
	case !now.Before(h.safe):
		h.lose(Unconfirmed)
	case !h.maxAt.IsZero() && !now.Before(h.maxAt):
		h.lose(HeldTooLong)
	default:
		return false
	}
	return true
}

// renew sends one renewal and notes what it comes to.
func (h *hold) renew(repeat bool) {
	ctx, cancel := context.WithTimeout(h.l.base, sendLimit(h.held.TTL))
	defer cancel()
	held := h.held
	held.Repeat = repeat
	since := time.Now()
	s, err := h.l.backend.Renew(ctx, held)
	if h.l.base.Err() != nil {
		return
	}
	if err != nil || s == Ours {
		h.tellRenewed(err)
	}

	h.mu.Lock()
	h.inFlight--
	switch {
	case h.state != live:
	case err == nil && s == Missing:
		h.lose(Gone)
		return
	case err == nil && s == Foreign:
		h.lose(Taken)
		return
	case err == nil:
		h.renewals++
		h.failures = 0
		if safe := safeUntil(since, h.held.TTL); safe.After(h.safe) { // replies may overtake each other
			h.safe = safe
			h.renewAt = since.Add(h.held.TTL / 3)
		}
		h.l.renewals.Reset(&h.entry, h.next())
	default: // still held: one that is not confirmed is not lost
		h.failures++
		h.renewAt = time.Now().Add(min(h.l.pauseAfter(h.failures), h.held.TTL/6))
		h.l.renewals.Reset(&h.entry, h.next())
	}
	h.mu.Unlock()
}

// end ends a live hold before its time.
func (h *hold) end(why LostReason) {
	h.mu.Lock()
	if h.state != live {
		h.mu.Unlock()
		return
	}
	h.lose(why)
}

// lose ends a live hold under its holder: contexts first, then the place in the lines. It is called with h.mu held and
// gives it back.
func (h *hold) lose(why LostReason) {
	h.state = lost
	h.lost = &LostError{Keys: h.keys, Reason: why, rule: h.rule}
	contexts := h.contexts
	h.mu.Unlock()

	h.markLost()
	for _, c := range contexts {
		c.cancel(h.lost)
	}
	h.l.renewals.Remove(&h.entry)
	h.free(turn{kind: front})
	h.l.background.start(h.tellLost) // a logger may block, and this may be the scheduler's goroutine
	h.l.gate.leave()
}

// free gives up the places in front.
func (h *hold) free(t turn) {
	for _, ln := range h.lines {
		h.l.queue.vacate(ln, h, t)
	}
}

// deadline is when the hold ends at the latest, unless it is renewed.
func (h *hold) deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.safe
}

// verdict is nil while the hold is live, by the clock and not by the last tick.
func (h *hold) verdict() error {
	h.mu.Lock()
	if h.expire(time.Now()) {
		return h.lost
	}
	defer h.mu.Unlock()
	switch h.state {
	case lost:
		return h.lost
	case released:
		return h.errReleased()
	}
	return nil
}

func (h *hold) errReleased() error {
	return &Error{Keys: h.keys, sentinel: ErrReleased, rule: h.rule}
}

// nest returns a lease within the hold.
func (h *hold) nest() *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nested++
	return &Lease{h: h, nested: true}
}

// heldContext is a context that ends with the hold, or with the lease it was made of.
type heldContext struct {
	lease   *Lease
	ctx     context.Context
	cancel  context.CancelCauseFunc
	carrier *reqctx.Lease
}

// addContext has c end with the hold, or returns false if that is over already.
func (h *hold) addContext(c heldContext) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != live || c.lease.over {
		return false
	}
	if len(h.contexts) >= max(h.pruneAt, 8) {
		h.contexts = slices.DeleteFunc(h.contexts, func(c heldContext) bool { return c.ctx.Err() != nil && !c.carrier.OpenTx() })
		h.pruneAt = 2 * len(h.contexts)
	}
	h.contexts = append(h.contexts, c)
	return true
}
