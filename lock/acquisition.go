package lock

import (
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// An acquisition is one call of Acquire on its way to the lock. It lives on the caller's stack: nothing that stays behind
// points to it.
type acquisition struct {
	l     *Locker
	s     settings
	keys  []string // the caller's, sorted
	full  []string // with prefix
	start time.Time

	parent context.Context // of the call: what the lease tells later hangs there, and not under the acquire
	span   trace.Span
	rule   *reqctx.Rule
	tel    *ruleInstruments
	waits  bool // counted as waiting

	lines    []*line // of which it is in front
	request  Request // of each attempt, and of a hand-over to it
	attempts int
	doubt    bool // the token may have the keys, now or later: a send had no answer
	away     bool // the backend did not answer
	timer    *time.Timer
	retry    retry
}

func (a *acquisition) budgetEnd() time.Time { return a.start.Add(a.s.wait) }

// enter runs the acquisition through the gate that Close shuts.
func (a *acquisition) enter(ctx context.Context) (lease *Lease, err error) {
	if !a.l.gate.enter() {
		return nil, a.fail(ErrClosed, nil)
	}
	defer func() {
		if lease == nil { // also when a hook of the client panics
			a.l.gate.leave()
		}
	}()
	h, err := a.run(ctx)
	if err != nil {
		return nil, err
	}
	return &h.owner, nil
}

// waiting counts the acquisition as one that waits.
func (a *acquisition) waiting(ctx context.Context) {
	if !a.waits {
		a.waits = true
		move(ctx, a.l.tel.waiting, 1, a.tel.rule)
	}
}

func (a *acquisition) run(ctx context.Context) (h *hold, err error) {
	if ctx.Err() != nil {
		return nil, a.failCancelled(nil, ended(ctx))
	}
	a.l.noteOrder(ctx, a)
	a.request = Request{Keys: a.full, Token: a.l.tokens.next(), TTL: a.s.ttl}
	defer a.stopTimer()
	defer func() {
		if h == nil {
			a.giveUp()
		}
	}()
	h, err = a.places(ctx)
	if h == nil && err == nil {
		h, err = a.ask(ctx)
	}
	return h, err
}

// places takes the place in front of each line, in the order of the keys. A hold means that the lock was handed over.
func (a *acquisition) places(ctx context.Context) (*hold, error) {
	var r Request
	if len(a.full) == 1 {
		r = a.request
	}
	for _, key := range a.full {
		ln, w, why, hint := a.l.queue.enter(key, r, a.s.wait > 0)
		if why != "" {
			return nil, a.busy(why, hint.wait(), nil)
		}
		if w != nil {
			h, err := a.stand(ctx, ln, w)
			if h != nil || err != nil {
				return h, err
			}
		}
		a.lines = append(a.lines, ln)
	}
	return nil, nil
}

// stand waits in a line until it is the caller's turn. With neither hold nor error the caller is in front.
func (a *acquisition) stand(ctx context.Context, ln *line, w *waiter) (*hold, error) {
	a.waiting(ctx)
	var why BusyReason
	var cause error
	select {
	case t := <-w.turn:
		return a.take(ctx, ln, t)
	case <-a.after(time.Until(a.budgetEnd())):
		why = Budget
	case <-ctx.Done():
		why, cause = Cancelled, ended(ctx)
	case <-a.l.closing:
	}
	gone, hint := a.l.queue.leave(ln, w)
	switch {
	case gone && why == "":
		return nil, a.fail(ErrClosed, nil)
	case gone:
		return nil, a.busy(why, hint.wait(), cause)
	}
	return a.take(ctx, ln, <-w.turn) // it came at the same moment
}

// take does what a turn says.
func (a *acquisition) take(ctx context.Context, ln *line, t turn) (*hold, error) {
	switch t.kind {
	case failed:
		return nil, a.fail(ErrUnavailable, nil)
	case handed:
		a.attempts++
		if !time.Now().Before(safeUntil(t.since, a.s.ttl)) {
			a.doubt = true // too late to be of use: in front with a token that may have the lock
			return nil, nil
		}
		a.lines = append(a.lines, ln)
		return a.granted(ctx, t.grant, t.since)
	}
	a.retry, a.doubt = t.retry, t.doubt
	if t.standby.IsZero() {
		return nil, nil
	}
	// Another process has been kept out for long: it goes first. Wake-ups do not count until our own attempt.
	select {
	case <-a.after(min(time.Until(t.standby), time.Until(a.budgetEnd()))):
	case <-ctx.Done(): // the attempt will see
	case <-a.l.closing:
	}
	ln.drain()
	return nil, nil
}

// ask asks the backend, again and again, until the keys are had or the budget is used up.
func (a *acquisition) ask(ctx context.Context) (*hold, error) {
	if time.Until(a.retry.due) > 0 { // the one before was told that the key is taken, and had not waited long enough
		if time.Until(a.budgetEnd()) <= 0 {
			return nil, a.busy(Budget, time.Until(a.retry.free), nil)
		}
		if err := a.pause(ctx, a.lines[0]); err != nil {
			return nil, err
		}
	}
	for {
		since, g, err := a.attempt(ctx)
		if err != nil {
			return nil, err
		}
		if g.Held {
			return a.granted(ctx, g, since)
		}
		now := time.Now()
		a.retry.free = now.Add(g.Left)
		switch {
		case a.s.wait == 0:
			return nil, a.busy(NoWait, g.Left, nil)
		case !now.Before(a.budgetEnd()):
			return nil, a.busy(Budget, g.Left, nil)
		}
		if !now.Before(a.retry.due) { // an attempt that was woken and lost does not move the back-off
			a.retry.n++
			a.retry.due = now.Add(a.l.pauseAfter(a.retry.n))
		}
		ln := a.lines[g.Taken]
		a.l.wakes.watchLine(ln)
		if err := a.pause(ctx, ln); err != nil {
			return nil, err
		}
	}
}

// pause waits for the least of: a wake-up, the back-off, the end of the holder's lease, the end of the budget, ctx.
func (a *acquisition) pause(ctx context.Context, ln *line) error {
	d := min(time.Until(a.retry.due), time.Until(a.budgetEnd()))
	if left := time.Until(a.retry.free); left > 0 {
		d = min(d, left+time.Millisecond+rand.N(9*time.Millisecond))
	}
	a.waiting(ctx)
	before := time.Now()
	select {
	case <-a.after(d):
	case <-ln.wake():
		add(ctx, a.l.tel.wakeups, a.tel.rule)
	case <-ctx.Done():
		return a.busy(Cancelled, time.Until(a.retry.free), ended(ctx))
	case <-a.l.closing:
		return a.fail(ErrClosed, nil)
	}
	a.attempted(d, time.Since(before))
	return nil
}

// granted makes the hold of a grant, unless nobody is there any more to have it.
func (a *acquisition) granted(ctx context.Context, g Grant, since time.Time) (*hold, error) {
	if ctx.Err() != nil {
		a.doubt = true
		return nil, a.failCancelled(nil, ended(ctx))
	}
	return a.l.newHold(a, g, since), nil
}

// giveUp leaves nothing behind: what a token may have is deleted, and the places in front go to the next ones. If the
// backend was away they need not find that out one by one.
func (a *acquisition) giveUp() {
	if a.doubt {
		a.l.cleanUp(a.request.held())
	}
	for _, ln := range a.lines {
		if a.away {
			a.l.queue.fail(ln)
		} else {
			a.l.queue.call(ln, turn{kind: front, retry: a.retry})
		}
	}
}

// after returns a channel that receives after d. One timer serves the whole acquisition.
func (a *acquisition) after(d time.Duration) <-chan time.Time {
	if a.timer == nil {
		a.timer = time.NewTimer(d)
	} else {
		a.timer.Reset(d)
	}
	return a.timer.C
}

func (a *acquisition) stopTimer() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
