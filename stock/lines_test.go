package stock

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// items warms up the items, in partitions spread over several of them, and returns their stock.
func (e *env) items(c *Counter, limit Limit, units map[ID]int64) func(item ID, want int64) {
	e.Helper()
	for item, n := range units {
		e.warm(c, Sale{Item: item, Units: n, Limit: limit})
	}
	return func(item ID, want int64) {
		e.Helper()
		if got, err := c.Remaining(e.Context(), item); err != nil || got != want {
			e.Errorf("item %v: %d left, %v; want %d", item, got, err, want)
		}
	}
}

func (e *env) cart(user ID, lines ...Line) Order {
	return Order{User: user, RequestID: e.id(), Lines: lines}
}

// Lines are all or nothing, and each one has an order id, a request id and a number of its own.
func TestLinesAreAllOrNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for name, opts := range map[string][]Option{"plain": nil, "hold+stream": {WithHold(time.Minute), WithStream()}} {
			e := &env{T: t, rdb: e.rdb, prefix: e.prefix + name + ":", parts: e.parts}
			c := e.counter(opts...)
			left := e.items(c, Limit{Units: 2}, map[ID]int64{1: 5, 2: 5, 3: 1})
			o := e.cart(7, Line{Item: 3, Units: 1}, Line{Item: 1, Units: 2}, Line{Item: 2, Variant: "blue", Units: 1})
			res := e.deduct(c, o)
			left(1, 3)
			left(2, 4)
			left(3, 0)
			if len(res.Lines) != 3 || res.Left != 0 {
				t.Fatalf("%s: %+v", name, res)
			}
			for i, want := range []Taken{
				{Item: "1", Units: 2, Left: 3, Nth: 1},
				{Item: "2", Variant: "blue", Units: 1, Left: 4, Nth: 1},
				{Item: "3", Units: 1, Left: 0, Nth: 1},
			} {
				want.Order, want.RequestID = fmt.Sprint(res.Order, "/", i+1), fmt.Sprint(o.RequestID, "/", i+1)
				if res.Lines[i] != want {
					t.Errorf("%s: line %d = %+v, want %+v", name, i, res.Lines[i], want)
				}
			}

			again := e.deduct(c, o)
			if !again.Replayed || again.Order != res.Order || fmt.Sprint(again.Lines) != fmt.Sprint(res.Lines) {
				t.Errorf("%s: replay %+v, want %+v", name, again, res)
			}
			left(1, 3)

			short := e.cart(8, Line{Item: 1, Units: 1}, Line{Item: 2, Units: 1}, Line{Item: 3, Units: 1})
			for range 2 {
				if err := e.refused(c, short, ErrInsufficient); err.Line() != 2 {
					t.Errorf("%s: line %d was refused, want the third", name, err.Line())
				}
				left(1, 3)
				left(2, 4)
			}
			e.refused(c, e.cart(7, Line{Item: 2, Units: 1}, Line{Item: 1, Units: 1}), ErrLimitReached)
			left(2, 4)

			// After a restock the refused request is judged afresh.
			if _, err := c.Adjust(t.Context(), 3, 1, "restock", "me"); err != nil {
				t.Fatal(err)
			}
			if res := e.deduct(c, short); res.Replayed {
				t.Errorf("%s: the refused request was answered as done", name)
			}
			left(3, 0)
			e.everyKeyExpires()
		}
	})
}

// F039, F041: lines of one item are added up first, also when they differ in options: refused as a whole.
func TestLinesOfOneItemAreOneAmount(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		left := e.items(c, Limit{}, map[ID]int64{1: 3})
		for name, lines := range map[string][]Line{
			"the same line twice": {{Item: 1, Units: 2}, {Item: 1, Units: 2}},
			"two options":         {{Item: 1, Variant: "S", Units: 2}, {Item: 1, Variant: "M", Units: 2}},
		} {
			e.unchanged(name, func() { e.refused(c, e.cart(7, lines...), ErrInsufficient) })
		}
		left(1, 3)
		res := e.deduct(c, e.cart(7, Line{Item: 1, Units: 1}, Line{Item: 1, Units: 2}))
		if res.Lines != nil || res.Left != 0 {
			t.Errorf("two lines of one item gave %+v, want one amount", res)
		}
	})
}

// F040: the limit counts units over all lines.
func TestLimitCountsOverAllLines(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.items(c, Limit{Units: 2}, map[ID]int64{1: 30})
		line := Line{Item: 1, Units: 1}
		e.refused(c, e.cart(7, line, line, line), ErrLimitReached)
		e.refused(c, e.cart(7, Line{1, "S", 1}, Line{1, "M", 1}, Line{1, "L", 1}), ErrLimitReached)
		res := e.deduct(c, e.cart(7, Line{1, "S", 1}, Line{1, "M", 1}))
		if res.Lines[0].Nth != 1 || res.Lines[1].Nth != 2 {
			t.Errorf("lines %+v, want numbers 1 and 2", res.Lines)
		}
	})
}

