package main

import (
	"context"
	"fmt"
)

// check judges a row by what lies in the stores, not by what the server said: it fills in what is left, the duplicates
// and the verdict.
func (b *bench) check(ctx context.Context, w *way, item int64, l *load, r *row) error {
	db := b.hall.DB.WithContext(ctx)
	stockTable, orderTable := "item_stock", "seckill_order"
	if w.unguarded {
		stockTable, orderTable = "plain_stocks", "plain_orders"
	}
	var orders, buyers int64
	err := db.Table(stockTable).Where("item_id = ?", item).Select("stock").Scan(&r.FinalStock).Error
	if err != nil {
		return err
	}
	if err := db.Table(orderTable).Where("item_id = ?", item).Count(&orders).Error; err != nil {
		return err
	}
	if err := db.Table(orderTable).Where("item_id = ?", item).Distinct("user_id").Count(&buyers).Error; err != nil {
		return err
	}
	r.Duplicates = orders - buyers

	var faults []string
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	units := int64(b.stock)
	fault(orders > units, "oversold: %d orders for %d units", orders, units)
	fault(r.Duplicates > 0, "%d users have more than one order", r.Duplicates)
	fault(r.FinalStock < 0, "stock fell to %d", r.FinalStock)
	fault(r.FinalStock != units-orders, "%d units and %d orders leave %d, the row says %d", units, orders, units-orders, r.FinalStock)
	fault(int64(r.Successes) != orders, "%d buyers were told they have an order, there are %d orders", r.Successes, orders)
	fault(int64(r.Successes) != min(units, int64(l.demand)), "%d units were sold; there were %d, and %d users who asked", r.Successes, units, l.demand)
	fault(w.repeats && l.replays != l.again, "%d requests with an order were sent again, %d got it again", l.again, l.replays)
	if len(l.faults) > 0 {
		fault(true, "%d answers contradict earlier ones: %s", len(l.faults), l.faults[0])
	}
	if w.left != nil {
		left, err := w.left(ctx, item)
		if err != nil {
			return err
		}
		fault(left != r.FinalStock, "%d left in Redis, %d in SQL", left, r.FinalStock)
	}
	r.Clean = len(faults) == 0
	r.notes = append(r.notes, faults...)
	if n := l.odd(w); n != "" {
		r.notes = append(r.notes, "unexpected answers: "+n)
	}
	return nil
}
