package stock

import (
	"fmt"
	"testing"
	"time"
)

// D49, X22: ten minutes before the start the counter has SQL's stock and lives until an hour after the end; warming up
// again in the middle of a sale changes nothing.
func TestWarmUpIsRepeatable(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		s := Sale{Units: 200, Starts: time.Now().Add(10 * time.Minute), Ends: time.Now().Add(70 * time.Minute)}
		if w := e.warm(c, s); w != (Warmed{Left: 200, Added: 200, First: true}) {
			t.Errorf("first warm-up: %+v", w)
		}
		e.left(c, 200)
		e.ttl("stock:item:1001", 130*time.Minute)
		e.refused(c, e.order(1), ErrNotStarted)

		s.Starts = time.Time{}
		e.warm(c, s)
		for i := range 50 {
			e.deduct(c, e.order(i))
		}
		if w := e.warm(c, s); w != (Warmed{Left: 150}) {
			t.Errorf("warm-up in the middle of the sale: %+v, want 150 left and nothing added", w)
		}
		e.left(c, 150)
		s.Units = 230
		if w := e.warm(c, s); w != (Warmed{Left: 180, Added: 30}) {
			t.Errorf("warm-up with 30 more: %+v", w)
		}
		s.Units = 229
		_, err := c.Warm(t.Context(), usual(s))
		if e.wants(err, ErrInvalid, "warm-up with fewer").ErrorType() != "misuse" {
			t.Errorf("warm-up with fewer units than before: %v, want misuse", err)
		}
		e.left(c, 180)
	})
}

// X20: a key that lies there without a switch is not taken for a warm counter; it is reported, and replaced only on
// demand.
func TestStrayKeyIsReported(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.set("stock:item:1001", "0")
		e.unchanged("a warm-up over a stray key", func() {
			_, err := c.Warm(t.Context(), usual(Sale{Units: 5}))
			// The number of partitions is remembered before anything else is looked at.
			e.wants(err, ErrStray, "warm-up over a stray key")
			e.rdb.Del(t.Context(), c.keys.partitions())
		})
		e.refused(c, e.order(1), ErrNotWarmed)
		if _, err := c.Warm(t.Context(), usual(Sale{Units: 5}), TakeOver()); err != nil {
			t.Fatal(err)
		}
		e.deduct(c, e.order(1))
		e.left(c, 4)
		e.everyKeyExpires()

		if _, err := c.Warm(t.Context(), usual(Sale{Units: 5}), TakeOver()); err != nil {
			t.Fatal(err)
		}
		e.left(c, 4) // a counter that is ours is never taken over
	})
}

func TestStrayListIsTakenOverOnDemand(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.rdb.RPush(t.Context(), e.key("stock:item:1001"), "x")
		_, err := c.Warm(t.Context(), usual(Sale{Units: 5}))
		e.wants(err, ErrStray, "warm-up over a list")
		if _, err := c.Warm(t.Context(), usual(Sale{Units: 5}), TakeOver()); err != nil {
			t.Fatal(err)
		}
		e.left(c, 5)
	})
}

// 3.1 step 4: when the counter has gone during the sale, a warm-up does not invent how many were left; Restore does.
func TestCounterThatWentIsRestoredOnlyOnDemand(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 10})
		e.deduct(c, e.order(1))
		e.del("stock:item:1001")
		_, err := c.Warm(t.Context(), usual(Sale{Units: 10}))
		e.wants(err, ErrNotWarmed, "warm-up after the counter went")
		e.refused(c, e.order(2), ErrNotWarmed)
		_, err = c.Adjust(t.Context(), 1001, 5, "op", "me")
		e.wants(err, ErrNotWarmed, "Adjust after the counter went")
		for range 2 {
			if left, err := c.Restore(t.Context(), 1001, 9, "restore-1", "me"); err != nil || left != 9 {
				t.Errorf("Restore = %d, %v; want 9", left, err)
			}
		}
		e.deduct(c, e.order(2))
		e.left(c, 8)
		_, err = c.Restore(t.Context(), 1001, 9, "restore-2", "me")
		e.wants(err, ErrInvalid, "Restore of a counter that is there")
		e.everyKeyExpires()
	})
}

