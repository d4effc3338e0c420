package checker

// account is what is known about the units of an item.
type account struct {
	name                                              string
	redis                                             *item // nil if nothing is there
	sale                                              bool  // a test has said how many units there were at first
	initial, restocked, withdrawn                     int64
	moving, held, live, withheld, returns, stockInSQL int64
	confirmed                                         int64 // of those that are held
	inSQL                                             bool  // there is a row of the item
}

// total is how many units have come in.
func (a *account) total() int64 { return a.initial + a.restocked - a.withdrawn }

func (j *judge) account(name string) *account {
	if j.items[name] == nil {
		j.items[name] = &account{name: name}
	}
	return j.items[name]
}

// readAccounts sums up, for each item, where its units are.
func (j *judge) readAccounts() {
	for _, s := range j.Sales {
		a := j.account(s.Item)
		a.sale, a.initial = true, max(a.initial, s.Units)
	}
	if j.Redis != nil {
		for name, it := range j.Redis.items {
			a := j.account(name)
			a.redis, a.moving, a.withheld = it, it.moving, it.withheld
			a.restocked, a.withdrawn = it.restocked, it.withdrawn
			if !a.sale {
				a.initial = it.warmed
			}
		}
		j.readHeld()
	}
	for _, a := range j.items {
		if j.Forgot || j.Miscounted {
			// Redis's own books were corrected to what SQL has: they prove nothing about what came in.
			a.restocked, a.withdrawn, a.withheld = 0, 0, 0
		}
		if j.Forgot || j.Miscounted || a.redis == nil || !a.redis.open {
			j.readMovements(a)
		}
	}
	if j.SQL == nil {
		return
	}
	for name, row := range j.SQL.stock {
		a := j.account(name)
		a.inSQL, a.stockInSQL = true, row.units
	}
	for _, row := range j.SQL.orders {
		if !row.closed {
			j.account(row.item).live += row.units
		}
	}
}

// readHeld sums up what is held without an order row, and what has yet to come back.
func (j *judge) readHeld() {
	for _, p := range j.Redis.proofs {
		a := j.account(p.item)
		switch row := j.SQL.of(p.request, p.order); {
		case row == nil:
			a.held += p.kept()
			a.confirmed += p.confirmed
		case row.closed:
			a.returns += p.kept()
		}
	}
	for _, e := range append(j.Redis.landing, j.Redis.dead...) {
		if j.Redis.proofs[e.order] == nil && j.SQL.of(e.request, e.order) == nil {
			j.account(e.item).held += e.units
		}
	}
}

// readMovements takes restocks and withdrawals from the history where Redis does not know them.
func (j *judge) readMovements(a *account) {
	seen := map[string]bool{}
	for i := range j.History {
		r := &j.History[i]
		if r.Item != a.name || r.Outcome != Applied || r.Operation != "" && seen[r.Operation] {
			continue
		}
		seen[r.Operation] = true
		switch r.Op {
		case Restock:
			a.restocked += r.Units
		case Withdraw:
			a.withdrawn += r.Units
		}
	}
}

// checkAccount checks invariants 1, 2, 2a and 2b of an item.
func (j *judge) checkAccount(a *account) {
	known := a.sale || a.redis != nil && a.redis.open
	if known && a.live > a.total() {
		j.add(Finding{Kind: Oversold, Item: a.name, Want: a.total(), Got: a.live})
	}
	if a.stockInSQL < 0 {
		j.add(Finding{Kind: BelowZero, Item: a.name, Key: j.SQL.tables.Stock.Name, Got: a.stockInSQL})
	}
	if known && a.inSQL {
		if want := a.total() - a.live - a.withheld; a.stockInSQL != want {
			j.add(Finding{Kind: StockDiffers, Item: a.name, Key: j.SQL.tables.Stock.Name, Want: want, Got: a.stockInSQL})
		}
	}
	if j.Redis == nil || !known {
		return
	}
	accounted := a.moving + a.held + a.live + a.withheld + a.returns
	if a.redis == nil || !a.redis.open || len(a.redis.gone) > 0 {
		key := "" // nothing at all
		if a.redis != nil && len(a.redis.gone) > 0 {
			key = a.redis.gone[0]
		}
		if a.redis == nil || a.redis.open || len(a.redis.counters) == 0 {
			j.add(Finding{Kind: CounterGone, Item: a.name, Key: key, Want: a.total() - accounted})
		}
		return
	}
	for key, left := range a.redis.counters {
		if left < 0 {
			j.add(Finding{Kind: BelowZero, Item: a.name, Key: key, Got: left})
		}
	}
	switch got := a.redis.left + accounted; {
	case len(a.redis.counters) == 0: // the sale is over, and the counter has expired with it
	case got < a.total():
		j.add(Finding{Kind: UnitsLost, Item: a.name, Want: a.total(), Got: got})
	case got > a.total():
		j.add(Finding{Kind: UnitsExtra, Item: a.name, Want: a.total(), Got: got})
	}
	if !j.Settled {
		return
	}
	if a.moving != 0 {
		j.add(Finding{Kind: TransferOpen, Item: a.name, Got: a.moving})
	}
	if a.returns != 0 {
		j.add(Finding{Kind: ReturnOpen, Item: a.name, Got: a.returns})
	}
	held := a.held
	if j.SQL == nil || j.SQL.tables.Orders.Name == "" || !a.inSQL {
		held -= a.confirmed // nobody writes rows for this item: confirmed is where an order ends
	}
	if held != 0 {
		j.add(Finding{Kind: HoldOpen, Item: a.name, Got: held})
	}
}