// A limit over the activity counts all items of a cart, in one partition.
func TestLimitOverTheActivityCountsTheCart(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithStream())
		e.items(c, Limit{Units: 2, Over: Activity}, map[ID]int64{1: 9, 2: 9, 3: 9})
		fresh := e.counter(WithStream()) // knows nothing about where the items are
		e.refused(fresh, e.cart(7, Line{1, nil, 1}, Line{2, nil, 1}, Line{3, nil, 1}), ErrLimitReached)
		e.deduct(fresh, e.cart(7, Line{1, nil, 1}, Line{2, nil, 1}))
		e.refused(fresh, Order{Item: 3, User: 7, Units: 1, RequestID: e.id()}, ErrLimitReached)
	})
}

// F042: a cart that is refused never made a unit of the scarce item disappear, not even for a moment.
func TestRefusedCartCausesNoDip(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.items(c, Limit{}, map[ID]int64{"a": 1000, "b": 2})
		for range 30 {
			b := Order{Item: "b", User: "B", Units: 2, RequestID: e.id()}
			parallel(2, func(i int) {
				if i == 0 {
					if _, err := c.Deduct(t.Context(), e.cart("A", Line{"a", nil, 1}, Line{"b", nil, 3})); !errors.Is(err, ErrInsufficient) {
						t.Errorf("A: %v", err)
					}
					return
				}
				res, err := c.Deduct(t.Context(), b)
				if err != nil {
					t.Errorf("B could be served and hears %v", err)
					return
				}
				if _, err := c.Release(t.Context(), res.Order, Operator, Of(b)); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// F001, F097: carts with the same items in any order never wait for each other, and sell exactly what there is.
func TestCartsInAnyOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		left := e.items(c, Limit{}, map[ID]int64{1: 40, 2: 40})
		var sold atomic.Int64
		parallel(max(e.crowd(100), 60), func(i int) {
			lines := []Line{{1, nil, 1}, {2, nil, 1}}
			if i%2 == 1 {
				lines[0], lines[1] = lines[1], lines[0]
			}
			if _, err := c.Deduct(t.Context(), e.cart(i, lines...)); err == nil {
				sold.Add(1)
			}
		})
		// Lines in two partitions are taken one after another, so two of the last buyers may refuse each other.
		if n := sold.Load(); n > 40 || n < 40 && e.parts == 0 || n < 30 {
			t.Errorf("%d carts sold, want 40", n)
		}
		left(1, 40-sold.Load())
		left(2, 40-sold.Load())
	})
}

// The same cart under one request id at the same time from many places is taken once.
func TestSameCartAtOnceIsTakenOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		left := e.items(c, Limit{}, map[ID]int64{1: 9, 2: 9, 3: 9})
		o := e.cart(7, Line{1, nil, 1}, Line{2, nil, 1}, Line{3, nil, 1})
		parallel(10, func(int) {
			if _, err := c.Deduct(t.Context(), o); err != nil {
				e.wants(err, ErrInFlight, "the same cart")
			}
		})
		for _, item := range []ID{1, 2, 3} {
			left(item, 8)
		}
		if res := e.deduct(c, o); !res.Replayed {
			t.Errorf("afterwards: %+v, want a replay", res)
		}
		other := o
		other.Lines = o.Lines[:2]
		e.refused(c, other, ErrMismatch)
	})
}

// A cart is released whole, by its own id, or line by line; then its request is no success any more.
func TestCartsAreReleased(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		left := e.items(c, Limit{Units: 5}, map[ID]int64{1: 9, 2: 9, 3: 9})
		lines := []Line{{1, nil, 1}, {2, nil, 2}, {3, nil, 3}}
		for name, of := range map[string]bool{"with Of": true, "from the holds": false} {
			o := e.cart(name, lines...)
			res := e.deduct(c, o)
			opts := []EndOption{}
			if of {
				opts = append(opts, Of(o))
			}
			e.ended(c.Release(t.Context(), res.Order+"/2", Unpaid, opts...))(Ended{Outcome: OutcomeReleased, Units: 2})
			left(2, 9)
			left(1, 8)
			if res := e.deduct(c, o); !res.Replayed {
				t.Errorf("%s: a cart with two lines left: %+v", name, res)
			}
			e.ended(c.Release(t.Context(), res.Order, Unpaid, opts...))(Ended{Outcome: OutcomeReleased, Units: 6})
			for _, item := range []ID{1, 2, 3} {
				left(item, 9)
			}
			e.refused(c, o, ErrReleased)
			e.ended(c.Release(t.Context(), res.Order, Unpaid, opts...))(Ended{Outcome: OutcomeAlreadyReleased, Units: 6})
			_, err := c.Confirm(t.Context(), res.Order, opts...)
			e.wants(err, ErrAlreadyReleased, "Confirm")
			_, err = c.Release(t.Context(), res.Order, Unpaid, append(opts, Units(1), Operation("x"))...)
			e.wants(err, ErrInvalid, "a part of a cart")
		}
	})
}

