package main

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/stock"
)

func fresh() string { return rand.Text() }

// unknown gives the context a request id that is made here, for the ways that do not take the client's: to them a client
// that sends its request again is another one.
func unknown(ctx context.Context) context.Context {
	return gormplugin.ContextWithRequest(ctx, fresh(), 1)
}

// buyByScript lets one script decide, with a request id made here.
func (s *shop) buyByScript(ctx context.Context, p purchase) (string, error) {
	return s.buyOnce(unknown(ctx), p)
}

// buyOnce lets one script decide, with the request id that the route has put into the context: a retry gets the first
// order.
func (s *shop) buyOnce(ctx context.Context, p purchase) (string, error) {
	wanted := wantedBy(p)
	res, err := s.counter.Deduct(ctx, wanted)
	if err != nil {
		return "", err
	}
	order := newOrder(p, res.Order, res.Nth)
	err = s.land(ctx, &order)
	if err == nil && order.Status == closed { // by the sweeper: this comes after the hold's deadline
		err = landing.ErrClosed
	}
	if gormplugin.Refused(err) { // nothing was written, for certain: give the unit back
		_, releaseErr := s.counter.Release(ctx, res.Order, stock.Failed, stock.Of(wanted))
		err = errors.Join(err, releaseErr)
	}
	return order.OrderNo, err
}

// accept is the same without SQL: the script leaves the order in a stream, from which a worker lands it.
func (s *shop) accept(ctx context.Context, p purchase) (string, error) {
	res, err := s.counter.Deduct(ctx, wantedBy(p))
	return res.Order, err
}

func wantedBy(p purchase) stock.Order {
	return stock.Order{Item: p.item, Activity: activity, User: p.user, Units: p.units}
}
