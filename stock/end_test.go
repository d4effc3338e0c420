package stock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// eachProof runs the test with a hold and without: then the request record is the proof that units are held.
func eachProof(t *testing.T, test func(t *testing.T, e *env, c *Counter)) {
	t.Helper()
	everywhere(t, func(t *testing.T, e *env) {
		for name, opts := range map[string][]Option{"hold": {WithHold(time.Minute)}, "record": nil} {
			t.Run(name, func(t *testing.T) {
				own := &env{T: t, rdb: e.rdb, prefix: e.prefix + name + ":", parts: e.parts, mini: e.mini}
				test(t, own, own.counter(opts...))
			})
		}
	})
}

// D64, X02, F062, F063: however often an order is released, its units come back once.
func TestReleaseThreeTimesGivesBackOnce(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10, Limit: Limit{Units: 5}})
		o := e.order(1)
		o.Units = 3
		res := e.deduct(c, o)
		e.left(c, 7)
		e.ended(c.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 3})
		for range 2 {
			e.unchanged("another release", func() {
				e.ended(c.Release(t.Context(), res.Order, Operator, Of(o)))(Ended{Outcome: OutcomeAlreadyReleased, Units: 3})
			})
		}
		e.left(c, 10)
		e.unchanged("a confirmation that came too late", func() {
			_, err := c.Confirm(t.Context(), res.Order, Of(o))
			e.wants(err, ErrAlreadyReleased, "Confirm")
		})
	})
}

// F064: what was confirmed is not released.
func TestConfirmedIsNotReleased(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10, Limit: Limit{Units: 1}})
		o := e.order(1)
		res := e.deduct(c, o)
		e.ended(c.Confirm(t.Context(), res.Order, Of(o)))(Ended{Outcome: OutcomeConfirmed, Units: 1})
		e.unchanged("what comes after", func() {
			e.ended(c.Confirm(t.Context(), res.Order, Of(o)))(Ended{Outcome: OutcomeAlreadyConfirmed, Units: 1})
			_, err := c.Release(t.Context(), res.Order, Operator, Of(o))
			e.wants(err, ErrAlreadyConfirmed, "Release")
			if res := e.deduct(c, o); !res.Replayed {
				t.Error("the paid order's request is not answered as done")
			}
			e.refused(c, e.order(1), ErrLimitReached)
		})
		e.left(c, 9)
	})
}

// X03: a late release of an order takes off its own entry in the marker and no other.
func TestReleaseLeavesMarkersOfOtherOrders(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10, Limit: Limit{Units: 1}})
		first := e.order(1)
		one := e.deduct(c, first)
		e.ended(c.Release(t.Context(), one.Order, Unpaid, Of(first)))(Ended{Outcome: OutcomeReleased, Units: 1})
		second := e.order(1)
		two := e.deduct(c, second)
		e.unchanged("the late release", func() {
			e.ended(c.Release(t.Context(), one.Order, Unpaid, Of(first)))(Ended{Outcome: OutcomeAlreadyReleased, Units: 1})
		})
		if got := e.hash("limit:user:1:item:1001:act:"); len(got) != 1 || got[two.Order] != "1" {
			t.Errorf("marker = %v, want the second order alone", got)
		}
		e.refused(c, e.order(1), ErrLimitReached)
	})
}

// X06, F058: a release after the counter has gone makes no key, and says so.
func TestReleaseMakesNoKey(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10, Limit: Limit{Units: 1}})
		o := e.order(1)
		res := e.deduct(c, o)
		for _, key := range []string{"stock:item:1001", "stock:item:1001:ctl", "limit:user:1:item:1001:act:"} {
			e.del(key)
		}
		before := e.names()
		e.ended(c.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1, CounterGone: true})
		if after := e.names(); len(after) > len(before) {
			t.Errorf("keys %v became %v", before, after)
		}
		e.everyKeyExpires()
	})
}

