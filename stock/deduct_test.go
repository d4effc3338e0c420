package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// C17, D50: the first buyer of the last unit succeeds with 0 left, the second hears "not enough" and the key stays 0; a
// missing key is "not warmed up", not sold out.
func TestLastUnit(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 1})
		if res := e.deduct(c, e.order(1)); res.Left != 0 || res.Order == "" || res.Nth != 1 || res.Replayed || res.Lines != nil {
			t.Errorf("the last unit gave %+v", res)
		}
		e.unchanged("a deduct when sold out", func() { e.refused(c, e.order(2), ErrInsufficient) })
		e.left(c, 0)
		e.del("stock:item:1001")
		e.unchanged("a deduct without a counter", func() { e.refused(c, e.order(2), ErrNotWarmed) })
	})
}

// A11, F036, F037, F038, F068: two look, see the last unit, and both buy: the look decides nothing. One order.
func TestLastUnitTwoBuyers(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 1})
		e.left(c, 1)
		var sold, refused atomic.Int64
		parallel(2, func(i int) {
			_, err := c.Deduct(t.Context(), e.order(i))
			switch {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, ErrInsufficient):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
		if sold.Load() != 1 || refused.Load() != 1 {
			t.Errorf("%d sold, %d refused; want 1 and 1", sold.Load(), refused.Load())
		}
	})
}

// F061, F068: exactly as many are sold as there are, without any lock or HTTP.
func TestExactlyAsManyAsThereAre(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute), WithStream())
		e.warm(c, Sale{Units: 30, Limit: Limit{Units: 1}})
		var sold atomic.Int64
		parallel(e.crowd(200), func(i int) {
			if _, err := c.Deduct(t.Context(), e.order(i)); err == nil {
				sold.Add(1)
			} else {
				e.wants(err, ErrInsufficient, "buyer %d", i)
			}
		})
		if sold.Load() != 30 {
			t.Errorf("%d sold, want 30", sold.Load())
		}
		e.left(c, 0)
	})
}

// D50, D53: every situation has its own answer, and leaves everything as it was.
func TestEveryRefusalHasItsOwnAnswer(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.unchanged("not warmed", func() { e.refused(c, e.order(1), ErrNotWarmed) })

		now := time.Now().UnixMilli()
		act := func(starts, ends, limit, most int64) string {
			return fmt.Sprintf("%d %d %d %d 0 %d", starts, ends, limit, most, ends)
		}
		e.warm(c, Sale{Units: 3, Limit: Limit{Units: 2, PerOrder: 2}})
		o := e.order("buyer")
		o.Units = 2
		e.deduct(c, o)
		two := func(user ID) Order { o := e.order(user); o.Units = 2; return o }
		three := e.order("greedy")
		three.Units = 3
		for _, tt := range []struct {
			name  string
			setup func()
			order Order
			want  error
			typ   string
			retry bool
		}{
			{"not enough", func() {}, two("other"), ErrInsufficient, "insufficient", false},
			{"limit reached", func() {}, e.order("buyer"), ErrLimitReached, "limit_reached", false},
			{"this order alone is over the limit", func() { e.set("stock:item:1001", "9") }, three, ErrLimitReached, "limit_reached", false},
			{"paused", func() { e.hset("stock:item:1001:ctl", "state", "paused") }, e.order("x"), ErrPaused, "paused", false},
			{"frozen", func() { e.hset("stock:item:1001:ctl", "state", "frozen") }, e.order("x"), ErrPaused, "paused", false},
			{"not started", func() { e.hset("stock:item:1001:ctl", "state", "open", "act:", act(now+90_000, now+200_000, 2, 0)) }, e.order("x"), ErrNotStarted, "not_started", false},
			{"ended", func() { e.hset("stock:item:1001:ctl", "act:", act(1, now-1, 2, 0)) }, e.order("x"), ErrEnded, "ended", false},
			{"not in this activity", func() {}, Order{Item: 1001, Activity: "other", User: 1, Units: 1, RequestID: "z"}, ErrNotWarmed, "not_warmed", true},
		} {
			tt.setup()
			e.unchanged(tt.name, func() {
				err := e.refused(c, tt.order, tt.want)
				if err.ErrorType() != tt.typ || err.Retryable() != tt.retry {
					t.Errorf("%s: type %q, retryable %v; want %q, %v", tt.name, err.ErrorType(), err.Retryable(), tt.typ, tt.retry)
				}
				if after := err.RetryAfter(); errors.Is(tt.want, ErrNotStarted) && (after <= 60*time.Second || after > 90*time.Second) {
					t.Errorf("not started: retry after %v, want the time until the start", after)
				}
			})
		}
	})
}

