package stock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// begin takes up to most units off one segment of item 1001 for another, and goes no further. It returns the transfer's id
// and what gives its units.
func (e *env) begin(c *Counter, from, to int, most int64) (id string, give func() answer) {
	e.Helper()
	id = newOrderID()
	a, err := c.run(e.Context(), c.scripts.moveTake,
		[]string{c.keys.item(from, "1001"), c.keys.control(from, "1001"), c.keys.transfer(from, id), c.keys.transfers(from)}, id, most, "1001", to)
	if err != nil || a.code() != 1 {
		e.Fatalf("take = %v, %v", a, err)
	}
	return id, func() answer {
		e.Helper()
		got, err := c.run(e.Context(), c.scripts.moveGive, []string{c.keys.item(to, "1001"), c.keys.control(to, "1001"), c.keys.transfer(to, id)}, a.text(1), a.text(3))
		if err != nil {
			e.Fatal(err)
		}
		return got
	}
}

// age lets a transfer have begun a minute ago.
func (e *env) age(c *Counter, from int, id string) {
	e.Helper()
	began := redis.Z{Score: float64(time.Now().Add(-time.Minute).UnixMilli()), Member: id}
	if err := e.rdb.ZAddXX(e.Context(), c.keys.transfers(from), began).Err(); err != nil {
		e.Fatal(err)
	}
}

// 3.8: units of a transfer that has stopped stay where they are, so a survey counts them, wherever it stopped: taken and not
// given they are on their way, given they are in the other counter, and of a forgotten transfer they are nowhere. Only one
// that is under way says that the segments do not belong to one instant.
func TestSurveyCountsStoppedTransfers(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 20, Segments: 4})
		p, _ := c.places.load("1001", "")
		from, to := c.segment(p, 0), c.segment(p, 2)
		want := func(what string, left, moving int64, unsettled bool) {
			t.Helper()
			s, err := c.Survey(t.Context(), nil)
			if err != nil || len(s.Items) != 1 {
				t.Fatalf("%s: %+v, %v", what, s, err)
			}
			if it := s.Items[0]; it.Left != left || it.Moving != moving || it.Unsettled != unsettled {
				t.Errorf("%s: %d left, %d moving, unsettled %t; want %d, %d, %t", what, it.Left, it.Moving, it.Unsettled, left, moving, unsettled)
			}
		}
		id, give := e.begin(c, from, to, 3)
		want("under way", 17, 3, true)
		e.age(c, from, id)
		want("taken, and stopped", 17, 3, false)
		another, _ := e.begin(c, from, to, 1)
		want("one that stopped and one under way", 16, 4, true)
		e.age(c, from, another)
		want("two that stopped", 16, 4, false)
		give()
		want("one given and not closed", 19, 1, false)
		if err := e.rdb.Del(t.Context(), c.keys.transfer(from, another)).Err(); err != nil {
			t.Fatal(err)
		}
		want("one forgotten", 19, 0, false)
		if _, err := c.Expired(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		want("one closed, one forgotten", 19, 0, false)
	})
}

// 3.8: a transfer to a counter that has gone stays open, and neither hides that it has gone nor stops its being made again:
// then the transfer is finished, and every unit is there once.
func TestCounterThatWentWithATransferOpen(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 20, Segments: 4})
		p, _ := c.places.load("1001", "")
		from, to := c.segment(p, 0), c.segment(p, 2)
		id, give := e.begin(c, from, to, 3)
		e.age(c, from, id)
		if err := e.rdb.Del(t.Context(), c.keys.item(to, "1001")).Err(); err != nil {
			t.Fatal(err)
		}
		if a := give(); a.code() != codeNotWarmed {
			t.Fatalf("give = %v", a)
		}
		if _, err := c.Expired(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		it := e.survey(c).Items[0]
		if !it.Gone || it.Left != 12 || it.Moving != 3 {
			t.Errorf("%+v; want a counter gone, 12 left and 3 moving", it)
		}
		for range 2 {
			if left, err := c.Restore(t.Context(), 1001, 20-12-3, "back", "ops", AsSeen(&it)); err != nil || left != 17 {
				t.Errorf("Restore = %d, %v; want 17", left, err)
			}
		}
		if _, err := c.Expired(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		e.left(c, 20)
		if it := e.survey(c).Items[0]; it.Gone || it.Left != 20 || it.Moving != 0 {
			t.Errorf("in the end %+v", it)
		}
	})
}
