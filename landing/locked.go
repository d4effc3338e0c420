package landing

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// lock is an item whose orders are put off, since a transaction with one of them alone has waited too long: a worker that hangs,
// or a person, keeps the item's row locked. The orders of other items go past them.
type lock struct {
	until time.Time // before that it is not tried again
	found int       // how often, one after the other
}

// stuck reports whether a transaction has only waited: it has reached its limit, or the database's own for locks. Whoever was not
// waited for would have got through.
func stuck(err error) bool {
	var refused *gormplugin.Error
	return isTooLong(err) || errors.As(err, &refused) && errors.Is(refused, gormplugin.ErrConflict) && refused.Reason() == "lock_wait"
}

// putOff has the orders of an item tried again after a while, and those of the item that come until then.
func (l *lane) putOff(ctx context.Context, span *batchSpan, ms []*message) {
	item := ms[0].entry.Item
	k := l.locked[item]
	if k == nil {
		k = &lock{}
		l.locked[item] = k
	}
	if now := time.Now(); !k.until.After(now) {
		k.until = now.Add(jitter(l.e.pace.backoff(k.found)))
		k.found++
	}
	for _, m := range ms {
		l.wait(m)
		span.count(ctx, outcomeRetried)
	}
}

func (l *lane) tellLocked(ctx context.Context, err error) {
	l.e.tel.warn(ctx, "an item's row stays locked, or SQL does not answer: its orders are tried again later", err)
}

// wait has an order of a locked item wait with the others.
func (l *lane) wait(m *message) {
	m.due = l.locked[m.entry.Item].until
	l.later[m.id] = m
	l.stalled = true
}

// isLocked reports whether one of them is of an item that is put off.
func (l *lane) isLocked(ms []*message) bool {
	for _, m := range ms {
		if l.locked[m.entry.Item] != nil {
			return true
		}
	}
	return false
}

// apart lands entries item by item, those of items that are locked and those of a transaction that has waited too long. Of each item
// one order goes ahead, and has a short time for it: if it gets through the others follow, else they are put off, and nobody is
// blamed. Which items and which order come first is left to chance, so that none stands in the way each time.
func (l *lane) apart(ctx context.Context, span *batchSpan, ms []*message) error {
	byItem := map[string][]*message{}
	for _, m := range ms {
		byItem[m.entry.Item] = append(byItem[m.entry.Item], m)
	}
	var faults []error
	waited, through := 0, false
	for item, group := range byItem { // in no order
		if waited >= mostSlow && (!through || l.locked[item] != nil) { // SQL itself may be away, or it is the next round's turn
			l.putOff(ctx, span, group)
			continue
		}
		n := rand.IntN(len(group))
		err := l.ahead(ctx, span, group[n])
		if stuck(err) {
			waited++
			l.tellLocked(ctx, err)
			l.putOff(ctx, span, group)
			continue
		}
		if err != nil { // SQL is away otherwise
			faults = append(faults, err)
			continue
		}
		through = true
		delete(l.locked, item)
		rest := append(append([]*message{}, group[:n]...), group[n+1:]...)
		for _, half := range [][]*message{rest[:len(rest)/2], rest[len(rest)/2:]} { // all of them may have been too much
			if len(half) > 0 {
				faults = append(faults, l.attempt(ctx, half))
			}
		}
	}
	return errors.Join(faults...)
}

// ahead lands one order with a short limit.
func (l *lane) ahead(ctx context.Context, span *batchSpan, m *message) error {
	limited, cancel := context.WithTimeout(ctx, l.e.pace.transact/6)
	defer cancel()
	fates, err := l.e.transact(limited, []*message{m})
	switch {
	case err == nil:
		l.settle(ctx, span, []*message{m}, fates)
		return nil
	case limited.Err() != nil && ctx.Err() == nil:
		return &tooLong{err}
	case stuck(err):
		return err
	}
	return l.alone(ctx, span, m, err)
}