// F046, O18: the units of this order count, and one order has a maximum of its own.
func TestLimitCountsUnits(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 100, Limit: Limit{Units: 3, PerOrder: 2}})
		units := func(n int64) Order { o := e.order(7); o.Units = n; return o }
		e.refused(c, units(3), ErrLimitReached)
		if res := e.deduct(c, units(2)); res.Nth != 1 {
			t.Errorf("first order is number %d", res.Nth)
		}
		e.refused(c, units(2), ErrLimitReached)
		if res := e.deduct(c, units(1)); res.Nth != 2 {
			t.Errorf("second order is number %d", res.Nth)
		}
		e.refused(c, units(1), ErrLimitReached)
		e.left(c, 97)
	})
}

// D10, X28: the limit counts over what the sale says, also in an instance that has not warmed it up.
func TestLimitCountsOverItsScope(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		warmer := e.counter()
		limit := func(over Scope) Limit { return Limit{Units: 1, Over: over} }
		buy := func(item, variant, activity ID) Order {
			return Order{Item: item, Variant: variant, Activity: activity, User: 42, Units: 1, RequestID: e.id()}
		}
		for _, s := range []Sale{
			{Item: 1, Activity: "item", Units: 9, Limit: limit(ItemInActivity)},
			{Item: 2, Activity: "item", Units: 9, Limit: limit(ItemInActivity)},
			{Item: 3, Activity: "all", Units: 9, Limit: limit(Activity)},
			{Item: 4, Activity: "all", Units: 9, Limit: limit(Activity)},
			{Item: 5, Activity: "variant", Units: 9, Limit: limit(Variant)},
		} {
			e.warm(warmer, s)
		}
		c := e.counter()
		e.deduct(c, buy(1, nil, "item"))
		e.deduct(c, buy(2, nil, "item"))
		e.refused(c, buy(1, "blue", "item"), ErrLimitReached)

		e.deduct(c, buy(3, nil, "all"))
		e.refused(c, buy(3, nil, "all"), ErrLimitReached)
		e.refused(c, buy(4, nil, "all"), ErrLimitReached)

		e.deduct(c, buy(5, "S", "variant"))
		e.deduct(c, buy(5, "M", "variant"))
		e.refused(c, buy(5, "S", "variant"), ErrLimitReached)
	})
}

// F033, C21d, D02, D09, F043: one account cannot drain the stock, whatever request ids it makes up, and its refusals cost
// nothing.
func TestOneUserBuysOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 100, Limit: Limit{Units: 1}})
		var sold atomic.Int64
		parallel(e.crowd(500), func(int) {
			if _, err := c.Deduct(t.Context(), e.order(42)); err == nil {
				sold.Add(1)
			} else {
				e.wants(err, ErrLimitReached, "a second order")
			}
		})
		if sold.Load() != 1 {
			t.Errorf("%d orders for one user, want 1", sold.Load())
		}
		e.left(c, 99)
	})
}

// F045: a voucher that may be used once is used once.
func TestVoucherIsUsedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Item: "VOUCHER10", Units: 1})
		var used atomic.Int64
		parallel(50, func(i int) {
			if _, err := c.Deduct(t.Context(), Order{Item: "VOUCHER10", User: i, Units: 1, RequestID: e.id()}); err == nil {
				used.Add(1)
			}
		})
		if used.Load() != 1 {
			t.Errorf("used %d times, want once", used.Load())
		}
	})
}

