package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/holdfast-go/holdfast/examples/internal/client"
)

// history is what the clients were told.
type history struct {
	mu                      sync.Mutex
	made, refused, replayed int
	unlikely                []error // answers that must not be
}

func (h *history) count(n *int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*n++
}

func (h *history) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlikely = append(h.unlikely, fmt.Errorf(format, args...))
}

// load sends transfers from all clients at once.
func load(ctx context.Context, b *bank, c config) (*history, error) {
	server := httptest.NewServer(b)
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: c.clients}
	defer transport.CloseIdleConnections()
	var (
		h      = new(history)
		hc     = &http.Client{Transport: transport}
		wg     sync.WaitGroup
		failed = make([]error, c.clients)
	)
	for n := range c.clients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(c.seed, uint64(n)))
			for i := range c.transfers {
				if failed[n] != nil {
					return
				}
				from := rnd.IntN(c.accounts)
				to := (from + 1 + rnd.IntN(c.accounts-1)) % c.accounts // any other
				body := fmt.Sprintf(`{"from": %d, "to": %d, "cents": %d}`, from+1, to+1, rnd.IntN(400)+1)
				failed[n] = h.send(ctx, hc, server.URL+"/transfers", fmt.Sprintf("%d-%d", n, i), body, i%4 == 0)
			}
		})
	}
	wg.Wait()
	return h, errors.Join(failed...)
}

// send sends a transfer, or twice, as a client does that has lost the answer.
func (h *history) send(ctx context.Context, hc *http.Client, url, key, body string, twice bool) error {
	first, err := client.Post(ctx, hc, url, key, nil, body)
	if err != nil {
		return err
	}
	switch first.Status {
	case http.StatusCreated:
		h.count(&h.made)
	case http.StatusConflict:
		h.count(&h.refused)
		return nil
	default:
		h.wrong("%s was answered %d %s", body, first.Status, first.Body)
		return nil
	}
	if !twice {
		return nil
	}
	again, err := client.Post(ctx, hc, url, key, nil, body)
	if err != nil {
		return err
	}
	if again.Status != first.Status || again.Body != first.Body || !again.Replayed {
		h.wrong("%s sent again was answered %+v, first %+v", body, again, first)
	}
	h.count(&h.replayed)
	return nil
}
