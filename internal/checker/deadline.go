package checker

import "strings"

// checkDeadlines checks that each hold whose units have not ended has a deadline at which somebody will look at it, not
// before its own, and that no other order has one. A hold that could not be ended is put off: it is looked at later.
func (j *judge) checkDeadlines() {
	if j.Redis == nil {
		return
	}
	for order, p := range j.Redis.proofs {
		if !p.hold || p.open() <= 0 {
			continue
		}
		at, there := j.Redis.due[p.due()]
		if !there || at < p.deadline {
			j.add(Finding{Kind: HoldUndue, Item: p.item, User: p.user, Request: p.request, Order: order, Want: p.deadline, Got: at})
		}
	}
	for d := range j.Redis.due {
		if p := j.Redis.proofs[d.order]; p == nil || !p.hold || p.open() <= 0 || p.due() != d {
			j.add(Finding{Kind: DeadlineAlone, Order: d.order, Detail: "partition " + d.part})
		}
	}
}

// due is where the deadlines have the hold.
func (p *proof) due() due {
	return due{p.part, strings.HasPrefix(p.item, quotaPrefix), p.order}
}
