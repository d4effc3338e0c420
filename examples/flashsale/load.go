package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// load is the history of one row.
type load struct {
	took    []time.Duration
	status  map[int]int
	users   map[int64]bool
	orders  map[string]string // by the client's id: the order that it was told of
	again   int               // how often one with an order sent its request again
	replays int               // how often a client was told of an order again
	faults  []string          // answers that contradict an earlier one
	demand  int               // different users who asked
	elapsed time.Duration
}

func newLoad() *load {
	return &load{status: map[int]int{}, users: map[int64]bool{}, orders: map[string]string{}}
}

// load sends purchases from all buyers at once until the duration is over, and returns when all are answered.
func (b *bench) load(ctx context.Context, w *way, url string) (*load, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: b.buyers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var (
		mu    sync.Mutex
		total = newLoad()
		wg    sync.WaitGroup
		fail  error
	)
	start := time.Now()
	stop := start.Add(b.duration)
	b.progress.row(w.name, b.duration)
	for buyer := range b.buyers {
		wg.Go(func() {
			mine := newLoad()
			next := b.users.plan(b.seed, buyer, b.buyers)
			var err error
			for first := true; err == nil && ctx.Err() == nil && (first || time.Now().Before(stop)); first = false {
				err = mine.buy(ctx, client, w, url, next())
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(mine)
			if err != nil && fail == nil {
				fail = err
			}
		})
	}
	wg.Wait()
	total.elapsed = time.Since(start)
	total.demand = len(total.users)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return total, fail
}

func (l *load) buy(ctx context.Context, client *http.Client, w *way, url string, want request) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-User", strconv.FormatInt(want.user, 10))
	req.Header.Set("Idempotency-Key", want.id)
	start := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	var answer struct{ Order string }
	if err := errors.Join(readAnswer(res, &answer), res.Body.Close()); err != nil {
		return err
	}
	l.took = append(l.took, time.Since(start))
	l.status[res.StatusCode]++
	l.users[want.user] = true
	l.judge(w, want.id, res.StatusCode == w.status, answer.Order)
	return nil
}

// judge compares an answer with what this client has heard under the same id: who was told of an order hears of the same
// one ever after, where repeats are recognised, and of no second one anywhere.
func (l *load) judge(w *way, id string, success bool, order string) {
	first, known := l.orders[id]
	if known {
		l.again++
	}
	switch {
	case success && !known:
		l.orders[id] = order
	case success && first == order:
		l.replays++
		if !w.repeats {
			l.faults = append(l.faults, "a repeat got an order again, although nothing recognises repeats here")
		}
	case success:
		l.faults = append(l.faults, fmt.Sprintf("a repeat got order %s, the first answer was %s", order, first))
	case known && w.repeats:
		l.faults = append(l.faults, "the repeat of a success was refused")
	}
}

func (l *load) add(o *load) {
	l.took = append(l.took, o.took...)
	for s, n := range o.status {
		l.status[s] += n
	}
	for u := range o.users {
		l.users[u] = true
	}
	for id, order := range o.orders {
		l.orders[id] = order
	}
	l.again += o.again
	l.replays += o.replays
	l.faults = append(l.faults, o.faults...)
}

func (l *load) row(name string) row {
	slices.Sort(l.took)
	ms := func(p float64) float64 {
		if len(l.took) == 0 {
			return 0
		}
		d := l.took[min(int(p*float64(len(l.took))), len(l.took)-1)]
		return float64(d.Microseconds()) / 1000
	}
	return row{
		Mode: name, Requests: len(l.took), Successes: len(l.orders),
		P50: ms(.50), P99: ms(.99), RPS: float64(len(l.took)) / l.elapsed.Seconds(),
	}
}

// odd names the answers that are neither an order nor a refusal.
func (l *load) odd(w *way) string {
	var odd []string
	for s, n := range l.status {
		if s != w.status && s != http.StatusConflict {
			odd = append(odd, fmt.Sprintf("%d × %d", n, s))
		}
	}
	slices.Sort(odd)
	return strings.Join(odd, ", ")
}

// readAnswer reads the whole body, and decodes it if it is a success.
func readAnswer(res *http.Response, into any) error {
	if res.StatusCode < 300 {
		if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			return fmt.Errorf("answer %d: %w", res.StatusCode, err)
		}
	}
	_, err := io.Copy(io.Discard, res.Body) // so that the connection is used again
	return err
}
