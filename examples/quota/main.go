// Command quota spends a merchant's quota through three doors: a web page, an app and a batch interface. All three share one
// annotation, and so one lock; the quota itself is counted in shards in Redis, and SQL has the last word.
//
//	go run ./examples/quota                     sends payments through all doors at once, and checks the sums
//	go run ./examples/quota -lock=false         without the lock: the sums must be right all the same
//	go run ./examples/quota -redis localhost:6379 -postgres "postgres://localhost/shop"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
)

type config struct {
	clients, payments int
	quota             int64
	shards            int
	lock              bool
	seed              uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "quota:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("quota", flag.ContinueOnError)
	servers := stores.Flags(fs)
	var c config
	fs.IntVar(&c.clients, "clients", 5, "clients at once at each door")
	fs.IntVar(&c.payments, "payments", 20, "payments of each client")
	fs.Int64Var(&c.quota, "quota", 30_000, "quota of each merchant, in cents")
	fs.IntVar(&c.shards, "shards", 10, "shards of each quota")
	fs.BoolVar(&c.lock, "lock", true, "take the lock; without it the script in Redis and the condition in SQL decide alone")
	fs.Uint64Var(&c.seed, "seed", 1, "start of the random amounts: the same seed sends the same payments")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || c.clients < 1 || c.payments < 1 {
		return errors.New("clients and payments are positive, and there are no further arguments")
	}

	s, err := open(ctx, *servers, c.lock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, m := range merchants {
		if err := s.grant(ctx, m, c.quota, c.shards); err != nil {
			return err
		}
	}
	h, err := load(ctx, s, c)
	if err != nil {
		return err
	}
	sums, err := s.sums(ctx, c.shards)
	if err != nil {
		return err
	}
	immortal, err := s.Immortal(ctx)
	if err != nil {
		return err
	}
	if err := show(out, h, sums, c, servers.String()); err != nil {
		return err
	}
	return check(c, h, sums, immortal)
}

func show(out io.Writer, h *history, sums []sum, c config, where string) error {
	fmt.Fprintf(out, "%d clients at each door, %d payments each (%s, lock %v, seed %d)\n\n", c.clients, c.payments, where, c.lock, c.seed)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "door\tpaid\trefused\treplayed\tcents\t")
	for _, d := range doors {
		t := h.doors[d.name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t\n", d.name, t.paid, t.refused, t.replayed, t.cents)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintln(w, "merchant\tquota\tpaid out\tleft in Redis\tin its shards\tleft in SQL\tat work at once\t")
	for _, s := range sums {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%v\t%d\t%d\t\n", s.merchant, c.quota, s.paid, s.left, s.shards, s.sql, s.atOnce)
	}
	return w.Flush()
}
