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
)

const shopItem, shopUnits = 1001, 5

func runShop(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	config := stores.Flags(fs)
	addr := fs.String("addr", ":8080", "`address` to listen on")
	trace := fs.String("trace", "", "show traces on standard output: `tree` or stdout")
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
	shop, err := newShop(s)
	if err != nil {
		return err
	}
	if err := shop.open(ctx, shopItem, shopUnits); err != nil {
		return err
	}
	stopTraces, err := startTraces(*trace, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTraces()) }()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, usage, config, listener.Addr().(*net.TCPAddr).Port, shopItem, shopUnits)
	return serve(ctx, listener, shop)
}

const usage = `The shop is open (%[1]s): item %[3]d, %[4]d units, one a user. Try:

  curl -i -X POST localhost:%[2]d/items/%[3]d/orders -H "X-User: 42" -H "Idempotency-Key: a-1"   # 201, an order
  curl -i -X POST localhost:%[2]d/items/%[3]d/orders -H "X-User: 42" -H "Idempotency-Key: a-1"   # the same order: Idempotent-Replayed
  curl -i -X POST localhost:%[2]d/items/%[3]d/orders -H "X-User: 42" -H "Idempotency-Key: a-2"   # 409: one a user

  curl localhost:%[2]d/items/%[3]d                                                               # what is left, in Redis and SQL

Start it with -trace=tree to see what a purchase does, step by step. Stop with Ctrl-C.
`

// routes is what an application has anyway, with one line a guarded route.
func routes(s *shop) http.Handler {
	r := chi.NewRouter()
	r.Use(serverSpan, middleware.Recoverer)
	r.With(s.guard.Dedup("{userID}")).Post("/items/{itemID}/orders", buyer(s.buyOnce))
	r.Get("/items/{itemID}", s.stockOf)
	return r
}

func serve(ctx context.Context, listener net.Listener, s *shop) error {
	server := &http.Server{Handler: routes(s), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(grace), s.guard.Close(grace))
}