// F066, F070: ending something that was never held changes nothing and says so.
func TestEndOfWhatWasNeverHeld(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10})
		o := e.order(1)
		res := e.deduct(c, o)
		unknown := e.order(2)
		e.unchanged("the end of nothing", func() {
			_, err := c.Release(t.Context(), "unknown", Failed, Of(unknown))
			e.wants(err, ErrNotHeld, "Release of an unknown order")
			_, err = c.Confirm(t.Context(), "unknown", Of(unknown))
			e.wants(err, ErrNotHeld, "Confirm of an unknown order")
			_, err = c.Confirm(t.Context(), "unknown", Of(o))
			e.wants(err, ErrNotHeld, "Confirm of an unknown order under a known request")
			other := o
			other.Units = 2
			_, err = c.Release(t.Context(), res.Order, Failed, Of(other))
			e.wants(err, ErrMismatch, "Release with other units")
			other = o
			other.User = 3
			_, err = c.Release(t.Context(), res.Order, Failed, Of(other))
			if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrNotHeld) {
				t.Errorf("Release for another user: %v", err)
			}
		})
	})
}

// F062, F076, O33: parts end once each, and never more than is open.
func TestParts(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10, Limit: Limit{Units: 9}})
		o := e.order(1)
		o.Units = 5
		res := e.deduct(c, o)
		end := func(n int64, op string) []EndOption { return []EndOption{Of(o), Units(n), Operation(op)} }

		e.ended(c.Release(t.Context(), res.Order, Operator, end(2, "r1")...))(Ended{Outcome: OutcomeReleased, Units: 2})
		e.unchanged("a repeat of a part", func() {
			e.ended(c.Release(t.Context(), res.Order, Operator, end(2, "r1")...))(Ended{Outcome: OutcomeReleased, Units: 2})
			for _, n := range []int64{4, maxUnits} {
				_, err := c.Release(t.Context(), res.Order, Operator, end(n, "r2")...)
				e.wants(err, ErrInvalid, "release of %d of 3", n)
			}
			_, err := c.Confirm(t.Context(), res.Order, end(2, "r1")...)
			e.wants(err, ErrMismatch, "the operation id of a release, for a confirmation")
			_, err = c.Release(t.Context(), res.Order, Operator, end(1, "r1")...)
			e.wants(err, ErrMismatch, "the operation id of another amount")
			for _, n := range []int64{0, -1, maxUnits + 1} {
				_, err := c.Release(t.Context(), res.Order, Operator, end(n, "r3")...)
				e.wants(err, ErrInvalid, "release of %d", n)
			}
			_, err = c.Release(t.Context(), res.Order, Operator, Of(o), Units(1))
			e.wants(err, ErrInvalid, "a part without an operation id")
		})
		e.left(c, 7)
		if got := e.hash("limit:user:1:item:1001:act:")[res.Order]; got != "3:1" {
			t.Errorf("marker entry = %q, want the three units that are still held", got)
		}
		e.ended(c.Confirm(t.Context(), res.Order, end(1, "c1")...))(Ended{Outcome: OutcomeConfirmed, Units: 1})
		e.ended(c.Release(t.Context(), res.Order, Operator, Of(o), Operation("rest")))(Ended{Outcome: OutcomeReleased, Units: 2})
		e.left(c, 9)
		e.unchanged("after the end", func() {
			e.ended(c.Release(t.Context(), res.Order, Operator, Of(o)))(Ended{Outcome: OutcomeAlreadyReleased, Units: 4})
			e.ended(c.Confirm(t.Context(), res.Order, Of(o)))(Ended{Outcome: OutcomeAlreadyConfirmed, Units: 1})
			e.ended(c.Release(t.Context(), res.Order, Operator, Of(o), Operation("rest")))(Ended{Outcome: OutcomeReleased, Units: 2})
			if res := e.deduct(c, o); !res.Replayed {
				t.Error("an order that was sold in part is not answered as done")
			}
		})
	})
}

// 3.4 step 2: a repeat of an operation hears the whole stored answer, also that the counter was gone.
func TestRepeatHearsThatTheCounterWasGone(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 9})
		o := e.order(1)
		o.Units = 3
		res := e.deduct(c, o)
		e.del("stock:item:1001")
		gone := Ended{Outcome: OutcomeReleased, Units: 1, CounterGone: true}
		release := func(op string) (Ended, error) {
			return c.Release(t.Context(), res.Order, Failed, Of(o), Units(1), Operation(op))
		}
		e.ended(release("r1"))(gone)
		if _, err := c.Restore(t.Context(), 1001, 6, "back", "me"); err != nil {
			t.Fatal(err)
		}
		e.ended(release("r2"))(Ended{Outcome: OutcomeReleased, Units: 1})
		e.unchanged("the repeats", func() {
			e.ended(release("r1"))(gone)
			e.ended(release("r2"))(Ended{Outcome: OutcomeReleased, Units: 1})
		})
	})
}

