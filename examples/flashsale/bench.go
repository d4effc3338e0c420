package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// bench runs the ways one after another over real HTTP on a loopback port.
type bench struct {
	tableConfig
	shop     *shop
	ways     []way
	server   *http.Server
	base     string // http://127.0.0.1:port
	progress *progress
	items    int64 // each row sells an item of its own
}

func newBench(s *shop, c tableConfig, progressTo io.Writer) (*bench, error) {
	b := &bench{tableConfig: c, shop: s, ways: s.ways(), progress: newProgress(progressTo)}
	r := chi.NewRouter()
	for i, w := range b.ways {
		h := w.handler
		route := r.With()
		if w.guard != nil {
			route = r.With(w.guard)
		}
		route.Method(http.MethodPost, fmt.Sprintf("/%d/items/{itemID}/orders", i), h)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.base = "http://" + listener.Addr().String()
	b.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = b.server.Serve(listener) }() // ends with Close
	return b, nil
}

// Close stops the server.
func (b *bench) Close() error { return b.server.Close() }

func (b *bench) run(ctx context.Context) ([]row, error) {
	var rows []row
	for i, w := range b.ways {
		r, err := b.row(ctx, i, w)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", w.name, err)
		}
		rows = append(rows, r)
	}
	b.progress.done()
	return rows, nil
}

// thinkTimes are tried one after another until the unguarded row shows its bug.
var thinkTimes = []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}

func (b *bench) row(ctx context.Context, i int, w way) (row, error) {
	if !w.unguarded {
		return b.measure(ctx, i, w)
	}
	for _, think := range thinkTimes {
		b.shop.think = think
		r, err := b.measure(ctx, i, w)
		if err != nil || !r.Clean {
			if think > 0 {
				r.notes = append(r.notes, fmt.Sprintf("this machine is too fast to show the bug by itself: %v of think time between read and write were added", think))
			}
			return r, err
		}
	}
	return row{}, errors.New("no think time shows the bug")
}

func (b *bench) measure(ctx context.Context, i int, w way) (row, error) {
	b.items++
	item := b.items
	if err := b.open(ctx, w, item); err != nil {
		return row{}, err
	}
	pool, err := b.shop.DB.DB()
	if err != nil {
		return row{}, err
	}
	before := pool.Stats()
	url := fmt.Sprintf("%s/%d/items/%d/orders", b.base, i, item)
	load, err := b.load(ctx, w.name, url)
	if err != nil {
		return row{}, err
	}
	r := load.row(w.name)
	if n, wait := pool.Stats().WaitCount-before.WaitCount, pool.Stats().WaitDuration-before.WaitDuration; n > 0 && w.name == "db" {
		r.notes = append(r.notes, fmt.Sprintf("%d times a request waited for a connection to the database, %v on average: the hot row", n, (wait/time.Duration(n)).Round(10*time.Microsecond)))
	}
	return r, b.check(ctx, w, item, load, &r)
}

func (b *bench) open(ctx context.Context, w way, item int64) error {
	if w.unguarded {
		return b.shop.DB.WithContext(ctx).Create(&plainStock{ItemID: item, Stock: int64(b.stock)}).Error
	}
	return b.shop.open(ctx, item, int64(b.stock))
}
