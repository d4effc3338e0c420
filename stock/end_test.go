package stock

import "testing"

// D64, F062, F063: however often an order is released, its units come back once.
func TestReleaseThreeTimesGivesBackOnce(t *testing.T) {
	everywhere(t, func(e *env) {
		c := e.counter()
		e.warm(c, Sale{Units: 10, Limit: Limit{Units: 5}})
		o := e.order(1)
		o.Units = 3
		res := e.deduct(c, o)
		e.left(c, 7)
		for i, want := range []Ended{{Outcome: OutcomeReleased, Units: 3}, {Outcome: OutcomeAlreadyReleased, Units: 3}, {Outcome: OutcomeAlreadyReleased, Units: 3}} {
			if got, err := c.Release(t.Context(), res.Order, Failed, Of(o)); err != nil || got != want {
				t.Errorf("release %d = %+v, %v; want %+v", i+1, got, err, want)
			}
		}
		e.left(c, 10)
		if _, err := c.Confirm(t.Context(), res.Order, Of(o)); err == nil {
			t.Error("a released order was confirmed")
		}
	})
}
