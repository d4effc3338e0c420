package stock

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Hold is an order whose units are held and not all ended.
type Hold struct {
	Entry
	// Open is how many of the units are neither confirmed nor released.
	Open int64
	// Deadline is when it may be swept.
	Deadline time.Time

	line line
	part int // where it lies
}

const (
	mostExpired = 1000 // bounds one call of Expired
	mostReads   = 64   // holds that are read at once; the client's batcher makes few round trips of them
)

// Expired returns up to limit holds (1 to 1000) past their deadline by Redis's clock, those due longest first in each
// partition. They stay what they are until somebody ends them: a passed deadline alone changes nothing, and whichever of
// Confirm and Release comes first wins. So any number of sweepers may ask at once. One that cannot be ended now is put off
// with [Counter.Postpone], or it would come first each time.
//
// It also finishes what a crash has left of transfers between segments. What cannot be read, a hold that somebody has
// overwritten say, is passed over: the error is then ErrInvalid with the type "corrupt", the first of them, beside all holds
// that can be. Its other errors: ErrInvalid, ErrUnavailable; the holds found until then are returned too.
func (c *Counter) Expired(ctx context.Context, limit int) ([]Hold, error) {
	if limit < 1 || limit > mostExpired {
		return nil, &Error{sentinel: ErrInvalid, reason: "the limit must be from 1 to 1000"}
	}
	var holds []Hold
	var passed error // the first of what cannot be read
	parts := c.partitions()
	start := int(c.turn.Add(1))
	for i := range parts {
		part := (start + i) % parts
		if c.keys.parts > 0 && !c.keys.quota {
			if err := c.finishTransfers(ctx, part, stopped); isCorrupt(err) {
				passed = cmp.Or(passed, err)
			} else if err != nil {
				return holds, err
			}
		}
		found, err := c.expiredIn(ctx, part, limit-len(holds))
		holds = append(holds, found...)
		if isCorrupt(err) {
			passed = cmp.Or(passed, err)
		} else if err != nil {
			return holds, err
		}
	}
	return holds, passed
}

// expiredIn returns up to most holds of a partition. It looks behind those that cannot be read.
func (c *Counter) expiredIn(ctx context.Context, part, most int) (holds []Hold, passed error) {
	for skip := 0; len(holds) < most; {
		want := most - len(holds)
		a, err := c.run(ctx, c.scripts.expired, []string{c.keys.deadlines(part)}, want, 0, skip)
		if err != nil {
			return holds, reading(err)
		}
		orders := a[1:]
		found, err := c.readHolds(ctx, orders, part)
		holds = append(holds, found...)
		if err != nil && !isCorrupt(err) {
			return holds, err
		}
		passed = cmp.Or(passed, err)
		if skip += len(orders); len(orders) < want {
			break
		}
	}
	return holds, passed
}

// readHolds reads many holds at once, and leaves out those that have ended. An error may stand beside what could be read.
func (c *Counter) readHolds(ctx context.Context, orders answer, part int) ([]Hold, error) {
	holds := make([]Hold, len(orders))
	there := make([]bool, len(orders))
	faults := make([]error, len(orders))
	var reads sync.WaitGroup
	room := make(chan struct{}, mostReads)
	for i := range orders {
		room <- struct{}{}
		reads.Go(func() {
			defer func() { <-room }()
			holds[i], there[i], faults[i] = c.readHold(ctx, orders.text(i), part)
		})
	}
	reads.Wait()
	var fault error
	found := holds[:0]
	for i := range holds {
		switch err := faults[i]; {
		case err != nil && (fault == nil || isCorrupt(fault) && !isCorrupt(err)):
			fault = err
		case there[i]:
			found = append(found, holds[i])
		}
	}
	return found, fault
}

func (c *Counter) readHold(ctx context.Context, order string, part int) (Hold, bool, error) {
	a, err := c.run(ctx, c.scripts.held, []string{c.keys.hold(part, order), c.keys.deadlines(part)}, order)
	if err != nil {
		return Hold{}, false, reading(err)
	}
	if a.code() != 0 {
		return Hold{}, false, nil
	}
	l, ok := parseLine(a.text(1))
	if !ok {
		return Hold{}, false, corrupt("hold")
	}
	var numbers [5]int64
	for i := range numbers {
		if numbers[i], err = a.number(3 + i); err != nil {
			return Hold{}, false, err
		}
	}
	return Hold{
		Entry: Entry{
			Order: order, RequestID: a.text(2), Item: l.item, Variant: l.variant, Activity: l.activity, User: l.user,
			Units: l.units, Nth: int(numbers[0]), At: time.UnixMilli(numbers[1]), TraceParent: unpackTrace(a.text(8)),
		},
		Open:     l.units - numbers[3] - numbers[4],
		Deadline: time.UnixMilli(numbers[2]),
		line:     l,
		part:     part,
	}, true, nil
}

// Postpone puts off a hold that cannot be ended now: [Counter.Expired] returns it again when d has passed by Redis's clock,
// and those behind it come first until then. Nothing else changes, its deadline included; a hold that has ended meanwhile stays
// ended. d must be above 0. Its errors: ErrInvalid, also for a hold that Expired has not returned, ErrUnavailable,
// ErrUnknownOutcome.
func (c *Counter) Postpone(ctx context.Context, h *Hold, d time.Duration) error {
	if d < time.Millisecond {
		return misuse("a hold is put off by a millisecond at least")
	}
	if h.line.item == "" {
		return misuse("the hold is not from Expired")
	}
	_, err := c.run(ctx, c.scripts.postpone, []string{c.keys.deadlines(h.part)}, h.Order, d.Milliseconds())
	return err
}
