package landing

import (
	"context"
	"errors"
	"reflect"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// fate is what SQL has decided about one order, and what is to be done in Redis after the commit.
type fate struct {
	outcome string
	confirm bool         // the row is paid for
	release stock.Reason // empty: nothing is given back
	fault   error        // nobody has named the index that is in the way: a dead letter
}

// decided reports whether something is to be done in Redis.
func (f fate) decided() bool { return f.confirm || f.release != "" }

// takeError is the item's refusal.
type takeError struct{ error }

func (e *takeError) Unwrap() error { return e.error }

// handlerError is an error of the service's handler.
type handlerError struct{ error }

func (e *handlerError) Unwrap() error { return e.error }

// transact lands orders in one transaction: rows, then stock, then the handler. With an error nothing has happened, but for
// gormplugin.ErrUnknownOutcome, after which the same call finds out.
func (e *engine) transact(ctx context.Context, ms []*message) (fates []fate, err error) {
	defer func() {
		if p := recover(); p != nil { // Retry has rolled back
			fates, err = nil, &handlerError{&panicked{p}}
		}
	}()
	ours := make([]bool, len(ms)) // inserted by an attempt of this call whose COMMIT got no reply
	err = e.transaction(ctx, func(tx *gorm.DB) error {
		fates = make([]fate, len(ms))
		return e.landIn(tx, ms, fates, ours)
	})
	if err != nil {
		return nil, err
	}
	return fates, nil
}

func (e *engine) landIn(tx *gorm.DB, ms []*message, fates []fate, ours []bool) error {
	rows := make([]orderRow, len(ms))
	for i, m := range ms {
		var err error
		if rows[i], err = e.row(tx, &m.entry); err != nil {
			return err
		}
	}
	each, err := gormplugin.InsertBatch(tx, e.slice(rows))
	if err != nil {
		return err
	}
	var landed []int
	var over []int // the user's limit
	for i, m := range ms {
		switch err := each[i]; {
		case err == nil:
			fates[i] = fate{outcome: outcomeLanded, confirm: rows[i].state() == statePaid}
			landed = append(landed, i)
		case errors.Is(err, gormplugin.ErrAlreadyApplied):
			fates[i] = fateOf(&m.entry, rows[i])
			if ours[i] && fates[i].outcome == outcomeDuplicate && fates[i].release == "" {
				fates[i].outcome = outcomeLanded
			}
		case e.limits(err):
			over = append(over, i)
		default:
			fates[i] = fate{outcome: outcomeDeadLetter, fault: err}
		}
	}
	if err := e.keepClosed(tx, entriesOf(ms), over, fates, stock.LimitReached, outcomeLimitReached); err != nil {
		return err
	}
	if err := e.takeUnits(tx, ms, landed); err != nil {
		return err
	}
	if e.handler != nil && len(landed) > 0 {
		live := make([]reflect.Value, len(landed))
		for n, i := range landed {
			live[n] = rows[i].v
		}
		if err := e.handler(tx, live); err != nil {
			return &handlerError{err}
		}
	}
	for _, i := range landed {
		ours[i] = true
	}
	return nil
}

// limits reports whether an insert was refused by an index that the service has given a meaning, and that is not the order
// number's own: the user has a live order already.
func (e *engine) limits(err error) bool {
	var refused *gormplugin.Error
	return errors.As(err, &refused) && errors.Is(err, gormplugin.ErrDuplicate) && refused.Mapped() != nil && !e.orders.ownIndexes[refused.Index()]
}

// fateOf is the fate of an order whose request has a row already.
func fateOf(entry *stock.Entry, row orderRow) fate {
	f := fate{outcome: outcomeDuplicate}
	switch {
	case row.number() != entry.Order:
		f.release = stock.Duplicate
	case row.state() == statePaid:
		f.confirm = true
	case row.state() == stateClosed:
		f.release = row.reason()
	}
	return f
}

// keepClosed inserts the rows of some orders as closed, for they are refused: a late copy finds them.
func (e *engine) keepClosed(tx *gorm.DB, entries []*stock.Entry, some []int, fates []fate, why stock.Reason, outcome string) error {
	if len(some) == 0 {
		return nil
	}
	rows := make([]orderRow, len(some))
	for n, i := range some {
		var err error
		if rows[n], err = e.closedRow(tx, entries[i], why); err != nil {
			return err
		}
	}
	each, err := gormplugin.InsertBatch(tx, e.slice(rows))
	if err != nil {
		return err
	}
	for n, i := range some {
		fates[i] = kept(entries[i], rows[n], each[n], why, outcome)
	}
	return nil
}

func entriesOf(ms []*message) []*stock.Entry {
	entries := make([]*stock.Entry, len(ms))
	for i, m := range ms {
		entries[i] = &m.entry
	}
	return entries
}

// kept is the fate of an order that was to be kept as a closed row.
func kept(entry *stock.Entry, row orderRow, err error, why stock.Reason, outcome string) fate {
	if errors.Is(err, gormplugin.ErrAlreadyApplied) {
		return fateOf(entry, row)
	}
	// An index that closed rows are not left out of refuses the row again. It will go on doing so: the order cannot land.
	return fate{outcome: outcome, release: why}
}

// closedRow makes the row of an order that is refused.
func (e *engine) closedRow(tx *gorm.DB, entry *stock.Entry, why stock.Reason) (orderRow, error) {
	row, err := e.row(tx, entry)
	if err != nil {
		return orderRow{}, err
	}
	return row, row.close(why)
}

// takeUnits sums up the units of each item, so that a hot row is locked once, and takes them in the items' order.
func (e *engine) takeUnits(tx *gorm.DB, ms []*message, landed []int) error {
	var lines []gormplugin.Line
	at := map[string]int{}
	for _, i := range landed {
		entry := &ms[i].entry
		n, known := at[entry.Item]
		if !known {
			model, err := e.items.row(entry.Item)
			if err != nil {
				return &takeError{err}
			}
			n = len(lines)
			at[entry.Item] = n
			lines = append(lines, gormplugin.Line{Model: model})
		}
		lines[n].Units += entry.Units
	}
	if err := gormplugin.TakeAll(tx, lines...); err != nil {
		return &takeError{err}
	}
	return nil
}

// refuse keeps an order as a closed row, in a transaction of its own.
func (e *engine) refuse(ctx context.Context, entry *stock.Entry, why stock.Reason, outcome string) (fate, error) {
	fates := make([]fate, 1)
	err := e.transaction(ctx, func(tx *gorm.DB) error {
		return e.keepClosed(tx, []*stock.Entry{entry}, []int{0}, fates, why, outcome)
	})
	return fates[0], err
}

// slice makes the []*Order that gorm wants.
func (e *engine) slice(rows []orderRow) any {
	s := reflect.MakeSlice(reflect.SliceOf(reflect.PointerTo(e.orders.typ)), 0, len(rows))
	for _, r := range rows {
		s = reflect.Append(s, r.v)
	}
	return s.Interface()
}
