// Command flashsale is a shop that sells too few units to too many people, guarded by holdfast. It runs with nothing
// installed, on an embedded Redis and SQLite, or on real servers.
//
//	go run ./examples/flashsale                  serves the shop on :8080 and prints what to try
//	go run ./examples/flashsale table            runs the load table and checks it
//	go run ./examples/flashsale table -redis localhost:6379 -postgres "postgres://localhost/shop"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errNotClean):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "flashsale:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "table" {
		return runTable(ctx, args[1:], os.Stdout, os.Stderr)
	}
	return runShop(ctx, args, os.Stdout)
}
