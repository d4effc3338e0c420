// Command ratelimit puts go-chi/httprate in front of a guarded route: what comes above the service's capacity is dropped
// before Redis is asked. The drop is an answer like the others, with Retry-After, and is counted.
//
// It is a module of its own, so that httprate is not among the dependencies of holdfast:
//
//	go -C examples/ratelimit run .                    on an embedded Redis
//	go -C examples/ratelimit run . -redis localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

type config struct {
	redis             string
	users, requests   int
	perUser, capacity int
	stock             int64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ratelimit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("ratelimit", flag.ContinueOnError)
	var c config
	fs.StringVar(&c.redis, "redis", "", "address of a Redis server, `host:port`; empty: embedded")
	fs.IntVar(&c.users, "users", 20, "users who buy at once")
	fs.IntVar(&c.requests, "requests", 15, "requests of each user, each with an id of its own")
	fs.IntVar(&c.perUser, "per-user", 5, "requests that a user may send in an hour")
	fs.IntVar(&c.capacity, "capacity", 60, "requests that the service takes in an hour")
	fs.Int64Var(&c.stock, "stock", 40, "units on sale")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || min(c.users, c.requests, c.perUser, c.capacity) < 1 || c.stock < 1 {
		return errors.New("all numbers are positive, and there are no further arguments")
	}
	if c.redis == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer embedded.Close()
		c.redis = embedded.Addr()
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.redis})
	defer func() { err = errors.Join(err, rdb.Close()) }()

	s, err := open(ctx, rdb, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.guard.Close(context.WithoutCancel(ctx))) }()
	burst, err := load(ctx, s, c, "burst")
	if err != nil {
		return err
	}
	atBurst := s.asked.Load()
	later, err := load(ctx, s, c, "later") // all limits are reached now
	if err != nil {
		return err
	}
	left, err := s.counter.Remaining(ctx, item)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "%d users, %d requests each; %d a user and %d in all are let through, %d units\n\n", c.users, c.requests, c.perUser, c.capacity, c.stock)
	fmt.Fprintf(out, "%8s %8s %8s %8s %16s %15s %15s\n", "", "requests", "sold", "sold out", "over per-user", "over capacity", "Redis commands")
	for _, row := range []struct {
		name  string
		t     *tally
		asked int64
	}{{"burst", burst, atBurst}, {"later", later, s.askedSince(atBurst)}} {
		fmt.Fprintf(out, "%8s %8d %8d %8d %16d %15d %15d\n", row.name, row.t.requests, row.t.sold, row.t.soldOut, row.t.perUser, row.t.capacity, row.asked)
	}
	return check(c, s, burst, later, atBurst, left)
}

const window = time.Hour
