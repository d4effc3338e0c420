package checker

import (
	"cmp"
	"slices"
)

// checkFences checks that SQL never accepted a fence lower than one that it had accepted before.
func (j *judge) checkFences() {
	rows := map[string][]*Record{}
	for i := range j.History {
		r := &j.History[i]
		if r.Fence > 0 && (r.Outcome == Applied || r.taken()) {
			row := cmp.Or(r.Row, r.Item)
			rows[row] = append(rows[row], r)
		}
	}
	for row, accepted := range rows {
		ended := slices.Clone(accepted)
		slices.SortStableFunc(ended, func(a, b *Record) int { return a.End.Compare(b.End) })
		slices.SortStableFunc(accepted, func(a, b *Record) int { return a.Start.Compare(b.Start) })
		highest, next := int64(0), 0
		for _, r := range accepted {
			for next < len(ended) && ended[next].endsBefore(r) {
				highest = max(highest, ended[next].Fence)
				next++
			}
			if r.Fence < highest {
				j.add(Finding{Kind: FenceFell, Item: row, Request: r.Request, Order: r.Order, Want: highest, Got: r.Fence, Detail: "accepted from " + r.Instance})
			}
		}
		if j.SQL == nil || j.SQL.tables.Stock.Fence == "" {
			continue
		}
		for next < len(ended) {
			highest = max(highest, ended[next].Fence)
			next++
		}
		if stored, there := j.SQL.stock[row]; there && stored.fence < highest {
			j.add(Finding{Kind: FenceFell, Item: row, Key: j.SQL.tables.Stock.Name, Want: highest, Got: stored.fence})
		}
	}
}
