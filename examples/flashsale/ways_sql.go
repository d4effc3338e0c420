package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
)

var errSoldOut = errors.New("sold out")

func (s *shop) openUnguarded(ctx context.Context, item, units int64) error {
	return s.DB.WithContext(ctx).Create(&plainStock{ItemID: item, Stock: units}).Error
}

// buyUnguarded is the bug: read, judge, write. Every request that reads before another one writes is served.
func (s *shop) buyUnguarded(ctx context.Context, p purchase) (string, error) {
	db := s.DB.WithContext(ctx)
	var row plainStock
	if err := db.Take(&row, p.item).Error; err != nil {
		return "", err
	}
	var mine int64
	if err := db.Model(&plainOrder{}).Where("user_id = ? AND item_id = ?", p.user, p.item).Count(&mine).Error; err != nil {
		return "", err
	}
	if row.Stock <= 0 {
		return "", errSoldOut
	}
	if mine > 0 {
		return "", errAlreadyBought
	}
	if err := think(ctx); err != nil {
		return "", err
	}
	order := plainOrder{UserID: p.user, ItemID: p.item}
	if err := db.Model(&plainStock{}).Where("item_id = ?", p.item).Update("stock", gorm.Expr("stock - 1")).Error; err != nil {
		return "", err
	}
	return "plain", db.Create(&order).Error
}

type thinkKey struct{}

// think waits between reading and writing for as long as the table has put into the context.
func think(ctx context.Context) error {
	d, _ := ctx.Value(thinkKey{}).(time.Duration)
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// buyInSQL lets the database decide: a conditional update and a unique index, in one transaction.
func (s *shop) buyInSQL(ctx context.Context, p purchase) (string, error) {
	order := newOrder(p, fresh(), 1)
	return order.OrderNo, s.land(unknown(ctx), &order)
}

// buyByVersion reads, judges and writes if nobody has written meanwhile; else it reads again. The more want the row, the
// more of them try in vain.
func (s *shop) buyByVersion(ctx context.Context, p purchase) (string, error) {
	for ctx.Err() == nil {
		row, err := s.look(ctx, p)
		if err != nil {
			return "", err
		}
		order := newOrder(p, fresh(), 1)
		err = s.landAt(unknown(ctx), &order, row.Version)
		if !errors.Is(err, gormplugin.ErrVersionConflict) {
			return order.OrderNo, err
		}
		s.conflicts.Add(1)
		select {
		case <-time.After(rand.N(10 * time.Millisecond)): // so that the losers do not come back in step
		case <-ctx.Done():
		}
	}
	return "", ctx.Err()
}

// buyUnderLock reads, judges and writes under the item's lock, which the route holds. Even so the writes are guarded: a
// lock can be lost, and the fence tells.
func (s *shop) buyUnderLock(ctx context.Context, p purchase) (string, error) {
	if _, err := s.look(ctx, p); err != nil {
		return "", err
	}
	order := newOrder(p, fresh(), 1)
	return order.OrderNo, s.land(unknown(ctx), &order)
}

// look reads and judges.
func (s *shop) look(ctx context.Context, p purchase) (row ItemStock, err error) {
	db := s.DB.WithContext(ctx)
	if err := db.Take(&row, p.item).Error; err != nil {
		return row, err
	}
	if row.Stock <= 0 {
		return row, errSoldOut
	}
	var mine int64
	err = db.Model(&SeckillOrder{}).Where("user_id = ? AND item_id = ? AND status <> ?", p.user, p.item, closed).Count(&mine).Error
	if err == nil && mine > 0 {
		err = errAlreadyBought
	}
	return row, err
}

// land writes the order and takes its unit, both or neither. The hot row comes last: its lock is held for one round trip.
func (s *shop) land(ctx context.Context, order *SeckillOrder) error { return s.landAt(ctx, order, 0) }

// landAt is land for a row that still has the version; 0 takes any.
func (s *shop) landAt(ctx context.Context, order *SeckillOrder, version int64) error {
	return gormplugin.Retry(ctx, s.DB, func(tx *gorm.DB) error {
		first, err := gormplugin.InsertOnce(tx, order)
		if err != nil || !first {
			return err
		}
		item := tx.Model(&ItemStock{ItemID: order.ItemID})
		if version > 0 {
			item = item.Clauses(gormplugin.AtVersion(version))
		}
		return item.Update("stock", gormplugin.Sub(order.Units)).Error
	})
}

// newOrder makes the row of a user's nth order.
func newOrder(p purchase, no string, nth int) SeckillOrder {
	return SeckillOrder{OrderNo: no, UserID: p.user, ItemID: p.item, ActivityID: activity, Nth: int16(nth), Units: p.units}
}
