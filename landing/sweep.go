package landing

import (
	"context"
	"errors"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

// errMoved says that somebody has paid or closed an order at the same moment.
var errMoved = errors.New("landing: an order has moved meanwhile")

// decide finds the fate of holds past their deadline: all in one transaction if that can be, else each in one of its own. A hold
// without a fate has an error.
func (s *Sweeper) decide(ctx context.Context, holds []stock.Hold) ([]fate, []error) {
	fates, err := s.together(ctx, holds)
	if isTooLong(err) && len(holds) > 1 {
		return s.byItem(ctx, holds, err)
	}
	faults := make([]error, len(holds))
	for i := range holds {
		switch {
		case fates[i].decided():
			continue
		case err == nil || !nobodys(err): // else the others would only wait for the same
			fates[i], err = s.alone(ctx, &holds[i])
		}
		faults[i] = err
	}
	return fates, faults
}

// mostSlow is how many items of one round may take too long; it is SQL's fault then, or the next round's turn.
const mostSlow = 3

// byItem decides about the holds of each item apart, for somebody keeps a row locked: the other items need not wait for that.
func (s *Sweeper) byItem(ctx context.Context, holds []stock.Hold, why error) ([]fate, []error) {
	fates, faults := make([]fate, len(holds)), make([]error, len(holds))
	groups := map[string][]int{}
	for i := range holds {
		groups[holds[i].Item] = append(groups[holds[i].Item], i)
		faults[i] = errors.Unwrap(why) // due again in the next round
	}
	stuck := 0
	for _, group := range groups {
		if stuck == mostSlow {
			break
		}
		some := make([]stock.Hold, len(group))
		for n, i := range group {
			some[n] = holds[i]
		}
		short, cancel := context.WithTimeout(ctx, s.e.pace.transact/6)
		ends, err := s.together(short, some)
		slow := err != nil && short.Err() != nil && ctx.Err() == nil
		cancel()
		if slow {
			stuck++
		}
		for n, i := range group {
			switch {
			case ends[n].decided():
				fates[i], faults[i] = ends[n], nil
			case slow:
				faults[i] = &tooLong{err}
			default:
				fates[i], faults[i] = s.alone(ctx, &holds[i])
			}
		}
	}
	return fates, faults
}

// together decides about holds in one transaction. Those that have landed at the same moment are left without a fate.
func (s *Sweeper) together(ctx context.Context, holds []stock.Hold) (fates []fate, err error) {
	fates = make([]fate, len(holds))
	if len(holds) == 0 {
		return fates, nil
	}
	for range 3 { // each try is a transaction: MySQL would show what was there when the first one began
		err = s.e.transaction(ctx, func(tx *gorm.DB) error {
			clear(fates)
			return s.closeIn(tx, holds, fates)
		})
		if !errors.Is(err, errMoved) {
			break
		}
	}
	if err != nil {
		clear(fates)
	}
	return fates, err
}

// closeIn closes the orders of holds, unless they are paid or closed already. An order that never landed is kept as a closed row,
// which bars the way to a copy that comes late. The items' rows come last, as where orders land.
func (s *Sweeper) closeIn(tx *gorm.DB, holds []stock.Hold, fates []fate) error {
	entries := make([]*stock.Entry, len(holds))
	requests := make([]string, len(holds))
	for i := range holds {
		entries[i], requests[i] = &holds[i].Entry, holds[i].RequestID
	}
	rows, err := s.e.findAll(tx, s.e.orders.request, requests)
	if err != nil {
		return err
	}
	var missing []int
	var unpaid []string
	back := map[string]int64{}
	for i := range holds {
		row, found := rows[requests[i]]
		if !found {
			missing = append(missing, i)
			continue
		}
		if fates[i] = fateOf(entries[i], row); !fates[i].decided() && row.state() == stateUnpaid {
			fates[i].release = stock.Unpaid
			unpaid = append(unpaid, requests[i])
			back[holds[i].Item] += holds[i].Open
		}
	}
	if err := s.e.keepClosed(tx, entries, missing, fates, stock.Unpaid, ""); err != nil {
		return err
	}
	if len(missing) > 0 && s.e.settings.Stream {
		s.e.tel.warn(tx.Statement.Context, "orders are closed that have not landed: is a worker at their stream?", fail(ErrNotLanded, ""))
	}
	if len(unpaid) == 0 {
		return nil
	}
	moved, err := s.e.move(tx, s.e.orders.request, unpaid, s.e.orders.closed, stock.Unpaid)
	if err == nil && moved < int64(len(unpaid)) {
		err = errMoved
	}
	if err != nil {
		return err
	}
	return s.e.giveBack(tx, back)
}

// alone decides about one hold, in as many transactions as it takes.
func (s *Sweeper) alone(ctx context.Context, h *stock.Hold) (fate, error) {
	for range 3 {
		fates, err := s.together(ctx, []stock.Hold{*h})
		if err != nil && !errors.Is(err, errMoved) || fates[0].decided() {
			return fates[0], err
		}
	}
	return fate{}, &Error{sentinel: ErrNotLanded, reason: "the row of a hold comes and goes, or is in a state that is none of WithStatus"}
}
