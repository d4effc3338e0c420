package landing

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// judgeHeld looks at orders that Redis holds.
func (j *judging) judgeHeld() {
	for i := range j.Held {
		o := &j.Held[i]
		if j.kept(o) == 0 {
			continue
		}
		live := j.has(&o.Entry)
		young := j.At.Sub(o.At) < j.e.cfg.deadline
		switch row, closed := j.closed[o.RequestID]; {
		case live || j.flying[o.Order]:
		case young:
			j.inFlight.Young++
		default:
			d := of(HoldWithoutOrder, &o.Entry)
			d.Units, d.action = j.kept(o), ActionRelease
			if closed {
				d.Detail = "closed in SQL: " + string(row.reason())
			}
			if o.Confirmed > 0 {
				d.Detail, d.action = "paid for in Redis", ""
			}
			j.add(d)
			continue
		}
		if !young && !j.marked[o.Order] && j.limited(&o.Entry) {
			j.addUnmarked(&o.Entry)
		}
	}
}

func of(class Class, e *stock.Entry) Difference {
	return Difference{
		Class: class, Item: e.Item, Activity: e.Activity, User: e.User, Order: e.Order, Request: e.RequestID, Units: e.Units, entry: *e,
	}
}

// limited reports whether a limit must count the order: its activity is on sale, on this item or, where the limit counts over
// all of them, on another one.
func (j *judging) limited(e *stock.Entry) bool {
	if !j.remembered(e) {
		return false
	}
	it := j.items[e.Item]
	until := it.Until[e.Activity]
	if it.Limits[e.Activity].Over == stock.Activity {
		until = j.until[e.Activity]
	}
	return j.At.Before(until)
}

// remembered reports whether Redis still keeps what tells of the order, so that what is lost of it can be written again: that
// ends a day after the order's own activity on its item, whatever else the item is sold in.
func (j *judging) remembered(e *stock.Entry) bool {
	it := j.items[e.Item]
	if it == nil || e.User == "" {
		return false
	}
	until, sold := it.Until[e.Activity]
	return sold && j.At.Before(until.Add(24*time.Hour))
}

func (j *judging) addUnmarked(e *stock.Entry) {
	d := of(OrderWithoutMarker, e)
	d.action = ActionRemember
	j.add(d)
}

// judgeLive looks at orders that are live in SQL.
func (j *judging) judgeLive() {
	for _, row := range j.live {
		e, ok := row.entry()
		if !ok {
			continue
		}
		o := j.held[e.Order]
		switch {
		case o != nil && o.Kept() == 0:
			d := of(OrderWithoutHold, &e)
			d.Detail = "given back in Redis: close the order, or sell it anew"
			j.add(d)
			continue
		case row.state() == stateUnpaid:
			j.judgeUnpaid(&e, o)
		}
		if !j.marked[e.Order] && o == nil && j.limited(&e) {
			j.addUnmarked(&e)
		}
	}
}

// judgeUnpaid looks for an order that waits for payment, and for ever, as no hold will end it. The sale need not be on any
// more: most comparisons are made after it. One without a user was never sold through Redis.
func (j *judging) judgeUnpaid(e *stock.Entry, o *stock.SurveyedOrder) {
	if j.e.settings.Hold == 0 || e.User == "" || o != nil && o.Open() > 0 && o.Listed {
		return
	}
	d := of(OrderWithoutHold, e)
	d.open = true
	switch it := j.items[e.Item]; {
	case o != nil && o.Open() == 0:
		d.Detail = "paid for in Redis: look for the payment, then pay or close the order"
	case j.remembered(e):
		d.action = ActionRemember
	case it != nil && !it.Until[e.Activity].IsZero():
		d.action, d.Detail = ActionClose, "its sale has been over for a day"
	default:
		d.action, d.Detail = ActionClose, "Redis knows nothing of its sale"
		d.person = "if the sale is on, warm it up and compare again instead"
	}
	j.add(d)
}

// judgeMarks looks at what limits count.
func (j *judging) judgeMarks() {
	for _, m := range j.Marks {
		o := j.held[m.Order]
		_, live := j.byNumber[m.Order]
		if live || j.elsewhere[m.Order] || j.flying[m.Order] || o != nil && j.kept(o) > 0 {
			continue // of a closed order whose units have not come back, the release takes it off
		}
		if m.Item == "" && j.asked != nil {
			continue // it counts over items that were not asked for
		}
		j.add(Difference{
			Class: MarkerWithoutOrder, Item: m.Item, Activity: m.Activity, User: m.User, Order: m.Order, Units: m.Units,
			action: ActionUnmark, mark: m,
		})
	}
}

// judgeLimits looks for users with more units in live orders than the limit: the later ones that are unpaid are too many.
func (j *judging) judgeLimits() {
	type buyer struct{ user, item, variant, activity string }
	has := map[buyer][]orderRow{}
	most := map[buyer]int64{}
	for _, row := range j.live {
		e, ok := row.entry()
		it := j.items[e.Item]
		if !ok || it == nil || e.User == "" {
			continue
		}
		limit := it.Limits[e.Activity]
		b := buyer{e.User, e.Item, "", e.Activity}
		switch {
		case limit.Units == 0:
			continue
		case limit.Over == stock.Activity:
			b.item = ""
		case limit.Over == stock.Variant:
			b.variant = e.Variant
		}
		has[b], most[b] = append(has[b], row), limit.Units
	}
	for b, rows := range has {
		over := -most[b]
		for _, row := range rows {
			over += row.units()
		}
		for i := len(rows) - 1; i >= 0 && over > 0; i-- {
			if rows[i].state() != stateUnpaid {
				continue
			}
			e, _ := rows[i].entry()
			d := of(DuplicateOrders, &e)
			d.action = ActionClose
			over -= d.Units
			j.add(d)
		}
		if over > 0 {
			j.add(Difference{
				Class: DuplicateOrders, Item: b.item, Activity: b.activity, User: b.user, Units: over,
				Detail: fmt.Sprintf("%d orders, the limit is %d, and none of those that are too many is unpaid", len(rows), most[b]),
			})
		}
	}
}
