package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	hf "github.com/holdfast-go/holdfast/middleware"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/lockkey"
)

// middlewareSuite measures what rules cost a request and a start-up besides what they wait for: without Redis.
func middlewareSuite() Suite {
	return Suite{
		Name:  "middleware",
		About: "rules on chi routes, without Redis",
		Cases: []Case{lockRuleCost(), otherMethod(), validate(), appendKeys()},
	}
}

const (
	route = "/items/{itemID}"
	keyOf = "stock:{itemID}"
	path  = "/items/1001"
	free  = "/items/1002" // where path's lock is held
)

// nothing is the handler of all routes.
func nothing(http.ResponseWriter, *http.Request) {}

// lockRuleCost measures a rule twice. Under a lease of the same key the locker has nothing to ask and next to nothing to
// do; what it still does is taken off, so that the rest is the chain and what the rule adds to it: route, key, a place for
// the answer's status, a copy of the request. With the lock to be taken, from a back-end that answers at once, it is
// compared with what is written by hand.
func lockRuleCost() Case {
	const inline, applied, without, locker, taking, byHand = "inline", "applied", "no rule", "locker", "taking the lock", "lock by hand"
	return Case{
		Name: "lock-rule",
		Claims: []Claim{
			{Suffix: "-inline", Figure: inline, Baseline: without, Unit: "ns/request", Target: 1.7, LowerIsBetter: true},
			{Suffix: "-applied", Figure: applied, Baseline: without, Unit: "ns/request", Target: 1.7, LowerIsBetter: true},
			{Suffix: "-taking", Figure: taking, Baseline: byHand, Unit: "ns/request", LowerIsBetter: true},
		},
		Start: func(e *Env) Round {
			g, l := offline(e)
			guarded := chi.NewRouter()
			guarded.With(g.Lock(keyOf)).Post(route, nothing)
			annotated := chi.NewRouter()
			annotated.Post(route, nothing)
			err := g.Apply(annotated, hf.Annotations{"POST " + route: {Lock: &hf.LockRule{Keys: []string{keyOf}}}})
			if err != nil {
				e.Fatal(err)
			}
			bare := chi.NewRouter()
			bare.Post(route, nothing)
			own := chi.NewRouter()
			own.With(lockByHand(l)).Post(route, nothing)

			ctx, keys, wait := context.Background(), []string{"stock:1001"}, lock.Wait(2*time.Second)
			outer, err := l.Acquire(ctx, keys)
			if err != nil {
				e.Fatal(err)
			}
			held := outer.Context(ctx)
			e.Cleanup(func() { _ = outer.Release(ctx) }) // the back-end has nothing to say
			again := func() {
				lease, err := l.Acquire(held, keys, wait)
				if err != nil {
					panic(err) // it is held
				}
				_ = lease.Context(held)
				_ = lease.Release(held)
			}
			round := perCall([]string{inline, applied, without, locker, taking, byHand},
				serve(held, guarded, http.MethodPost, path), serve(held, annotated, http.MethodPost, path), serve(held, bare, http.MethodPost, path), again,
				serve(ctx, guarded, http.MethodPost, free), serve(ctx, own, http.MethodPost, free))
			return func(d time.Duration) (Figures, error) {
				f, err := round(d)
				if err != nil {
					return nil, err
				}
				f[inline] -= f[locker]
				f[applied] -= f[locker]
				return f, nil
			}
		},
	}
}

// lockByHand is what a service would write that has package lock and no rules.
func lockByHand(l *lock.Locker) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lease, err := l.Acquire(r.Context(), []string{"stock:" + chi.URLParam(r, "itemID")})
			if err != nil {
				http.Error(w, "busy", http.StatusTooManyRequests)
				return
			}
			defer func() { _ = lease.Release(r.Context()) }()
			next.ServeHTTP(w, r.WithContext(lease.Context(r.Context())))
		})
	}
}

// otherMethod is a GET on a router whose rules, in Use, act on other methods.
func otherMethod() Case {
	const without = "no rules"
	return Case{
		Name:   "get-beside-rules",
		Claims: []Claim{{Baseline: without, Unit: "ns/request", Target: 1.1, LowerIsBetter: true}},
		Start: func(e *Env) Round {
			g, _ := offline(e)
			ruled, plain := chi.NewRouter(), chi.NewRouter()
			ruled.Use(g.Lock(keyOf))
			ruled.Get(route, nothing)
			plain.Get(route, nothing)
			return perCall([]string{holdfast, without}, serve(context.Background(), ruled, http.MethodGet, path), serve(context.Background(), plain, http.MethodGet, path))
		},
	}
}

