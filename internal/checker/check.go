package checker

import (
	"slices"
	"time"
)

// Sale is what a test put on sale.
type Sale struct {
	Item, Activity string
	// Units is how many there were at first; an item that is sold in several activities has the same Units in each.
	Units int64
	// Limit is the most units of a user in this activity, 0: none. LimitOverActivity counts them over all its items.
	Limit             int64
	LimitOverActivity bool
}

// Run is what is judged. Redis, SQL and History may each be missing; then what needs them is not checked.
type Run struct {
	Sales   []Sale
	History []Record
	Redis   *Redis
	SQL     *SQL
	// Settled says that everything has come to its end: streams are empty, sweepers and reconciliation have run.
	Settled bool
	// Forgot says that Redis lost writes it had acknowledged (a failover, a restart without its data). What was promised
	// on its word alone is then not held against the answers: SQL's word still is.
	Forgot bool
	// Miscounted says that a counter of Redis was lost or changed by somebody, and has been corrected since. Its books then
	// prove nothing about what came in; all that it has recorded of requests and orders still counts.
	Miscounted bool
	// SoldOutFor is the time for which an instance may go on saying "sold out" by itself (the filter of stock).
	SoldOutFor time.Duration
}

// Check returns what is wrong, in an order that is the same each time; nothing if the run is clean.
func Check(run Run) []Finding {
	j := judge{Run: run, items: map[string]*account{}}
	j.readAccounts()
	for _, item := range j.names() {
		j.checkAccount(j.items[item])
	}
	j.checkStored()
	j.checkLimits()
	j.checkMarkers()
	j.checkDeadlines()
	j.checkRequests()
	j.checkAnswers()
	j.checkEnds()
	j.checkFates()
	j.checkLedgers()
	j.checkRefusals()
	j.checkFences()
	return sorted(j.found)
}

// judge collects findings.
type judge struct {
	Run
	found []Finding
	items map[string]*account
	back  map[string][]*Record // by order: what says that its units have come back; read by came
}

func (j *judge) add(f Finding) { j.found = append(j.found, f) }

// names returns all items, sorted.
func (j *judge) names() []string {
	var names []string
	for name := range j.items {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkStored reports what lies in Redis and must not be there.
func (j *judge) checkStored() {
	if j.Redis == nil {
		return
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(j.Redis.eternal))) {
		j.add(Finding{Kind: Eternal, Key: name})
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(j.Redis.strange))) {
		j.add(Finding{Kind: Unreadable, Key: name})
	}
	for _, name := range j.Redis.ghosts {
		j.add(Finding{Kind: GhostCounter, Key: name})
	}
	if !j.Settled {
		return
	}
	for _, name := range j.Redis.opened {
		j.add(Finding{Kind: RequestOpen, Key: name})
	}
	for _, e := range append(slices.Clone(j.Redis.landing), j.Redis.dead...) {
		j.add(Finding{Kind: StreamOpen, Item: e.item, Request: e.request, Order: e.order, Got: e.units})
	}
}
