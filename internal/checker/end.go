package checker

// checkEnds checks that no unit has ended twice.
func (j *judge) checkEnds() {
	units := map[string]int64{} // by order: how many were held
	if j.SQL != nil {
		for _, row := range j.SQL.orders {
			units[row.order] = row.units
		}
	}
	if j.Redis != nil {
		for order, p := range j.Redis.proofs {
			units[order] = p.units
			if p.confirmed+p.released > p.units {
				j.add(Finding{Kind: EndedTwice, Item: p.item, User: p.user, Request: p.request, Order: order, Want: p.units, Got: p.confirmed + p.released})
			}
		}
	}
	for i := range j.History {
		if r := &j.History[i]; r.taken() {
			units[r.Order] = r.Units
		}
	}
	type step struct{ order, operation string }
	seen := map[step]bool{}
	ended := map[string]int64{}
	item := map[string]*Record{}
	for i := range j.History {
		r := &j.History[i]
		ends := r.is(Confirm) && r.Outcome == Confirmed || r.is(Release) && r.Outcome == Released
		if r.Order == "" || !ends {
			continue
		}
		if s := (step{r.Order, r.Operation}); r.Operation != "" {
			if seen[s] {
				continue // a repeat, answered as the first time
			}
			seen[s] = true
		}
		ended[r.Order] += r.Units
		item[r.Order] = r
	}
	for order, n := range ended {
		if held, known := units[order]; known && n > held {
			r := item[order]
			j.add(Finding{Kind: EndedTwice, Item: r.Item, User: r.User, Request: r.Request, Order: order, Want: held, Got: n})
		}
	}
}
