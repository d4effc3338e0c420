package interop

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/middleware"
)

//go:embed routes.json
var routesJSON string

// shop is what both services sell: the part that does not know which library has routed a request to it.
type shop struct {
	orders atomic.Int64
	during func(ctx context.Context) // called while an order is placed; may be nil
}

var errUnguarded = errors.New("the handler runs without the lock")

func (s *shop) order(ctx context.Context) (id int64, err error) {
	if _, held := lock.FromContext(ctx); !held {
		return 0, errUnguarded
	}
	if s.during != nil {
		s.during(ctx)
	}
	return s.orders.Add(1), nil
}

// services are the ways in which the shop is put on a chi router, under /v1.
var services = map[string]func(r chi.Router, s *shop){
	"huma":         humaShop,
	"oapi-codegen": generatedShop,
}

// onEach runs a test with each service.
func onEach(t *testing.T, test func(t *testing.T, m *mounted)) {
	t.Helper()
	for name, mount := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMounted(t)
			m.router.Use(authenticate)
			mount(m.router, &m.shop)
			test(t, m)
		})
	}
}

// mounted is a service with a guard beside it, on a real Redis.
type mounted struct {
	t      *testing.T
	shop   shop
	router *chi.Mux
	guard  *middleware.Guard
	rdb    *redis.Client
	prefix string
	url    string // of the server, once it listens
}

func newMounted(t *testing.T) *mounted {
	t.Helper()
	srv := testserver.Redis(t)
	m := &mounted{t: t, router: chi.NewRouter(), rdb: srv.Client(t), prefix: srv.Prefix(t)}
	var err error
	m.guard, err = middleware.New(m.rdb, middleware.Prefix(m.prefix), middleware.WithValue("userID", principal),
		middleware.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.guard.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// apply puts annotations into effect.
func (m *mounted) apply(annotations string) error {
	m.t.Helper()
	routes, err := middleware.LoadAnnotations(strings.NewReader(annotations))
	if err != nil {
		m.t.Fatal(err)
	}
	return m.guard.Apply(m.router, routes)
}

// listen applies routes.json and serves.
func (m *mounted) listen() {
	m.t.Helper()
	if err := m.apply(routesJSON); err != nil {
		m.t.Fatal(err)
	}
	srv := httptest.NewServer(m.router)
	m.t.Cleanup(srv.Close)
	m.url = srv.URL
}

// reply is an answer with its body.
type reply struct {
	*http.Response
	body string
}

// post sends an order for the path, with that Idempotency-Key.
func (m *mounted) post(path, key string) reply {
	m.t.Helper()
	r, err := m.send(path, key)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func (m *mounted) send(path, key string) (reply, error) {
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, m.url+path, bytes.NewReader([]byte(`{"units": 1}`)))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "user-42")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return reply{res, string(body)}, err
}

// receive returns what comes on the channel.
func receive[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(time.Minute):
		t.Fatal("nothing has come for a minute")
	}
	return v
}

type userKey struct{}

// authenticate is the service's own, as a middleware of chi.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("Authorization")
		if user == "" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

func principal(r *http.Request) (string, error) {
	if user, ok := r.Context().Value(userKey{}).(string); ok {
		return user, nil
	}
	return "", errors.New("no user in the context")
}
