package stock

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// filtered returns a counter with the filter and a way to count the scripts that it sends.
func filtered(t *testing.T, e *env, life time.Duration) (c *Counter, sent func() int) {
	t.Helper()
	c = e.counter(WithSoldOutFilter(life))
	t.Cleanup(c.Close)
	n := 0
	if e.mini != nil {
		n = e.mini.CommandCount()
		return c, func() int { d := e.mini.CommandCount() - n; n = e.mini.CommandCount(); return d }
	}
	return c, nil
}

// D80: the local filter refuses without asking Redis, until a return, a restock or a warm-up by any instance, and then
// everybody can buy again.
func TestSoldOutFilter(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c, sent := filtered(t, e, time.Minute)
		other := e.counter()
		e.warm(other, Sale{Units: 1})
		// The message of a return may come before anybody listens: wait until it does.
		testserver.Eventually(t, 10*time.Second, func() bool {
			before := c.soldOut.seen()
			e.rdb.Publish(t.Context(), c.keys.channel(), "nothing")
			return c.soldOut.seen() > before
		}, "the filter listens")
		o := e.order(1)
		res := e.deduct(other, o)
		e.refused(c, e.order(2), ErrInsufficient)
		if sent != nil {
			sent()
			for range 5 {
				e.refused(c, e.order(2), ErrInsufficient)
			}
			if n := sent(); n != 0 {
				t.Errorf("%d commands were sent while the item was known to be sold out", n)
			}
		}
		again := 0
		for name, back := range map[string]func() error{
			"release": func() error { _, err := other.Release(t.Context(), res.Order, Failed, Of(o)); return err },
			"restock": func() error {
				again++
				_, err := other.Adjust(t.Context(), 1001, 1, fmt.Sprint("op", again), "me")
				return err
			},
			"warm-up": func() error { _, err := other.Warm(t.Context(), usual(Sale{Units: 2})); return err },
		} {
			e.refused(c, e.order(3), ErrInsufficient)
			if err := back(); err != nil {
				t.Fatal(err)
			}
			testserver.Eventually(t, 10*time.Second, func() bool {
				_, err := c.Deduct(t.Context(), e.order(3))
				return err == nil
			}, name+" ends the filter")
		}
	})
}

// D80: should the message be lost, the filter ends by itself within its time.
func TestSoldOutFilterEndsByItself(t *testing.T) {
	e := newMini(t, 0)
	c, _ := filtered(t, e, 20*time.Millisecond)
	e.warm(c, Sale{Units: 1})
	e.deduct(c, e.order(1))
	e.refused(c, e.order(2), ErrInsufficient)
	e.set("stock:item:1001", "1") // units come back, and nobody is told
	testserver.Eventually(t, 10*time.Second, func() bool {
		_, err := c.Deduct(t.Context(), e.order(2))
		return err == nil
	}, "the filter's end")
}

// F037: a local view never sells; and it never says no because an order was too large, or to a known repeat.
func TestSoldOutFilterOnlyRefusesWhatIsSoldOut(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c, _ := filtered(t, e, time.Minute)
		segments := 1
		if e.parts > 0 {
			segments = 4
		}
		e.warm(c, Sale{Units: 2, Segments: segments})
		large := e.order(1)
		large.Units = 3
		e.refused(c, large, ErrInsufficient)
		first := e.order(1)
		e.deduct(c, first)
		two := e.cart(2, Line{1001, "S", 1}, Line{1001, "M", 1})
		e.refused(c, two, ErrInsufficient)
		e.deduct(c, e.order(2))
		e.refused(c, e.order(3), ErrInsufficient)
		ctx := reqctx.WithRequest(t.Context(), reqctx.Request{ID: first.RequestID, Attempt: 2})
		first.RequestID = ""
		if res, err := c.Deduct(ctx, first); err != nil || !res.Replayed {
			t.Errorf("a known repeat of an order that was taken: %+v, %v", res, err)
		}
	})
}

// A "sold out" that was true when Redis said it, and overtaken by a return before it arrived, is not remembered.
func TestSoldOutThatWasOvertaken(t *testing.T) {
	s := &soldOut{life: time.Minute, until: map[string]time.Time{}}
	r := &request{lines: []line{{item: "1", units: 1, place: place{segments: 1}}}}
	seen := s.seen()
	s.forget("1")
	s.learn(r, &r.lines[0], 0, seen)
	if s.refuses(t.Context(), r) {
		t.Error("the item is called sold out after its return")
	}
	s.learn(r, &r.lines[0], 0, s.seen())
	if !s.refuses(t.Context(), r) {
		t.Error("the item is not called sold out")
	}
	for i := range mostSoldOut + 1 {
		r.lines[0].item = fmt.Sprint(i)
		s.learn(r, &r.lines[0], 0, s.seen())
	}
	if len(s.until) > mostSoldOut {
		t.Errorf("%d items are remembered, want at most %d", len(s.until), mostSoldOut)
	}
}

// Close ends the goroutine, may be called twice, and leaves a Counter that works.
func TestClose(t *testing.T) {
	e := newMini(t, 0)
	c := e.counter(WithSoldOutFilter(time.Minute))
	e.warm(c, Sale{Units: 1})
	e.deduct(c, e.order(1))
	c.Close()
	c.Close()
	e.refused(c, e.order(2), ErrInsufficient)
	e.set("stock:item:1001", "1")
	e.deduct(c, e.order(2))
	e.counter().Close()
}
