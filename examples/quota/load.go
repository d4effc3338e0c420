package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	careful "github.com/holdfast-go/holdfast/examples/internal/client"
)

// gauge counts how many are at work at once.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) enter() (leave func()) {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	return func() { g.now.Add(-1) }
}

// tally is what came out at one door.
type tally struct {
	paid, refused, replayed int
	cents                   int64
}

// history is what clients and the reader of the totals saw.
type history struct {
	mu       sync.Mutex
	doors    map[string]*tally
	paid     map[int64]int64 // by merchant, as the clients were told
	least    map[int64]int64 // the smallest amount that was refused, by merchant
	reads    int             // how often the totals were read meanwhile
	unlikely []error         // answers and totals that must not be
}

func (h *history) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlikely = append(h.unlikely, fmt.Errorf(format, args...))
}

// load sends payments through all doors at once, while somebody reads the totals.
func load(ctx context.Context, s *service, c config) (*history, error) {
	server := httptest.NewServer(s)
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: c.clients * len(doors)}
	defer transport.CloseIdleConnections()
	h := &history{doors: map[string]*tally{}, paid: map[int64]int64{}, least: map[int64]int64{}}
	for _, d := range doors {
		h.doors[d.name] = new(tally)
	}

	read, stop := context.WithCancel(ctx)
	var reader, clients sync.WaitGroup
	reader.Go(func() { h.readTotals(read, s) })
	var mu sync.Mutex
	var failed error
	for door := range doors {
		for n := range c.clients {
			clients.Go(func() {
				cl := &client{h: h, http: &http.Client{Transport: transport}, base: server.URL, door: door, n: n}
				cl.rnd = rand.New(rand.NewPCG(c.seed, uint64(door*c.clients+n)))
				if err := cl.run(ctx, c.payments); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = errors.Join(failed, err)
				}
			})
		}
	}
	clients.Wait()
	stop()
	reader.Wait()
	return h, failed
}

// readTotals reads each merchant's total again and again. One read sees all shards at one instant, so a total of what is
// only spent never rises, wherever the cents lie.
func (h *history) readTotals(ctx context.Context, s *service) {
	last := map[int64]int64{}
	for tick := time.Tick(2 * time.Millisecond); ctx.Err() == nil; <-tick {
		for _, m := range merchants {
			left, err := s.quota.Remaining(ctx, m)
			switch before, known := last[m]; {
			case ctx.Err() != nil:
				return
			case err != nil:
				h.wrong("total of merchant %d: %w", m, err)
				return
			case known && left > before, left < 0:
				h.wrong("total of merchant %d was %d and then %d", m, before, left)
			}
			last[m] = left
			h.reads++
		}
	}
}

type client struct {
	h       *history
	http    *http.Client
	base    string
	door, n int
	rnd     *rand.Rand
}

// run sends payments; every fourth one twice, as a client does that has lost the answer.
func (c *client) run(ctx context.Context, payments int) error {
	for i := range payments {
		merchant, cents := merchants[c.rnd.IntN(len(merchants))], c.rnd.Int64N(500)+1
		key := fmt.Sprintf("%s-%d-%d", doors[c.door].name, c.n, i)
		first, err := c.send(ctx, merchant, cents, key)
		if err != nil {
			return err
		}
		c.h.note(doors[c.door].name, merchant, cents, first.Status)
		if i%4 > 0 || first.Status != http.StatusCreated {
			continue
		}
		again, err := c.send(ctx, merchant, cents, key)
		switch {
		case err != nil:
			return err
		case again.Status != first.Status || again.Body != first.Body || !again.Replayed:
			c.h.wrong("%s sent again was answered %+v, first %+v", key, again, first)
		default:
			c.h.mu.Lock()
			c.h.doors[doors[c.door].name].replayed++
			c.h.mu.Unlock()
		}
	}
	return nil
}

func (h *history) note(door string, merchant, cents int64, status int) {
	if status != http.StatusCreated && status != http.StatusConflict {
		h.wrong("a payment at door %s was answered %d", door, status)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.doors[door]
	if status == http.StatusConflict {
		t.refused++
		if least, ok := h.least[merchant]; !ok || cents < least {
			h.least[merchant] = cents
		}
		return
	}
	t.paid++
	t.cents += cents
	h.paid[merchant] += cents
}

func (c *client) send(ctx context.Context, merchant, cents int64, key string) (careful.Answer, error) {
	path := strings.ReplaceAll(doors[c.door].route, "{merchantID}", fmt.Sprint(merchant))
	who := map[string]string{"X-Api-Key": fmt.Sprintf("key-of-%d", merchant)}
	return careful.Post(ctx, c.http, c.base+path, key, who, fmt.Sprintf(`{"merchant": %d, "cents": %d}`, merchant, cents))
}
