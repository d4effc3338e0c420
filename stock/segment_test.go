package stock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// inPartitions runs the test on miniredis and on a cluster with 16 partitions.
func inPartitions(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); test(t, newMini(t, 16)) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); test(t, newCluster(t)) })
}

// D76: units are spread over the segments to the last one, evenly or not.
func TestSegmentsAddUpAtCreation(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		for item, units := range map[string]int64{"even": 1000, "uneven": 1003, "few": 3} {
			e.warm(c, Sale{Item: item, Units: units, Segments: 10})
			s, err := c.Status(t.Context(), item)
			if err != nil || s.Left != units || len(s.Segments) != 10 || s.Segments[0]-s.Segments[9] > 1 {
				t.Errorf("%s: %+v, %v; want %d units over 10 segments", item, s, err, units)
			}
			e.warm(c, Sale{Item: item, Units: units + 7, Segments: 10})
			if s, err := c.Status(t.Context(), item); err != nil || s.Left != units+7 {
				t.Errorf("%s with seven more: %+v, %v", item, s, err)
			}
		}
		for name, s := range map[string]Sale{
			"other segments": {Item: "even", Units: 1000, Segments: 5},
			"no segments":    {Item: "even", Units: 1000},
			"too many":       {Item: "x", Units: 1000, Segments: 17},
		} {
			_, err := c.Warm(t.Context(), usual(s))
			if e.wants(err, ErrInvalid, "%s", name).ErrorType() != "misuse" {
				t.Errorf("%s: %v, want misuse", name, err)
			}
		}
		e.everyKeyExpires()
	})
}

// D76, D77, invariant 9: exactly all units sell, whatever segment the buyers belong to; "sold out" is said only when
// every segment is empty.
func TestSegmentsSellToTheLastUnit(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		warmer := e.counter()
		e.warm(warmer, Sale{Units: 103, Segments: 10, Limit: Limit{Units: 1}})
		c := e.counter(WithHold(time.Minute)) // has not heard of the segments
		var sold, soldOut atomic.Int64
		parallel(200, func(i int) {
			_, err := c.Deduct(t.Context(), e.order(i))
			switch {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, ErrInsufficient):
				soldOut.Add(1)
			default:
				t.Error(err)
			}
		})
		if sold.Load() != 103 || soldOut.Load() != 97 {
			t.Errorf("%d sold, %d refused; want 103 and 97", sold.Load(), soldOut.Load())
		}
		s, err := c.Status(t.Context(), 1001)
		if err != nil || s.Left != 0 || s.Moving != 0 {
			t.Errorf("Status = %+v, %v; want nothing left and nothing on the way", s, err)
		}
		e.everyKeyExpires()
	})
}

// D77: all users belong to one segment, and still all units sell.
func TestOneEmptySegmentIsNotSoldOut(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 100, Segments: 10})
		sold := 0
		for i := 0; sold < 100; i++ {
			if user := fmt.Sprint("u", i); spread(user, 10) == 3 {
				e.deduct(c, e.order(user))
				sold++
			}
		}
		for i := range 20 {
			e.refused(c, e.order(i), ErrInsufficient)
		}
	})
}

// An order larger than any segment is served when all of them together have enough, and refused when not.
func TestOrderLargerThanASegment(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 100, Segments: 10})
		o := e.order(1)
		o.Units = 101
		e.refused(c, o, ErrInsufficient)
		e.left(c, 100)
		o.RequestID, o.Units = e.id(), 95
		res := e.deduct(c, o)
		e.ended(c.Release(t.Context(), res.Order, Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 95})
		e.left(c, 100)
		if left, err := c.Adjust(t.Context(), 1001, -100, "all", "me"); err != nil || left != 0 {
			t.Errorf("withdrawal of all = %d, %v", left, err)
		}
		e.left(c, 0)
		e.refused(c, e.order(1), ErrInsufficient)
		if _, err := c.Adjust(t.Context(), 1001, 5, "back", "me"); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			e.deduct(c, e.order(i))
		}
		e.refused(c, e.order(7), ErrInsufficient)
	})
}

