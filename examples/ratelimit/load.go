package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// tally is what the users were told.
type tally struct {
	requests, sold, soldOut, perUser, capacity int
	strange                                    error // the first answer that is none of these
}

func (t *tally) add(a answer) {
	t.requests++
	dropped := a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != ""
	switch limit := a.header.Get("X-Limit"); {
	case a.status == http.StatusCreated:
		t.sold++
	case a.status == http.StatusConflict:
		t.soldOut++
	case dropped && limit == "per-user":
		t.perUser++
	case dropped && limit == "capacity":
		t.capacity++
	case t.strange == nil:
		t.strange = fmt.Errorf("an answer was %d %s", a.status, a.body)
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// load sends the requests of all users at once.
func load(ctx context.Context, s *service, c config, name string) (*tally, error) {
	server := httptest.NewServer(s)
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: c.users}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var (
		t      tally
		mu     sync.Mutex
		wg     sync.WaitGroup
		failed error
	)
	for u := range c.users {
		wg.Go(func() {
			for i := range c.requests {
				a, err := buy(ctx, client, server.URL, fmt.Sprint(u+1), fmt.Sprintf("%s-%d-%d", name, u, i))
				mu.Lock()
				if err != nil {
					failed = errors.Join(failed, err)
				} else {
					t.add(a)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return &t, failed
}

func buy(ctx context.Context, client *http.Client, base, user, key string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/items/%d/orders", base, item), http.NoBody)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-User", user)
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}, errors.Join(err, res.Body.Close())
}

// check judges what was let through, and what is left.
func check(c config, s *service, burst, later *tally, atBurst, left int64) error {
	faults := []error{burst.strange, later.strange}
	must := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	through := min(c.users*min(c.requests, c.perUser), c.capacity)
	must(burst.sold+burst.soldOut == through, "%d requests were let through, want %d", burst.sold+burst.soldOut, through)
	must(burst.sold == min(through, int(c.stock)), "%d units were sold, want %d", burst.sold, min(through, int(c.stock)))
	must(left == c.stock-int64(burst.sold), "%d units are left of %d, %d were sold", left, c.stock, burst.sold)
	must(burst.perUser+later.perUser == int(s.perUser.Load()) && burst.capacity+later.capacity == int(s.capacity.Load()),
		"the users were told of other drops than were counted")
	if through == c.capacity {
		must(later.sold+later.soldOut == 0, "%d requests were let through above the capacity", later.sold+later.soldOut)
		must(s.askedSince(atBurst) <= 1, "Redis was asked %d times for requests that were dropped", s.askedSince(atBurst)-1) // 1: to see what is left
	}
	return errors.Join(faults...)
}
