// Command cronjob runs a job once a period although several processes have it in their schedule. It starts these processes
// itself, has the job fail once and one process die at work, and checks that every period was done once, one after another.
//
//	go run ./examples/cronjob                         three processes, ten periods of 300 ms
//	go run ./examples/cronjob -redis localhost:6379
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
)

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := error(nil)
	if len(args) > 0 && args[0] == "worker" { // this process is one of the children
		err = work(ctx, args[1:], os.Stdout)
	} else {
		err = run(ctx, args, os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cronjob:", err)
		return 1
	}
	return 0
}

// schedule is what all processes know.
type schedule struct {
	redis, prefix string
	start         time.Time
	period        time.Duration
	periods       int
	fail, die     int // the periods whose first run fails, and at which a process dies with the lock; none: -1
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("cronjob", flag.ContinueOnError)
	s := schedule{fail: 2, die: 5, prefix: "cronjob:" + rand.Text()[:8] + ":"}
	fs.StringVar(&s.redis, "redis", "", "address of a Redis server, `host:port`; empty: embedded")
	fs.DurationVar(&s.period, "period", 300*time.Millisecond, "how often the job runs")
	fs.IntVar(&s.periods, "periods", 10, "how many periods there are")
	processes := fs.Int("processes", 3, "processes that have the job in their schedule")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || s.period < 10*time.Millisecond || s.periods < 1 || *processes < 2 {
		return errors.New("10 ms and one period at least, two processes at least, and no further arguments")
	}
	rdb, stop, err := stores.OpenRedis(ctx, s.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s.redis = rdb.Options().Addr
	s.start = time.Now().Add(500 * time.Millisecond)

	h, err := s.spawn(ctx, *processes)
	if err != nil {
		return err
	}
	if err := h.show(out, s, *processes); err != nil {
		return err
	}
	return h.check(s)
}
