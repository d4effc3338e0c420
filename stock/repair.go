package stock

import (
	"context"
	"time"
)

// Remember writes down again what Redis has lost of an order that is live in SQL: its entry in the user's limit and, with
// open and a Counter made with WithHold, its hold, with a deadline from now on. A hold that is there and open, and has only
// dropped out of the deadlines, is listed there again. What is there stays as it is, and no counter is touched. It can be
// done until a day after the end of the order's activity. It reports whether anything was written, and may be repeated. Its
// errors: ErrNotWarmed if there is no such sale, ErrInvalid, ErrUnavailable, ErrUnknownOutcome.
func (c *Counter) Remember(ctx context.Context, e Entry, open bool) (bool, error) {
	if c.keys.quota {
		return false, misuse("a quota has no limits")
	}
	r, err := c.check(ctx, &Order{
		ID: e.Order, RequestID: e.RequestID, Item: e.Item, Variant: e.Variant, Activity: e.Activity, User: e.User, Units: e.Units,
	})
	if err != nil {
		return false, err
	}
	if r.order == "" {
		return false, &Error{sentinel: ErrInvalid, reason: "Entry.Order is empty"}
	}
	hold := int64(0)
	if open {
		hold = c.cfg.hold.Milliseconds()
	}
	h := heldLine{order: r.order, id: r.id, line: r.lines[0]}
	h.fixed = c.keys.parts > 0 && len(c.partsIn(h.order)) == 1
	told := false // as in endLine
	for range 4 {
		c.locateHeld(&h)
		l := &h.line
		layout := l.place.layout()
		if h.fixed {
			layout = ""
		}
		a, err := c.run(ctx, c.scripts.remember,
			[]string{c.keys.hold(l.part, h.order), c.keys.request(l.part, h.id), c.keys.deadlines(l.part), c.keys.control(l.part, l.item), c.keys.marker(l.part, l.place.over, l)},
			h.order, h.id, l.what, "", "", actField(l.activity), int(l.place.over), layout, l.units, max(e.Nth, 1), hold, packTrace(e.TraceParent))
		if err != nil {
			return false, err
		}
		switch a.code() {
		case 1:
			return a.int(1)+a.int(2) > 0, nil
		case codeElsewhere:
			if err := c.redirected(a, l.item, l.activity); err != nil {
				return false, err
			}
			told = true
		case codeNotWarmed:
			if h.fixed || told || !c.places.forget(l.item, l.activity) {
				return false, fail(ErrNotWarmed, "")
			}
		}
	}
	return false, corrupt("switch")
}

// Unmark takes an entry off a limit if it is still as a [Survey] saw it: for an order that is neither held nor live. It
// reports whether it was this call that did. Its errors: ErrInvalid, ErrUnavailable, ErrUnknownOutcome.
func (c *Counter) Unmark(ctx context.Context, m Mark) (bool, error) {
	if m.key == "" {
		return false, misuse("the mark is not from a Survey")
	}
	a, err := c.run(ctx, c.scripts.unmark, []string{m.key}, m.Order, m.value)
	return err == nil && a.code() == 1, err
}

// RemoveStray removes a counter that belongs to no sale, one of [Survey].Strays by its Key. One whose sale has been warmed up since
// stays. It reports whether it was this call that did. Its errors: ErrInvalid, ErrUnavailable, ErrUnknownOutcome.
func (c *Counter) RemoveStray(ctx context.Context, key string) (bool, error) {
	p := c.keys.parse(key)
	if p.role != roleCounter || c.keys.quota {
		return false, misuse("the key is no counter of this Counter")
	}
	a, err := c.run(ctx, c.scripts.stray, []string{c.keys.control(p.part, p.item), key})
	return err == nil && a.code() == 1, err
}

// leastLife is what a key without a TTL is given, at least.
const leastLife = 8 * 24 * time.Hour

// Expire gives a key without a TTL, one of [Survey].Eternal, one of eight days, or until a day after ends where that is
// later. A key that has one keeps it. It reports whether it was this call that did. Its errors: ErrInvalid, ErrUnavailable,
// ErrUnknownOutcome.
func (c *Counter) Expire(ctx context.Context, key string, ends time.Time) (bool, error) {
	if c.keys.quota || c.keys.parse(key).role == roleOther {
		return false, misuse("the key is none of this Counter")
	}
	life := max(leastLife, time.Until(ends)+24*time.Hour)
	a, err := c.run(ctx, c.scripts.expire, []string{key}, life.Milliseconds())
	return err == nil && a.code() == 1, err
}
