package main

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
)

// sum is what the stores say about a merchant, at rest.
type sum struct {
	merchant  int64
	paid      int64 // by the payments in SQL
	left, sql int64
	shards    []int64
	atOnce    int64
}

func (s *service) sums(ctx context.Context, shards int) ([]sum, error) {
	var sums []sum
	for _, m := range merchants {
		r := sum{merchant: m, atOnce: s.work[m].most.Load()}
		db := s.DB.WithContext(ctx)
		if err := db.Model(&Payment{}).Where("merchant_id = ?", m).Select("COALESCE(SUM(cents), 0)").Scan(&r.paid).Error; err != nil {
			return nil, err
		}
		if err := db.Model(&Merchant{}).Where("id = ?", m).Select("remain").Scan(&r.sql).Error; err != nil {
			return nil, err
		}
		var err error
		if r.left, err = s.quota.Remaining(ctx, m); err != nil {
			return nil, err
		}
		for i := range shards {
			key := fmt.Sprintf("%squota:%d:%d", s.Prefix, m, i)
			if shards == 1 {
				key = fmt.Sprintf("%squota:%d", s.Prefix, m)
			}
			n, err := s.Redis.HGet(ctx, key, "remain").Int64()
			if err != nil {
				return nil, fmt.Errorf("shard %d of merchant %d: %w", i, m, err)
			}
			r.shards = append(r.shards, n)
		}
		sums = append(sums, r)
	}
	return sums, nil
}

// check judges by what lies in the stores.
func check(c config, h *history, sums []sum, immortal []string) error {
	var must stores.Check
	must.Must(len(immortal) == 0, "keys without a TTL: %v", immortal)
	for _, err := range h.unlikely {
		must.Must(false, "%w", err)
	}
	must.Must(h.reads > 0, "nobody read the totals")
	for _, s := range sums {
		var inShards int64
		for _, n := range s.shards {
			inShards += n
		}
		m := s.merchant
		must.Must(s.paid <= c.quota, "merchant %d has a quota of %d and spent %d", m, c.quota, s.paid)
		must.Must(s.paid+s.sql == c.quota, "merchant %d: %d spent and %d left in SQL are not %d", m, s.paid, s.sql, c.quota)
		must.Must(s.left == s.sql, "merchant %d: %d left in Redis, %d in SQL", m, s.left, s.sql)
		must.Must(inShards == s.left, "merchant %d: the shards have %d, the total says %d", m, inShards, s.left)
		must.Must(h.paid[m] == s.paid, "merchant %d: clients were told of %d, SQL has %d", m, h.paid[m], s.paid)
		if least, some := h.least[m]; some { // what is left only falls, so whatever was refused must not fit now
			must.Must(s.left < least, "merchant %d: a payment of %d was refused, but %d are left", m, least, s.left)
		}
		must.Must(!c.lock || s.atOnce == 1, "merchant %d: %d payments were under the lock at once", m, s.atOnce)
	}
	return must.Err()
}
