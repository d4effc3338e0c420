package landing

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

const (
	mostSwept = 256         // holds that one round ends, in one transaction
	putOff    = time.Minute // how long a hold that cannot be ended is left alone
)

// Sweeper ends holds past their deadline: unpaid orders are closed and their units go back, in SQL and then in Redis;
// what a crash has left between the two is finished. It also finishes transfers between segments. Any number of sweepers
// may run: whoever moves the row decides.
type Sweeper struct{ e *engine }

// Run sweeps until ctx ends, about once a second, or at once while there is more, and returns nil then. While SQL or Redis is
// away it goes on trying. A hold that cannot be ended, for its counter is broken perhaps, is logged and left alone for a minute.
// Run returns [ErrInvalid] at once if there is nothing to sweep: the Counter was made with neither stock.WithHold nor
// stock.WithPartitions.
func (s *Sweeper) Run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	wait := s.e.pace.sweep
	for ctx.Err() == nil {
		ended, postponed, err := s.round(ctx)
		if err != nil && ctx.Err() == nil {
			s.e.tel.warn(ctx, "cannot sweep, will try again", err)
		}
		switch {
		case ended+postponed >= mostSwept:
			wait = 0 // there is more
		case ended == 0 && err != nil:
			wait = min(2*max(wait, s.e.pace.sweep), max(s.e.pace.awayMost, s.e.pace.sweep))
		default:
			wait = s.e.pace.sweep
		}
		sleep(ctx, jitter(wait))
	}
	return nil
}

// Sweep makes one round, of up to 256 holds, and returns how many it has ended. An error says why some were left: they are
// due again in the next round, or in a minute where it is the hold's own fault. For a cron job, and for tests.
// [ErrInvalid] says that there is nothing to sweep, as from Run.
func (s *Sweeper) Sweep(ctx context.Context) (ended int, err error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	ended, _, err = s.round(ctx)
	return ended, err
}

func (s *Sweeper) check() error {
	if s.e.settings.Hold == 0 && s.e.settings.Partitions == 0 {
		return fail(ErrInvalid, "the Counter has neither holds nor segments to sweep: make it with stock.WithHold")
	}
	return nil
}

func (s *Sweeper) round(ctx context.Context) (ended, postponed int, err error) {
	work, cancel := graced(ctx, grace)
	defer cancel()
	holds, err := s.e.counter.Expired(ctx, mostSwept)
	faults := []error{err}
	fates, undecided := s.decide(work, holds)
	entries := make([]*stock.Entry, len(holds))
	for i := range holds {
		entries[i] = &holds[i].Entry
	}
	var away error
	for i, err := range s.e.endAll(work, entries, fates) {
		if err == nil {
			err = undecided[i]
		}
		switch {
		case err == nil:
			ended++
		case errors.Is(err, stock.ErrAlreadyConfirmed), errors.Is(err, stock.ErrAlreadyReleased):
			s.e.tel.alarm(ctx, "a hold ended otherwise in Redis than in SQL: compare the two", &message{entry: holds[i].Entry}, err)
			ended++
		case isAway(err):
			away = err // one for all
		default:
			faults = append(faults, err)
			if err := s.e.counter.Postpone(work, &holds[i], putOff); err != nil {
				faults = append(faults, err)
				continue
			}
			postponed++
		}
	}
	return ended, postponed, errors.Join(append(faults, away)...)
}

// isAway reports whether an error is no fault of a hold: SQL or Redis is away, or has not said whether it has done what was
// asked. A hold whose row somebody keeps locked has to wait by itself.
func isAway(err error) bool {
	if isTooLong(err) {
		return errors.Is(err, gormplugin.ErrUnknownOutcome)
	}
	return nobodys(err) || errors.Is(err, stock.ErrUnavailable) || errors.Is(err, stock.ErrUnknownOutcome)
}
