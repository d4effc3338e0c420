package checker

import "strings"

// buyer is who a limit counts for.
type buyer struct{ user, item, activity string }

// checkLimits checks that nobody has more units, in live orders and open holds, than the limit.
func (j *judge) checkLimits() {
	has := map[buyer]int64{}
	limits := map[[2]string]Sale{}
	for _, s := range j.Sales {
		limits[[2]string{s.Item, s.Activity}] = s
	}
	count := func(user, item, activity string, units int64) {
		s := limits[[2]string{item, activity}]
		if s.Limit == 0 || user == "" {
			return
		}
		b := buyer{user, item, activity}
		if s.LimitOverActivity {
			b.item = ""
		}
		has[b] += units
	}
	if j.SQL != nil {
		for _, row := range j.SQL.orders {
			if !row.closed {
				count(row.user, row.item, row.activity, row.units)
			}
		}
	}
	if j.Redis != nil {
		for _, p := range j.Redis.proofs {
			if row := j.SQL.of(p.request, p.order); row == nil {
				count(p.user, p.item, p.activity, p.kept())
			}
		}
	}
	most := func(b buyer) int64 {
		for _, s := range j.Sales {
			if s.Activity == b.activity && (s.Item == b.item || s.LimitOverActivity && b.item == "") {
				return s.Limit
			}
		}
		return 0
	}
	for b, units := range has {
		if limit := most(b); units > limit {
			j.add(Finding{Kind: OverLimit, Item: b.item, User: b.user, Activity: b.activity, Want: limit, Got: units})
		}
	}
}

// claim is an order that is held or live, and so must be in a marker.
type claim struct {
	order, request, item, activity, user string
	units                                int64
}

// claims returns them by order id.
func (j *judge) claims() map[string]claim {
	all := map[string]claim{}
	for _, p := range j.Redis.proofs {
		row := j.SQL.of(p.request, p.order)
		if p.kept() > 0 && (row == nil || !row.closed) {
			all[p.order] = claim{p.order, p.request, p.item, p.activity, p.user, p.kept()}
		}
	}
	if j.SQL == nil {
		return all
	}
	for _, row := range j.SQL.orders {
		order := row.order
		if order == "" {
			order = j.orderOf(row.request)
		}
		if row.closed || order == "" {
			continue
		}
		if p := j.Redis.proofs[order]; p != nil && p.kept() == 0 {
			continue // live in SQL and given back in Redis: the units say so
		}
		if _, there := all[order]; !there {
			all[order] = claim{order, row.request, row.item, row.activity, row.user, row.units}
		}
	}
	return all
}

// orderOf returns the order that Redis knows for a request, "" if none.
func (j *judge) orderOf(request string) string {
	if records := j.Redis.records[request]; len(records) == 1 {
		return records[0].order
	}
	return ""
}

// checkMarkers checks that a marker entry is there exactly while its order is held or live.
func (j *judge) checkMarkers() {
	if j.Redis == nil {
		return
	}
	claims := j.claims()
	marked := map[string]bool{}
	for _, m := range j.Redis.marks {
		marked[m.order] = true
		c, there := claims[m.order]
		switch {
		case !there:
			j.add(Finding{Kind: MarkerAlone, Item: m.item, User: m.user, Activity: m.act, Order: m.order, Key: m.name, Got: m.units})
		case c.user != m.user || m.item != "" && c.item != m.item || m.act != "" && c.activity != m.act:
			j.add(Finding{Kind: MarkerForeign, Item: c.item, User: c.user, Activity: c.activity, Order: m.order, Key: m.name})
		case c.units != m.units:
			j.add(Finding{Kind: MarkerUnits, Item: c.item, User: m.user, Activity: m.act, Order: m.order, Key: m.name, Want: c.units, Got: m.units})
		}
	}
	for _, c := range claims {
		it := j.Redis.items[c.item]
		if it == nil || marked[c.order] || strings.HasPrefix(it.name, quotaPrefix) {
			continue // a quota has no limits
		}
		if _, sold := it.activities[c.activity]; sold {
			j.add(Finding{Kind: OrderUnmarked, Item: c.item, User: c.user, Activity: c.activity, Request: c.request, Order: c.order, Want: c.units})
		}
	}
}