// D51: stock is checked before the marker is written, so that a refusal does not use up the user's chance.
func TestRefusalKeepsTheUsersChance(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		s := Sale{Units: 1, Limit: Limit{Units: 1}}
		e.warm(c, s)
		e.deduct(c, e.order("first"))
		e.unchanged("a refusal", func() { e.refused(c, e.order("second"), ErrInsufficient) })
		s.Units = 2
		e.warm(c, s)
		e.deduct(c, e.order("second"))
	})
}

// The order of the checks: who is refused for several reasons hears the first of them.
func TestOrderOfTheChecks(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 2, Limit: Limit{Units: 1}})
		done := e.order(1)
		first := e.deduct(c, done)
		e.set("stock:item:1001", "0") // sold out, and the user's limit is reached
		e.refused(c, e.order(1), ErrInsufficient)
		e.del("stock:item:1001") // gone
		e.refused(c, e.order(1), ErrNotWarmed)
		e.hset("stock:item:1001:ctl", "state", "paused")
		e.refused(c, e.order(1), ErrPaused)
		if res := e.deduct(c, done); !res.Replayed || res.Order != first.Order {
			t.Errorf("the request that was done before is answered %+v, want its first order again", res)
		}
		other := done
		other.Units = 2
		e.refused(c, other, ErrMismatch)
		e.set("stock:item:1001", "abc") // what is stored is looked at before anything else
		if err := e.refused(c, done, ErrInvalid); err.ErrorType() != "corrupt" {
			t.Errorf("a corrupt counter has the type %q", err.ErrorType())
		}
	})
}

// D56, D58, X01, D09: a request that is repeated takes nothing and hears what the first time said; after "not enough" it
// is judged afresh (F027, F028).
func TestRepeatHearsTheFirstOutcome(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 2, Limit: Limit{Units: 5}})
		o := e.order(7)
		first := e.deduct(c, o)
		e.deduct(c, e.order(8))
		o.ID = "another order id"
		if again := e.deduct(c, o); again.Order != first.Order || again.Left != 1 || again.Nth != 1 || !again.Replayed {
			t.Errorf("repeat gave %+v, want %+v as a replay", again, first)
		}
		e.left(c, 0)

		late := e.order(9)
		e.refused(c, late, ErrInsufficient)
		e.refused(c, late, ErrInsufficient)
		e.warm(c, Sale{Units: 3, Limit: Limit{Units: 5}})
		if res := e.deduct(c, late); res.Replayed {
			t.Error("a refused request was answered as done before")
		}
	})
}

// D58, X04: a repeat of a request whose units were given back is no success.
func TestRepeatAfterReleaseIsNoSuccess(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for name, opts := range map[string][]Option{"without a hold": nil, "with a hold": {WithHold(time.Minute)}} {
			c := e.counter(opts...)
			e.warm(c, Sale{Units: 5})
			o := e.order(name)
			res := e.deduct(c, o)
			e.ended(c.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
			e.refused(c, o, ErrReleased)
			e.left(c, 5)
		}
	})
}

// Same request id, other request: refused, and nothing is taken.
func TestRequestIDStandsForOneRequest(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 9})
		o := e.order(1)
		o.Variant = "S"
		e.deduct(c, o)
		for name, change := range map[string]func(o *Order){
			"units":   func(o *Order) { o.Units = 2 },
			"user":    func(o *Order) { o.User = 2 },
			"variant": func(o *Order) { o.Variant = "M" },
		} {
			other := o
			change(&other)
			e.unchanged("another "+name, func() { e.refused(c, other, ErrMismatch) })
		}
	})
}

