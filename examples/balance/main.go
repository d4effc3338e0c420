// Command balance moves money between accounts, in all directions at once: both accounts are locked by one rule, so that
// opposite transfers do not deadlock, and SQL refuses what a holder writes who has lost its lock.
//
//	go run ./examples/balance                   sends transfers, steals a lock, and checks the books
//	go run ./examples/balance -redis localhost:6379 -postgres "postgres://localhost/shop"
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
	accounts, clients, transfers int
	opening, limit               int64
	seed                         uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "balance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("balance", flag.ContinueOnError)
	servers := stores.Flags(fs)
	var c config
	fs.IntVar(&c.accounts, "accounts", 4, "accounts; few of them meet each other often")
	fs.IntVar(&c.clients, "clients", 10, "clients at once")
	fs.IntVar(&c.transfers, "transfers", 20, "transfers of each client")
	fs.Int64Var(&c.opening, "opening", 1_000, "what each account has at first, in cents")
	fs.Int64Var(&c.limit, "limit", 6_000, "what an account may send, in cents")
	fs.Uint64Var(&c.seed, "seed", 1, "start of the random transfers: the same seed sends the same ones")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || c.accounts < 2 || c.clients < 1 || c.transfers < 1 || c.opening < 1 || c.limit < 1 {
		return errors.New("all numbers are positive, there are two accounts or more, and no further arguments")
	}

	b, err := open(ctx, *servers, c.limit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	// The last two accounts take no part in the load: between them a lock is stolen.
	if err := b.openAccounts(ctx, c.accounts+2, c.opening); err != nil {
		return err
	}
	h, err := load(ctx, b, c)
	if err != nil {
		return err
	}
	refused, err := b.steal(ctx, int64(c.accounts)+1, int64(c.accounts)+2)
	if err != nil {
		return err
	}
	books, err := b.read(ctx)
	if err != nil {
		return err
	}
	immortal, err := b.Immortal(ctx)
	if err != nil {
		return err
	}
	if err := show(out, h, books, c, servers.String(), refused); err != nil {
		return err
	}
	return check(c, h, books, refused, immortal)
}

func show(out io.Writer, h *history, b *books, c config, where string, refused error) error {
	fmt.Fprintf(out, "%d clients, %d transfers each, between %d accounts (%s, seed %d)\n", c.clients, c.transfers, c.accounts, where, c.seed)
	fmt.Fprintf(out, "%d made, %d refused, %d answered again\n\n", h.made, h.refused, h.replayed)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "account\topening\treceived\tsent\tbalance\t")
	var total int64
	for _, a := range b.accounts {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t\n", a.ID, c.opening, b.received[a.ID], b.sent[a.ID], a.Cents)
		total += a.Cents
	}
	fmt.Fprintf(w, "all\t%d\t\t\t%d\t\n", int64(len(b.accounts))*c.opening, total)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nthe holder whose lock was stolen wrote too late: %v\n", refused)
	return err
}