// validate is what the check of a large router costs at start-up, against visiting each of its routes.
func validate() Case {
	const walk = "chi.Walk"
	return Case{
		Name:   "validate-1000",
		Claims: []Claim{{Baseline: walk, Unit: "ns", Target: 7, LowerIsBetter: true}},
		Start: func(e *Env) Round {
			g, _ := offline(e)
			r := chi.NewRouter()
			for i := range 50 {
				r.Route(fmt.Sprintf("/s%d/{tenant}", i), func(r chi.Router) {
					for j := range 20 {
						if j < 4 {
							r.With(g.Lock("r:{tenant}:{id}")).Post("/r"+strconv.Itoa(j)+"/{id}", nothing)
						} else {
							r.Post("/r"+strconv.Itoa(j)+"/{id}", nothing)
						}
					}
				})
			}
			var routes int
			visit := func(string, string, http.Handler, ...func(http.Handler) http.Handler) error {
				routes++
				return nil
			}
			if err := errors.Join(g.Validate(r), chi.Walk(r, visit)); err != nil || routes != 1000 {
				e.Fatalf("%d routes, %v", routes, err)
			}
			return perCall([]string{holdfast, walk},
				func() { _ = g.Validate(r) },
				func() { _ = chi.Walk(r, visit) })
		},
	}
}

// appendKeys is the key of a request with one param, against the Sprintf that a handler would write with the param in
// hand.
func appendKeys() Case {
	const sprintf = "fmt.Sprintf"
	return Case{
		Name:   "append-keys",
		Claims: []Claim{{Baseline: sprintf, Unit: "ns", Target: 0.8, LowerIsBetter: true}},
		Start: func(e *Env) Round {
			t, err := lockkey.Parse(keyOf)
			if err != nil {
				e.Fatal(err)
			}
			var routed *http.Request
			r := chi.NewRouter()
			r.Post(route, func(_ http.ResponseWriter, r *http.Request) {
				// chi takes its context back after the request: this one is kept.
				routed = r.WithContext(context.WithValue(context.Background(), chi.RouteCtxKey, chi.RouteContext(r.Context()).Clone()))
			})
			serve(context.Background(), r, http.MethodPost, path)()
			id := chi.URLParam(routed, "itemID")
			var keys []string
			var text string
			round := perCall([]string{holdfast, sprintf},
				func() { keys, err = t.AppendKeys(keys[:0], routed) },
				func() { text = fmt.Sprintf("stock:%s", id) })
			if err != nil || len(keys) != 1 || keys[0] != text {
				e.Fatalf("the template gives %q, %v, and Sprintf %q", keys, err, text)
			}
			return round
		},
	}
}

// offline returns a guard that needs no server, and its locker.
func offline(e *Env) (*hf.Guard, *lock.Locker) {
	l, err := lock.NewWith(instant{}, lock.WithLogger(quiet))
	if err != nil {
		e.Fatal(err)
	}
	g, err := hf.New(nil, hf.WithLocker(l), hf.WithStore(noStore{}), hf.WithLogger(quiet))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := errors.Join(g.Close(context.Background()), l.Close(context.Background())); err != nil {
			e.Error(err)
		}
	})
	return g, l
}

// noStore has no records: nothing here asks for one.
type noStore struct{ dedup.Store }

// instant is a back-end that answers at once.
type instant struct{}

func (instant) Acquire(context.Context, lock.Request) (lock.Grant, error) {
	return lock.Grant{Held: true, Fence: 1}, nil
}

func (instant) Renew(context.Context, lock.Held) (lock.State, error) { return lock.Ours, nil }

func (instant) Release(context.Context, lock.Held) (lock.Released, error) {
	return lock.Released{State: lock.Ours}, nil
}

// serve returns a function that serves one request to the route again and again, behind a writer that knows its status,
// as a logger puts it there.
func serve(ctx context.Context, h http.Handler, method, path string) func() {
	r := httptest.NewRequestWithContext(ctx, method, path, nil)
	w := chimiddleware.NewWrapResponseWriter(discard{http.Header{}}, 1)
	return func() { h.ServeHTTP(w, r) }
}

// discard is a writer that costs nothing.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