// F076: two confirmations of one hold at once, together more than it has: one is refused.
func TestTwoPartsAtOnceNeverExceedTheHold(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 1000})
		o := e.order(1)
		o.Units = 1000
		res := e.deduct(c, o)
		var confirmed atomic.Int64
		parallel(2, func(i int) {
			got, err := c.Confirm(t.Context(), res.Order, Of(o), Units(600), Operation(fmt.Sprint("c", i)))
			confirmed.Add(got.Units)
			if err != nil {
				e.wants(err, ErrInvalid, "the second confirmation")
			}
		})
		if confirmed.Load() != 600 {
			t.Errorf("%d units confirmed, want 600", confirmed.Load())
		}
	})
}

// F063: of payment and close at the same time one wins, each round, and stock agrees with the winner.
func TestConfirmAndReleaseRace(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 1000})
		left, rounds := int64(1000), 100
		if e.mini != nil {
			rounds = 20
		}
		for i := range rounds {
			o := e.order(i)
			res := e.deduct(c, o)
			var confirmed, released atomic.Int64
			parallel(4, func(j int) {
				var got Ended
				var err error
				if j%2 == 0 {
					got, err = c.Confirm(t.Context(), res.Order, Of(o))
				} else {
					got, err = c.Release(t.Context(), res.Order, Unpaid, Of(o))
				}
				switch {
				case err != nil:
					if !errors.Is(err, ErrAlreadyConfirmed) && !errors.Is(err, ErrAlreadyReleased) {
						t.Error(err)
					}
				case got.Outcome == OutcomeConfirmed:
					confirmed.Add(1)
				case got.Outcome == OutcomeReleased:
					released.Add(1)
				}
			})
			if confirmed.Load()+released.Load() != 1 {
				t.Fatalf("round %d: confirmed %d times, released %d times", i, confirmed.Load(), released.Load())
			}
			left -= confirmed.Load()
		}
		e.left(c, left)
	})
}

// F065: each walk through the states of an order has one net effect.
func TestWalksHaveOneNetEffect(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 100})
		ctx := t.Context()
		steps := map[byte]func(id string, o Order) error{
			'c': func(id string, o Order) error { _, err := c.Confirm(ctx, id, Of(o)); return err },
			'r': func(id string, o Order) error { _, err := c.Release(ctx, id, Operator, Of(o)); return err },
			'd': func(_ string, o Order) error { _, err := c.Deduct(ctx, o); return err },
		}
		left := int64(100)
		for walk, sold := range map[string]int64{"r": 0, "c": 1, "rr": 0, "rc": 0, "cr": 1, "rcr": 0, "crc": 1, "rdr": 0, "cdc": 1, "drdcd": 0} {
			o := e.order(walk)
			id := e.deduct(c, o).Order
			for i := range len(walk) {
				_ = steps[walk[i]](id, o) // refusals are part of the walk
			}
			left -= sold
			e.left(c, left)
		}
	})
}

// D63, X16: units that SQL refused are not put back; the user is free, the item frozen until somebody has reconciled.
func TestInsufficientWithholdsAndFreezes(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10, Limit: Limit{Units: 1}})
		o := e.order(1)
		res := e.deduct(c, o)
		e.ended(c.Release(t.Context(), res.Order, Insufficient, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
		e.unchanged("a repeat", func() {
			e.ended(c.Release(t.Context(), res.Order, Insufficient, Of(o)))(Ended{Outcome: OutcomeAlreadyReleased, Units: 1})
		})
		e.left(c, 9)
		if e.exists("limit:user:1:item:1001:act:") {
			t.Error("the user's marker is still there")
		}
		if err := e.refused(c, e.order(2), ErrPaused); err.Error() != "stock: sale paused: frozen until reconciled" {
			t.Errorf("err = %v", err)
		}
		e.wants(c.Resume(t.Context(), 1001), ErrPaused, "Resume of a frozen item")
		for range 2 {
			if units, err := c.Thaw(t.Context(), 1001, "reconcile-1", "me"); err != nil || units != 1 {
				t.Errorf("Thaw = %d, %v; want 1", units, err)
			}
		}
		e.deduct(c, e.order(1))
		s, err := c.Status(t.Context(), 1001)
		if err != nil || s.Withheld != 0 || s.Withdrawn != 1 || s.Left != 8 || s.State != "open" {
			t.Errorf("Status = %+v, %v", s, err)
		}
	})
}

