package stock

import (
	"context"
	"strconv"
	"strings"
)

// heldLine is one line whose units are to be ended.
type heldLine struct {
	order, id string
	line      line
	fixed     bool // the partition is known from the order id
}

// heldBy finds out what an order is for: from Of, else from its holds. Each line is one of the result.
func (c *Counter) heldBy(ctx context.Context, orderID string, e *ending) ([]heldLine, error) {
	if e.of != nil {
		return c.heldOf(ctx, orderID, *e.of)
	}
	if c.cfg.hold == 0 {
		return nil, misuse("without WithHold the order's request is the proof: add stock.Of(order)")
	}
	parts := []int{0}
	if c.keys.parts > 0 {
		if parts = c.partsIn(orderID); parts == nil {
			return nil, misuse("the order id is not the library's, so it does not tell the partition: add stock.Of(order)")
		}
	}
	if len(parts) == 1 {
		h, ok, err := c.readHeld(ctx, orderID, parts[0])
		if err != nil {
			return nil, err
		}
		if ok {
			return []heldLine{h}, nil
		}
		if c.keys.parts > 0 {
			return nil, fail(ErrNotHeld, "")
		}
		parts = make([]int, maxLines) // in the flat keyspace an id does not tell how many lines there are
	}
	var held []heldLine
	for i, part := range parts {
		h, ok, err := c.readHeld(ctx, numbered(orderID, strconv.Itoa(i+1)), part)
		if err != nil {
			return nil, err
		}
		if ok {
			held = append(held, h)
		} else if c.keys.parts == 0 {
			break
		}
	}
	if len(held) == 0 {
		return nil, fail(ErrNotHeld, "")
	}
	return held, nil
}

// heldOf takes the caller's word for what the order is for; the script checks it.
func (c *Counter) heldOf(ctx context.Context, orderID string, o Order) ([]heldLine, error) {
	parent, number := orderID, ""
	if len(o.Lines) > 0 {
		parent, number = lineOf(orderID, o.ID)
	}
	o.ID = parent
	r, err := c.check(ctx, &o)
	if err != nil {
		return nil, err
	}
	var held []heldLine
	for i := range r.lines {
		l := &r.lines[i]
		if number != "" && l.number != number {
			continue
		}
		h := heldLine{order: r.orderOf(l), id: r.idOf(l), line: *l}
		h.fixed = c.keys.parts > 0 && len(c.partsIn(h.order)) == 1
		c.locateHeld(&h)
		held = append(held, h)
	}
	if len(held) == 0 {
		return nil, fail(ErrNotHeld, "")
	}
	return held, nil
}

// lineOf splits the id of a line into the order's id and the line's number; whole is the order's id where it is known.
func lineOf(orderID, whole string) (parent, number string) {
	i := strings.LastIndexByte(orderID, '/')
	if i < 0 || orderID == whole {
		return orderID, ""
	}
	if _, ok := lineNumber(orderID[i+1:]); !ok || whole != "" && orderID[:i] != whole {
		return orderID, ""
	}
	return orderID[:i], orderID[i+1:]
}

// partsIn is partsOf for this Counter's partitions.
func (c *Counter) partsIn(orderID string) []int {
	parts := partsOf(orderID)
	for _, part := range parts {
		if part >= c.keys.parts {
			return nil
		}
	}
	return parts
}

// locateHeld finds the partition of a line to be ended.
func (c *Counter) locateHeld(h *heldLine) {
	l := &h.line
	l.place = c.placeOf(l.item, l.activity)
	l.part = c.partOf(l.place, l.user)
	if h.fixed {
		l.part = c.partsIn(h.order)[0]
	}
}

// readHeld reads the hold of one line.
func (c *Counter) readHeld(ctx context.Context, order string, part int) (heldLine, bool, error) {
	hold, ok, err := c.readHold(ctx, order, part)
	if err != nil || !ok {
		return heldLine{}, false, err
	}
	h := heldLine{order: order, id: hold.RequestID, line: hold.line, fixed: c.keys.parts > 0}
	c.locateHeld(&h)
	return h, true, nil
}
