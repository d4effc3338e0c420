package landing

import (
	"context"
	"errors"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// Pay moves an order from unpaid to paid and then confirms its units in Redis. with, if there are any, run in the same
// transaction, after the move: for a row of the payment under a unique index of its own, say. An error of theirs rolls back
// and is returned.
//
// nil says that this call has moved the row. Otherwise nothing was moved, and the error tells what to do about a payment that
// comes late: [ErrAlreadyPaid], perhaps by an earlier try of this call; [ErrClosed], when the units may be somebody else's by
// now; [ErrNotLanded], when the row will come, and the same call succeeds later. gormplugin.ErrUnknownOutcome says that the
// reply to the COMMIT was lost: call again, and ErrAlreadyPaid is then the first try's success.
//
// Whoever wins against Close and the sweeper decides. If Redis is away after the commit, Pay returns nil all the same: the
// sweeper confirms at the hold's deadline, and so does a repeat of the call.
func (l *Lander[Order, Item]) Pay(ctx context.Context, orderNo string, with ...func(tx *gorm.DB) error) error {
	return l.engine.pay(ctx, orderNo, with)
}

// Close moves an order from unpaid to closed, puts its units back on the item's row in the same transaction, and then
// releases them in Redis. why is kept in the row where it has a column for it: stock.Operator for a customer's or an
// operator's wish, stock.Failed for a payment that was refused for good.
//
// nil says that this call has closed it. Otherwise: [ErrAlreadyPaid]; [ErrClosed] if somebody else was first, and nothing was
// given back twice; [ErrNotLanded]; and [ErrInvalid] for a model without the column that names the item, or for a reason that
// is none of package stock's or is stock.Insufficient, whose units would not go back. If Redis is away after the commit, Close
// returns nil all the same, and the sweeper or a repeat of the call gives the units back there.
func (l *Lander[Order, Item]) Close(ctx context.Context, orderNo string, why stock.Reason) error {
	return l.engine.close(ctx, orderNo, why)
}

func (e *engine) pay(ctx context.Context, orderNo string, with []func(tx *gorm.DB) error) error {
	row, err := e.decide(ctx, orderNo, func(tx *gorm.DB, row orderRow) (bool, error) {
		moved, err := e.move(tx, e.orders.number, []string{orderNo}, e.orders.paid, "")
		for _, fn := range with {
			if err == nil && moved > 0 && fn != nil {
				err = fn(tx)
			}
		}
		return moved > 0, err
	})
	if err == nil || errors.Is(err, ErrAlreadyPaid) && row.state() == statePaid { // with may fail in the same words
		e.endRow(ctx, row, fate{confirm: true})
	}
	return err
}

func (e *engine) close(ctx context.Context, orderNo string, why stock.Reason) error {
	if e.orders.item == nil {
		return fail(ErrInvalid, "the order model has no column that names its item: name yours with WithColumns")
	}
	if !returns(why) {
		return fail(ErrInvalid, "the reason must be one of package stock's whose units go back on sale")
	}
	row, err := e.decide(ctx, orderNo, func(tx *gorm.DB, row orderRow) (bool, error) {
		moved, err := e.move(tx, e.orders.number, []string{orderNo}, e.orders.closed, why)
		if err == nil && moved > 0 {
			err = e.giveBack(tx, map[string]int64{row.item(): row.units()})
		}
		return moved > 0, err
	})
	switch {
	case err == nil:
		e.endRow(ctx, row, fate{release: why})
	case errors.Is(err, ErrClosed):
		e.endRow(ctx, row, fate{release: row.reason()})
	}
	return err
}

// decide runs one compare-and-set on an order's state and says what was there if it did not move. Each look is a transaction of
// its own: MySQL would show what was there when the first one began.
func (e *engine) decide(ctx context.Context, orderNo string, move func(tx *gorm.DB, row orderRow) (bool, error)) (row orderRow, err error) {
	for range 3 {
		moved := false
		err = gormplugin.Retry(ctx, e.db, func(tx *gorm.DB) error {
			var found bool
			if row, found, err = e.find(tx, e.orders.number, orderNo); err != nil {
				return err
			}
			switch {
			case !found:
				return fail(ErrNotLanded, "")
			case row.state() == statePaid:
				return fail(ErrAlreadyPaid, "")
			case row.state() == stateClosed:
				return fail(ErrClosed, "")
			case row.state() == stateOther:
				return fail(ErrInvalid, "the order is in a state that is none of WithStatus")
			}
			moved, err = move(tx, row)
			return err
		})
		if err != nil || moved {
			return row, err
		}
	}
	return row, fail(ErrUnavailable, "the order's row moves back and forth")
}

// endRow does in Redis what SQL has decided about a row. It is not the caller's failure when it cannot: SQL has committed, and
// the sweeper or a repeat heals it.
func (e *engine) endRow(ctx context.Context, row orderRow, f fate) {
	of, known := row.entry()
	var opts []stock.EndOption
	if known && e.settings.Hold == 0 {
		opts = append(opts, stock.Of(orderOf(&of)))
	}
	end := func(opts []stock.EndOption) (err error) {
		if f.confirm {
			_, err = e.counter.Confirm(ctx, row.number(), opts...)
		} else {
			_, err = e.counter.Release(ctx, row.number(), f.release, opts...)
		}
		return err
	}
	err := end(opts)
	if known && opts == nil && errors.Is(err, stock.ErrInvalid) { // an order id of the service's own does not tell its partition
		err = end([]stock.EndOption{stock.Of(orderOf(&of))})
	}
	switch {
	case err == nil:
	case errors.Is(err, stock.ErrNotHeld):
		e.notHeld(ctx, f, err)
	case errors.Is(err, stock.ErrUnavailable), errors.Is(err, stock.ErrUnknownOutcome):
		e.tel.warn(ctx, "cannot end an order in Redis, the sweeper or a repeat will", err)
	default:
		e.tel.alarm(ctx, "an order ended otherwise in Redis than in SQL: compare the two", &message{entry: of}, err)
	}
}
