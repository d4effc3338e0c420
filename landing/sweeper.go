package landing

import (
	"context"
	"errors"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

const (
	mostSwept = 100  // holds that one round ends
	mostHolds = 1000 // holds that one round looks at: some at the front may be stuck
)

// Sweeper ends holds past their deadline: unpaid orders are closed and their units go back, in SQL and then in Redis;
// what a crash has left between the two is finished. It also finishes transfers between segments. Any number of sweepers
// may run: whoever moves the row decides.
type Sweeper struct{ e *engine }

// Run sweeps until ctx ends, about once a second, and returns nil then. While SQL or Redis is away it goes on trying. It returns
// [ErrInvalid] at once if there is nothing to sweep: the Counter was made with neither stock.WithHold nor
// stock.WithPartitions.
func (s *Sweeper) Run(ctx context.Context) error {
	if s.e.settings.Hold == 0 && s.e.settings.Partitions == 0 {
		return fail(ErrInvalid, "the Counter has neither holds nor segments to sweep: make it with stock.WithHold")
	}
	wait := s.e.pace.sweep
	for ctx.Err() == nil {
		n, err := s.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.e.tel.warn(ctx, "cannot sweep, will try again", err)
		}
		switch {
		case n >= mostSwept:
			wait = 0 // there is more
		case n == 0 && err != nil:
			wait = min(2*max(wait, s.e.pace.sweep), max(s.e.pace.awayMost, s.e.pace.sweep))
		default:
			wait = s.e.pace.sweep
		}
		sleep(ctx, jitter(wait))
	}
	return nil
}

// Sweep makes one round and returns how many holds it has ended. An error says why some were left: they are due again in
// the next round. For a cron job, and for tests.
func (s *Sweeper) Sweep(ctx context.Context) (ended int, err error) {
	work, cancel := graced(ctx, grace)
	defer cancel()
	holds, err := s.e.counter.Expired(ctx, mostHolds)
	faults := []error{err}
	for i := range holds {
		if ctx.Err() != nil || ended == mostSwept {
			break
		}
		if err := s.sweep(work, &holds[i]); err != nil {
			faults = append(faults, err)
			if nobodys(err) || errors.Is(err, stock.ErrUnavailable) {
				break
			}
			continue
		}
		ended++
	}
	return ended, errors.Join(faults...)
}

// sweep ends one hold as SQL says. An error says that the hold is still there.
func (s *Sweeper) sweep(ctx context.Context, h *stock.Hold) error {
	f, err := s.decide(ctx, h)
	if err != nil {
		return err
	}
	err = s.e.end(ctx, &h.Entry, f)
	if errors.Is(err, stock.ErrAlreadyConfirmed) || errors.Is(err, stock.ErrAlreadyReleased) {
		s.e.tel.alarm(ctx, "a hold ended otherwise in Redis than in SQL: compare the two", &message{entry: h.Entry}, err)
		return nil
	}
	return err
}

// decide closes the order of a hold, unless it is paid or closed already, and returns what is to be done in Redis.
func (s *Sweeper) decide(ctx context.Context, h *stock.Hold) (f fate, err error) {
	for range 3 {
		f, err = s.closeUnpaid(ctx, h)
		if err != nil || f.release != "" || f.confirm {
			return f, err
		}
		// No row: it never landed. A closed one bars the way to a copy that comes late.
		f, err = s.e.refuse(ctx, &h.Entry, stock.Unpaid, "")
		if err != nil || f.release != "" || f.confirm {
			return f, err
		}
		// It has landed meanwhile, unpaid: look again.
	}
	return fate{}, &Error{sentinel: ErrNotLanded, reason: "the row of a hold comes and goes, or is in a state that is none of WithStatus"}
}

// closeUnpaid closes an unpaid order and puts its units back on the item's row. A fate of zero says that there is no row.
func (s *Sweeper) closeUnpaid(ctx context.Context, h *stock.Hold) (f fate, err error) {
	err = s.e.transaction(ctx, func(tx *gorm.DB) error {
		f = fate{}
		row, found, err := s.e.find(tx, s.e.orders.request, h.RequestID)
		if err != nil || !found {
			return err
		}
		if f = fateOf(&h.Entry, row); f.release != "" || f.confirm {
			return nil
		}
		moved, err := s.e.move(tx, s.e.orders.request, h.RequestID, s.e.orders.closed, stock.Unpaid)
		if err != nil || !moved {
			return err
		}
		f.release = stock.Unpaid
		return s.e.giveBack(tx, h.Item, h.Open)
	})
	return f, err
}