func TestCartWithoutHoldIsReleasedWithOf(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		left := e.items(c, Limit{Units: 5}, map[ID]int64{1: 9, 2: 9})
		o := e.cart(7, Line{1, nil, 1}, Line{2, nil, 2})
		o.ID = "my/order/1" // an id of the caller's own that looks like a line's
		res := e.deduct(c, o)
		e.ended(c.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 3})
		left(1, 9)
		left(2, 9)

		o = e.cart(8, Line{1, nil, 1}, Line{2, nil, 2})
		o.ID = "plain"
		e.deduct(c, o)
		row := Order{ID: "plain/2", RequestID: o.RequestID + "/2", Item: 2, User: 8, Units: 2} // as a row in SQL knows it
		e.ended(c.Release(t.Context(), row.ID, Failed, Of(row)))(Ended{Outcome: OutcomeReleased, Units: 2})
		left(2, 9)
		left(1, 8)
	})
}

func TestWrongCarts(t *testing.T) {
	e := newMini(t, 0)
	c := e.counter()
	many := make([]Line, maxLines+1)
	for i := range many {
		many[i] = Line{Item: i, Units: 1}
	}
	for name, tt := range map[string]struct {
		order Order
		typ   string
		line  int
	}{
		"item and lines": {Order{Item: 1, Lines: []Line{{1, nil, 1}}}, "misuse", -1},
		"too many lines": {Order{Lines: many}, "invalid", -1},
		"no units":       {Order{Lines: []Line{{1, nil, 1}, {2, nil, 0}}}, "invalid", 1},
		"no item":        {Order{Lines: []Line{{nil, nil, 1}}}, "invalid", 0},
		"sum too large":  {Order{Lines: []Line{{1, nil, maxUnits}, {1, nil, 1}}}, "invalid", 1},
	} {
		tt.order.User, tt.order.RequestID = 1, "r"
		if err := e.refused(c, tt.order, ErrInvalid); err.ErrorType() != tt.typ || err.Line() != tt.line {
			t.Errorf("%s: type %q, line %d; want %q, %d", name, err.ErrorType(), err.Line(), tt.typ, tt.line)
		}
	}
}

// A cart whose runner died in the middle, and whose first line was given back at its deadline, is not taken any more: its lines
// are all or nothing.
func TestCartGivenBackInTheMiddle(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		if e.parts == 0 {
			return // there it is one script
		}
		c := e.counter(WithHold(time.Minute), WithStream())
		left := e.items(c, Limit{Units: 2}, map[ID]int64{1: 5, 2: 5})
		o := e.cart(7, Line{Item: 1, Units: 1}, Line{Item: 2, Units: 1})
		r, err := c.check(t.Context(), &o)
		if err != nil {
			t.Fatal(err)
		}
		if together, err := c.locate(t.Context(), r); err != nil || together {
			t.Fatalf("the items share a partition: %t, %v", together, err)
		}
		r.order = withParts(newOrderID(), r.lines)
		run := &apart{c: c, r: r, key: c.keys.request(spread(r.id, c.keys.parts), r.id), name: "dead", try: 1}
		if _, err := c.run(t.Context(), c.scripts.wholeOpen, []string{run.key}, r.what, r.order, run.name, c.cfg.recordLife().Milliseconds(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := run.takeLine(t.Context(), r.lines[:1]); err != nil {
			t.Fatal(err)
		}
		e.ended(c.Release(t.Context(), r.order+"/1", Unpaid))(Ended{Outcome: OutcomeReleased, Units: 1})
		c.takeOver = 0
		for range 2 {
			e.refused(c, o, ErrReleased)
			left(1, 5)
			left(2, 5)
		}
	})
}

// The ids of lines can be ended too: those of the order leave room for the lines' numbers.
func TestLongIDsOfCarts(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		left := e.items(c, Limit{}, map[ID]int64{1: 5, 2: 5})
		o := Order{ID: strings.Repeat("o", 125), RequestID: strings.Repeat("r", 125), User: 7, Lines: []Line{{1, nil, 1}, {2, nil, 1}}}
		for _, long := range []Order{{ID: o.ID + "o", RequestID: o.RequestID}, {ID: o.ID, RequestID: o.RequestID + "r"}} {
			long.User, long.Lines = o.User, o.Lines
			e.unchanged("an id that is too long", func() { e.refused(c, long, ErrInvalid) })
		}
		for i, l := range e.deduct(c, o).Lines {
			of := Order{RequestID: l.RequestID, Item: l.Item, User: 7, Units: 1}
			e.ended(c.Release(t.Context(), l.Order, Failed, Of(of)))(Ended{Outcome: OutcomeReleased, Units: 1})
			left(i+1, 5)
		}
	})
}