// Without Of the hold tells what the order is for; without a hold somebody must say it.
func TestEndWithoutOf(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		held := e.counter(WithHold(time.Minute))
		e.warm(held, Sale{Units: 10, Limit: Limit{Units: 9}})
		res := e.deduct(held, e.order(1))
		e.ended(held.Confirm(t.Context(), res.Order))(Ended{Outcome: OutcomeConfirmed, Units: 1})
		res = e.deduct(held, e.order(1))
		e.ended(held.Release(t.Context(), res.Order, Unpaid))(Ended{Outcome: OutcomeReleased, Units: 1})
		e.ended(held.Release(t.Context(), res.Order, Unpaid))(Ended{Outcome: OutcomeAlreadyReleased, Units: 1})
		gone := newOrderID()
		if e.parts > 0 {
			gone += "-03"
		}
		_, err := held.Release(t.Context(), gone, Unpaid)
		e.wants(err, ErrNotHeld, "Release of an unknown order")

		_, err = e.counter().Release(t.Context(), res.Order, Unpaid)
		if e.wants(err, ErrInvalid, "Release without a hold and without Of").ErrorType() != "misuse" {
			t.Errorf("err = %v, want misuse", err)
		}
		_, err = held.Release(t.Context(), res.Order, "because")
		e.wants(err, ErrInvalid, "Release for a reason of one's own")
	})
}

// A rolling change of WithHold in the middle of a sale: what one version has taken, the other one ends, once.
func TestHoldSwitchedOnAndOffDuringASale(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		with, without := e.counter(WithHold(time.Minute)), e.counter()
		e.warm(with, Sale{Units: 10, Limit: Limit{Units: 9}})
		for _, step := range []struct{ takes, ends *Counter }{{with, without}, {without, with}} {
			o := e.order(1)
			res := e.deduct(step.takes, o)
			e.left(with, 9)
			e.ended(step.ends.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
			e.ended(step.takes.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeAlreadyReleased, Units: 1})
			e.left(with, 10)
		}
		if holds, err := with.Expired(t.Context(), 10); err != nil || len(holds) != 0 {
			t.Errorf("Expired = %v, %v; want none", holds, err)
		}
	})
}

// Clean-up does not run on the request's context: a client that has gone leaves nothing behind.
func TestEndsGoOnWhenTheClientHasGone(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 10})
		o := e.order(1)
		res := e.deduct(c, o)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.ended(c.Release(ctx, res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
		e.left(c, 10)
	})
}

// F047: who holds the most that is allowed can change his mind: release, then deduct again.
func TestHoldCanBeReplaced(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 2, Limit: Limit{Units: 2}})
		o := e.order(1)
		o.Units = 2
		res := e.deduct(c, o)
		e.ended(c.Release(t.Context(), res.Order, Operator, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 2})
		again := e.deduct(c, e.order(1))
		e.left(c, 1)
		if got := e.hash("limit:user:1:item:1001:act:"); len(got) != 1 || got[again.Order] != "1:1" {
			t.Errorf("marker = %v, want one unit of the new order", got)
		}
	})
}

