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
		stop := l.keep(work, ms)
		err := l.attempt(work, ms)
		if stop(); err == nil {
			return
		}
		l.e.tel.warn(work, "cannot land orders, will try again", err)
		if !sleep(ctx, jitter(wait)) {
			return
		}
		if tries, err := l.tried(work, 0, ms...); err == nil {
			left := ms[:0:0]
			for i, m := range ms {
				if tries[i] > 0 {
					left = append(left, m)
				}
			}
			if ms = left; len(ms) == 0 {
				return // another worker has landed them
			}
		}
	}
}

// keep tells Redis now and then, until stop is called, that the entries are in living hands: an attempt may take long where SQL
// hangs, and other workers are to take, and to count as a try, only what dead ones had.
func (l *lane) keep(ctx context.Context, ms []*message) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for sleep(ctx, l.e.pace.claimAfter/3) {
			if _, err := l.tried(ctx, 0, ms...); err != nil && ctx.Err() == nil {
				l.e.tel.warn(ctx, "cannot keep orders that take long, another worker may try them too", err)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// attempt tries to land entries once. An error says that it was nobody's fault among them, and that they can be tried again as
// they are.
func (l *lane) attempt(ctx context.Context, ms []*message) error {
	ctx, span := l.e.tel.begin(ctx, l.stream, ms)
	defer func() { span.end(ctx) }()
	fates, err := l.e.transact(ctx, ms)
	switch {
	case err == nil:
		l.settle(ctx, span, ms, fates)
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
	failed := map[*message]error{}
	for _, m := range ms {
		fates, err := l.e.transact(ctx, []*message{m})
		switch {
		case err == nil:
			l.settle(ctx, span, []*message{m}, fates)
		case nobodys(err):
			l.postpone(m) // the others may do
			span.count(ctx, outcomeRetried)
		default:
			failed[m] = err
		}
	}
	// If SQL refuses all of them in its own words, it is not the orders.
	if len(failed) == len(ms) && allUntyped(failed) {
		for range ms {
			span.count(ctx, outcomeRetried)
		}
		span.err = failed[ms[0]]
		return span.err
	}
	for _, m := range ms {
		if err := failed[m]; err != nil {
			if again := l.alone(ctx, span, m, err); again != nil {
				l.postpone(m)
			}
		}
	}
	return nil
}

// allUntyped reports whether no error is one that this project or the service's handler has made.
func allUntyped(failed map[*message]error) bool {
	for _, err := range failed {
		var typed interface{ ErrorType() string }
		var handler *handlerError
		if errors.As(err, &typed) || errors.As(err, &handler) {
			return false
		}
	}
	return true
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
			l.failed(ctx, span, m, err)
			return nil
		}
		l.settle(ctx, span, []*message{m}, []fate{f})
	case isTake && (errors.Is(err, gormplugin.ErrNotFound) || errors.Is(err, ErrInvalid)):
		span.count(ctx, outcomeDeadLetter)
		l.bury(ctx, m, err)
	case nobodys(err):
		return err
	default:
		l.failed(ctx, span, m, err)
	}
	return nil
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
		span.count(ctx, outcomeDeadLetter)
		l.bury(ctx, m, err)
		return
	}
	span.count(ctx, outcomeRetried)
	l.e.tel.warn(ctx, "an order could not be landed, will try again", err)
	l.postpone(m)
}

// bury moves an entry to the dead letters.
func (l *lane) bury(ctx context.Context, m *message, why error) {
	id, err := l.e.bury(ctx, l.stream, m, why)
	if err != nil {
		l.e.tel.warn(ctx, "cannot move an order to the dead letters, will try again", err)
		l.postpone(m)
		return
	}
	if id != "" {
		l.e.tel.alarm(ctx, "an order could not be landed and lies with the dead letters", m, why)
		l.e.tel.appended(ctx, l.dead, id)
	}
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
