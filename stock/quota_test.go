package stock

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// B07, X14: a quota is the field remain of a hash; not enough is not "missing", and a wrong amount changes nothing.
func TestQuota(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.quota()
		need := func(n int64) Order { return Order{Item: 1001, Units: n, RequestID: e.id()} }
		e.unchanged("a quota that is not there", func() { e.refused(c, need(1), ErrNotWarmed) })
		e.warm(c, Sale{Units: 10, Ends: time.Now().Add(time.Hour)})
		e.ttl("quota:1001", 2*time.Hour)
		if res := e.deduct(c, need(3)); res.Left != 7 {
			t.Errorf("10 - 3 = %d", res.Left)
		}
		if got := e.hash("quota:1001")["remain"]; got != "7" {
			t.Errorf("remain = %q, want 7", got)
		}
		e.unchanged("more than there is", func() { e.refused(c, need(8), ErrInsufficient) })
		e.unchanged("a negative amount", func() { e.refused(c, need(-50), ErrInvalid) })
		if res := e.deduct(c, need(7)); res.Left != 0 {
			t.Errorf("all of it leaves %d", res.Left)
		}
		e.everyKeyExpires()

		// The same request id may take stock and quota.
		stock := e.counter()
		e.warm(stock, Sale{Units: 5})
		if _, err := c.Adjust(t.Context(), 1001, 5, "top-up", "me"); err != nil {
			t.Fatal(err)
		}
		o := e.order(1)
		e.deduct(stock, o)
		if res := e.deduct(c, o); res.Replayed {
			t.Error("the quota took the stock's request for its own")
		}
	})
}

// B14: without any lock, 200 deductions of 1 from 100: exactly 100 succeed.
func TestQuotaWithoutLock(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.quota()
		n := int64(e.crowd(100))
		e.warm(c, Sale{Units: n})
		var taken atomic.Int64
		parallel(int(2*n), func(int) {
			if _, err := c.Deduct(t.Context(), Order{Item: 1001, Units: 1, RequestID: e.id()}); err == nil {
				taken.Add(1)
			} else if !errors.Is(err, ErrInsufficient) {
				t.Error(err)
			}
		})
		if taken.Load() != n {
			t.Errorf("%d taken, want %d", taken.Load(), n)
		}
	})
}

// B16: ten shards of 100: exactly 1000 succeed, and the total is the sum of the shards at every read.
func TestQuotaShards(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		warmer := e.quota()
		units := int64(1000)
		if e.mini != nil {
			units = 100
		}
		e.warm(warmer, Sale{Units: units, Segments: 10})
		c := e.quota() // has not heard of the shards
		var taken atomic.Int64
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			parallel(50, func(w int) {
				for range units/50 + 2 {
					if _, err := c.Deduct(t.Context(), Order{Item: 1001, User: w % 3, Units: 1, RequestID: e.id()}); err == nil {
						taken.Add(1)
					} else if !errors.Is(err, ErrInsufficient) {
						t.Error(err)
					}
				}
			})
		}()
		last := units
		for running := true; running; {
			select {
			case <-stop:
				running = false
			default:
			}
			left, err := c.Remaining(t.Context(), 1001)
			if err != nil || left > last {
				t.Errorf("total %d after %d, %v", left, last, err)
			}
			last = left
		}
		if taken.Load() != units || last != 0 {
			t.Errorf("%d taken and %d left, want %d and 0", taken.Load(), last, units)
		}
		sum := 0
		for i := range 10 {
			n, err := strconv.Atoi(e.hash(fmt.Sprint("quota:1001:", i))["remain"])
			if err != nil || n < 0 {
				t.Errorf("shard %d has %d, %v", i, n, err)
			}
			sum += n
		}
		if sum != 0 {
			t.Errorf("the shards have %d", sum)
		}
		e.everyKeyExpires()
	})
}

// F075: holds count against what is available.
func TestQuotaHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.quota(WithHold(time.Minute))
		e.warm(c, Sale{Units: 5000, Segments: 3})
		var held, refused atomic.Int64
		var some atomic.Value
		parallel(6, func(i int) {
			res, err := c.Deduct(t.Context(), Order{Item: 1001, User: i, Units: 1000, RequestID: e.id()})
			switch {
			case err == nil:
				held.Add(1)
				some.Store(res.Order)
			case errors.Is(err, ErrInsufficient):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
		if held.Load() != 5 || refused.Load() != 1 {
			t.Errorf("%d held, %d refused; want 5 and 1", held.Load(), refused.Load())
		}
		order := some.Load().(string)
		fresh := e.quota(WithHold(time.Minute))
		e.ended(fresh.Release(t.Context(), order, Failed, Units(400), Operation("part")))(Ended{Outcome: OutcomeReleased, Units: 400})
		e.ended(fresh.Confirm(t.Context(), order))(Ended{Outcome: OutcomeConfirmed, Units: 600})
		e.left(c, 400)
	})
}

// F077: decided and applied in one step: an amount that has changed since it was looked at is judged as it is now.
func TestQuotaIsJudgedAsItIs(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.quota()
		e.warm(c, Sale{Units: 100})
		e.left(c, 100)
		if _, err := c.Adjust(t.Context(), 1001, -60, "spent elsewhere", "me"); err != nil {
			t.Fatal(err)
		}
		e.refused(c, Order{Item: 1001, Units: 80, RequestID: e.id()}, ErrInsufficient)
		e.left(c, 40)
	})
}

func TestQuotaHasNoActivitiesAndLimits(t *testing.T) {
	e := newMini(t, 0)
	c := e.quota()
	for name, s := range map[string]Sale{
		"activity": {Units: 1, Activity: 1},
		"limit":    {Units: 1, Limit: Limit{Units: 1}},
		"scope":    {Units: 1, Limit: Limit{Over: Activity}},
	} {
		_, err := c.Warm(t.Context(), usual(s))
		if e.wants(err, ErrInvalid, "%s", name).ErrorType() != "misuse" {
			t.Errorf("%s: %v, want misuse", name, err)
		}
	}
	e.refused(c, Order{Item: 1, Activity: 2, Units: 1, RequestID: "r"}, ErrInvalid)
}

// One order id is one hold where something is kept under it. A quota without a hold has only the request's record, so there it is
// the request id alone that stops a second time.
func TestOrderIDOfAQuota(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		for name, held := range map[string]bool{"plain": false, "held": true} {
			q := e.quota()
			if held {
				q = e.quota(WithHold(time.Minute))
			}
			e.warm(q, Sale{Item: name, Units: 100})
			o := Order{ID: "A1" + name, Item: name, Units: 10, RequestID: e.id()}
			e.deduct(q, o)
			if again := e.deduct(q, o); !again.Replayed {
				t.Errorf("%s: the repeat gave %+v", name, again)
			}
			o.RequestID = e.id()
			if held {
				e.refused(q, o, ErrMismatch)
			} else if res := e.deduct(q, o); res.Left != 80 {
				t.Errorf("%s: another request gave %+v, want 80 left", name, res)
			}
		}
	})
}
