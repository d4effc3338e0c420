package stock

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Without a limit nothing bounds a user's orders, and each order still has a number of its own and finds what was there before:
// a reseller's thousandth order as the first, after releases too, and when a limit is set meanwhile.
func TestNumbersOfAUserWithManyOrders(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		sale := Sale{Units: 1000, Limit: Limit{}}
		e.warm(c, sale)
		live := map[int]Order{} // by number
		buy := func() int {
			t.Helper()
			o := e.order(7)
			res := e.deduct(c, o)
			if other, taken := live[res.Nth]; taken || res.Nth < 1 {
				t.Fatalf("number %d of %s is that of %s too", res.Nth, res.Order, other.ID)
			}
			o.ID = res.Order
			live[res.Nth] = o
			return res.Nth
		}
		release := func(nth int) {
			t.Helper()
			if _, err := c.Release(t.Context(), live[nth].ID, Failed, Of(live[nth])); err != nil {
				t.Fatal(err)
			}
			delete(live, nth)
		}
		for want := 1; want <= 40; want++ {
			if nth := buy(); nth != want {
				t.Errorf("order %d is number %d", want, nth)
			}
		}
		again := live[3]
		again.RequestID = e.id()
		e.unchanged("an order id that is known", func() { e.refused(c, again, ErrMismatch) })
		release(40)
		release(3)
		buy()
		for nth := range maps.Clone(live) {
			if nth != 20 {
				release(nth) // few are left, and then many again
			}
		}
		for range 60 {
			buy()
		}

		sale.Limit.Units = 1000
		e.warm(c, sale)
		for range 60 {
			buy()
		}
		sale.Limit.Units = 0
		e.warm(c, sale)
		buy()
		known := Entry{Order: "lost", RequestID: "lost", Item: "1001", User: "7", Units: 1, Nth: 500}
		if done, err := c.Remember(t.Context(), known, false); err != nil || !done {
			t.Errorf("Remember = %t, %v", done, err)
		}
		live[500] = Order{ID: "lost"}
		if nth := buy(); nth <= 500 {
			t.Errorf("number %d, want one above that of the order that was remembered", nth)
		}
		cart := e.cart(7, Line{1001, "S", 1}, Line{1001, "M", 1})
		res := e.deduct(c, cart)
		for _, l := range res.Lines {
			if other, taken := live[l.Nth]; taken {
				t.Errorf("number %d of a line is that of %s too", l.Nth, other.ID)
			}
			live[l.Nth] = Order{ID: l.Order}
		}
		if res.Lines[0].Nth == res.Lines[1].Nth {
			t.Errorf("two lines have the number %d", res.Lines[0].Nth)
		}
		marks, err := c.Survey(t.Context(), nil)
		if err != nil || len(marks.Marks) != len(live) || len(marks.Unreadable) > 0 {
			t.Errorf("the survey has %d entries of the limit and cannot read %q, %v; want %d", len(marks.Marks), marks.Unreadable, err, len(live))
		}
	})
}

// What a deduct without a limit costs does not grow with the orders that its user has.
func TestManyOrdersOfAUserCostNoMore(t *testing.T) {
	e, monitor := monitored(t)
	c := e.counter()
	e.warm(c, Sale{Units: 1000})
	for range 100 {
		e.deduct(c, e.order(7))
	}
	monitor.Reset(t)
	e.deduct(c, e.order(7))
	marker := e.key("limit:user:7:item:1001:act:")
	for _, cmd := range monitor.Commands(t, e.prefix) {
		if strings.EqualFold(cmd.Name, "HGETALL") && slices.Contains(cmd.Args, marker) {
			t.Errorf("the deduct reads all orders of its user: %v", cmd)
		}
	}
}
