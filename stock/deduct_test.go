package stock

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// C17: the first buyer of the last unit succeeds with 0 left, the second hears "not enough", and the key stays 0; a
// missing key is "not warmed up", not sold out.
func TestLastUnit(t *testing.T) {
	everywhere(t, func(e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 1})
		if res := e.deduct(c, e.order(1)); res.Left != 0 || res.Order == "" || res.Nth != 1 || res.Replayed {
			t.Errorf("the last unit gave %+v", res)
		}
		e.refused(c, e.order(2), ErrInsufficient)
		e.left(c, 0)
		e.del("stock:item:1001")
		e.unchanged("a deduct without a counter", func() { e.refused(c, e.order(2), ErrNotWarmed) })
	})
}

// D51: stock is checked before the marker is written, so that a refusal does not use up the user's chance.
func TestRefusalKeepsTheUsersChance(t *testing.T) {
	everywhere(t, func(e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 1, Limit: Limit{Units: 1}})
		e.deduct(c, e.order("first"))
		e.unchanged("a refusal", func() { e.refused(c, e.order("second"), ErrInsufficient) })
		e.warm(c, Sale{Units: 2, Limit: Limit{Units: 1}})
		e.deduct(c, e.order("second"))
	})
}

// D56, D58, X01: a request that is repeated takes nothing and hears what the first time said; after "not enough" it is
// judged afresh.
func TestRepeatHearsTheFirstOutcome(t *testing.T) {
	everywhere(t, func(e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 2})
		o := e.order(7)
		first := e.deduct(c, o)
		e.deduct(c, e.order(8))
		o.ID = "another order id"
		again := e.deduct(c, o)
		if want := (Result{Left: 1, Order: first.Order, Nth: 1, Replayed: true}); again.Order != want.Order || again.Left != want.Left || again.Nth != want.Nth || !again.Replayed {
			t.Errorf("repeat gave %+v, want %+v", again, want)
		}
		e.left(c, 0)

		late := e.order(9)
		e.refused(c, late, ErrInsufficient)
		e.refused(c, late, ErrInsufficient)
		e.warm(c, Sale{Units: 3})
		if res := e.deduct(c, late); res.Replayed {
			t.Error("a refused request was answered as done before")
		}
	})
}

// D58, X04: a repeat of a request whose units were given back is no success.
func TestRepeatAfterReleaseIsNoSuccess(t *testing.T) {
	everywhere(t, func(e *env) {
		for name, opts := range map[string][]Option{"without a hold": nil, "with a hold": {WithHold(time.Minute)}} {
			c := e.counter(opts...)
			e.warm(c, Sale{Units: 5})
			o := e.order(name)
			res := e.deduct(c, o)
			if _, err := c.Release(t.Context(), res.Order, Failed, Of(o)); err != nil {
				t.Fatal(err)
			}
			e.refused(c, o, ErrReleased)
			e.left(c, 5)
		}
	})
}

// F033, C21d, D02: one account cannot drain the stock, whatever request ids it makes up.
func TestOneUserBuysOnce(t *testing.T) {
	everywhere(t, func(e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 100, Limit: Limit{Units: 1}})
		var sold atomic.Int64
		var wg sync.WaitGroup
		for range 200 {
			o := e.order(42)
			wg.Go(func() {
				if _, err := c.Deduct(t.Context(), o); err == nil {
					sold.Add(1)
				} else {
					e.wants(err, ErrLimitReached, "a second order")
				}
			})
		}
		wg.Wait()
		if sold.Load() != 1 {
			t.Errorf("%d orders for one user, want 1", sold.Load())
		}
		e.left(c, 99)
	})
}
