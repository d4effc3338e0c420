package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"
	"github.com/redis/go-redis/v9"

	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

const item = 1001

type service struct {
	http.Handler
	guard             *holdfast.Guard
	counter           *stock.Counter
	perUser, capacity atomic.Int64 // drops
	asked             atomic.Int64 // commands to Redis
}

func open(ctx context.Context, rdb *redis.Client, c config) (*service, error) {
	s, prefix := new(service), "ratelimit:"+rand.Text()[:8]+":"
	var err error
	quiet := slog.New(slog.DiscardHandler)
	if s.guard, err = holdfast.New(rdb, holdfast.Prefix(prefix), holdfast.WithValue("userID", user), holdfast.WithLogger(quiet)); err != nil {
		return nil, err
	}
	if s.counter, err = stock.New(rdb, stock.Prefix(prefix), stock.WithLogger(quiet)); err != nil {
		return nil, errors.Join(err, s.guard.Close(ctx))
	}
	if _, err := s.counter.Warm(ctx, stock.Sale{Item: item, Units: c.stock, Ends: time.Now().Add(time.Hour)}); err != nil {
		return nil, errors.Join(err, s.guard.Close(ctx))
	}
	rdb.AddHook(counting{&s.asked}) // from here on, the requests' own

	// The cheapest check comes first: what one user sends too much does not use up what all of them share. Both limits are
	// of this process: n of them let n times as much through.
	r := chi.NewRouter()
	r.With(
		httprate.LimitBy(c.perUser, window, user, httprate.WithLimitHandler(dropped(&s.perUser, "per-user"))),
		httprate.LimitBy(c.capacity, window, httprate.Key("all"), httprate.WithLimitHandler(dropped(&s.capacity, "capacity"))),
		s.guard.Dedup("{userID}"),
	).Post("/items/{itemID}/orders", s.buy)
	s.Handler = r
	return s, nil
}

// dropped answers what is over a limit as holdfast answers everything else: 429, Retry-After, a problem body.
func dropped(count *atomic.Int64, limit string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		w.Header().Set("X-Limit", limit)
		holdfast.WriteProblem(w, r, stock.ErrRateLimited)
	}
}

func (s *service) buy(w http.ResponseWriter, r *http.Request) {
	buyer, err := user(r)
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	res, err := s.counter.Deduct(r.Context(), stock.Order{Item: chi.URLParam(r, "itemID"), User: buyer, Units: 1})
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "order %s", res.Order) // a service writes it to SQL first: see the other examples
}

// user stands in for authentication.
func user(r *http.Request) (string, error) {
	if u := r.Header.Get("X-User"); u != "" {
		return u, nil
	}
	return "", errors.New("no user")
}

// askedSince is how many commands went to Redis since there were before of them.
func (s *service) askedSince(before int64) int64 { return s.asked.Load() - before }

// counting counts what is sent to Redis.
type counting struct{ n *atomic.Int64 }

func (counting) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}
