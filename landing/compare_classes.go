package landing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// judging turns a look into differences.
type judging struct {
	*look
	found    []Difference
	flying   map[string]bool // orders in streams and dead letters
	marked   map[string]bool // orders that a limit counts
	held     map[string]*stock.SurveyedOrder
	until    map[string]time.Time // of activities whose limit counts over their items: when the last of those ends
	inFlight InFlight
}

func (l *look) judge() *judging {
	j := &judging{
		look: l, flying: map[string]bool{}, marked: map[string]bool{}, held: map[string]*stock.SurveyedOrder{}, until: map[string]time.Time{},
	}
	for _, e := range l.Landing {
		j.flying[e.Order] = true
	}
	for _, e := range l.Dead {
		j.flying[e.Order] = true
	}
	j.inFlight.Stream, j.inFlight.Dead = len(l.Landing), len(l.Dead)
	for _, m := range l.Marks {
		j.marked[m.Order] = true
	}
	for i := range l.Held {
		j.held[l.Held[i].Order] = &l.Held[i]
	}
	for i := range l.Items {
		it := &l.Items[i]
		for activity, limit := range it.Limits {
			if until := it.Until[activity]; limit.Over == stock.Activity && until.After(j.until[activity]) {
				j.until[activity] = until
			}
		}
	}
	j.judgeItems()
	j.judgeHeld()
	j.judgeLive()
	j.judgeMarks()
	j.judgeLimits()
	j.judgeKeys()
	slices.SortStableFunc(j.found, inOrder)
	return j
}

// inOrder is the order of differences in a report.
func inOrder(a, b Difference) int {
	return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Item, b.Item), cmp.Compare(a.User, b.User),
		cmp.Compare(a.Order, b.Order), cmp.Compare(a.Key, b.Key))
}

func (j *judging) add(d Difference) { j.found = append(j.found, d) }

// judgeItems adds up the units of each item: what the counters have, what is on its way between two of them, and
// what is held without a live row, is what SQL has.
func (j *judging) judgeItems() {
	held := map[string]int64{}
	for i := range j.Held {
		if o := &j.Held[i]; o.Counted && !j.has(&o.Entry) {
			held[o.Item] += j.kept(o)
		}
	}
	for _, o := range slices.Concat(j.Landing, j.Dead) { // whose record has gone before they have landed, or were closed
		if o.Counted && j.held[o.Order] == nil && !j.has(&o.Entry) && !j.isClosed(&o.Entry) {
			held[o.Item] += o.Units
		}
	}
	for _, item := range j.asked {
		if j.items[item] == nil {
			j.add(Difference{Class: NotWarmed, Item: item, SQL: j.stock[item], Detail: "warm it up with the units that SQL has, if its sale is on"})
		}
	}
	for _, it := range j.items {
		j.inFlight.Moving += it.Moving
		j.judgeItem(it, held[it.Item])
	}
}

func (j *judging) judgeItem(it *stock.SurveyedItem, held int64) {
	if it.State == "frozen" && it.Withheld == 0 {
		j.add(Difference{Class: Frozen, Item: it.Item, Steps: it.Steps, action: ActionThaw, item: it})
	}
	if it.Withheld > 0 {
		j.add(Difference{Class: Withheld, Item: it.Item, Units: it.Withheld, Steps: it.Steps, action: ActionThaw, item: it})
	}
	has, there := j.stock[it.Item]
	if !there {
		j.add(Difference{Class: NoStockRow, Item: it.Item, Redis: it.Left + it.Moving + held})
		return
	}
	if it.Unsettled {
		return
	}
	if !it.Gone && slices.Contains(it.Segments, -1) { // or the sale is over, and the counter has gone with it
		if j.At.Before(it.Ends) {
			j.add(Difference{Class: NotWarmed, Item: it.Item, SQL: has, Detail: "some of its segments: the warm-up was broken off, repeat it"})
		}
		return
	}
	d := Difference{Item: it.Item, Redis: it.Left + it.Moving + held, SQL: has, Steps: it.Steps, item: it}
	apart := d.Redis - has
	switch d.Units = max(apart, -apart); {
	case it.Gone:
		d.Class, d.Detail = CounterGone, "counters of "+strconv.Itoa(len(it.Segments))+" segments are missing, or some of them"
		if len(it.Segments) == 1 {
			d.Detail = ""
		}
		if apart <= 0 {
			d.action = ActionRestore
		}
	case apart > 0:
		if over := apart - it.Left; over > 0 {
			more := d
			more.Class, more.Units, more.Detail = OrdersAbove, over, "SQL will refuse some of them as they land"
			j.add(more)
			if d.Units = it.Left; d.Units == 0 {
				return
			}
		}
		d.Class, d.action = RedisAbove, ActionWithdraw
	case apart < 0:
		d.Class, d.action, d.SoldOut = RedisBelow, ActionRestock, it.Left == 0
	default:
		return
	}
	j.add(d)
}

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

// judgeKeys reports keys that must not be there.
func (j *judging) judgeKeys() {
	if j.asked != nil {
		return // they are nobody's, or everybody's
	}
	for _, s := range j.Strays {
		d := Difference{Class: GhostKey, Item: s.Item, Key: s.Key, action: ActionRemove}
		if d.part = j.items[s.Item] != nil; d.part {
			d.Detail = "the switch of a segment is lost: its counter makes room for one that is restored"
		} else if _, known := j.stock[s.Item]; known {
			d.person = "SQL has this item, and its sale's switch may be lost: if it is on, remove the counter, warm up, compare again"
		}
		j.add(d)
	}
	latest := time.Time{}
	for _, it := range j.items {
		if it.Ends.After(latest) {
			latest = it.Ends
		}
	}
	for _, key := range j.Eternal {
		j.add(Difference{Class: KeyWithoutTTL, Key: key, action: ActionExpire, ends: latest})
	}
	for _, key := range j.Unreadable {
		j.add(Difference{Class: Unreadable, Key: key, Detail: "look at the value; nobody writes such a one through this library"})
	}
}

// asInt reads a number of a model.
func asInt(v any) (int64, error) { return strconv.ParseInt(textOf(v), 10, 64) }
