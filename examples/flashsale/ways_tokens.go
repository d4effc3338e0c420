package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// tokenShop sells numbered places: whoever buys takes the next number from a list. It becomes the order's number, which is
// unique in SQL, so nobody could get a place that somebody else has.
type tokenShop struct {
	*shop
	tokens *stock.Tokens
}

func newTokenShop(s *shop) (*tokenShop, error) {
	tokens, err := stock.NewTokens(s.Redis, stock.Prefix(s.Prefix+"tokens:"))
	return &tokenShop{s, tokens}, err
}

func (s *tokenShop) open(ctx context.Context, item, units int64) error {
	if err := s.openInSQL(ctx, item, units); err != nil {
		return err
	}
	places := make([]string, units)
	for i := range places {
		places[i] = fmt.Sprintf("%d-%d", item, i+1)
	}
	_, err := s.tokens.Load(ctx, stock.Batch{Item: item, Activity: activity, Tokens: places, Ends: time.Now().Add(time.Hour), PerUser: 1})
	return err
}

func (s *tokenShop) left(ctx context.Context, item int64) (int64, error) {
	left, _, err := s.tokens.Left(ctx, item, activity)
	return left, err
}

func (s *tokenShop) buy(ctx context.Context, p purchase) (string, error) {
	ctx = unknown(ctx)
	wanted := wantedBy(p)
	place, err := s.tokens.Take(ctx, wanted)
	if err != nil {
		return "", err
	}
	order := newOrder(p, place.Token, 1)
	err = s.land(ctx, &order)
	if gormplugin.Refused(err) { // nothing was written, for certain: give the place back
		err = errors.Join(err, s.tokens.Return(ctx, wanted, place.Token))
	}
	return order.OrderNo, err
}