// F067: one order id is one hold, also under another request id.
func TestOrderIDIsUsedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for name, opts := range map[string][]Option{"without a hold": nil, "with a hold": {WithHold(time.Minute)}} {
			c := e.counter(opts...)
			e.warm(c, Sale{Units: 9})
			o := e.order(1)
			o.ID = name
			if res := e.deduct(c, o); res.Order != name {
				t.Errorf("the order is %q, want the id that was given", res.Order)
			}
			o.RequestID = e.id()
			e.unchanged("the same order id "+name, func() { e.refused(c, o, ErrMismatch) })
		}
	})
}

// nth is the smallest number that no other live order of the user has, so that it can be part of a unique index.
func TestNthIsFreeAgainAfterRelease(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 9, Limit: Limit{Units: 3}})
		var orders []Order
		for want := 1; want <= 3; want++ {
			o := e.order(1)
			res := e.deduct(c, o)
			if res.Nth != want {
				t.Errorf("order %d is number %d", want, res.Nth)
			}
			o.ID = res.Order
			orders = append(orders, o)
		}
		if _, err := c.Release(t.Context(), orders[1].ID, Failed, Of(orders[1])); err != nil {
			t.Fatal(err)
		}
		if res := e.deduct(c, e.order(1)); res.Nth != 2 {
			t.Errorf("after order 2 was released the next one is number %d, want 2", res.Nth)
		}
	})
}

// The request id comes from the context when the order has none.
func TestRequestIDFromTheContext(t *testing.T) {
	e := newMini(t, 0)
	c := e.counter()
	e.warm(c, Sale{Units: 9})
	ctx := reqctx.WithRequest(t.Context(), reqctx.Request{ID: "from-the-context"})
	o := Order{Item: 1001, User: 1, Units: 1}
	res, err := c.Deduct(ctx, o)
	if err != nil || !e.exists("req:from-the-context") {
		t.Fatalf("Deduct = %+v, %v; keys %v", res, err, e.names())
	}
	if _, err := c.Release(ctx, res.Order, Failed, Of(o)); err != nil {
		t.Error(err)
	}
}

// X09, X10, F049, F050, F052, D52: amounts are whole numbers from 1 to 2^53-1 and stay exact; all else is refused before
// anything is written.
func TestAmounts(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute), WithStream())
		e.warm(c, Sale{Units: maxUnits, Limit: Limit{Units: maxUnits}})
		for _, units := range []int64{-50, -3, 0, maxUnits + 1, 1e17, -1 << 63} {
			o := e.order(1)
			o.Units = units
			e.unchanged(strconv.FormatInt(units, 10), func() { e.refused(c, o, ErrInvalid) })
		}
		left := int64(maxUnits)
		for i, units := range []int64{100_000_000, 300_000_000, 1e14, 1e15, 1} {
			o := e.order(i)
			o.Units = units
			res := e.deduct(c, o)
			left -= units
			if res.Left != left {
				t.Errorf("after %d: %d left, want %d", units, res.Left, left)
			}
			if again := e.deduct(c, o); again.Left != left {
				t.Errorf("replay of %d: %d left, want %d", units, again.Left, left)
			}
		}
		big := e.order("big")
		big.Units = left
		if res := e.deduct(c, big); res.Left != 0 {
			t.Errorf("after the rest: %d left", res.Left)
		}
		e.ended(c.Release(t.Context(), e.deduct(c, big).Order, Failed, Of(big)))(Ended{Outcome: OutcomeReleased, Units: left})
		e.left(c, left)
	})
}

