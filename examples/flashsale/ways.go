package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

var errSoldOut = errors.New("sold out")

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
	if s.think > 0 {
		select {
		case <-time.After(s.think):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	order := plainOrder{UserID: p.user, ItemID: p.item}
	if err := db.Model(&plainStock{}).Where("item_id = ?", p.item).Update("stock", gorm.Expr("stock - 1")).Error; err != nil {
		return "", err
	}
	return "plain", db.Create(&order).Error
}

// buyInSQL lets the database decide: a conditional update and a unique index, in one transaction.
func (s *shop) buyInSQL(ctx context.Context, p purchase) (string, error) {
	order := newOrder(p, newID())
	return order.OrderNo, s.land(gormplugin.ContextWithRequest(ctx, newID(), 1), &order)
}

// buyUnderLock reads, judges and writes under the item's lock, which the route holds. Even so the writes are guarded: a
// lock can be lost, and the fence tells.
func (s *shop) buyUnderLock(ctx context.Context, p purchase) (string, error) {
	db := s.DB.WithContext(ctx)
	var row ItemStock
	if err := db.Take(&row, p.item).Error; err != nil {
		return "", err
	}
	if row.Stock <= 0 {
		return "", errSoldOut
	}
	var mine int64
	err := db.Model(&SeckillOrder{}).Where("user_id = ? AND item_id = ? AND status <> ?", p.user, p.item, closed).Count(&mine).Error
	if err != nil {
		return "", err
	}
	if mine > 0 {
		return "", errAlreadyBought
	}
	order := newOrder(p, newID())
	return order.OrderNo, s.land(gormplugin.ContextWithRequest(ctx, newID(), 1), &order)
}

// buyByScript lets one script decide, with a request id made here: a client that retries is another buyer.
func (s *shop) buyByScript(ctx context.Context, p purchase) (string, error) {
	return s.buyOnce(gormplugin.ContextWithRequest(ctx, newID(), 1), p)
}

// buyOnce is buyByScript with the request id that the route has put into the context: a retry gets the first order.
func (s *shop) buyOnce(ctx context.Context, p purchase) (string, error) {
	wanted := stock.Order{Item: p.item, Activity: activity, User: p.user, Units: 1}
	res, err := s.counter.Deduct(ctx, wanted)
	if err != nil {
		return "", err
	}
	order := newOrder(p, res.Order)
	err = s.land(ctx, &order)
	if gormplugin.Refused(err) { // nothing was written, for certain: give the unit back
		_, releaseErr := s.counter.Release(ctx, res.Order, stock.Failed, stock.Of(wanted))
		err = errors.Join(err, releaseErr)
	}
	return order.OrderNo, err
}

// land writes the order and takes its unit, both or neither. The hot row comes last: its lock is held for one round trip.
func (s *shop) land(ctx context.Context, order *SeckillOrder) error {
	return gormplugin.Retry(ctx, s.DB, func(tx *gorm.DB) error {
		first, err := gormplugin.InsertOnce(tx, order)
		if err != nil || !first {
			return err
		}
		return tx.Model(&ItemStock{ItemID: order.ItemID}).Update("stock", gormplugin.Sub(order.Units)).Error
	})
}

func newOrder(p purchase, no string) SeckillOrder {
	return SeckillOrder{OrderNo: no, UserID: p.user, ItemID: p.item, ActivityID: activity, Nth: 1, Units: 1}
}

func newID() string { return rand.Text() }

// lockWait is long, so that a slow machine answers late and not "busy".
const lockWait = 30 * time.Second

// ways are the rows of the load table.
func (s *shop) ways() []way {
	return []way{
		{name: "none", handler: buyer(s.buyUnguarded), unguarded: true},
		{name: "db", handler: buyer(s.buyInSQL)},
		{name: "lock", handler: buyer(s.buyUnderLock), guard: s.guard.Lock("stock:{itemID|int}", holdfast.Wait(lockWait))},
		{name: "script", handler: buyer(s.buyByScript), redis: true},
		{name: "script+dedup", handler: buyer(s.buyOnce), redis: true, guard: s.guard.RequestID("{userID}")},
	}
}
