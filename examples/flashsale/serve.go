package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

const shopItem = 1001

func runShop(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	config := stores.Flags(fs)
	addr := fs.String("addr", ":8080", "`address` to listen on")
	trace := fs.String("trace", "", "show traces on standard output: `tree` or stdout")
	units := fs.Int64("units", 5, "units on sale")
	var limit stock.Limit
	fs.Int64Var(&limit.Units, "limit", 1, "units that a user may have")
	fs.Int64Var(&limit.PerOrder, "per-order", 0, "units that one order may have; 0: as many as a user")
	hold := fs.Duration("hold", 2*time.Minute, "an order that is not paid for that long is closed, and its unit sold to somebody else")
	grace := fs.Duration("grace", 0, "how much longer the unit is held than the customer is told")
	late := fs.String("late", "refund", "what becomes of a payment for a closed order: `refund`, or again: another unit if there is one")
	worker := fs.Bool("worker", false, "answer as soon as Redis has accepted an order, and land it in SQL by a worker")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown command %q: only \"table\", or none at all", fs.Arg(0))
	}
	s, err := openStores(ctx, *config, sqlSpans{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	opts := []stock.Option{stock.WithHold(*hold + *grace)}
	if *worker {
		opts = append(opts, stock.WithStream())
	}
	shop, err := newShop(s, "", opts...)
	if err != nil {
		return err
	}
	shop.limit = limit
	if shop.late, err = latePolicyOf(*late); err != nil {
		return errors.Join(err, shop.guard.Close(ctx))
	}
	if err := shop.open(ctx, shopItem, *units); err != nil {
		return errors.Join(err, shop.guard.Close(ctx))
	}
	stopTraces, err := startTraces(*trace, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTraces()) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, usage, config, listener.Addr().(*net.TCPAddr).Port, shopItem, *units, *hold, *late, limit.Units)
	return serve(ctx, listener, shop, *worker)
}

const usage = `The shop is open (%[1]s): item %[3]d, %[4]d units, %[7]d a user. Try:

  curl -i -X POST localhost:%[2]d/items/%[3]d/orders -H "X-User: 42" -H "Idempotency-Key: a-1"   # 201, an order
  curl -i -X POST localhost:%[2]d/items/%[3]d/orders -H "X-User: 42" -H "Idempotency-Key: a-1"   # the same order: Idempotent-Replayed
  curl -i -X POST localhost:%[2]d/items/%[3]d/orders -H "X-User: 42" -H "Idempotency-Key: a-2"   # 409: no more for this user

  curl localhost:%[2]d/items/%[3]d                                                               # what is left, in Redis and SQL

With what the first one has answered:

  curl localhost:%[2]d/orders/REQUEST -H "X-User: 42"                                            # unpaid, paid, or closed after %[5]v
  curl -i -X POST localhost:%[2]d/orders/ORDER/payments -H "X-User: 42" -H "Idempotency-Key: p-1" # paid; too late: %[6]s
  curl -i -X DELETE localhost:%[2]d/orders/ORDER -H "X-User: 42"                                  # closed, and the unit is back

Start it with -trace=tree to see what a purchase does, step by step. Stop with Ctrl-C.
`

// routes is what an application has anyway, with one line a guarded route.
func routes(s *shop, worker bool) http.Handler {
	buy := buyer(http.StatusCreated, s.buyOnce)
	if worker {
		buy = buyer(http.StatusAccepted, s.accept)
	}
	r := chi.NewRouter()
	r.Use(serverSpan, middleware.Recoverer)
	r.With(s.guard.Dedup("{userID}", holdfast.StillTrue(s.stands))).Post("/items/{itemID}/orders", buy)
	r.Get("/items/{itemID}", s.stockOf)
	r.Get("/orders/{requestID}", s.statusOf)
	r.With(s.guard.Dedup("{userID}")).Post("/orders/{orderNo}/payments", s.pay)
	r.Delete("/orders/{orderNo}", s.cancel)
	return r
}

// serve serves the shop until ctx ends, with what works in the background: the sweeper closes orders that nobody has paid,
// and the worker lands those that Redis has accepted.
func serve(ctx context.Context, listener net.Listener, s *shop, worker bool) error {
	stop := background(ctx, s.lander.Sweeper().Run, func() error { return nil })
	if worker {
		stop = background(ctx, s.lander.Worker().Run, stop)
	}
	server := &http.Server{Handler: routes(s, worker), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return errors.Join(err, stop())
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(grace), stop(), s.guard.Close(grace))
}
