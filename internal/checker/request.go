package checker

import (
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// asked groups the history's deducts by request, in the order in which they were asked.
func (j *judge) asked() map[string][]*Record {
	by := map[string][]*Record{}
	for i := range j.History {
		if r := &j.History[i]; r.is(Deduct) && r.Request != "" {
			by[r.Request] = append(by[r.Request], r)
		}
	}
	for _, recs := range by {
		slices.SortStableFunc(recs, func(a, b *Record) int { return a.Start.Compare(b.Start) })
	}
	return by
}

// checkRequests checks that a request has one order and one outcome.
func (j *judge) checkRequests() {
	if j.SQL != nil {
		rows := map[string]int64{}
		for _, row := range j.SQL.orders {
			rows[row.request]++
		}
		delete(rows, "")
		for request, n := range rows {
			if n > 1 {
				j.add(Finding{Kind: RequestRows, Request: request, Want: 1, Got: n})
			}
		}
	}
	by := j.asked()
	for _, request := range slices.Sorted(maps.Keys(by)) {
		j.checkRepeats(request, by[request])
	}
}

func (j *judge) checkRepeats(request string, recs []*Record) {
	if j.Forgot {
		return // of several orders that Redis has told of, SQL has one at most
	}
	var first *Record
	fresh, others := int64(0), map[string]bool{}
	for _, r := range recs {
		if !r.taken() {
			continue
		}
		if first == nil {
			first = r
		}
		if r.Outcome == Deducted {
			fresh++
		}
		if r.Order != first.Order && !others[r.Order] {
			others[r.Order] = true
			j.add(Finding{Kind: RequestOrders, Item: r.Item, User: r.User, Request: request, Order: r.Order, Detail: "the first answer was order " + first.Order})
		}
	}
	if fresh > 1 && len(others) == 0 {
		j.add(Finding{Kind: RequestTwice, Item: first.Item, User: first.User, Request: request, Order: first.Order, Want: 1, Got: fresh})
	}
	if first == nil {
		return
	}
	for _, r := range recs {
		if first.endsBefore(r) && sameRequest(first, r) && j.falseRefusal(first, r) {
			j.add(Finding{Kind: RepeatRefused, Item: r.Item, User: r.User, Request: request, Order: first.Order, Detail: "a repeat was answered " + r.Outcome})
		}
	}
}

func sameRequest(a, b *Record) bool {
	return a.Item == b.Item && a.User == b.User && a.Activity == b.Activity && a.Units == b.Units
}

// falseRefusal tells whether the answer to a repeat of a success cannot have been true.
func (j *judge) falseRefusal(first, r *Record) bool {
	switch fault.Type(r.Outcome) {
	case fault.Released, fault.Insufficient, fault.LimitReached, fault.Mismatch, fault.NotStarted, fault.Ended, fault.Paused,
		fault.NotWarmed:
		return !j.mayBeReleased(first, r)
	}
	return false
}

// mayBeReleased tells whether the order may have been given back before r was answered.
func (j *judge) mayBeReleased(first, r *Record) bool {
	for _, h := range j.came()[first.Order] {
		if h.Op == Return || !r.endsBefore(h) { // they have come back before somebody saw it
			return true
		}
	}
	if j.Redis != nil {
		if p := j.Redis.proofs[first.Order]; p != nil && p.released > 0 {
			return true
		}
	}
	row := j.SQL.of(first.Request, first.Order)
	return row != nil && row.closed
}

// checkAnswers compares what buyers were told with what is there.
func (j *judge) checkAnswers() {
	if j.SQL == nil || j.SQL.tables.Orders.Name == "" {
		return
	}
	for request, recs := range j.asked() {
		var taken *Record
		for _, r := range recs {
			if r.taken() {
				taken = r
			}
		}
		if taken == nil {
			row := j.SQL.of(request, "")
			if row != nil && !row.closed && definite(recs) {
				j.add(Finding{Kind: RefusedLive, Item: row.item, User: row.user, Request: request, Order: row.order, Got: row.units, Detail: "the answer was " + recs[0].Outcome})
			}
			continue
		}
		if j.Forgot {
			continue // of several orders that Redis has told of, SQL has one at most
		}
		switch row := j.SQL.of(request, taken.Order); {
		case row == nil && !j.inRedis(taken):
			j.add(Finding{Kind: AcceptedLost, Item: taken.Item, User: taken.User, Request: request, Order: taken.Order, Want: taken.Units})
		case row != nil && row.order != "" && taken.Order != "" && row.order != taken.Order:
			j.add(Finding{Kind: OtherOrder, Item: taken.Item, User: taken.User, Request: request, Order: taken.Order, Detail: "the row is order " + row.order})
		}
	}
}

func (j *judge) inRedis(r *Record) bool {
	if j.Redis == nil {
		return true // nobody has looked
	}
	if j.Redis.proofs[r.Order] != nil || len(j.Redis.records[r.Request]) > 0 {
		return true
	}
	for _, e := range append(j.Redis.landing, j.Redis.dead...) {
		if e.order == r.Order {
			return true
		}
	}
	return len(j.came()[r.Order]) > 0
}

// came returns the records that say that units of an order came back, by order.
func (j *judge) came() map[string][]*Record {
	if j.back != nil {
		return j.back
	}
	j.back = map[string][]*Record{}
	for i := range j.History {
		if h := &j.History[i]; h.is(Release) || h.is(Return) {
			j.back[h.Order] = append(j.back[h.Order], h)
		}
	}
	return j.back
}

// definite tells whether every answer was a no that leaves nothing behind.
func definite(recs []*Record) bool {
	for _, r := range recs {
		switch fault.Type(r.Outcome) {
		case fault.Insufficient, fault.LimitReached, fault.NotStarted, fault.Ended, fault.Paused, fault.NotWarmed, fault.Duplicate:
		default:
			return false
		}
	}
	return true
}
