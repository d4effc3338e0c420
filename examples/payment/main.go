// Command payment is a flash sale with payment from end to end: three items, one order a user over all of them, orders that
// are accepted in Redis and landed by a worker, paid, cancelled, or closed by the sweeper, and the nightly comparison. It
// tells what some customers do, and checks what is left.
//
//	go run ./examples/payment
//	go run ./examples/payment -redis localhost:6379 -postgres "postgres://localhost/shop"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/stock"
)

// offered are the units of each item.
var offered = map[int64]int64{1001: 2, 1002: 1, 1003: 1}

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // what is advice only would stand between the lines of the story
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "payment:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	fs := flag.NewFlagSet("payment", flag.ContinueOnError)
	config := stores.Flags(fs)
	payFor := fs.Duration("pay", 4*time.Second, "how long a customer has to pay")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return errors.New("there are no further arguments")
	}
	st, err := stores.Open(ctx, *config, "payment", nil, &Item{}, &Order{}, &Payment{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	s := &shop{db: st.DB, rdb: st.Redis, prefix: st.Prefix, payFor: *payFor}
	if err := s.connect(ctx); err != nil {
		return err
	}
	ends := time.Now().Add(time.Hour) // a real sale's end is a date that stands in a table: computed at each start, it would move
	for item, units := range offered {
		if err := st.DB.Create(&Item{ID: item, Stock: units}).Error; err != nil {
			return err
		}
		s.sales = append(s.sales, stock.Sale{
			Item: item, Activity: activity, Ends: ends,
			Limit: stock.Limit{Units: 1, Over: stock.Activity}, // one unit a user, whichever of the items it is
		})
	}
	if err := s.sell(ctx, out); err != nil {
		return err
	}
	if err := s.judge(ctx, out); err != nil {
		return err
	}
	immortal, err := st.Immortal(ctx)
	if err == nil && len(immortal) > 0 {
		err = fmt.Errorf("keys without a TTL: %q", immortal)
	}
	return err
}

// sell serves the shop while the customers are there.
func (s *shop) sell(ctx context.Context, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, listener) }()
	err = s.tell(ctx, "http://"+listener.Addr().String(), out)
	stop() // as a SIGTERM does
	return errors.Join(err, <-served)
}

// judge compares what is left with what was offered, and lets the nightly job say the same.
func (s *shop) judge(ctx context.Context, out io.Writer) (err error) {
	var must stores.Check
	fmt.Fprintln(out)
	for item, units := range offered {
		var row Item
		var live int64
		err := errors.Join(
			s.db.Take(&row, item).Error,
			s.db.Model(&Order{}).Where("item_id = ? AND status <> ?", item, closed).Count(&live).Error,
		)
		left, redisErr := s.stock.Remaining(ctx, item)
		if err := errors.Join(err, redisErr); err != nil {
			return err
		}
		must.Must(left == row.Stock && row.Stock+live == units, "item %d: %d offered, %d sold, %d left in SQL, %d in Redis", item, units, live, row.Stock, left)
	}
	dir, err := os.MkdirTemp("", "payment")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plan := filepath.Join(dir, "plan.json")
	if err := s.nightly(ctx, plan); err != nil {
		return err
	}
	text, err := os.ReadFile(plan)
	must.Must(errors.Is(err, os.ErrNotExist), "Redis and SQL differ: %s", text)
	if err := must.Err(); err != nil {
		return err
	}
	fmt.Fprintln(out, "3 sold, 1 left, in Redis and in SQL; the nightly comparison has found no difference")
	return nil
}