// X07, F052: what another hand has stored is found before anything is written: no half is ever stored.
func TestStoredValuesAreChecked(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute), WithStream())
		e.warm(c, Sale{Units: 9, Limit: Limit{Units: 2}})
		o := Order{ID: "o", RequestID: "q", Item: 1001, User: 42, Units: 1}
		list := func(key string) func() {
			return func() {
				e.rdb.Del(t.Context(), e.key(key))
				e.rdb.RPush(t.Context(), e.key(key), "x")
			}
		}
		const counter, switchKey, marker = "stock:item:1001", "stock:item:1001:ctl", "limit:user:42:item:1001:act:"
		good := e.hash(switchKey)
		for name, setup := range map[string]func(){
			"counter 10.0":         func() { e.set(counter, "10.0") },
			"counter abc":          func() { e.set(counter, "abc") },
			"counter -1":           func() { e.set(counter, "-1") },
			"counter 1e3":          func() { e.set(counter, "1e3") },
			"counter 007":          func() { e.set(counter, "007") },
			"counter empty":        func() { e.set(counter, "") },
			"counter 400 digits":   func() { e.set(counter, strings.Repeat("9", 400)) },
			"counter 2^53":         func() { e.set(counter, "9007199254740992") },
			"counter a list":       list(counter),
			"switch a list":        list(switchKey),
			"switch without state": func() { e.rdb.HDel(t.Context(), e.key(switchKey), "state") },
			"activity garbage":     func() { e.hset(switchKey, "act:", "soon") },
			"end 2^53":             func() { e.hset(switchKey, "act:", "0 9007199254740992 2 0 0 4") },
			"end 400 digits":       func() { e.hset(switchKey, "act:", "0 "+strings.Repeat("9", 400)+" 2 0 0 4") },
			"limit 02":             func() { e.hset(switchKey, "act:", "0 4000000000000 02 0 0 4") },
			"most missing":         func() { e.hset(switchKey, "act:", "0 4000000000000 2 0 4") },
			"marker a list":        list(marker),
			"marker garbage":       func() { e.hset(marker, "other", "1.5") },
			"marker number":        func() { e.hset(marker, "other", "1:x") },
			"request a list":       list("req:q"),
			"request garbage": func() {
				e.hset("req:q", "what", "1001:::42:1", "order", "o", "taken", "1.5 1 0")
			},
			"request half":     func() { e.hset("req:q", "order", "o") },
			"request for none": func() { e.hset("req:q", "order", "o", "taken", "1 1 0") },
			"request newer":    func() { e.hset("req:q", "what", "1001:::42:1", "order", "o", "taken2", "1;1;0") },
			"hold a list":      list("stock:hold:o"),
			"deadlines a list": list("stock:deadlines"),
			"stream a list":    list("stock:orders"),
		} {
			setup()
			e.unchanged(name, func() {
				if err := e.refused(c, o, ErrInvalid); err.ErrorType() != "corrupt" {
					t.Errorf("%s: type %q, want corrupt", name, err.ErrorType())
				}
			})
			for _, key := range []string{switchKey, marker, "req:q", "stock:hold:o", "stock:deadlines", "stock:orders"} {
				e.rdb.Del(t.Context(), e.key(key))
			}
			e.set(counter, "9")
			e.hset(switchKey, good)
		}
		e.deduct(c, o)
	})
}

// Numbers go through the script exactly, from 1 to 2^53-1: what a deduct answers, and what its repeat reads.
func TestNumbersStayExact(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		for i, units := range []int64{1, 2, 11, 1 << 31, 1<<31 + 1, 20_000_000_001, 20_000_000_000, 1<<52 + 1, maxUnits} {
			e.warm(c, Sale{Item: i, Units: units})
			for step, n := range []int64{1, units - 1} {
				if n == 0 {
					continue
				}
				o := Order{Item: i, User: 7, Units: n, RequestID: e.id()}
				first := e.deduct(c, o)
				if again := e.deduct(c, o); again.Left != first.Left || again.Nth != first.Nth {
					t.Errorf("%d of %d units: a repeat answers %+v, want %+v", n, units, again, first)
				}
				if want := units - 1; step == 0 && first.Left != want {
					t.Errorf("one of %d units: %d left, want %d", units, first.Left, want)
				}
			}
			if left, err := c.Remaining(t.Context(), i); err != nil || left != 0 {
				t.Errorf("of %d units %d are left, %v", units, left, err)
			}
		}
	})
}

