package lock

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// How long a process may keep a key to itself, from lease to lease, while somebody else may want it too.
	longestStreak = 16
	streakTime    = 250 * time.Millisecond

	// Bounds of how long it then stands back.
	minStandby = 500 * time.Microsecond
	maxStandby = 10 * time.Millisecond
)

// Release ends the lease. It does not matter whether ctx has ended, since what a request has taken must be given back
// when its client is gone: only the values of ctx are used, and the whole ends after about 2 s, or when the client
// stops waiting for a reply. It returns
//
//   - nil if the lease was held until now and is free;
//   - an error that matches ErrLost if it was not held any more;
//   - ErrUnknownOutcome if no answer came: the keys are free within the TTL, and are still being released meanwhile;
//   - ErrReleased for a nested lease whose owner has released.
//
// Whatever it returns, the lease is over, its contexts are cancelled and it is not renewed any more. A nested lease only
// leaves the one around it. Further calls return the first answer.
func (x *Lease) Release(ctx context.Context) error {
	x.once.Do(func() {
		if x.nested {
			x.answer = x.h.leaveNested(x)
		} else {
			x.answer = x.h.release(ctx)
		}
	})
	return x.answer
}

// leaveNested ends a nested lease.
func (h *hold) leaveNested(x *Lease) error {
	err := x.Err()
	h.mu.Lock()
	h.nested--
	x.over = true
	var over []heldContext
	kept := h.contexts[:0:0]
	for _, c := range h.contexts {
		if c.lease == x {
			over = append(over, c)
		} else {
			kept = append(kept, c)
		}
	}
	if h.state == live {
		h.contexts = kept
	}
	h.mu.Unlock()
	for _, c := range over {
		c.cancel(h.errReleased())
	}
	return err
}

// release ends the hold on behalf of its owner.
func (h *hold) release(ctx context.Context) error {
	now := time.Now()
	h.mu.Lock()
	if h.expire(now) { // by the clock, which may be ahead of the timer
		return h.releaseLost(ctx)
	}
	if h.state != live {
		h.mu.Unlock()
		return h.releaseLost(ctx)
	}
	h.state = released
	contexts := h.contexts
	h.mu.Unlock()
	defer h.l.gate.leave()
	h.checkCommitted(contexts)

	h.l.renewals.Remove(&h.entry) // before the command: a renewal on its way then finds nothing of ours
	for _, c := range contexts {
		c.cancel(h.errReleased())
	}
	err := h.pass(h.l.patience.detach(ctx, now), now)
	h.tellReleased(err)
	return err
}

// checkCommitted logs a release under which a transaction is still open: the next holder may read what it is about to
// change.
func (h *hold) checkCommitted(contexts []heldContext) {
	for _, c := range contexts {
		if c.carrier.OpenTx() {
			h.l.tel.write(h.ctx, slog.LevelError, "lock: released before the transaction under it has ended: acquire before it begins, release after it has committed",
				h.rule, h.keys, 0)
			return
		}
	}
}

// pass gives the lock up. The places in the lines are given up last and always, even if a hook of the client panics.
func (h *hold) pass(ctx context.Context, now time.Time) error {
	p := passing{l: h.l, h: h, held: h.held, since: now}
	defer p.free()
	if h.doubt {
		defer h.l.cleanUpLater(h.held)
	}
	return p.run(ctx)
}

// releaseLost answers for a hold that is lost. Where a key may still be ours it is deleted, so that nobody has to wait for
// the rest of its TTL: of several keys that may be all but the one that was lost.
func (h *hold) releaseLost(ctx context.Context) error {
	h.mu.Lock()
	why := h.lost
	h.mu.Unlock()
	defer h.spanEnded(endLost)
	if r := why.Reason; r == Unconfirmed || r == HeldTooLong || len(h.keys) > 1 && r != LockerGone {
		held := h.held
		held.Orphan = true
		_, _ = h.l.backend.Release(h.l.patience.detach(ctx, time.Now()), held) // one try: the answer is known, and the TTL does the rest
	}
	return why
}

// passing gives a lock to the next waiter of this process, or frees it.
type passing struct {
	l     *Locker
	h     *hold
	held  Held      // what there is to pass on: that of h or, if a waiter left while it was handed the lock, that of the waiter
	since time.Time // when it was got
	ran   bool      // a step that had no answer may have been done: to find nothing is then no loss
	next  turn      // for the next in line
	done  bool      // the place in front is somebody else's already
}