// D52, X08: a sale that is over, or whose times are impossible, is refused before anything is written.
func TestImpossibleSalesAreRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		now := time.Now()
		for name, tt := range map[string]struct {
			sale Sale
			want error
		}{
			"over already":        {Sale{Item: 1001, Units: 1, Ends: now.Add(-time.Minute)}, ErrEnded},
			"no end":              {Sale{Item: 1001, Units: 1}, ErrInvalid},
			"ends before start":   {Sale{Item: 1001, Units: 1, Starts: now.Add(time.Hour), Ends: now.Add(time.Minute)}, ErrInvalid},
			"negative units":      {Sale{Item: 1001, Units: -3, Ends: now.Add(time.Hour)}, ErrInvalid},
			"too many units":      {Sale{Item: 1001, Units: maxUnits + 1, Ends: now.Add(time.Hour)}, ErrInvalid},
			"no item":             {Sale{Units: 1, Ends: now.Add(time.Hour)}, ErrInvalid},
			"negative limit":      {Sale{Item: 1001, Units: 1, Ends: now.Add(time.Hour), Limit: Limit{Units: -1}}, ErrInvalid},
			"unknown scope":       {Sale{Item: 1001, Units: 1, Ends: now.Add(time.Hour), Limit: Limit{Over: 3}}, ErrInvalid},
			"too many segments":   {Sale{Item: 1001, Units: 1, Ends: now.Add(time.Hour), Segments: 101}, ErrInvalid},
			"negative segments":   {Sale{Item: 1001, Units: 1, Ends: now.Add(time.Hour), Segments: -1}, ErrInvalid},
			"far beyond any year": {Sale{Item: 1001, Units: 1, Ends: time.Date(10001, 1, 1, 0, 0, 0, 0, time.UTC)}, ErrInvalid},
		} {
			e.unchanged(name, func() {
				_, err := c.Warm(t.Context(), tt.sale)
				e.wants(err, tt.want, "%s", name)
			})
		}
	})
}

// An item that is sold out in SQL is put on sale like any other: it answers "sold out", not "not warmed up", and what comes later
// is added.
func TestWarmWithoutUnits(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		for _, first := range []bool{true, false} {
			if got := e.warm(c, Sale{}); got != (Warmed{First: first}) {
				t.Errorf("warmed: %+v", got)
			}
		}
		e.refused(c, e.order(1), ErrInsufficient)
		e.warm(c, Sale{Units: 1})
		e.deduct(c, e.order(1))
		e.refused(c, e.order(2), ErrInsufficient)
	})
}

// Two activities sell one item from one counter, which lives by the later end; each has its own limit.
func TestTwoActivitiesShareACounter(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		now := time.Now()
		e.warm(c, Sale{Activity: "a", Units: 10, Ends: now.Add(3 * time.Hour), Limit: Limit{Units: 1}})
		e.warm(c, Sale{Activity: "b", Units: 10, Ends: now.Add(2 * time.Hour), Limit: Limit{Units: 1}})
		e.ttl("stock:item:1001", 4*time.Hour)
		for _, activity := range []string{"a", "b"} {
			o := e.order(42)
			o.Activity = activity
			e.deduct(c, o)
			o.RequestID = e.id()
			e.refused(c, o, ErrLimitReached)
		}
		e.left(c, 8)
		o := e.order(1)
		o.Activity = "c"
		e.refused(c, o, ErrNotWarmed)
	})
}

