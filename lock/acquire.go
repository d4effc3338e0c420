package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// mostSends is how often an attempt is sent before the backend counts as away.
const mostSends = 3

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
	s, err := l.adjusted(opts)
	if err != nil {
		return nil, err
	}
	sorted, full, err := l.lockKeys(keys)
	if err != nil {
		return nil, err
	}
	if lease, err := l.nested(ctx, sorted); lease != nil || err != nil {
		return lease, err
	}
	a := acquisition{l: l, s: s, keys: sorted, full: full, rule: reqctx.RuleOf(ctx), start: time.Now()}
	if !l.gate.enter() {
		return nil, a.fail(ErrClosed, nil)
	}
	h, err := a.run(ctx)
	if err != nil {
		l.gate.leave()
		return nil, err
	}
	return &h.owner, nil
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

// adjusted returns the settings of the Locker as the options of one call change them.
func (l *Locker) adjusted(opts []AcquireOption) (settings, error) {
	s := l.settings
	if len(opts) == 0 {
		return s, nil
	}
	faults := make([]error, 0, len(opts)+1)
	for _, o := range opts {
		if o != nil {
			faults = append(faults, o.adjust(&s))
		}
	}
	return s, errors.Join(append(faults, s.check())...)
}

// An acquisition is one call of Acquire on its way to the lock.
type acquisition struct {
	l     *Locker
	s     settings
	keys  []string // the caller's, sorted
	full  []string // with prefix
	rule  *reqctx.Rule
	start time.Time

	lines    []*line // of which it is in front
	token    string
	attempts int
	doubt    bool // the token may have the keys, now or later: a send had no answer
	away     bool // the backend did not answer
	timer    *time.Timer
	retry    retry
	left     time.Duration // of the holder's lease, when last seen
}

func (a *acquisition) budgetEnd() time.Time { return a.start.Add(a.s.wait) }

func (a *acquisition) run(ctx context.Context) (*hold, error) {
	if ctx.Err() != nil {
		return nil, a.fail(nil, ended(ctx))
	}
	a.token = a.l.tokens.next()
	defer a.stopTimer()
	h, err := a.places(ctx)
	if h == nil && err == nil {
		h, err = a.ask(ctx)
	}
	if err == nil {
		return h, nil
	}
	if a.doubt {
		a.l.cleanUp(Held{Keys: a.full, Token: a.token, TTL: a.s.ttl})
	}
	a.giveWay(err)
	return nil, err
}

// places takes the place in front of each line, in the order of the keys. A hold means that the lock was handed over.
func (a *acquisition) places(ctx context.Context) (*hold, error) {
	var r *Request
	if len(a.full) == 1 {
		r = &Request{Keys: a.full, Token: a.token, TTL: a.s.ttl}
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
		return nil, a.fail(ErrUnavailable, t.err)
	case handed:
		a.lines = append(a.lines, ln)
		a.attempts++
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
	if time.Until(a.retry.due) > 0 { // the one before was told that the key is taken, and has not waited long enough
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
		a.left = g.Left
		now := time.Now()
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
	if a.left > 0 {
		d = min(d, a.left+time.Millisecond+rand.N(9*time.Millisecond))
	}
	select {
	case <-a.after(d):
	case <-ln.wake():
	case <-ctx.Done():
		return a.busy(Cancelled, a.left, ended(ctx))
	case <-a.l.closing:
		return a.fail(ErrClosed, nil)
	}
	return nil
}

// attempt asks the backend once, and again if there is no answer, with the same token: up to three times, as long as
// the budget lasts, once more in any case. since is the instant before the answered question was sent.
func (a *acquisition) attempt(ctx context.Context) (since time.Time, g Grant, err error) {
	for sent := 1; ; sent++ {
		if ctx.Err() != nil {
			return since, g, a.cancelled(ctx, err)
		}
		r := Request{Keys: a.full, Token: a.token, TTL: a.s.ttl, Repeat: sent > 1 || a.doubt}
		since = time.Now()
		g, err = a.l.backend.Acquire(ctx, r)
		a.attempts++
		now := time.Now()
		switch {
		case err == nil && g.Held && !now.Before(safeUntil(since, a.s.ttl)):
			// Too late to be of use: as good as no answer. A repeat starts the TTL anew.
			a.doubt, err = true, errors.New("the answer took longer than the TTL")
		case err == nil:
			a.l.roundTrip.note(now.Sub(since))
			return since, g, nil
		case errors.Is(err, ErrForeignKey):
			return since, g, a.fail(ErrForeignKey, err)
		case !errors.Is(err, ErrUnavailable):
			a.doubt = true
		}
		if sent == mostSends || sent > 1 && !now.Before(a.budgetEnd()) {
			break
		}
		pauseBeforeSend(ctx, sent+1)
	}
	a.away = true
	if a.doubt {
		return since, g, a.fail(ErrUnknownOutcome, err)
	}
	return since, g, a.fail(ErrUnavailable, err)
}

// cancelled is the error of a context that ended while the backend was asked, with what that is known to have come to.
func (a *acquisition) cancelled(ctx context.Context, err error) error {
	if a.doubt {
		return a.fail(ErrUnknownOutcome, errors.Join(ended(ctx), err))
	}
	if a.attempts > 0 || !a.retry.due.IsZero() {
		return a.busy(Cancelled, a.left, ended(ctx))
	}
	return a.fail(nil, ended(ctx))
}

// granted makes the hold of a grant, unless nobody is there any more to have it.
func (a *acquisition) granted(ctx context.Context, g Grant, since time.Time) (*hold, error) {
	if ctx.Err() != nil {
		a.doubt = true
		return nil, a.fail(nil, ended(ctx))
	}
	return a.l.newHold(a, g, since), nil
}

// giveWay leaves the places in front to the next ones. If the backend was away they need not find out by themselves.
func (a *acquisition) giveWay(err error) {
	for _, ln := range a.lines {
		if a.away {
			a.l.queue.fail(ln, err)
		} else {
			a.l.queue.call(ln, turn{kind: front, retry: a.retry})
		}
	}
}

func (a *acquisition) busy(why BusyReason, retryAfter time.Duration, cause error) error {
	return &BusyError{
		Keys: a.keys, Reason: why, Attempts: a.attempts, Waited: time.Since(a.start),
		rule: a.rule, retryAfter: retryAfter, cause: cause,
	}
}

func (a *acquisition) fail(sentinel *fault.Error, cause error) error {
	return &Error{Keys: a.keys, sentinel: sentinel, rule: a.rule, cause: cause}
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

// pauseBeforeSend waits before the n-th send of one attempt, 10-20 ms and then 40-80 ms: enough for a connection to be
// made anew. It ends early with ctx.
func pauseBeforeSend(ctx context.Context, n int) {
	base := 10 * time.Millisecond << (2 * (n - 2))
	timer := time.NewTimer(base + rand.N(base))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
