package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// userMode says who buys.
type userMode string

const (
	distinct userMode = "distinct"
	one      userMode = "one"
	zipf     userMode = "zipf"
)

func (m *userMode) String() string { return string(*m) }

// Set implements flag.Value.
func (m *userMode) Set(s string) error {
	if *m = userMode(s); *m != distinct && *m != one && *m != zipf {
		return fmt.Errorf("%q is none of distinct, one, zipf", s)
	}
	return nil
}

func (m userMode) label() string {
	switch m {
	case one:
		return "one and the same (measures the limit)"
	case zipf:
		return "zipf, a few of them very often"
	}
	return "all different"
}

// source returns a function that says who sends the next request; it is for one goroutine.
func (m userMode) source(next *atomic.Int64) func() int64 {
	switch m {
	case one:
		return func() int64 { return 1 }
	case zipf:
		z := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), 1.1, 1, 100_000)
		return func() int64 { return int64(z.Uint64()) + 1 }
	}
	return func() int64 { return next.Add(1) }
}

// load is the history of one row.
type load struct {
	took    []time.Duration
	status  map[int]int
	users   map[int64]bool
	demand  int // different users who asked
	elapsed time.Duration
}

// load sends purchases from all buyers at once until the duration is over, and returns when all are answered.
func (b *bench) load(ctx context.Context, name, url string) (*load, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: b.buyers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var (
		mu    sync.Mutex
		total = &load{status: map[int]int{}, users: map[int64]bool{}}
		next  atomic.Int64
		wg    sync.WaitGroup
		fail  error
	)
	start := time.Now()
	stop := start.Add(b.duration)
	b.progress.row(name, b.duration)
	for range b.buyers {
		wg.Go(func() {
			mine := &load{status: map[int]int{}, users: map[int64]bool{}}
			user := b.users.source(&next)
			var err error
			for err == nil && ctx.Err() == nil && time.Now().Before(stop) {
				err = mine.buy(ctx, client, url, user())
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

func (l *load) buy(ctx context.Context, client *http.Client, url string, user int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-User", strconv.FormatInt(user, 10))
	req.Header.Set("Idempotency-Key", newID())
	start := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	l.took = append(l.took, time.Since(start))
	l.status[res.StatusCode]++
	l.users[user] = true
	return nil
}

func (l *load) add(o *load) {
	l.took = append(l.took, o.took...)
	for s, n := range o.status {
		l.status[s] += n
	}
	for u := range o.users {
		l.users[u] = true
	}
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
		Mode: name, Requests: len(l.took), Successes: l.status[http.StatusCreated],
		P50: ms(.50), P99: ms(.99), RPS: float64(len(l.took)) / l.elapsed.Seconds(),
	}
}

// odd names the answers that are neither an order nor a refusal.
func (l *load) odd() string {
	var odd []string
	for s, n := range l.status {
		if s != http.StatusCreated && s != http.StatusConflict {
			odd = append(odd, fmt.Sprintf("%d × %d", n, s))
		}
	}
	slices.Sort(odd)
	return strings.Join(odd, ", ")
}
