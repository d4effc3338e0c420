package stock

import (
	"testing"
	"time"
)

// seen is the item as a survey sees it now.
func (e *env) seen(c *Counter) *SurveyedItem {
	e.Helper()
	return &e.survey(c).Items[0]
}

// A step that was worked out from a survey is made only if nobody has corrected the item meanwhile: what would be done
// twice is refused, and nothing is written. Its own repeat is answered as ever.
func TestStepOnlyIfAsSeen(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		segments := 1
		if e.parts > 0 {
			segments = 4
		}
		e.warm(c, Sale{Units: 18, Segments: segments})
		o := e.order(1)
		units := int64(18)
		for name, meanwhile := range map[string]func() error{
			"a restock":    func() error { _, err := c.Adjust(t.Context(), 1001, 5, "restock", "alice"); units += 5; return err },
			"a withdrawal": func() error { _, err := c.Adjust(t.Context(), 1001, -5, "withdraw", "alice"); units -= 5; return err },
			"a thaw":       func() error { _, err := c.Thaw(t.Context(), 1001, "thaw", "alice"); return err },
		} {
			was := e.seen(c)
			if err := meanwhile(); err != nil {
				t.Fatal(err)
			}
			e.unchanged("steps after "+name, func() {
				for _, delta := range []int64{5, -5} {
					_, err := c.Adjust(t.Context(), 1001, delta, "correct", "ops", AsSeen(was))
					e.wants(err, ErrStale, "Adjust by %d after %s", delta, name)
				}
			})
		}
		was := e.seen(c)
		e.warm(c, Sale{Units: 19, Segments: segments})
		units++
		e.unchanged("a step after a warm-up with more", func() {
			_, err := c.Adjust(t.Context(), 1001, 1, "correct", "ops", AsSeen(was))
			e.wants(err, ErrStale, "Adjust after a warm-up with more")
		})

		was = e.seen(c)
		e.deduct(c, o) // sales go on: they do not matter
		units--
		for range 2 {
			if left, err := c.Adjust(t.Context(), 1001, 2, "correct", "ops", AsSeen(was)); err != nil || segments == 1 && left != units+2 {
				t.Errorf("Adjust = %d, %v; want %d", left, err, units+2)
			}
		}
		e.left(c, units+2)
		_, err := c.Adjust(t.Context(), 1001, 3, "correct", "ops", AsSeen(was))
		e.wants(err, ErrMismatch, "the operation id for another amount")

		for name, it := range map[string]*SurveyedItem{"of another item": {Item: "5", switches: was.switches}, "from no survey": {Item: "1001"}} {
			_, err = c.Adjust(t.Context(), 1001, 3, "other", "ops", AsSeen(it))
			if e.wants(err, ErrInvalid, "an item %s", name).ErrorType() != "misuse" {
				t.Errorf("an item %s: %v, want misuse", name, err)
			}
		}
		if _, err = c.Adjust(t.Context(), 1001, 3, "other", "ops", AsSeen(nil)); err != nil {
			t.Error(err)
		}
	})
}

// A thaw that was decided for the units which a survey has seen withheld does not open an item of which SQL has refused
// more since, or which somebody else has opened.
func TestThawOnlyIfAsSeen(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute))
		e.warm(c, Sale{Units: 18})
		refuse := func(res Result) {
			t.Helper()
			e.ended(c.Release(t.Context(), res.Order, Insufficient))(Ended{Outcome: OutcomeReleased, Units: 1})
		}
		first, second := e.deduct(c, e.order(1)), e.deduct(c, e.order(2))
		refuse(first)
		was := e.seen(c)
		refuse(second)
		e.unchanged("a thaw of fewer units than are withheld", func() {
			_, err := c.Thaw(t.Context(), 1001, "correct", "ops", AsSeen(was))
			e.wants(err, ErrStale, "Thaw after another refusal")
		})
		was = e.seen(c)
		if _, err := c.Adjust(t.Context(), 1001, -1, "correct", "ops", AsSeen(was)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the same plan has corrected the counter before
			if units, err := c.Thaw(t.Context(), 1001, "thaw", "ops", AsSeen(was)); err != nil || units != 2 {
				t.Errorf("Thaw = %d, %v; want 2", units, err)
			}
		}
		e.unchanged("a thaw by another plan", func() {
			_, err := c.Thaw(t.Context(), 1001, "of another plan", "ops", AsSeen(was))
			e.wants(err, ErrStale, "Thaw of an item that is open again")
		})
	})
}

// A counter that was seen missing is made again once, by whichever of two plans comes first.
func TestRestoreOnlyIfAsSeen(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 18})
		whole := e.seen(c)
		e.del("stock:item:1001")
		was := e.seen(c)
		if !was.Gone {
			t.Fatalf("%+v", was)
		}
		e.unchanged("a restore by a plan for the counter that is there", func() {
			_, err := c.Restore(t.Context(), 1001, 18, "early", "ops", AsSeen(whole))
			e.wants(err, ErrStale, "Restore")
		})
		for range 2 {
			if left, err := c.Restore(t.Context(), 1001, 18, "first", "ops", AsSeen(was)); err != nil || left != 18 {
				t.Errorf("Restore = %d, %v", left, err)
			}
		}
		e.unchanged("a restore by another plan", func() {
			_, err := c.Restore(t.Context(), 1001, 18, "second", "ops", AsSeen(was))
			e.wants(err, ErrStale, "Restore")
		})
	})
}
