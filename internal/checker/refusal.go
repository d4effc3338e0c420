package checker

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// checkRefusals checks that "sold out" and "limit reached" were true at some instant of their request.
func (j *judge) checkRefusals() {
	if j.Forgot {
		return
	}
	limits := map[[2]string]Sale{}
	for _, s := range j.Sales {
		limits[[2]string{s.Item, s.Activity}] = s
	}
	items := map[string]*timeline{}
	buyers := map[buyer]*timeline{}
	g := j.grouped()
	for i := range j.History {
		r := &j.History[i]
		s, sold := limits[[2]string{r.Item, r.Activity}]
		if !r.is(Deduct) || !sold || r.End.IsZero() {
			continue
		}
		units := max(r.Units, 1)
		switch fault.Type(r.Outcome) {
		case fault.Insufficient:
			if items[r.Item] == nil {
				items[r.Item] = g.timeline(g.items[r.Item], func(*Record) bool { return true })
			}
			total := j.items[r.Item].initial
			from := r.Start.Add(-j.SoldOutFor)
			if most, in := items[r.Item].most(from, r.End); most+units <= total+in {
				j.add(Finding{Kind: FalseSoldOut, Item: r.Item, User: r.User, Activity: r.Activity, Request: r.Request, Want: total + in - units + 1, Got: most})
			}
		case fault.LimitReached:
			b := buyer{r.User, r.Item, r.Activity}
			if s.LimitOverActivity {
				b.item = ""
			}
			if buyers[b] == nil {
				buyers[b] = g.timeline(g.users[b.user], func(o *Record) bool {
					return o.Activity == b.activity && (b.item == "" || o.Item == b.item)
				})
			}
			if most, _ := buyers[b].most(r.Start, r.End); s.Limit > 0 && most+units <= s.Limit {
				j.add(Finding{Kind: FalseLimit, Item: r.Item, User: r.User, Activity: r.Activity, Request: r.Request, Want: s.Limit - units + 1, Got: most})
			}
		}
	}
}

// timeline says how many units may have been taken, at most, at any instant.
type timeline struct {
	takes   []event // from then on they may be taken
	returns []event // from then on they are back for certain
	in      []event // from then on more, or fewer, are there for certain
}

type event struct {
	at    time.Time
	units int64
	sum   int64 // of all up to this one
}

// groups are the history's records by what they are counted under, so that a long history is gone through once.
type groups struct {
	items, users map[string][]*Record
	returns      map[string][]*Record // by order
	orderOf      map[string]string    // by request
}

func (j *judge) grouped() *groups {
	g := &groups{items: map[string][]*Record{}, users: map[string][]*Record{}, returns: j.came(), orderOf: map[string]string{}}
	if j.SQL != nil { // a request that nobody has an answer to may have a row
		for _, row := range j.SQL.orders {
			g.orderOf[row.request] = row.order
		}
	}
	for i := range j.History {
		r := &j.History[i]
		if r.taken() {
			g.orderOf[r.Request] = r.Order
		}
		g.items[r.Item] = append(g.items[r.Item], r)
		g.users[r.User] = append(g.users[r.User], r)
	}
	return g
}

// timeline collects those of the records that are counted together. An order that was taken twice by mistake counts twice:
// it may have taken twice. One whose answer nobody knows may have taken its units too.
func (g *groups) timeline(among []*Record, mine func(*Record) bool) *timeline {
	t := &timeline{}
	first := map[string]time.Time{}
	orders := map[string]bool{} // this timeline's
	var starts []string
	units := map[string]int64{}
	for _, r := range among {
		if !mine(r) {
			continue
		}
		switch {
		case r.is(Deduct) && (r.taken() || r.unknown() || r.Order != ""):
			id := cmp.Or(r.Order, g.orderOf[r.Request], "request "+r.Request)
			if at, known := first[id]; !known || r.Start.Before(at) {
				first[id] = r.Start
			}
			if !orders[id] {
				orders[id] = true
				starts = append(starts, id)
			}
			units[id] = max(units[id], r.Units, 1)
			if !r.taken() && !r.unknown() { // taken, and given back before the answer
				t.returns = append(t.returns, event{at: r.End, units: max(r.Units, 1)})
			}
		case r.is(Restock) && r.Outcome == Applied:
			t.in = append(t.in, event{at: r.End, units: r.Units})
		case r.is(Withdraw):
			t.in = append(t.in, event{at: r.Start, units: -r.Units})
		}
	}
	for _, id := range starts {
		t.takes = append(t.takes, event{at: first[id], units: units[id]})
	}
	for _, id := range starts {
		for _, r := range g.returns[id] {
			if (r.Op == Return || r.Outcome == Released) && r.Reason != string(fault.Insufficient) && !r.End.IsZero() {
				back := min(r.Units, units[id]) // a repeat that says so again gives nothing back
				units[id] -= back
				t.returns = append(t.returns, event{at: r.End, units: back})
			}
		}
	}
	for _, events := range [][]event{t.takes, t.returns, t.in} {
		slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
		sum := int64(0)
		for i := range events {
			sum += events[i].units
			events[i].sum = sum
		}
	}
	return t
}

// most returns the most units that may have been taken at one instant from..to, with what had come in by then.
func (t *timeline) most(from, to time.Time) (most, in int64) {
	instants := []time.Time{from, to}
	for _, events := range [][]event{t.returns, t.in} {
		first := sort.Search(len(events), func(i int) bool { return events[i].at.After(from) })
		for _, e := range events[first:] {
			if !e.at.Before(to) {
				break
			}
			instants = append(instants, e.at)
		}
	}
	best := false
	for _, at := range instants {
		taken := sumOf(t.takes, at, true) - sumOf(t.returns, at, false)
		extra := sumOf(t.in, at, false)
		if !best || taken-extra > most-in {
			best, most, in = true, taken, extra
		}
	}
	return most, in
}

// sumOf adds up the events before an instant, or also those at it.
func sumOf(events []event, at time.Time, also bool) int64 {
	n := sort.Search(len(events), func(i int) bool {
		return events[i].at.After(at) || !also && events[i].at.Equal(at)
	})
	if n == 0 {
		return 0
	}
	return events[n-1].sum
}