// free gives up the places in front, unless they were handed over.
func (p *passing) free() {
	if p.done {
		return
	}
	if p.next.kind == 0 {
		p.next.kind = front
	}
	p.h.free(p.next)
}

func (p *passing) run(ctx context.Context) error {
	if b, ok := p.l.backend.(HandoverBackend); ok && len(p.h.lines) == 1 {
		for {
			w := p.l.queue.offer(p.h.lines[0], p.since)
			if w == nil {
				break
			}
			settled, err := p.handOver(ctx, b, w)
			if settled {
				return err
			}
		}
	}
	return p.plain(ctx)
}

// handOver passes the lock to w. It is not settled if w has left with the lock in its hands.
func (p *passing) handOver(ctx context.Context, b HandoverBackend, w *waiter) (settled bool, err error) {
	ln := p.h.lines[0]
	since := time.Now()
	g, s, err := b.Handover(ctx, p.held, w.request)
	switch {
	case err == nil && s == Ours:
		p.l.roundTrip.note(time.Since(since))
		if p.l.queue.hand(ln, w, p.h, turn{kind: handed, grant: g, since: since}) {
			p.done = true
			add(p.h.ctx, p.l.tel.handovers, p.h.tel.rule) //nolint:contextcheck // the hold's, whose end this is
			return true, nil
		}
		p.held, p.since = w.request.held(), time.Now()
		return false, nil
	case err == nil: // not ours any more
		if p.l.queue.hand(ln, w, p.h, turn{kind: front}) {
			p.done = true
		}
		return true, p.own(s, false)
	}
	// No answer. The next one asks with the token that it may have been given, while the old one is taken away: then a
	// hand-over that is still on its way finds nothing.
	if p.l.queue.hand(ln, w, p.h, turn{kind: front, doubt: true}) {
		p.done = true
	} else {
		p.l.cleanUp(w.request.held())
	}
	p.ran = !errors.Is(err, ErrUnavailable)
	p.held.Repeat, p.since = true, time.Now()
	return true, p.plain(ctx)
}

// plain frees the lock. If this process has kept it to itself for long and others wait, they get a head start.
func (p *passing) plain(ctx context.Context) error {
	rel, err := p.release(ctx)
	if err != nil {
		if p.held.Token != p.h.held.Token {
			p.l.cleanUp(p.held)
			return nil // our own part was passed on
		}
		p.l.releaseLater(p.held, p.h.deadline())
		return &Error{Keys: p.h.keys, sentinel: ErrUnknownOutcome, rule: p.h.rule, cause: err}
	}
	if !p.done && p.l.queue.endStreak(p.h.lines, p.since) && rel.Others != 0 {
		standby := min(max(2*p.l.roundTrip.value(), minStandby), maxStandby)
		p.next = turn{kind: front, standby: time.Now().Add(standby)}
	}
	return p.own(rel.State, p.ran && time.Now().Before(p.h.deadline()))
}

// own is the answer to the release of p.h when its keys were found in state s: by a repeat that may have found its own
// doing, or when the lock had been passed on already, that says nothing against it.
func (p *passing) own(s State, repeated bool) error {
	if s == Ours || repeated || p.held.Token != p.h.held.Token {
		return nil
	}
	why := Gone
	if s == Foreign {
		why = Taken
	}
	return &LostError{Keys: p.h.keys, Reason: why, rule: p.h.rule}
}

// release sends the release up to three times.
func (p *passing) release(ctx context.Context) (Released, error) {
	var unknown error
	for sent := 1; ; sent++ {
		rel, err := p.l.backend.Release(ctx, p.held)
		if err == nil {
			p.l.roundTrip.note(time.Since(p.since))
			return rel, nil
		}
		if !errors.Is(err, ErrUnavailable) {
			unknown, p.ran = err, true
		}
		if sent == mostSends || ctx.Err() != nil {
			if unknown != nil {
				err = unknown
			}
			return rel, err
		}
		p.held.Repeat = true
		pauseBeforeSend(ctx, sent+1)
		p.since = time.Now()
	}
}