// 3.8: units that a crash has left between two segments are neither lost nor doubled: whoever needs them, or Expired,
// finishes the transfer, at whatever step it stopped.
func TestTransferThatStopped(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		for step := 1; step <= 3; step++ {
			for _, finisher := range []string{"deduct", "expired"} {
				item := fmt.Sprint(finisher, step)
				e.warm(c, Sale{Item: item, Units: 1, Segments: 2})
				p, _ := c.places.load(item, "")
				from, to := c.segment(p, 0), c.segment(p, 1)
				id := newOrderID()
				take := func() answer {
					a, err := c.run(t.Context(), c.scripts.moveTake, []string{c.keys.item(from, item), c.keys.control(from, item), c.keys.transfer(from, id), c.keys.transfers(from)}, id, 5, item, to)
					if err != nil || a.code() != 1 || a.text(1) != "1" {
						t.Fatalf("take = %v, %v", a, err)
					}
					return a
				}
				a := take()
				take() // sent twice
				if step >= 2 {
					for range 2 {
						if _, err := c.run(t.Context(), c.scripts.moveGive, []string{c.keys.item(to, item), c.keys.control(to, item), c.keys.transfer(to, id)}, a.text(1), a.text(3)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if step == 3 {
					for range 2 {
						if _, err := c.run(t.Context(), c.scripts.moveDone, []string{c.keys.control(from, item), c.keys.transfer(from, id), c.keys.transfers(from)}, id); err != nil {
							t.Fatal(err)
						}
					}
				}
				if finisher == "expired" {
					if e.mini != nil {
						e.mini.SetTime(time.Now().Add(time.Minute))
					} else { // as if it had begun a minute ago
						e.rdb.ZAddXX(t.Context(), c.keys.transfers(from), redis.Z{Score: float64(time.Now().Add(-time.Minute).UnixMilli()), Member: id})
					}
					if _, err := c.Expired(t.Context(), 10); err != nil {
						t.Fatal(err)
					}
					if e.mini != nil {
						e.mini.SetTime(time.Time{})
					}
					s, err := c.Status(t.Context(), item)
					if err != nil || s.Left != 1 || s.Moving != 0 {
						t.Errorf("step %d: after Expired %+v, %v", step, s, err)
					}
				}
				o := Order{Item: item, User: 1, Units: 1, RequestID: e.id()}
				if res := e.deduct(c, o); res.Left != 0 {
					t.Errorf("step %d: %+v", step, res)
				}
				o.RequestID = e.id()
				e.refused(c, o, ErrInsufficient)
				if s, err := c.Status(t.Context(), item); err != nil || s.Left != 0 || s.Moving != 0 {
					t.Errorf("step %d: in the end %+v, %v", step, s, err)
				}
			}
		}
	})
}

// The limit is kept per user in his home segment, over the activity as well.
func TestLimitsInSegments(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		for _, item := range []ID{1, 2} {
			e.warm(c, Sale{Item: item, Activity: "all", Units: 160, Segments: 16, Limit: Limit{Units: 1, Over: Activity}})
		}
		for user := range 20 {
			e.deduct(c, Order{Item: 1, Activity: "all", User: user, Units: 1, RequestID: e.id()})
			e.refused(c, Order{Item: 2, Activity: "all", User: user, Units: 1, RequestID: e.id()}, ErrLimitReached)
		}
		for name, s := range map[string]Sale{
			"some segments":         {Item: 3, Activity: "all", Units: 9, Segments: 4, Limit: Limit{Units: 1, Over: Activity}},
			"one segment":           {Item: 4, Activity: "all", Units: 9, Limit: Limit{Units: 1, Over: Activity}},
			"an item placed before": {Item: 5, Activity: "gathered", Units: 9, Limit: Limit{Units: 1, Over: Activity}},
		} {
			if s.Activity == "gathered" {
				e.warm(c, Sale{Item: 6, Activity: "gathered", Units: 9, Limit: Limit{Units: 1, Over: Activity}})
				p, _ := c.places.load("6", "gathered")
				if p.at == c.home("5") {
					continue
				}
				e.warm(c, Sale{Item: 5, Activity: "before", Units: 9})
			}
			_, err := c.Warm(t.Context(), usual(s))
			if e.wants(err, ErrInvalid, "%s", name).ErrorType() != "misuse" {
				t.Errorf("%s: %v, want misuse", name, err)
			}
		}
	})
}

// Segments pause, resume and freeze together.
func TestSegmentsPauseTogether(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 100, Segments: 10})
		if err := c.Pause(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			e.refused(c, e.order(i), ErrPaused)
		}
		if err := c.Resume(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			e.deduct(c, e.order(i))
		}
	})
}

// D63: what SQL refused of one segment freezes all of them; a late repeat does not freeze the item again.
func TestSegmentsFreezeTogether(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		e.warm(c, Sale{Units: 100, Segments: 10})
		o := e.order(1)
		res := e.deduct(c, o)
		e.ended(c.Release(t.Context(), res.Order, Insufficient))(Ended{Outcome: OutcomeReleased, Units: 1})
		for i := range 30 {
			e.refused(c, e.order(i), ErrPaused)
		}
		if units, err := c.Thaw(t.Context(), 1001, "op", "me"); err != nil || units != 1 {
			t.Errorf("Thaw = %d, %v; want 1", units, err)
		}
		e.ended(c.Release(t.Context(), res.Order, Insufficient))(Ended{Outcome: OutcomeAlreadyReleased, Units: 1})
		for i := range 30 {
			e.deduct(c, e.order(i))
		}
	})
}

