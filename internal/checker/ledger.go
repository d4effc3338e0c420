package checker

import "strings"

// checkLedgers checks that movements add up to what they have moved.
func (j *judge) checkLedgers() {
	if j.SQL != nil && j.SQL.tables.Ledger.Name != "" {
		sums, seen := map[string]int64{}, map[string]int64{}
		for _, m := range j.SQL.ledger {
			sums[m.item] += m.units
			if seen[m.operation]++; seen[m.operation] == 2 {
				j.add(Finding{Kind: LedgerTwice, Item: m.item, Key: j.SQL.tables.Ledger.Name, Want: 1, Got: 2, Detail: "operation " + m.operation})
			}
		}
		for item, row := range j.SQL.stock {
			if sums[item] != row.units {
				j.add(Finding{Kind: LedgerDiffers, Item: item, Key: j.SQL.tables.Ledger.Name, Want: row.units, Got: sums[item]})
			}
		}
	}
	if j.Redis == nil {
		return
	}
	for _, it := range j.Redis.items {
		if len(it.parts) > 1 {
			continue // a step that went over all segments is written down in each
		}
		moved := map[string]int64{}
		for _, op := range it.ops {
			f := strings.Fields(op)
			if len(f) < 2 {
				continue
			}
			n, _ := number(f[1])
			moved[f[0]] += n
		}
		for _, kind := range []struct {
			name      string
			want, got int64
		}{
			{"restocked", it.restocked, moved["restock"]},
			{"withdrawn", it.withdrawn, moved["withdraw"] + moved["thaw"]},
		} {
			if kind.want != kind.got {
				j.add(Finding{Kind: LedgerDiffers, Item: it.name, Key: kind.name, Want: kind.want, Got: kind.got})
			}
		}
	}
}
