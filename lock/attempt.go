package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// mostSends is how often an attempt is sent before the backend counts as away.
const mostSends = 3

// attempt asks the backend once, and again if there is no answer, with the same token: up to three times, as long as
// the budget lasts, once more in any case. since is the instant before the answered question was sent.
func (a *acquisition) attempt(ctx context.Context) (since time.Time, g Grant, err error) {
	for sent := 1; ; sent++ {
		if ctx.Err() != nil {
			return since, g, a.cancelled(ctx, err)
		}
		r := a.request
		r.Repeat = sent > 1 || a.doubt
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

// cancelled is the error of a context that ended while the backend was asked, with what that is known to have come to.
func (a *acquisition) cancelled(ctx context.Context, err error) error {
	if a.doubt {
		return a.failCancelled(ErrUnknownOutcome, errors.Join(ended(ctx), err))
	}
	if a.waits { // for a key that was taken
		return a.busy(Cancelled, time.Until(a.retry.free), ended(ctx))
	}
	return a.failCancelled(nil, ended(ctx))
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

func (a *acquisition) failCancelled(sentinel *fault.Error, cause error) error {
	return &Error{Keys: a.keys, sentinel: sentinel, rule: a.rule, cause: cause, cancelled: true}
}