// D11: what a user has had must be remembered until the activity's end, so an activity that has begun is prolonged by a
// day at most, and its scope stays.
func TestRunningActivityKeepsItsLimits(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		end := time.Now().Add(time.Hour)
		s := Sale{Units: 10, Ends: end, Limit: Limit{Units: 1}}
		e.warm(c, s)
		for name, change := range map[string]func(s *Sale){
			"end two days later": func(s *Sale) { s.Ends = end.Add(48 * time.Hour) },
			"another scope":      func(s *Sale) { s.Limit.Over = Variant },
			"a start to come":    func(s *Sale) { s.Starts = end.Add(-time.Minute) },
		} {
			wrong := s
			change(&wrong)
			_, err := c.Warm(t.Context(), usual(wrong))
			if e.wants(err, ErrInvalid, "%s", name).ErrorType() != "misuse" {
				t.Errorf("%s: %v, want misuse", name, err)
			}
		}
		s.Ends = end.Add(20 * time.Hour)
		e.warm(c, s)
		e.ttl("stock:item:1001", 22*time.Hour)
		s.Ends = end.Add(23 * time.Hour)
		e.warm(c, s)
		s.Ends = end.Add(30 * time.Hour)
		_, err := c.Warm(t.Context(), usual(s))
		e.wants(err, ErrInvalid, "prolonged step by step to more than a day")

		later := Sale{Item: 1002, Units: 1, Starts: time.Now().Add(time.Hour), Ends: end.Add(time.Hour)}
		e.warm(c, later)
		later.Ends, later.Limit.Over = end.Add(100*time.Hour), Variant
		e.warm(c, later) // it has not begun: anything goes
	})
}

// One prefix has one number of partitions: with two, one item would have two counters.
func TestAnotherNumberOfPartitionsIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		e.warm(e.counter(), Sale{Units: 5})
		other, err := New(e.rdb, e.options(WithPartitions(e.parts+1))...)
		if err != nil {
			t.Fatal(err)
		}
		e.unchanged("a warm-up with another number of partitions", func() {
			_, err = other.Warm(t.Context(), usual(Sale{Units: 5}))
			if e.wants(err, ErrInvalid, "another number of partitions").ErrorType() != "misuse" {
				t.Errorf("err = %v, want misuse", err)
			}
		})
	})
}

// over lets the item's sales be over for so long, as far as a switch tells; a counter goes by itself an hour after the end.
func (e *env) over(c *Counter, item string, since time.Duration, activity string) {
	e.Helper()
	p, err := c.find(e.Context(), item, "")
	if err != nil {
		e.Fatal(err)
	}
	end := time.Now().Add(-since).UnixMilli()
	for i := range p.segments {
		part := c.segment(p, i)
		e.rdb.HSet(e.Context(), c.keys.control(part, item), "end", end, actField(activity), fmt.Sprint("0 ", end, " 0 0 0 ", end))
		if since >= time.Hour {
			e.rdb.Del(e.Context(), c.keys.item(part, item))
		}
	}
}

// 3.1 steps 1 and 4: a counter that has gone at its time has not gone during the sale: the next day's sale of the item opens, and
// counts its own units. What an operator has paused stays so.
func TestItemIsSoldAgainTheNextDay(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Activity: "monday", Units: 10})
		e.deduct(c, Order{Item: 1001, Activity: "monday", User: 1, Units: 3, RequestID: e.id()})
		if _, err := c.Adjust(t.Context(), 1001, 5, "restock", "me"); err != nil {
			t.Fatal(err)
		}
		e.over(c, "1001", time.Hour, "monday")
		tuesday := Sale{Activity: "tuesday", Units: 4}
		for _, want := range []Warmed{{Left: 4, Added: 4, First: true}, {Left: 4}} {
			if got := e.warm(c, tuesday); got != want {
				t.Errorf("the next sale: %+v, want %+v", got, want)
			}
		}
		if s, err := c.Status(t.Context(), 1001); err != nil || s.Warmed != 4 || s.Restocked != 0 || s.Left != 4 {
			t.Errorf("Status = %+v, %v; want what the new sale has alone", s, err)
		}
		e.ttl("stock:item:1001", 2*time.Hour)
		e.deduct(c, Order{Item: 1001, Activity: "tuesday", User: 1, Units: 4, RequestID: e.id()})
		e.refused(c, Order{Item: 1001, Activity: "monday", User: 2, Units: 1, RequestID: e.id()}, ErrEnded)
		if left, err := c.Adjust(t.Context(), 1001, 5, "restock", "me"); err != nil || left != 0 {
			t.Errorf("a late repeat of a restock = %d, %v; want nothing added", left, err)
		}

		if err := c.Pause(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		e.over(c, "1001", time.Hour, "tuesday")
		e.warm(c, Sale{Activity: "wednesday", Units: 4})
		e.refused(c, Order{Item: 1001, Activity: "wednesday", User: 1, Units: 1, RequestID: e.id()}, ErrPaused)
		e.everyKeyExpires()

		// Frozen was only the earlier sale, of which SQL had less than Redis.
		if err := c.Resume(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		short := e.deduct(c, Order{Item: 1001, Activity: "wednesday", User: 1, Units: 1, RequestID: "short"})
		if _, err := c.Release(t.Context(), short.Order, Insufficient, Of(Order{Item: 1001, Activity: "wednesday", User: 1, Units: 1, RequestID: "short"})); err != nil {
			t.Fatal(err)
		}
		e.over(c, "1001", time.Hour, "wednesday")
		e.warm(c, Sale{Activity: "thursday", Units: 4})
		e.deduct(c, Order{Item: 1001, Activity: "thursday", User: 1, Units: 1, RequestID: e.id()})
	})
}

