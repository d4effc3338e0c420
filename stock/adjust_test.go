package stock

import (
	"fmt"
	"testing"
	"time"
)

// O06, X22: a restock adds its units once per operation, and ends "sold out"; a withdrawal takes only what is there.
func TestAdjust(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 1})
		e.deduct(c, e.order(1))
		e.refused(c, e.order(2), ErrInsufficient)
		for range 3 {
			if left, err := c.Adjust(t.Context(), 1001, 5, "restock-1", "me"); err != nil || left != 5 {
				t.Errorf("Adjust = %d, %v; want 5", left, err)
			}
		}
		e.deduct(c, e.order(2))
		e.left(c, 4)
		e.unchanged("what is refused", func() {
			_, err := c.Adjust(t.Context(), 1001, 6, "restock-1", "me")
			e.wants(err, ErrMismatch, "the operation id for another amount")
			_, err = c.Adjust(t.Context(), 1001, -5, "restock-1", "me")
			e.wants(err, ErrMismatch, "the operation id for a withdrawal")
			_, err = c.Adjust(t.Context(), 1001, -5, "withdraw-1", "me")
			e.wants(err, ErrInsufficient, "a withdrawal of more than is left")
			for _, delta := range []int64{0, maxUnits + 1, -maxUnits - 1, -1 << 63} {
				_, err = c.Adjust(t.Context(), 1001, delta, "x", "me")
				e.wants(err, ErrInvalid, "delta %d", delta)
			}
			_, err = c.Adjust(t.Context(), 1001, maxUnits, "x", "me")
			e.wants(err, ErrInvalid, "a sum above 2^53-1")
			_, err = c.Adjust(t.Context(), 1001, 1, "", "me")
			e.wants(err, ErrInvalid, "no operation id")
			_, err = c.Adjust(t.Context(), 1001, 1, "x", "")
			e.wants(err, ErrInvalid, "no operator")
		})
		if left, err := c.Adjust(t.Context(), 1001, -4, "withdraw-2", "me"); err != nil || left != 0 {
			t.Errorf("Adjust = %d, %v; want 0", left, err)
		}
		s, err := c.Status(t.Context(), 1001)
		if err != nil || s.Warmed != 1 || s.Restocked != 5 || s.Withdrawn != 4 || s.Left != 0 {
			t.Errorf("Status = %+v, %v", s, err)
		}
		e.everyKeyExpires()
	})
}

// O05: after Pause has returned no deduct succeeds, while what was taken is ended as ever; Resume opens again.
func TestPauseAndResume(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		e.warm(c, Sale{Units: 9})
		done := e.order(1)
		res := e.deduct(c, done)
		for range 2 {
			if err := c.Pause(t.Context(), 1001); err != nil {
				t.Fatal(err)
			}
		}
		e.unchanged("a deduct while paused", func() {
			e.refused(c, e.order(2), ErrPaused)
			if res := e.deduct(c, done); !res.Replayed {
				t.Error("a request that was done before is not answered while paused")
			}
		})
		e.warm(c, Sale{Units: 9}) // a warm-up does not open a paused sale
		e.refused(c, e.order(2), ErrPaused)
		e.ended(c.Release(t.Context(), res.Order, Operator))(Ended{Outcome: OutcomeReleased, Units: 1})
		for range 2 {
			if err := c.Resume(t.Context(), 1001); err != nil {
				t.Fatal(err)
			}
		}
		e.deduct(c, e.order(2))
	})
}

// O05: Pause promises until Resume. A freeze and a thaw in between do not end it, in whatever order they come, and after Resume
// a thaw opens again.
func TestPauseLastsUntilResume(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		segments := 1
		if e.parts > 0 {
			segments = 4
		}
		e.warm(c, Sale{Units: 40, Segments: segments})
		pause := func() {
			t.Helper()
			if err := c.Pause(t.Context(), 1001); err != nil {
				t.Error(err)
			}
		}
		freeze := func(res Result) {
			t.Helper()
			e.ended(c.Release(t.Context(), res.Order, Insufficient))(Ended{Outcome: OutcomeReleased, Units: 1})
		}
		thaw := func(operation string) {
			t.Helper()
			for range 2 {
				if units, err := c.Thaw(t.Context(), 1001, operation, "ops"); err != nil || units != 1 {
					t.Errorf("Thaw = %d, %v; want 1", units, err)
				}
			}
		}
		shut := func(what, state string) {
			t.Helper()
			for i := range 2 * segments {
				e.refused(c, e.order(fmt.Sprint(what, i)), ErrPaused)
			}
			if s, err := c.Status(t.Context(), 1001); err != nil || s.State != state {
				t.Errorf("%s: %+v, %v; want it %s", what, s, err, state)
			}
		}
		resume := func() {
			t.Helper()
			if err := c.Resume(t.Context(), 1001); err != nil {
				t.Fatal(err)
			}
		}
		open := func(what string) {
			t.Helper()
			for i := range 2 * segments {
				e.deduct(c, e.order(fmt.Sprint(what, i)))
			}
		}
		first, second, third := e.deduct(c, e.order(1)), e.deduct(c, e.order(2)), e.deduct(c, e.order(3))
		pause()
		freeze(first)
		shut("paused, then frozen", "frozen")
		thaw("a")
		shut("thawed", "paused")
		resume()
		open("resumed")

		freeze(second)
		pause()
		e.unchanged("Resume of what is frozen", func() { e.wants(c.Resume(t.Context(), 1001), ErrPaused, "Resume of what is frozen") })
		thaw("b")
		shut("paused while it was frozen", "paused")
		resume()
		open("resumed again")

		freeze(third)
		thaw("c")
		open("thawed after a pause that has ended")
	})
}

// A thaw of an item that is not frozen, or paused meanwhile, books nothing and opens nothing.
func TestThawOfAnItemThatIsNotFrozen(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 9})
		if err := c.Pause(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		if units, err := c.Thaw(t.Context(), 1001, "t1", "me"); err != nil || units != 0 {
			t.Errorf("Thaw = %d, %v; want 0", units, err)
		}
		e.refused(c, e.order(1), ErrPaused)
		if _, err := c.Adjust(t.Context(), 1001, 1, "a1", "me"); err != nil {
			t.Fatal(err)
		}
		_, err := c.Thaw(t.Context(), 1001, "a1", "me")
		e.wants(err, ErrMismatch, "the operation id of an adjustment")
	})
}