// D63: a worker in a process of its own, which has never sold the item, freezes all segments too, and does so as long as the
// units are held: also when the request is forgotten.
func TestWorkerFreezesAllSegments(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		for name, forget := range map[string]bool{"soon": false, "late": true} {
			shop, worker := e.counter(WithHold(time.Minute)), e.counter(WithHold(time.Minute))
			item := ID(name)
			e.warm(shop, Sale{Item: item, Activity: "a", Units: 100, Segments: 8, Limit: Limit{Units: 1, Over: Variant}})
			order := func(user ID) Order {
				return Order{Item: item, Activity: "a", User: user, Units: 1, RequestID: e.id()}
			}
			o := order(1)
			o.ID = e.deduct(shop, o).Order
			if forget {
				if n := e.rdb.Del(t.Context(), shop.keys.request(shop.partsIn(o.ID)[0], o.RequestID)).Val(); n != 1 {
					t.Fatal("there is no record to forget")
				}
			}
			e.ended(worker.Release(t.Context(), o.ID, Insufficient, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
			for i := range 30 {
				e.refused(shop, order(i), ErrPaused)
			}
			if units, err := shop.Thaw(t.Context(), item, "op", "me"); err != nil || units != 1 {
				t.Errorf("%s: Thaw = %d, %v; want 1", name, units, err)
			}
			e.ended(worker.Release(t.Context(), o.ID, Insufficient, Of(o)))(Ended{Outcome: OutcomeAlreadyReleased, Units: 1})
			e.deduct(shop, order(2))
		}
	})
}

// A segment whose counter was lost makes the item "not warmed up"; Restore brings it back without touching the others.
func TestSegmentThatWasLost(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 20, Segments: 4})
		p, _ := c.places.load("1001", "")
		e.rdb.Del(t.Context(), c.keys.item(c.segment(p, 2), "1001"))
		_, err := c.Remaining(t.Context(), 1001)
		e.wants(err, ErrNotWarmed, "Remaining")
		for range 2 {
			if left, err := c.Restore(t.Context(), 1001, 4, "back", "me"); err != nil || left != 19 {
				t.Errorf("Restore = %d, %v; want 19", left, err)
			}
		}
		e.left(c, 19)
		_, err = c.Restore(t.Context(), 1001, 4, "again", "me")
		e.wants(err, ErrInvalid, "Restore with nothing missing")
	})
}

// An instance that remembers an old place of an item finds the new one.
func TestItemThatMoved(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		old := e.counter(WithHold(time.Minute))
		e.warm(old, Sale{Units: 40, Segments: 4})
		e.deduct(old, e.order(1))
		for _, key := range e.names() { // the sale is long over
			e.rdb.Del(t.Context(), key)
		}
		e.warm(e.counter(), Sale{Units: 5})
		for i := range 5 {
			o := e.order(i)
			o.ID = fmt.Sprint("mine", i)
			e.deduct(old, o)
			if i%2 == 0 {
				old.places.store("1001", "", place{segments: 4, at: c4(old)})
				e.ended(old.Confirm(t.Context(), o.ID, Of(o)))(Ended{Outcome: OutcomeConfirmed, Units: 1})
			}
		}
		e.refused(old, e.order(9), ErrInsufficient)
	})
}

func c4(c *Counter) int { return (c.home("1001") + 1) % c.keys.parts }

// X23: every script of an order runs in one slot of a real cluster, on every node.
func TestPartitionsLieOnAllNodes(t *testing.T) {
	e := newCluster(t)
	c := e.counter(WithHold(time.Minute), WithStream())
	nodes := map[string]bool{}
	for item := range 40 {
		e.warm(c, Sale{Item: item, Units: 1})
		o := Order{Item: item, User: 1, Units: 1, RequestID: e.id()}
		res := e.deduct(c, o)
		if part := partsOf(res.Order); len(part) != 1 || part[0] != c.home(fmt.Sprint(item)) {
			t.Errorf("order %q does not tell partition %d", res.Order, c.home(fmt.Sprint(item)))
		}
		nodes[testserver.Cluster(t).Node(t, c.keys.item(c.home(fmt.Sprint(item)), fmt.Sprint(item))).Addr()] = true
		if _, err := c.Release(t.Context(), res.Order, Failed); err != nil {
			t.Error(err)
		}
	}
	if len(nodes) != 3 {
		t.Errorf("40 items lie on %d nodes, want 3", len(nodes))
	}
	slots := map[int]bool{}
	for part := range 100 {
		slots[redisx.Slot((&keyspace{parts: 100}).stream(part))] = true
	}
	if len(slots) != 100 {
		t.Errorf("100 partitions lie in %d slots", len(slots))
	}
}

// In partitions, an order id of one's own does not tell where the order is.
func TestForeignOrderIDNeedsOf(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		e.warm(c, Sale{Units: 5})
		o := e.order(1)
		o.ID = "mine-07"
		e.deduct(c, o)
		_, err := c.Release(t.Context(), "mine-07", Failed)
		if e.wants(err, ErrInvalid, "Release without Of").ErrorType() != "misuse" {
			t.Errorf("err = %v, want misuse", err)
		}
		fresh := e.counter(WithHold(time.Minute))
		e.ended(fresh.Release(t.Context(), "mine-07", Failed, Of(o)))(Ended{Outcome: OutcomeReleased, Units: 1})
	})
}
