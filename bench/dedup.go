package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	hf "github.com/holdfast-go/holdfast/middleware"

	"github.com/holdfast-go/holdfast/dedup"
)

const (
	setNX     = "SET NX and GET by hand"
	fiberName = "fiber's idempotency"
	budget    = "what is allowed"
)

// answerSize is the response that is stored and replayed, in bytes.
const answerSize = 512

// dedupSuite measures the engine against what a service writes by hand, which compares no fingerprint, knows no owner
// and loses a request whose process ends; and the middleware against that of fiber, on the same Redis.
func dedupSuite() Suite {
	return Suite{
		Name:  "dedup",
		About: "first requests, replays, duplicates in flight",
		Cases: []Case{
			dedupRate("first-1", 1, false, Claim{Baseline: setNX, Target: 1}),
			dedupRate("first-64", 64, false, Claim{Baseline: setNX, Target: 1}),
			dedupRate("replay-1", 1, true, Claim{Baseline: setNX, Target: 1.5}),
			dedupRate("replay-64", 64, true, Claim{Baseline: setNX, Target: 1.5}),
			httpRate("http-first-64", false, Claim{Baseline: fiberName}),
			httpRate("http-replay-64", true, Claim{Baseline: fiberName}),
			dedupTrips(),
		},
	}
}

func engine(e *Env, rdb redis.UniversalClient) *dedup.Dedup {
	e.Helper()
	d := must(e, func() (*dedup.Dedup, error) { return dedup.New(rdb, dedup.WithLogger(quiet)) })
	e.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			e.Error(err)
		}
	})
	return d
}

func once(n int64) dedup.Request {
	return dedup.Request{Scope: "user-1", Name: "POST /orders", Key: strconv.FormatInt(n, 10), Fingerprint: []byte("fingerprint")}
}

// keys returns what gives each call its key: a new one, or one of the few that have been done.
func keysOf(replay bool) func() int64 {
	var n atomic.Int64
	if replay {
		return func() int64 { return n.Add(1) % 64 }
	}
	return func() int64 { return n.Add(1) + 64 }
}

func dedupRate(name string, workers int, replay bool, claims ...Claim) Case {
	for i := range claims {
		claims[i].Unit = "requests/s"
	}
	return Case{Name: name, Claims: claims, Start: func(e *Env) Round {
		body := make([]byte, answerSize)
		d := engine(e, e.Client())
		hand := byHandDedup{e.Client()}
		run := func(name string, do func(n int64) error) Subject {
			next := keysOf(replay)
			for n := range int64(64) {
				if err := do(n); err != nil {
					e.Fatal(err)
				}
			}
			return Subject{name, func(d time.Duration) (float64, error) {
				return rate(workers, d, func(int) error { return do(next()) })
			}}
		}
		return interleave(
			run(holdfast, func(n int64) error {
				_, _, err := d.Do(context.Background(), once(n), func(context.Context) ([]byte, error) { return body, nil })
				return err
			}),
			run(setNX, func(n int64) error { return hand.do(context.Background(), n, body) }),
		)
	}}
}

type byHandDedup struct{ rdb *redis.Client }

