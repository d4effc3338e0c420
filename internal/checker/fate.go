package checker

import "github.com/holdfast-go/holdfast/internal/fault"

// checkFates compares what was said about payment and closing with the rows, and the rows with the holds. A row that is paid
// or closed stays so.
func (j *judge) checkFates() {
	if j.SQL == nil || j.SQL.tables.Orders.Name == "" || len(j.SQL.tables.Orders.Paid) == 0 {
		return
	}
	moved := map[string]int64{}
	for i := range j.History {
		r := &j.History[i]
		if !r.is(Pay) && !r.is(Close) {
			continue
		}
		row := j.SQL.byOrder[r.Order]
		told := Finding{Request: r.Request, Order: r.Order, User: r.User, Item: r.Item, Detail: r.Op + " was answered " + r.Outcome}
		switch paid, closed := r.says(); {
		case paid && (row == nil || !row.paid):
			told.Kind = PaidLost
			j.add(told)
		case closed && (row == nil || !row.closed):
			told.Kind = ClosedLost
			j.add(told)
		}
		if r.Outcome != Applied {
			continue
		}
		if moved[r.Order]++; moved[r.Order] == 2 {
			j.add(Finding{Kind: EndedTwice, Order: r.Order, Want: 1, Got: 2, Detail: "two calls were told that they had paid or closed it"})
		}
	}
	j.checkHeldFates()
}

// says tells what an answer says about the order's row.
func (r *Record) says() (paid, closed bool) {
	switch r.Outcome {
	case Applied:
		return r.is(Pay), r.is(Close)
	case string(fault.AlreadyConfirmed):
		return true, false
	case string(fault.AlreadyReleased):
		return false, true
	}
	return false, false
}

// checkHeldFates checks that at rest a hold is confirmed exactly where its order is paid.
func (j *judge) checkHeldFates() {
	if j.Redis == nil || !j.Settled {
		return
	}
	for order, p := range j.Redis.proofs {
		row := j.SQL.of(p.request, order)
		if !p.hold || row == nil || row.order != order || row.closed {
			continue
		}
		f := Finding{Item: p.item, User: p.user, Request: p.request, Order: order, Want: p.units, Got: p.confirmed}
		switch {
		case row.paid && p.open() > 0:
			f.Kind = ConfirmOpen
			j.add(f)
		case !row.paid && p.confirmed > 0:
			f.Kind, f.Want = ConfirmedUnpaid, 0
			j.add(f)
		}
	}
}
