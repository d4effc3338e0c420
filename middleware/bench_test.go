package middleware

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/lock"
)

// offline is a guard that needs no server: every lock is had, nothing is recorded.
func offline(tb testing.TB) *Guard {
	tb.Helper()
	g, err := New(nil, WithLocker(testLocker(tb)), WithStore(&memory{}), WithValue("userID", currentUser), WithLogger(quietLogger()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = g.Close(tb.Context()) })
	return g
}

// sink is a writer that chi's writers can be put around and that costs nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

// bareLock is the least that a lock under a name costs a request: the name in the context, acquire, the lease's context, a
// copy of the request, release.
func bareLock(l *lock.Locker) func(http.Handler) http.Handler {
	rule := &reqctx.Rule{Name: "buy", Method: "POST", Route: "/items/{itemID}"}
	keys, opts := []string{"stock:1001"}, []lock.AcquireOption{lock.Wait(routeWait)}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := reqctx.WithRule(r.Context(), rule)
			lease, err := l.Acquire(ctx, keys, opts...)
			if err != nil {
				panic(err)
			}
			next.ServeHTTP(w, r.WithContext(lease.Context(ctx)))
			_ = lease.Release(ctx)
		})
	}
}

// serve returns a function that serves one request again and again.
func serve(h http.Handler, method, path string, wrapped bool) func() {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("X-User", "42")
	inner := &sink{http.Header{}}
	var w http.ResponseWriter = inner
	if wrapped {
		w = chimiddleware.NewWrapResponseWriter(inner, 1)
	}
	return func() { h.ServeHTTP(w, r) }
}

func lockRouters(tb testing.TB) map[string]http.Handler {
	g := offline(tb)
	routers := map[string]http.Handler{}
	for name, build := range map[string]func(r *chi.Mux){
		"bare lock": func(r *chi.Mux) { r.With(bareLock(g.locker)).Post("/items/{itemID}", nothing) },
		"inline":    func(r *chi.Mux) { r.With(g.Lock("stock:{itemID}")).Post("/items/{itemID}", nothing) },
		"Use":       func(r *chi.Mux) { r.Use(g.Lock("stock:{itemID}")); r.Post("/items/{itemID}", nothing) },
		"applied": func(r *chi.Mux) {
			r.Post("/items/{itemID}", nothing)
			if err := g.Apply(r, Annotations{"POST /items/{itemID}": lockOn("stock:{itemID}")}); err != nil {
				tb.Fatal(err)
			}
		},
	} {
		r := chi.NewRouter()
		build(r)
		routers[name] = r
	}
	return routers
}

func BenchmarkLockRule(b *testing.B) {
	for name, r := range lockRouters(b) {
		for _, wrapped := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/wrapped=%v", name, wrapped), func(b *testing.B) {
				b.ReportAllocs()
				do := serve(r, "POST", "/items/1001", wrapped)
				for b.Loop() {
					do()
				}
			})
		}
	}
}

func BenchmarkOtherMethod(b *testing.B) {
	g := offline(b)
	for name, mws := range map[string]chi.Middlewares{
		"no rules": nil, "Use": {g.Lock("stock:{itemID}")}, "Use of three": {g.RequestID("{userID}"), g.Dedup("{userID}"), g.Lock("stock:{itemID}")},
	} {
		r := chi.NewRouter()
		r.Use(mws...)
		r.Get("/items/{itemID}", nothing)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			do := serve(r, "GET", "/items/1001", true)
			for b.Loop() {
				do()
			}
		})
	}
}

// site1000 has 1000 routes in 50 sub-routers, 200 of them under a rule.
func site1000(g *Guard) *chi.Mux {
	r := chi.NewRouter()
	r.Use(recoverer)
	for i := range 50 {
		r.Route("/s"+strconv.Itoa(i)+"/{tenant}", func(r chi.Router) {
			r.Use(cors)
			for j := range 20 {
				path := "/r" + strconv.Itoa(j) + "/{id}"
				if j < 4 {
					r.With(g.Lock("r:{tenant}:{id}")).Post(path, nothing)
				} else {
					r.Post(path, nothing)
				}
			}
		})
	}
	return r
}

func BenchmarkValidate(b *testing.B) {
	g := offline(b)
	r := site1000(g)
	b.Run("chi.Walk", func(b *testing.B) {
		for b.Loop() {
			_ = chi.Walk(r, func(string, string, http.Handler, ...func(http.Handler) http.Handler) error { return nil })
		}
	})
	b.Run("Validate", func(b *testing.B) {
		for b.Loop() {
			if err := g.Validate(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkFingerprint(b *testing.B) {
	body := []byte(strings.Repeat("x", 1000))
	r := httptest.NewRequest("POST", "/items/1001/orders?a=b", nil)
	b.ReportAllocs()
	for b.Loop() {
		fingerprint(r, body)
	}
}

func BenchmarkWriteProblem(b *testing.B) {
	r := httptest.NewRequest("POST", "/", nil)
	w := &sink{http.Header{}}
	err := error(lock.ErrBusy)
	b.ReportAllocs()
	for b.Loop() {
		WriteProblem(w, r, err)
	}
}
