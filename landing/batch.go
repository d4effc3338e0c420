package landing

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// land lands entries in one transaction, or in several if it must, and comes back when each has found its end or has a time
// at which it is tried again. While SQL is away it waits and keeps them; when ctx ends meanwhile, they are left.
func (l *lane) land(ctx, work context.Context, ms []*message) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, l.e.pace.awayMost) {
		err := l.attempt(work, ms)
		if err == nil {
			return
		}
		l.e.tel.warn(work, "cannot land orders, will try again", err)
		if !sleep(ctx, jitter(wait)) {
			return
		}
		tries, err := l.tried(work, 0, ms...)
		left := ms[:0:0]
		for i, m := range ms {
			if l.later[m.id] == nil && (err != nil || tries[i] > 0) {
				left = append(left, m)
			}
		}
		if ms = left; len(ms) == 0 {
			return // they have landed, by another worker too, or are put off
		}
	}
}

// attempt tries to land entries once. An error says that it was nobody's fault among them, and that they can be tried again as
// they are.
func (l *lane) attempt(ctx context.Context, ms []*message) error {
	ctx, span := l.e.tel.begin(ctx, l.stream, ms)
	defer func() { span.end(ctx) }()
	if l.isLocked(ms) {
		return l.apart(ctx, span, ms)
	}
	fates, err := l.e.transact(ctx, ms)
	switch {
	case err == nil:
		l.settle(ctx, span, ms, fates)
		return nil
	case stuck(err) && len(ms) > 1:
		return l.apart(ctx, span, ms)
	case stuck(err) && nobodys(err):
		span.err = err
		l.tellLocked(ctx, err)
		l.putOff(ctx, span, ms)
		return nil
	case errors.Is(err, gormplugin.ErrConflict) && len(ms) > 1:
		return errors.Join(l.attempt(ctx, ms[:len(ms)/2]), l.attempt(ctx, ms[len(ms)/2:]))
	case nobodys(err):
		span.err = err
		for range ms {
			span.count(ctx, outcomeRetried)
		}
		return err
	case len(ms) > 1:
		return l.oneByOne(ctx, span, ms)
	}
	return l.alone(ctx, span, ms[0], err)
}

// oneByOne lands entries each in a transaction of its own, in the order of the stream.
func (l *lane) oneByOne(ctx context.Context, span *batchSpan, ms []*message) error {
	for _, m := range ms {
		one := []*message{m}
		if l.isLocked(one) { // since it was found so, a moment ago
			l.putOff(ctx, span, one)
			continue
		}
		fates, err := l.e.transact(ctx, one)
		switch {
		case err == nil:
			l.settle(ctx, span, one, fates)
		case stuck(err) && nobodys(err):
			l.tellLocked(ctx, err)
			l.putOff(ctx, span, one)
		default:
			if again := l.alone(ctx, span, m, err); again != nil {
				l.postpone(m) // the others may do
				span.count(ctx, outcomeRetried)
			}
		}
	}
	return nil
}

// alone decides about one entry that could not be landed by itself.
func (l *lane) alone(ctx context.Context, span *batchSpan, m *message, err error) error {
	var taken *takeError
	switch isTake := errors.As(err, &taken); {
	case isTake && errors.Is(err, gormplugin.ErrInsufficient) && !retryable(err):
		f, err := l.e.refuse(ctx, &m.entry, stock.Insufficient, outcomeInsufficient)
		if err != nil {
			if nobodys(err) {
				return err
			}
			l.blame(ctx, span, m, err)
			return nil
		}
		l.settle(ctx, span, []*message{m}, []fate{f})
	case isTake && (errors.Is(err, gormplugin.ErrNotFound) || errors.Is(err, ErrInvalid)):
		l.bury(ctx, span, m, err)
	case nobodys(err):
		return err
	default:
		l.blame(ctx, span, m, err)
	}
	return nil
}

// blame decides whose fault it is that an order has failed by itself. What SQL says in words of its own may be the order's or the
// database's: it is the order's once others have landed since it failed the last time. Until then nobody is blamed.
func (l *lane) blame(ctx context.Context, span *batchSpan, m *message, err error) {
	var typed interface{ ErrorType() string }
	var handler *handlerError
	known := errors.As(err, &typed) || errors.As(err, &handler) || refusesRow(err)
	proven := m.doubted && l.landed > m.since
	m.doubted, m.since = true, l.landed
	if known || proven {
		l.failed(ctx, span, m, err)
		return
	}
	span.count(ctx, outcomeRetried)
	l.e.tel.warn(ctx, "an order could not be landed, will try again", err)
	l.postpone(m)
}

// failed counts a try that has failed by the entry's own fault, and tries it again later or gives it up.
func (l *lane) failed(ctx context.Context, span *batchSpan, m *message, err error) {
	tries, redisErr := l.tried(ctx, 1, m)
	switch {
	case redisErr != nil:
		l.postpone(m)
		span.count(ctx, outcomeRetried)
		return
	case tries[0] == 0:
		return // another worker has finished it
	}
	if m.tries = tries[0] - 1; m.tries >= mostTries {
		l.bury(ctx, span, m, err)
		return
	}
	m.tries = tries[0] // with the next one
	span.count(ctx, outcomeRetried)
	l.e.tel.warn(ctx, "an order could not be landed, will try again", err)
	l.postpone(m)
}

// bury moves an entry to the dead letters, and tells of it. span is nil outside of a batch.
func (l *lane) bury(ctx context.Context, span *batchSpan, m *message, why error) {
	id, moved, err := l.e.bury(ctx, l.stream, m, why)
	outcome := outcomeDeadLetter
	switch {
	case err != nil:
		l.e.tel.warn(ctx, "cannot move an order to the dead letters, will try again", err)
		m.fault, m.unheard = why, true
		l.postpone(m)
		outcome = outcomeRetried
	case moved || m.unheard:
		l.e.tel.alarm(ctx, "an order could not be landed and lies with the dead letters", m, why)
		l.e.tel.appended(ctx, l.dead, id)
	default:
		return // another worker has finished it
	}
	if span != nil {
		span.count(ctx, outcome)
		return
	}
	l.e.tel.count(ctx, outcome)
}

// nobodys reports whether an error is no fault of an order: SQL is away, or the service is not set up as it must be. A handler's
// error is the order's, unless it says that SQL is away: it must not stop the orders behind it.
func nobodys(err error) bool {
	var handler *handlerError
	if errors.As(err, &handler) {
		return errors.Is(err, gormplugin.ErrUnavailable) || errors.Is(err, gormplugin.ErrConflict)
	}
	for _, sentinel := range []error{
		gormplugin.ErrUnavailable, gormplugin.ErrUnknownOutcome, gormplugin.ErrConflict, gormplugin.ErrStaleFence,
		gormplugin.ErrUnguardedWrite, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	var refused *gormplugin.Error
	return errors.As(err, &refused) && (refused.ErrorType() == "misuse" || refused.Retryable()) || unready(err)
}

func retryable(err error) bool {
	var refused *gormplugin.Error
	return errors.As(err, &refused) && refused.Retryable()
}