// A counter that goes earlier than that went too early, whatever the time.
func TestCounterThatWentJustAfterTheSale(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Activity: "monday", Units: 10})
		e.over(c, "1001", 59*time.Minute, "monday")
		e.del("stock:item:1001")
		e.rdb.Del(t.Context(), c.keys.partitions()) // it is pushed forward before anything is looked at
		_, err := c.Warm(t.Context(), usual(Sale{Activity: "tuesday", Units: 4}))
		e.wants(err, ErrNotWarmed, "a warm-up before the counter's time")
	})
}

// Invariant 2: units that were still on their way between segments when a sale was over are not given to the next one, which
// SQL's stock was warmed up with.
func TestNextSaleGetsNoUnitsOfTheLast(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		s := Sale{Activity: "monday", Units: 8, Segments: 2}
		e.warm(c, s)
		p, err := c.find(t.Context(), "1001", "")
		if err != nil {
			t.Fatal(err)
		}
		from, to := c.segment(p, 0), c.segment(p, 1)
		take := func(id string) {
			t.Helper()
			a, err := c.run(t.Context(), c.scripts.moveTake,
				[]string{c.keys.item(from, "1001"), c.keys.control(from, "1001"), c.keys.transfer(from, id), c.keys.transfers(from)}, id, 3, "1001", to)
			if err != nil || a.code() != 1 {
				t.Fatal(a, err)
			}
		}
		e.over(c, "1001", time.Minute, "monday") // a unit that comes back late is still moved
		take("old")
		e.over(c, "1001", time.Hour, "monday")
		s.Activity = "tuesday"
		e.warm(c, s)
		take("new")
		for range 2 {
			if err := c.finishTransfers(t.Context(), from, 0); err != nil {
				t.Fatal(err)
			}
			if s, err := c.Status(t.Context(), 1001); err != nil || s.Left != 8 || s.Moving != 0 {
				t.Errorf("Status = %+v, %v; want the eight units of the new sale, and nothing on its way", s, err)
			}
		}
	})
}

// X22: a warm-up that is refused changes no segment.
func TestRefusedWarmUpChangesNoSegment(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 11, Segments: 3, Limit: Limit{Units: 1}})
		e.unchanged("a warm-up with fewer units", func() {
			_, err := c.Warm(t.Context(), usual(Sale{Units: 10, Segments: 3, Limit: Limit{Units: 9}}))
			e.wants(err, ErrInvalid, "fewer units than before")
		})
		if w := e.warm(c, Sale{Units: 13, Segments: 3, Limit: Limit{Units: 9}}); w != (Warmed{Left: 13, Added: 2}) {
			t.Errorf("two more: %+v", w)
		}
	})
}