// F052: what another hand has stored is found before a release or a confirmation writes anything.
func TestEndsCheckStoredValues(t *testing.T) {
	eachProof(t, func(t *testing.T, e *env, c *Counter) {
		e.warm(c, Sale{Units: 9, Limit: Limit{Units: 2}})
		o := Order{ID: "o", RequestID: "q", Item: 1001, User: 42, Units: 1}
		e.deduct(c, o)
		proof := "req:q"
		if c.cfg.hold > 0 {
			proof = "stock:hold:o"
		}
		for name, setup := range map[string]func(){
			"counter":   func() { e.set("stock:item:1001", "1.5") },
			"switch":    func() { e.hset("stock:item:1001:ctl", "withheld", "x") },
			"marker":    func() { e.hset("limit:user:42:item:1001:act:", "o", "many") },
			"proof":     func() { e.hset(proof, "released", "-1") },
			"deadlines": func() { e.rdb.Del(t.Context(), e.key("stock:deadlines")); e.set("stock:deadlines", "x") },
		} {
			setup()
			e.unchanged(name, func() {
				_, err := c.Release(t.Context(), "o", Failed, Of(o))
				if e.wants(err, ErrInvalid, "%s", name).ErrorType() != "corrupt" {
					t.Errorf("%s: %v, want corrupt", name, err)
				}
			})
			e.set("stock:item:1001", "8")
			e.hset("stock:item:1001:ctl", "withheld", "0")
			e.hset("limit:user:42:item:1001:act:", "o", "1:1")
			e.hset(proof, "released", "0")
			e.rdb.Del(t.Context(), e.key("stock:deadlines"))
		}
		e.ended(c.Release(t.Context(), "o", Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
	})
}

// A server whose access rules forbid the channel, as Redis 7 does for a user who was not given any, refuses the message alone:
// the return is made once, and not a second time by its repeat.
func TestReturnThatMayNotBeTold(t *testing.T) {
	t.Parallel()
	e := newReal(t)
	user := strings.TrimSuffix(e.prefix, ":")
	admin := e.rdb
	if err := admin.Do(t.Context(), "ACL", "SETUSER", user, "on", "nopass", "~*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	e.rdb = testserver.Redis(t).Client(t, func(o *redis.Options) { o.Username, o.Password, o.ReadTimeout = user, "any", patience })
	t.Cleanup(func() {
		if err := admin.Do(context.Background(), "ACL", "DELUSER", user).Err(); err != nil {
			t.Error(err)
		}
	})
	c := e.counter(WithHold(time.Minute))
	e.warm(c, Sale{Units: 1})
	o := e.order(1)
	res := e.deduct(c, o)
	e.ended(c.Release(t.Context(), res.Order, Failed))(Ended{Outcome: OutcomeReleased, Units: 1})
	e.ended(c.Release(t.Context(), res.Order, Failed))(Ended{Outcome: OutcomeAlreadyReleased, Units: 1})
	e.left(c, 1)
	e.deduct(c, e.order(2))
	if left, err := c.Adjust(t.Context(), 1001, 3, "op", "me"); err != nil || left != 3 {
		t.Errorf("restocked to %d, %v", left, err)
	}
	e.deduct(c, Order{RequestID: "rest", Item: 1001, User: 3, Units: 3})
	if w := e.warm(c, Sale{Units: 2}); w.Left != 1 || w.Added != 1 {
		t.Errorf("warmed %+v", w)
	}
}

// 3.3 and 3.4 step 1: what is not held is "not held" wherever the item lies, whether or not the instance knew that: segments, a
// quota's shards, an activity whose items are gathered.
func TestNotHeldWhereverTheItemLies(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		ends := map[string]func(c *Counter, id string, of Order) error{
			"Confirm": func(c *Counter, id string, of Order) error {
				_, err := c.Confirm(t.Context(), id, Of(of))
				return err
			},
			"Release": func(c *Counter, id string, of Order) error {
				_, err := c.Release(t.Context(), id, Failed, Of(of))
				return err
			},
			"Release of what SQL refused": func(c *Counter, id string, of Order) error {
				_, err := c.Release(t.Context(), id, Insufficient, Of(of))
				return err
			},
		}
		check := func(name string, make func() *Counter, of Order) {
			of.Units, of.RequestID = 1, "never"
			for what, end := range ends {
				c := make() // knows nothing about the item
				for range 2 {
					e.unchanged(name, func() { e.wants(end(c, "mine", of), ErrNotHeld, "%s, %s", name, what) })
				}
			}
		}
		quota := func() *Counter { return e.quota(WithHold(time.Minute)) }
		stock := func() *Counter { return e.counter(WithHold(time.Minute)) }
		e.warm(quota(), Sale{Item: "m", Units: 100, Segments: 5})
		check("a quota in shards", quota, Order{Item: "m"})
		e.warm(stock(), Sale{Item: "g", Activity: "all", Units: 9, Limit: Limit{Units: 1, Over: Activity}})
		check("an activity", stock, Order{Item: "g", Activity: "all", User: 3})
		if e.parts > 0 {
			e.warm(stock(), Sale{Item: "s", Activity: "a", Units: 100, Segments: 8, Limit: Limit{Units: 1, Over: Variant}})
			check("segments", stock, Order{Item: "s", Activity: "a", User: 3})
			entry := Entry{Order: "mine", RequestID: "r", Item: "s", Activity: "another", User: "3", Units: 1}
			c := stock()
			for range 2 {
				_, err := c.Remember(t.Context(), entry, true)
				e.wants(err, ErrNotWarmed, "Remember in a sale that is not there")
			}
		}
	})
}
