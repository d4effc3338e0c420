package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

// way is one way of selling, a row of the table.
type way struct {
	name   string
	guards []func(http.Handler) http.Handler // what the route is wrapped in, outermost first
	buy    func(ctx context.Context, p purchase) (orderNo string, err error)
	status int // of an answer with an order: created, or accepted and landed later
	open   func(ctx context.Context, item, units int64) error
	left   func(ctx context.Context, item int64) (int64, error) // in Redis, which must agree with SQL afterwards; nil where it has no say

	repeats   bool // who sends the same request again gets the same order again
	unguarded bool // the row that must be found guilty
}

// lockWait is long, so that a slow machine answers late and not "busy".
const lockWait = 30 * time.Second

const segments = 8

// usualModes are the rows that the table has unless more are asked for.
var usualModes = []string{"none", "db", "lock", "script", "script+dedup"}

// hall has all the ways, and what works for them in the background.
type hall struct {
	*shop // the plain one
	ways  []*way
	stop  func() error
}

func newHall(ctx context.Context, st *stores.Stores) (_ *hall, err error) {
	h := new(hall)
	var made []*shop
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(made))
		}
	}()
	shop := func(name string, opts ...stock.Option) *shop {
		if err != nil {
			return nil
		}
		s, failed := newShop(st, name, opts...)
		if err = failed; err == nil {
			made = append(made, s)
		}
		return s
	}
	plain, spread, queue := shop(""), shop("segments:", stock.WithPartitions(segments)), shop("landing:", stock.WithStream())
	if err != nil {
		return nil, err
	}
	spread.segments = segments
	tokens, err := newTokenShop(plain)
	if err != nil {
		return nil, err
	}
	h.shop = plain
	h.stop = background(ctx, queue.lander.Worker().Run, func() error { return closeAll(made) })

	lock, id := plain.guard.Lock("stock:{itemID|int}", holdfast.Wait(lockWait)), plain.guard.RequestID("{userID}")
	type guards = []func(http.Handler) http.Handler
	decr := &decrShop{plain}
	h.ways = []*way{
		{name: "none", buy: plain.buyUnguarded, open: plain.openUnguarded, unguarded: true},
		{name: "db", buy: plain.buyInSQL, open: plain.openInSQL},
		{name: "version", buy: plain.buyByVersion, open: plain.openInSQL},
		{name: "lock", buy: plain.buyUnderLock, open: plain.openInSQL, guards: guards{lock}},
		{name: "decr", buy: decr.buy, open: decr.open, left: decr.left},
		{name: "tokens", buy: tokens.buy, open: tokens.open, left: tokens.left},
		{name: "segments", buy: spread.buyByScript, open: spread.open, left: spread.left},
		{name: "script", buy: plain.buyByScript, open: plain.open, left: plain.left},
		{name: "script+dedup", buy: plain.buyOnce, open: plain.open, left: plain.left, guards: guards{id}, repeats: true},
		{name: "lock+script+dedup", buy: plain.buyOnce, open: plain.open, left: plain.left, guards: guards{id, lock}, repeats: true},
		{name: "script+landing", buy: queue.accept, open: queue.open, left: queue.left, guards: guards{id}, repeats: true, status: http.StatusAccepted},
	}
	for _, w := range h.ways {
		if w.status == 0 {
			w.status = http.StatusCreated
		}
	}
	return h, nil
}

// pick keeps the rows whose names are given: "all", or some of them with commas between.
func (h *hall) pick(modes string) error {
	if modes == "all" {
		return nil
	}
	var picked []*way
	for _, name := range strings.Split(modes, ",") {
		i := slices.IndexFunc(h.ways, func(w *way) bool { return w.name == name })
		if i < 0 {
			return fmt.Errorf("-modes: there is no row %q", name)
		}
		picked = append(picked, h.ways[i])
	}
	h.ways = picked
	return nil
}

func closeAll(shops []*shop) error {
	var errs []error
	for _, s := range shops {
		errs = append(errs, s.guard.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// background runs work until stop is called, which waits for it and then calls after.
func background(ctx context.Context, work func(context.Context) error, after func() error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-done, after())
	}
}
