package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// decrShop is for comparison, and in no package: a counter that is decremented and put back when it was too low. The steps
// are commands of their own, so a crash or a lost reply between two of them leaves Redis and SQL apart, and nothing
// recognises a command that was sent twice. Who sells like that compares the two regularly, and tolerates what it finds.
type decrShop struct{ *shop }

// decrLife is how long its keys live.
const decrLife = time.Hour

func (s *decrShop) key(item int64) string { return fmt.Sprintf("%sdecr:item:%d", s.Prefix, item) }

func (s *decrShop) marker(p purchase) string {
	return fmt.Sprintf("%sdecr:user:%d:item:%d", s.Prefix, p.user, p.item)
}

func (s *decrShop) open(ctx context.Context, item, units int64) error {
	if err := s.openInSQL(ctx, item, units); err != nil {
		return err
	}
	return s.Redis.Set(ctx, s.key(item), units, decrLife).Err()
}

func (s *decrShop) left(ctx context.Context, item int64) (int64, error) {
	return s.Redis.Get(ctx, s.key(item)).Int64()
}

func (s *decrShop) buy(ctx context.Context, p purchase) (string, error) {
	switch there, err := s.Redis.Exists(ctx, s.key(p.item)).Result(); { // DECR would make a counter that is not there
	case err != nil:
		return "", err
	case there == 0:
		return "", stock.ErrNotWarmed
	}
	switch first, err := s.Redis.SetNX(ctx, s.marker(p), 1, decrLife).Result(); {
	case err != nil:
		return "", err
	case !first:
		return "", errAlreadyBought
	}
	left, err := s.Redis.Decr(ctx, s.key(p.item)).Result()
	if err != nil {
		return "", err // taken or not: nobody knows
	}
	if left < 0 {
		return "", errors.Join(errSoldOut, s.compensate(ctx, p))
	}
	order := newOrder(p, fresh(), 1)
	err = s.land(unknown(ctx), &order)
	if gormplugin.Refused(err) {
		err = errors.Join(err, s.compensate(ctx, p))
	}
	return order.OrderNo, err
}

// compensate puts the unit back, and then lets the user try again.
func (s *decrShop) compensate(ctx context.Context, p purchase) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(s.Redis.Incr(ctx, s.key(p.item)).Err(), s.Redis.Del(ctx, s.marker(p)).Err())
}