func (h byHandDedup) do(ctx context.Context, n int64, body []byte) error {
	key := "hand:" + strconv.FormatInt(n, 10)
	err := h.rdb.SetArgs(ctx, key, "running", redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err()
	if errors.Is(err, redis.Nil) {
		return h.rdb.Get(ctx, key).Err()
	}
	if err != nil {
		return err
	}
	return h.rdb.Set(ctx, key, body, 24*time.Hour).Err()
}

// httpRate calls the handlers themselves, without a network in front: net/http's for holdfast, fasthttp's for fiber.
func httpRate(name string, replay bool, claims ...Claim) Case {
	for i := range claims {
		claims[i].Unit = "requests/s"
	}
	return Case{Name: name, Claims: claims, Start: func(e *Env) Round {
		body := make([]byte, answerSize)
		guard := must(e, func() (*hf.Guard, error) { return hf.New(e.Client(), hf.WithLogger(quiet)) })
		e.Cleanup(func() { _ = guard.Close(context.Background()) })
		r := chi.NewRouter()
		r.With(guard.Dedup("all")).Post("/orders", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
		})
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(idempotency.New(idempotency.Config{Lifetime: 24 * time.Hour, KeyHeader: "Idempotency-Key", Storage: fiberStorage{e.Client()}, KeyHeaderValidate: func(string) error { return nil }}))
		app.Post("/orders", func(c *fiber.Ctx) error { return c.Status(http.StatusCreated).Send(body) })
		handler := app.Handler()

		run := func(name string, call func(key string) int) Subject {
			next := keysOf(replay)
			do := func(n int64) error {
				if status := call(fmt.Sprintf("key-%d", n)); status != http.StatusCreated {
					return fmt.Errorf("status %d", status)
				}
				return nil
			}
			for n := range int64(64) {
				if err := do(n); err != nil {
					e.Fatal(err)
				}
			}
			return Subject{name, func(d time.Duration) (float64, error) {
				return rate(64, d, func(int) error { return do(next()) })
			}}
		}
		return interleave(
			run(holdfast, func(key string) int {
				req := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
				req.Header.Set("Idempotency-Key", key)
				rec := httptest.NewRecorder()
				r.ServeHTTP(rec, req)
				return rec.Code
			}),
			run(fiberName, func(key string) int {
				var c fasthttp.RequestCtx
				c.Request.Header.SetMethod(http.MethodPost)
				c.Request.SetRequestURI("/orders")
				c.Request.Header.Set("Idempotency-Key", key)
				handler(&c)
				return c.Response.StatusCode()
			}),
		)
	}}
}

// fiberStorage is fiber's storage on the same client as everybody's.
type fiberStorage struct{ rdb *redis.Client }

func (s fiberStorage) Get(key string) ([]byte, error) {
	val, err := s.rdb.Get(context.Background(), "fiber:"+key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return val, err
}

func (s fiberStorage) Set(key string, val []byte, exp time.Duration) error {
	return s.rdb.Set(context.Background(), "fiber:"+key, val, exp).Err()
}

func (s fiberStorage) Delete(key string) error {
	return s.rdb.Del(context.Background(), "fiber:"+key).Err()
}
func (fiberStorage) Reset() error { return nil }
func (fiberStorage) Close() error { return nil }

// dedupTrips counts what each path costs on the wire.
func dedupTrips() Case {
	const first, replay, crowd = "first request", "replay", "1000 duplicates at once"
	claim := func(figure, suffix string) Claim {
		return Claim{Figure: figure, Baseline: budget + suffix, Unit: "round trips", Target: 1, LowerIsBetter: true, Suffix: suffix}
	}
	return Case{
		Name:   "round-trips",
		Claims: []Claim{claim(first, "-first"), claim(replay, "-replay"), claim(crowd, "-1000-duplicates")},
		Start: func(e *Env) Round {
			var sent trips
			d := engine(e, e.Client(&sent))
			next := keysOf(false)
			count := func(do func() error) (float64, error) {
				before := sent.n.Load()
				err := do()
				return float64(sent.n.Load() - before), err
			}
			return func(time.Duration) (Figures, error) {
				n := next()
				var runs atomic.Int64
				do := func() error {
					_, _, err := d.Do(context.Background(), once(n), func(context.Context) ([]byte, error) { runs.Add(1); return nil, nil })
					return err
				}
				f := Figures{budget + "-first": 2, budget + "-replay": 1, budget + "-1000-duplicates": 3}
				var err error
				if f[first], err = count(do); err != nil {
					return nil, err
				}
				if f[replay], err = count(do); err != nil {
					return nil, err
				}
				n = next()
				f[crowd], err = count(func() error { return atOnce(1000, do) })
				if runs.Load() != 2 {
					err = errors.Join(err, fmt.Errorf("%d runs for two requests", runs.Load()))
				}
				return f, err
			}
		},
	}
}

// atOnce calls do from n goroutines that are let go together.
func atOnce(n int, do func() error) error {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	start := make(chan struct{})
	for range n {
		wg.Go(func() { <-start; errs <- do() })
	}
	close(start)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