// A marker that several items of an activity share lives as long as the last of them: buying the one that ends first does
// not let the limit be forgotten earlier.
func TestSharedMarkerLivesUntilTheLastEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		if e.parts > 0 {
			return // the same script, with other names
		}
		c := e.counter()
		limit := Limit{Units: 9, Over: Activity}
		for item, days := range map[int]int{1: 1, 2: 3} {
			e.warm(c, Sale{Item: item, Activity: "a", Units: 9, Limit: limit, Ends: time.Now().Add(time.Duration(days) * 24 * time.Hour)})
		}
		buy := func(item int) { e.deduct(c, Order{Item: item, Activity: "a", User: 7, Units: 1, RequestID: e.id()}) }
		buy(1)
		e.ttl("limit:user:7:act:a", 48*time.Hour)
		buy(2)
		e.ttl("limit:user:7:act:a", 96*time.Hour)
		buy(1)
		e.ttl("limit:user:7:act:a", 96*time.Hour)
		e.deduct(c, Order{Activity: "a", User: 8, RequestID: e.id(), Lines: []Line{{Item: 1, Units: 1}, {Item: 2, Units: 1}}})
		e.ttl("limit:user:8:act:a", 96*time.Hour)
		if _, err := c.Remember(t.Context(), Entry{Order: "o", RequestID: "r", Item: "1", Activity: "a", User: "7", Units: 1, Nth: 9}, false); err != nil {
			t.Fatal(err)
		}
		e.ttl("limit:user:7:act:a", 96*time.Hour)
	})
}

// F048, F058: a counter that is lost in the middle of a sale is "not warmed up", and nothing makes it again.
func TestLostCounterIsNotMadeAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		e.warm(c, Sale{Units: 9})
		o := e.order(1)
		res := e.deduct(c, o)
		e.del("stock:item:1001")
		e.refused(c, e.order(2), ErrNotWarmed)
		e.ended(c.Release(t.Context(), res.Order, Failed))(Ended{Outcome: OutcomeReleased, Units: 1, CounterGone: true})
		if e.exists("stock:item:1001") {
			t.Error("the counter was made again")
		}
		e.everyKeyExpires()
	})
}

// D47b, D69h: after many buyers every key has a TTL, and no marker lives longer than a day after the end.
func TestMemoryDoesNotGrowForEver(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute), WithStream())
		e.warm(c, Sale{Units: 1000, Limit: Limit{Units: 1}})
		parallel(e.crowd(300), func(i int) { _, _ = c.Deduct(t.Context(), e.order(i)) })
		e.everyKeyExpires()
		e.ttl("limit:user:7:item:1001:act:", 25*time.Hour)
	})
}

// A sale ends by the server's clock, without anybody doing anything.
func TestSaleEndsByItself(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 1_000_000, Ends: time.Now().Add(300 * time.Millisecond)})
		testserver.Eventually(t, 10*time.Second, func() bool {
			_, err := c.Deduct(t.Context(), e.order(1))
			return errors.Is(err, ErrEnded)
		}, "the sale's end")
	})
}

// D18: read, judge, deduct and mark are one script and one round trip.
func TestOnePurchaseIsOneCommand(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 0)
	c := f.counter(WithHold(time.Minute), WithStream())
	f.warm(c, Sale{Units: 9, Limit: Limit{Units: 1}})
	for i, err := range []error{nil, nil, ErrLimitReached} {
		f.proxy.Reset()
		_, got := c.Deduct(t.Context(), f.order(min(i, 1)))
		if !errors.Is(got, err) {
			t.Errorf("Deduct = %v, want %v", got, err)
		}
		if commands := f.proxy.Commands(); len(commands) != 1 || commands[0].Name != "EVALSHA" {
			t.Errorf("a purchase sent %v, want one EVALSHA", commands)
		}
	}
}

func TestContextThatIsOver(t *testing.T) {
	e := newMini(t, 0)
	c := e.counter()
	e.warm(c, Sale{Units: 9})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("client has gone")
	cancel(cause)
	_, err := c.Deduct(ctx, e.order(1))
	if e.wants(err, ErrUnavailable, "a context that is over"); !errors.Is(err, cause) {
		t.Errorf("err = %v, want the context's cause in it", err)
	}
	e.left(c, 9)
}
