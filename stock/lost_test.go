package stock

import (
	"fmt"
	"testing"
	"time"
)

// lose removes a segment of item 1001 as a node does that comes back empty: the switch with the counter.
func (e *env) lose(c *Counter, p place, n int) (part int) {
	e.Helper()
	part = c.segment(p, n)
	for _, key := range []string{c.keys.item(part, "1001"), c.keys.control(part, "1001")} {
		if n, err := e.rdb.Del(e.Context(), key).Result(); err != nil || n != 1 {
			e.Fatalf("DEL %s = %d, %v", key, n, err)
		}
	}
	return part
}

// of returns an order of a user whose segment of item 1001 lies in that partition.
func (e *env) of(c *Counter, p place, part int) Order {
	for i := 0; ; i++ {
		if o := e.order(fmt.Sprint("u", e.id(), i)); c.partOf(p, o.User.(string)) == part {
			return o
		}
	}
}

// A segment that is lost with its switch is missed by the survey, is not warmed up a second time with units that are sold, and
// is made again by Restore after the others, the item's home as well; until then its buyers hear "not warmed up" at once, and
// not that others are faster.
func TestLostSegment(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		for n := range 4 {
			own := &env{T: t, rdb: e.rdb, prefix: fmt.Sprint(e.prefix, n, ":"), parts: e.parts, mini: e.mini}
			c := own.counter(WithHold(time.Minute))
			sale := usual(Sale{Units: 42, Segments: 4, Limit: Limit{Units: 1}})
			own.warm(c, sale)
			p, _ := c.places.load("1001", "")
			for i := range 8 {
				own.deduct(c, own.of(c, p, c.segment(p, i%4)))
			}
			lost := own.lose(c, p, n)
			own.warm(c, Sale{Item: 5, Units: 9})
			for name, buyer := range map[string]*Counter{"that knows the place": c, "that is new": own.counter(WithHold(time.Minute))} {
				o := own.of(c, p, lost)
				own.refused(buyer, o, ErrNotWarmed)
				o.Item, o.Units, o.RequestID = nil, 0, own.id()
				o.Lines = []Line{{Item: 5, Units: 1}, {Item: 1001, Units: 1}}
				if err := own.refused(buyer, o, ErrNotWarmed); err.Line() != 1 {
					t.Errorf("an instance %s refuses line %d", name, err.Line())
				}
			}
			left := int64(42-8) - share(42, 4, n) + 2
			s := own.survey(c)
			it := s.Items[0]
			if len(s.Items) != 2 || !it.Gone || it.Left != left || len(it.Segments) != 4 || it.Segments[3] != -1 || len(s.Strays) > 0 {
				t.Fatalf("segment %d lost: %+v", n, s)
			}
			own.unchanged("a warm-up of what is lost", func() {
				_, err := c.Warm(t.Context(), sale)
				own.wants(err, ErrNotWarmed, "warm-up again")
				more := sale
				more.Units = 50
				_, err = c.Warm(t.Context(), more)
				own.wants(err, ErrNotWarmed, "warm-up with more")
				_, err = c.Warm(t.Context(), sale, TakeOver())
				own.wants(err, ErrNotWarmed, "warm-up with TakeOver")
			})
			back := 34 - left
			for range 2 {
				if got, err := c.Restore(t.Context(), 1001, back, "back", "ops", AsSeen(&it)); err != nil || got != 34 {
					t.Fatalf("Restore of segment %d = %d, %v; want 34", n, got, err)
				}
			}
			own.unchanged("a restore by another plan", func() {
				_, err := c.Restore(t.Context(), 1001, back, "twice", "ops", AsSeen(&it))
				own.wants(err, ErrStale, "Restore")
				_, err = c.Restore(t.Context(), 1001, back, "twice", "ops")
				own.wants(err, ErrInvalid, "Restore with nothing missing")
			})
			own.left(c, 34)
			if it := own.survey(c).Items[0]; it.Gone || it.Left != 34 || it.Warmed != 42 {
				t.Errorf("segment %d restored: %+v", n, it)
			}
			if w := own.warm(c, sale); w.Added != 0 || w.First {
				t.Errorf("warm-up after Restore: %+v", w)
			}
			sale.Units = 45
			if w := own.warm(c, sale); w.Added != 3 {
				t.Errorf("warm-up with three more after Restore: %+v", w)
			}
			o := own.of(c, p, lost)
			own.deduct(own.counter(WithHold(time.Minute)), o)
			o.RequestID = own.id()
			own.refused(c, o, ErrLimitReached)
			own.everyKeyExpires()
		}
	})
}

