package stock

import (
	"context"
)

// Adjust adds delta units to the item's counter (restock, refund), or takes them off if it is negative (withdrawal), and
// returns how many are left. A withdrawal takes only what is there: units that are held or sold stay, and with fewer than
// that left it is refused with ErrInsufficient. It never makes a counter.
//
// operation names this step: a repeat of it changes nothing. operator, who decided it, is kept beside it until a day after
// the sale. Its errors: ErrNotWarmed, ErrInsufficient, ErrMismatch if the operation id was used for another amount,
// ErrStale if the item is not [AsSeen], ErrInvalid, ErrUnavailable, ErrUnknownOutcome.
func (c *Counter) Adjust(ctx context.Context, item ID, delta int64, operation, operator string, opts ...StepOption) (int64, error) {
	action, units := "restock", delta
	if delta < 0 {
		action, units = "withdraw", -delta
	}
	if units < 1 || units > maxUnits {
		return 0, &Error{sentinel: ErrInvalid, reason: "delta must be from 1 to 2^53-1 either way"}
	}
	return c.adjust(ctx, item, action, units, operation, operator, opts)
}

// Restore makes the item's counter again, with the given number of units (0 is fine), after it has gone while its sale was
// running: evicted, or lost in a failover. Nobody but a comparison with SQL knows that number. A counter that is there is
// not touched and the error is ErrInvalid as misuse; of a segmented item only the segments that are missing are made, the
// first of them with the units, and a segment's switch that has gone too is made after those of the others. operation and operator are as for Adjust. Its errors: ErrNotWarmed if all
// switches have gone too, ErrMismatch, ErrStale, ErrInvalid, ErrUnavailable, ErrUnknownOutcome.
func (c *Counter) Restore(ctx context.Context, item ID, units int64, operation, operator string, opts ...StepOption) (int64, error) {
	if units < 0 || units > maxUnits {
		return 0, &Error{sentinel: ErrInvalid, reason: "units must be from 0 to 2^53-1"}
	}
	return c.adjust(ctx, item, "restore", units, operation, operator, opts)
}

func (c *Counter) adjust(ctx context.Context, item ID, action string, units int64, operation, operator string, opts []StepOption) (int64, error) {
	left, err := c.adjustOnce(ctx, item, action, units, operation, operator, opts)
	if err != nil {
		return left, err
	}
	text, _ := idText(item) // checked by now
	c.soldOut.forget(text)
	c.tel.decided(ctx, action, text, operation, operator, units)
	c.tel.move(ctx, movementAdjusted, units)
	return left, nil
}

// adjustOnce works on the item's first segment; units move to the others when they are wanted there.
func (c *Counter) adjustOnce(ctx context.Context, item ID, action string, units int64, operation, operator string, opts []StepOption) (int64, error) {
	var text string
	if err := checkID("the item", item, &text, true); err != nil {
		return 0, err
	}
	if err := checkOperation(operation, operator); err != nil {
		return 0, err
	}
	s, err := newStep(text, opts)
	if err != nil {
		return 0, err
	}
	c.places.forget(text, "")
	p, err := c.find(ctx, text, "")
	if err != nil {
		return 0, err
	}
	if action == "restore" && p.segments == 1 && c.keys.parts > 1 && !c.keys.quota {
		if p, err = c.search(ctx, text, p); err != nil { // its home may be what is lost
			return 0, err
		}
	}
	if action == "restore" && p.segments > 1 && !c.keys.quota {
		return c.restoreSegments(ctx, text, p, units, operation, operator, s)
	}
	l := &line{item: text, place: p, part: c.segment(p, 0)}
	for range mostTurns {
		a, err := c.sendAdjust(ctx, l, action, units, operation, operator, s)
		if err != nil {
			return 0, err
		}
		if a.code() == codeInsufficient && p.segments > 1 && !c.keys.quota {
			more, err := c.refill(ctx, l, units)
			if err != nil {
				return 0, err
			}
			if more {
				continue
			}
		}
		return adjusted(a)
	}
	return 0, fail(ErrOverloaded, "others were faster each time")
}

func (c *Counter) sendAdjust(ctx context.Context, l *line, action string, units int64, operation, operator string, s step) (answer, error) {
	keys := c.keys.appendCounter([]string{c.keys.control(l.part, l.item)}, l.part, l.item, c.shards(l.place))
	return c.run(ctx, c.scripts.adjust, keys, action, units, operation, operator, c.keys.channel(), l.item, s.counter(l.part))
}

// restoreSegments makes the segments that are missing. A repeat finds its operation in those it has made before.
func (c *Counter) restoreSegments(ctx context.Context, item string, p place, units int64, operation, operator string, s step) (int64, error) {
	left, made := int64(0), false
	for i := range p.segments {
		l := &line{item: item, place: p, part: c.segment(p, i)}
		give := units
		if made {
			give = 0
		}
		a, err := c.sendAdjust(ctx, l, "restore", give, operation, operator, s)
		if err == nil && a.code() == codeNotWarmed {
			a, err = c.remake(ctx, item, p, i, give, operation, operator)
		}
		if err != nil {
			return 0, err
		}
		if a.code() == -3 {
			n, err := a.number(1)
			if err != nil {
				return 0, err
			}
			left += n
			continue
		}
		n, err := adjusted(a)
		if err != nil {
			return 0, err
		}
		made = true
		left += n
	}
	if !made {
		return left, misuse("no counter is missing: use Adjust")
	}
	return left, nil
}

func adjusted(a answer) (int64, error) {
	switch a.code() {
	case 1:
		return a.number(1)
	case codeNotWarmed:
		return 0, fail(ErrNotWarmed, "")
	case codeInsufficient:
		return 0, fail(ErrInsufficient, "fewer are left; what is held or sold stays")
	case -3:
		return 0, misuse("the counter is not missing: use Adjust")
	case codeMismatch:
		return 0, mismatched(a)
	}
	return 0, corrupt("answer of a script")
}

func mismatched(a answer) error {
	if a.int(1) == 1 {
		return fail(ErrStale, "compare anew")
	}
	return fail(ErrMismatch, "")
}
