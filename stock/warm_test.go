package stock

import (
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
