package stock

import (
	"context"
	"errors"
	"strconv"
)

// view is what one counter and its switch said at one instant.
type view struct {
	layout           string // empty: nobody has placed the item here
	open             bool   // there is a switch
	state            string
	left             int64 // -1: the counter is missing
	moving, returns  int64
	warmed           int64
	restocked        int64
	withdrawn, short int64
}

func (c *Counter) look(ctx context.Context, part int, item string, shards int) (view, error) {
	keys := c.keys.appendCounter([]string{c.keys.control(part, item)}, part, item, shards)
	a, err := c.run(ctx, c.scripts.look, keys)
	if err != nil {
		return view{}, reading(err)
	}
	var v view
	if a.code() == codeNotWarmed {
		v.layout = a.text(2)
		v.left, err = a.number(1)
		return v, err
	}
	v.open, v.layout, v.state = true, a.text(2), a.text(3)
	for i, to := range []*int64{&v.left, nil, nil, &v.moving, &v.returns, &v.warmed, &v.restocked, &v.withdrawn, &v.short} {
		if to == nil {
			continue
		}
		if *to, err = a.number(i + 1); err != nil {
			return view{}, err
		}
	}
	return v, nil
}

// reading turns an unknown outcome into unavailable: a call that changes nothing has no outcome.
func reading(err error) error {
	if e, ok := as(err); ok && errors.Is(e.sentinel, ErrUnknownOutcome) {
		return &Error{sentinel: ErrUnavailable, cause: e.cause}
	}
	return err
}

// number returns a number, also one that was sent as text.
func (a answer) number(i int) (int64, error) {
	if i < len(a) {
		if n, ok := a[i].(int64); ok {
			return n, nil
		}
	}
	n, err := strconv.ParseInt(a.text(i), 10, 64)
	if err != nil {
		return 0, corrupt("answer of a script")
	}
	return n, nil
}

// Status is an item's stock in Redis, summed over its segments.
type Status struct {
	// Left is what the counters have. Moving is what is on its way between two segments.
	Left, Moving int64
	// Warmed, Restocked and Withdrawn are what came in and went out since the first Warm. Withheld is what SQL refused:
	// it is neither sold nor for sale until Thaw.
	Warmed, Restocked, Withdrawn, Withheld int64
	// State is "open", "paused" or "frozen".
	State string
	// Segments has what each segment's counter has; -1 for one that is missing.
	Segments []int64
}

// Status returns an item's numbers, for boards and for comparing with SQL. With several segments they are read one
// after another, so they add up only while nobody buys. Its errors: ErrNotWarmed if the item has no switch, ErrInvalid,
// ErrUnavailable. A counter that is missing is no error here: its segment shows -1.
func (c *Counter) Status(ctx context.Context, item ID) (Status, error) {
	var text string
	if err := checkID("the item", item, &text, true); err != nil {
		return Status{}, err
	}
	var s Status
	err := c.everySegment(ctx, text, func(part int, p place) error {
		v, err := c.look(ctx, part, text, c.shards(p))
		if err != nil {
			return err
		}
		if !v.open {
			return fail(ErrNotWarmed, "")
		}
		s.Segments = append(s.Segments, v.left)
		s.Left += max(v.left, 0)
		s.Moving += v.moving
		s.Warmed += v.warmed
		s.Restocked += v.restocked
		s.Withdrawn += v.withdrawn
		s.Withheld += v.short
		s.State = closer(s.State, v.state)
		return nil
	})
	if err != nil {
		return Status{}, err
	}
	return s, nil
}

// Remaining returns how many units the item's counter has, over all segments. It is for people to look at: between this
// answer and a deduct others may have bought, and only Deduct decides. It locks nothing. Its errors: ErrNotWarmed,
// ErrInvalid, ErrUnavailable.
func (c *Counter) Remaining(ctx context.Context, item ID) (int64, error) {
	s, err := c.Status(ctx, item)
	if err != nil {
		return 0, err
	}
	for _, left := range s.Segments {
		if left < 0 {
			return 0, fail(ErrNotWarmed, "")
		}
	}
	return s.Left, nil
}

// everySegment calls fn for each partition that has units of the item. The item's place is asked anew each time: these
// calls are rare, and a stale one would see nothing.
func (c *Counter) everySegment(ctx context.Context, item string, fn func(part int, p place) error) error {
	c.places.forget(item, "")
	p, err := c.find(ctx, item, "")
	if err != nil {
		return err
	}
	n := p.segments
	if c.keys.quota {
		n = 1
	}
	for i := range n {
		if err := fn(c.segment(p, i), p); err != nil {
			return err
		}
	}
	return nil
}
