package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
)

// bench runs the ways one after another over real HTTP on a loopback port.
type bench struct {
	tableConfig
	hall     *hall
	server   *http.Server
	base     string // http://127.0.0.1:port
	progress *progress
	think    atomic.Int64 // nanoseconds that the unguarded way thinks between reading and writing
	items    int64        // each row sells an item of its own
}

func newBench(ctx context.Context, h *hall, c tableConfig, progressTo io.Writer) (*bench, error) {
	b := &bench{tableConfig: c, hall: h, progress: newProgress(progressTo)}
	r := chi.NewRouter()
	for i, w := range h.ways {
		r.With(w.guards...).Method(http.MethodPost, fmt.Sprintf("/%d/items/{itemID}/orders", i), buyer(w.status, w.buy))
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.base = "http://" + listener.Addr().String()
	b.server = &http.Server{Handler: b.thinking(r), ReadHeaderTimeout: time.Minute}
	go func() { _ = b.server.Serve(listener) }() // ends with Close
	return b, nil
}

// Close stops the server.
func (b *bench) Close() error { return b.server.Close() }

func (b *bench) run(ctx context.Context) ([]row, error) {
	var rows []row
	for i, w := range b.hall.ways {
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

func (b *bench) row(ctx context.Context, i int, w *way) (row, error) {
	if !w.unguarded {
		return b.measure(ctx, i, w)
	}
	for _, think := range thinkTimes {
		b.think.Store(int64(think))
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

// thinking tells the unguarded row how long to think.
func (b *bench) thinking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), thinkKey{}, time.Duration(b.think.Load()))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (b *bench) measure(ctx context.Context, i int, w *way) (row, error) {
	b.items++
	item := b.items
	if err := w.open(ctx, item, int64(b.stock)); err != nil {
		return row{}, err
	}
	pool, err := b.hall.DB.DB()
	if err != nil {
		return row{}, err
	}
	before := pool.Stats()
	load, err := b.load(ctx, w, fmt.Sprintf("%s/%d/items/%d/orders", b.base, i, item))
	if err != nil {
		return row{}, err
	}
	r := load.row(w.name)
	if n, wait := pool.Stats().WaitCount-before.WaitCount, pool.Stats().WaitDuration-before.WaitDuration; n > 0 && w.name == "db" {
		r.notes = append(r.notes, fmt.Sprintf("%d times a request waited for a connection to the database, %v on average: the hot row", n, (wait/time.Duration(n)).Round(10*time.Microsecond)))
	}
	if w.name == "version" {
		r.notes = append(r.notes, fmt.Sprintf("%d writes for %d orders came too late and were tried again", b.hall.conflicts.Swap(0), r.Successes))
	}
	if w.status == http.StatusAccepted {
		took, err := b.landed(ctx, item, len(load.orders))
		if err != nil {
			return r, err
		}
		r.notes = append(r.notes, fmt.Sprintf("the last order was in SQL %v after the last answer", took.Round(time.Millisecond)))
	}
	err = b.check(ctx, w, item, load, &r)
	return r, err
}

// landed waits until the orders of an item have reached SQL. What is still missing after that is the checker's to find.
func (b *bench) landed(ctx context.Context, item int64, want int) (took time.Duration, err error) {
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for time.Since(start) < 30*time.Second {
		var rows int64
		if err := b.hall.DB.WithContext(ctx).Model(&SeckillOrder{}).Where("item_id = ?", item).Count(&rows).Error; err != nil {
			return 0, err
		}
		if rows >= int64(want) {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return time.Since(start), nil
}
