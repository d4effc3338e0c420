package landing

import (
	"cmp"
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
