package stock

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// runner opens an order in several partitions for a runner that the test leads step by step.
func (e *env) runner(c *Counter, o Order) *apart {
	e.Helper()
	r, err := c.check(e.Context(), &o)
	if err != nil {
		e.Fatal(err)
	}
	if together, err := c.locate(e.Context(), r); err != nil || together {
		e.Fatalf("the items share a partition: %t, %v", together, err)
	}
	if r.order == "" {
		r.made, r.order = true, withParts(newOrderID(), r.lines)
	}
	run := &apart{c: c, r: r, key: c.keys.request(spread(r.id, c.keys.parts), r.id), name: newOrderID()}
	a, err := c.run(e.Context(), c.scripts.wholeOpen, []string{run.key},
		r.what, r.order, run.name, c.cfg.recordLife().Milliseconds(), c.takeOver.Milliseconds())
	if err != nil || a.code() != 0 {
		e.Fatalf("the order cannot be opened: %v, %v", a, err)
	}
	run.try = a.int(2)
	return run
}

// takes takes one line of a runner's order.
func (e *env) takes(run *apart, line int) {
	e.Helper()
	_, err := run.takeLine(e.Context(), run.r.lines[line:line+1])
	if errors.Is(err, errElsewhere) {
		l := &run.r.lines[line]
		l.place = run.c.placeOf(l.item, l.activity)
		_, err = run.takeLine(e.Context(), run.r.lines[line:line+1])
	}
	if err != nil {
		e.Fatal(err)
	}
}

// Invariants 1 and 5: a runner that was refused, and then overtaken, takes nothing back of the order that the other one has
// finished.
func TestOvertakenRunnerTakesNothingBack(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		slow, c := e.counter(WithHold(time.Minute)), e.counter(WithHold(time.Minute))
		c.takeOver = 0 // as if it came 10 s later
		left := e.items(c, Limit{Units: 1}, map[ID]int64{1: 5, 2: 1})
		e.deduct(c, Order{Item: 2, User: "first", Units: 1, RequestID: e.id()})
		o := e.cart(7, Line{1, nil, 1}, Line{2, nil, 1})
		run := e.runner(slow, o)
		e.takes(run, 0)
		_, err := run.takeLine(t.Context(), run.r.lines[1:])
		e.wants(err, ErrInsufficient, "the second line")

		if _, err := c.Adjust(t.Context(), 2, 1, "restock", "me"); err != nil {
			t.Fatal(err)
		}
		res := e.deduct(c, o)
		e.unchanged("the overtaken runner", func() {
			if err := run.undo(t.Context(), &run.r.lines[0]); err != nil {
				t.Error(err)
			}
		})
		left(1, 4)
		left(2, 0)
		e.ended(c.Confirm(t.Context(), res.Order))(Ended{Outcome: OutcomeConfirmed, Units: 2})
	})
}

// Invariant 3: a line that one instance has taken is taken back whole by another that goes on, also when that one has not
// heard yet what the limit counts over.
func TestTakenBackByAnotherInstanceLeavesNoMark(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		for _, own := range []ID{nil, "A1"} { // the retry may bring no order id where the first call had one
			e := &env{T: t, rdb: e.rdb, prefix: fmt.Sprint(e.prefix, own, ":"), parts: e.parts, mini: e.mini}
			dead, c := e.counter(WithHold(time.Minute)), e.counter(WithHold(time.Minute))
			left := e.items(dead, Limit{Units: 1, Over: Variant}, map[ID]int64{1: 5, 2: 1})
			o := e.cart(7, Line{1, "S", 1}, Line{2, "M", 1})
			first := o
			if own != nil {
				first.ID = "A1"
			}
			run := e.runner(dead, first)
			e.takes(run, 0)
			if _, err := run.close(t.Context(), stateOpen); err != nil { // as after a fault
				t.Fatal(err)
			}
			res := e.deduct(c, o)
			left(1, 4)
			left(2, 0)
			if _, err := c.Release(t.Context(), res.Order, Failed, Of(o)); err != nil {
				t.Error(err)
			}
			left(1, 5)
			e.deduct(c, e.cart(7, Line{1, "S", 1}, Line{2, "M", 1}))

			// Nor does a mark stay when the order is refused for good.
			run = e.runner(dead, e.cart(8, Line{1, "S", 1}, Line{2, "M", 1}))
			e.takes(run, 0)
			if _, err := run.close(t.Context(), stateOpen); err != nil {
				t.Fatal(err)
			}
			again := Order{User: 8, RequestID: run.r.id, Lines: []Line{{1, "S", 1}, {2, "M", 1}}}
			e.refused(e.counter(WithHold(time.Minute)), again, ErrInsufficient)
			left(1, 4)
			if n := e.rdb.HLen(t.Context(), c.keys.marker(run.r.lines[0].part, Variant, &run.r.lines[0])).Val(); n != 0 {
				t.Errorf("%d marks stay of an order that was refused", n)
			}
			e.deduct(c, Order{Item: 1, Variant: "S", User: 8, Units: 1, RequestID: e.id()})
		}
	})
}

// 3.2 step 2 before anything is taken: the backlog bounds orders over several partitions too, and what is refused leaves nothing.
func TestBacklogBoundsOrdersInSeveralPartitions(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter(WithHold(time.Minute), WithStream(), WithMaxBacklog(2))
		left := e.items(c, Limit{Units: 1}, map[ID]int64{1: 9, 2: 9})
		for i := range 2 {
			e.deduct(c, e.cart(i, Line{1, nil, 1}, Line{2, nil, 1}))
		}
		over := e.cart(7, Line{1, nil, 1}, Line{2, nil, 1})
		for range 2 {
			e.refused(c, over, ErrOverloaded)
		}
		left(1, 7)
		left(2, 7)
		for _, stream := range c.Streams() {
			if n := e.rdb.XLen(t.Context(), stream).Val(); n > 2 {
				t.Errorf("%s has %d entries, want at most 2", stream, n)
			}
			e.rdb.Del(t.Context(), stream)
		}
		e.deduct(c, over) // landed meanwhile
	})
}

// A refusal is not remembered: under the request id of an order that was refused in several partitions another one, whose
// lines share a partition, is judged afresh.
func TestRefusedInSeveralPartitionsThenInOne(t *testing.T) {
	inPartitions(t, func(t *testing.T, e *env) {
		c := e.counter()
		together := 10
		for spread(fmt.Sprint(together), e.parts) != spread("1", e.parts) {
			together++
		}
		left := e.items(c, Limit{}, map[ID]int64{1: 5, 2: 1, together: 5})
		for range 20 { // so that the record of the whole order lies now in that partition, now in another
			o := e.cart(7, Line{1, nil, 1}, Line{2, nil, 2})
			e.refused(c, o, ErrInsufficient)
			o.Lines = []Line{{1, nil, 1}, {together, nil, 1}}
			res := e.deduct(c, o)
			if again := e.deduct(c, o); !again.Replayed || again.Order != res.Order {
				t.Errorf("the repeat gave %+v, want a replay of %+v", again, res)
			}
			if _, err := c.Release(t.Context(), res.Order, Failed, Of(o)); err != nil {
				t.Fatal(err)
			}
		}
		left(1, 5)
	})
}
