package landing

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/stock"
)

// mostEnds is how many orders are ended in Redis at once; the client's batcher makes few round trips of them.
const mostEnds = 64

// settle does in Redis what SQL has decided, and takes the entries off the stream. What cannot be done now is done when the
// entry is tried again: the row tells then.
func (l *lane) settle(ctx context.Context, span *batchSpan, ms []*message, fates []fate) {
	faults := l.e.endAll(ctx, entriesOf(ms), fates)
	var done []*message
	if slices.ContainsFunc(fates, func(f fate) bool { return f.outcome == outcomeLanded }) {
		l.landed++
		l.stalled = false
	}
	for i, m := range ms {
		switch f := fates[i]; {
		case f.fault != nil:
			l.bury(ctx, span, m, f.fault)
			continue
		case errors.Is(faults[i], stock.ErrUnavailable), errors.Is(faults[i], stock.ErrUnknownOutcome):
			span.count(ctx, outcomeRetried)
			l.e.tel.warn(ctx, "cannot end an order in Redis, will try again", faults[i])
			l.postpone(m)
			continue
		case faults[i] != nil:
			l.e.tel.alarm(ctx, "an order ended otherwise in Redis than in SQL: compare the two", m, faults[i])
		case f.outcome == outcomeInsufficient:
			l.e.tel.alarm(ctx, "SQL has less than Redis promised: the order is refused and the item frozen until reconciled", m, nil)
		}
		span.count(ctx, fates[i].outcome)
		done = append(done, m)
	}
	l.acknowledge(ctx, done)
}

// acknowledge takes entries off the stream.
func (l *lane) acknowledge(ctx context.Context, done []*message) {
	if len(done) == 0 {
		return
	}
	args := make([]any, 1, 1+len(done))
	args[0] = group
	for _, m := range done {
		args = append(args, m.id)
	}
	if _, _, err := l.e.run(ctx, l.e.scripts.done, []string{l.stream}, args...); err != nil {
		l.e.tel.warn(ctx, "cannot acknowledge orders that have landed, will try again", err)
		for _, m := range done {
			l.postpone(m)
		}
	}
}

// endAll ends orders' units in Redis, those that have a fate, and returns what went wrong with each.
func (e *engine) endAll(ctx context.Context, entries []*stock.Entry, fates []fate) []error {
	faults := make([]error, len(entries))
	var ends sync.WaitGroup
	room := make(chan struct{}, mostEnds)
	for i := range entries {
		if !fates[i].decided() {
			continue
		}
		room <- struct{}{}
		ends.Go(func() {
			defer func() { <-room }()
			faults[i] = e.end(ctx, entries[i], fates[i])
		})
	}
	ends.Wait()
	return faults
}

// end ends an order's units in Redis the way SQL has decided. It may be repeated. Nothing held is no error: the record of a
// request lives for a while only.
func (e *engine) end(ctx context.Context, entry *stock.Entry, f fate) error {
	var err error
	if f.confirm {
		_, err = e.counter.Confirm(ctx, entry.Order, stock.Of(orderOf(entry)))
	} else if f.release != "" {
		_, err = e.counter.Release(ctx, entry.Order, f.release, stock.Of(orderOf(entry)))
	}
	if errors.Is(err, stock.ErrNotHeld) {
		e.notHeld(ctx, f, err)
		return nil
	}
	return err
}

// notHeld tells of units that Redis knows nothing of any more. Those that were to come back do not, until somebody compares; those
// of a paid order are where they should be.
func (e *engine) notHeld(ctx context.Context, f fate, err error) {
	if f.release != "" {
		e.tel.warn(ctx, "units were not given back in Redis, which has forgotten the order: compare the two", err)
	}
}