// Two segments that are lost together are restored together, with the units once; an item whose segments are all lost is not
// warmed up.
func TestSegmentsLostTogether(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 40, Segments: 4})
		p, _ := c.places.load("1001", "")
		e.lose(c, p, 0)
		e.lose(c, p, 2)
		it := e.survey(c).Items[0]
		for range 2 {
			if got, err := c.Restore(t.Context(), 1001, 15, "back", "ops", AsSeen(&it)); err != nil || got != 35 {
				t.Errorf("Restore = %d, %v; want 35", got, err)
			}
		}
		e.left(c, 35)
		for i := range 35 {
			e.deduct(c, e.order(i))
		}
		e.refused(c, e.order("late"), ErrInsufficient)
		for n := range 4 {
			e.lose(c, p, n)
		}
		e.unchanged("a restore with no segment left", func() {
			_, err := c.Restore(t.Context(), 1001, 15, "again", "ops")
			e.wants(err, ErrNotWarmed, "Restore")
		})
	})
}

// A warm-up that was broken off has left segments out that never were: warming up again makes them, and nobody takes them for
// lost.
func TestSegmentsThatNeverWere(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 40, Segments: 4})
		p, _ := c.places.load("1001", "")
		for n := range 4 { // as it is in the middle of the first warm-up
			if err := e.rdb.HDel(t.Context(), c.keys.control(c.segment(p, n), "1001"), "whole").Err(); err != nil {
				t.Fatal(err)
			}
		}
		e.lose(c, p, 2)
		e.lose(c, p, 3)
		if it := e.survey(c).Items[0]; it.Gone || len(it.Segments) != 4 || it.Segments[3] != -1 {
			t.Errorf("%+v; want two segments missing, and not gone", it)
		}
		e.unchanged("a restore of what never was", func() {
			_, err := c.Restore(t.Context(), 1001, 20, "back", "ops")
			e.wants(err, ErrNotWarmed, "Restore")
		})
		if w := e.warm(c, Sale{Units: 40, Segments: 4}); w.Added != 20 || w.Left != 40 {
			t.Errorf("warm-up again: %+v", w)
		}
		e.lose(c, p, 3)
		_, err := c.Warm(t.Context(), usual(Sale{Units: 40, Segments: 4}))
		e.wants(err, ErrNotWarmed, "warm-up of a segment that was there")
	})
}

// A segment that is made again is shut as the others are, and a counter without a switch is nobody's to overwrite.
func TestRestoredSegmentIsAsTheOthers(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 40, Segments: 4})
		p, _ := c.places.load("1001", "")
		if err := c.Pause(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		part := c.segment(p, 1)
		if err := e.rdb.Del(t.Context(), c.keys.control(part, "1001")).Err(); err != nil {
			t.Fatal(err)
		}
		s := e.survey(c)
		if len(s.Strays) != 1 || !s.Items[0].Gone {
			t.Fatalf("%+v; want a counter without a switch, and a segment gone", s)
		}
		e.unchanged("a restore over a counter that is there", func() {
			_, err := c.Restore(t.Context(), 1001, 10, "back", "ops")
			e.wants(err, ErrStray, "Restore")
		})
		if did, err := c.RemoveStray(t.Context(), s.Strays[0].Key); err != nil || !did {
			t.Fatalf("RemoveStray = %t, %v", did, err)
		}
		if _, err := c.Restore(t.Context(), 1001, 10, "back", "ops"); err != nil {
			t.Fatal(err)
		}
		e.refused(c, e.of(c, p, part), ErrPaused)
		if err := c.Resume(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		e.deduct(c, e.of(c, p, part))
		e.left(c, 39)
	})
}
