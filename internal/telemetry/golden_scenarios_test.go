package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/lock"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

type goldenItem struct {
	ID    int64
	Stock int64 `guard:"stock" gorm:"not null"`
	Fence int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
}

// stage is a shop over real HTTP, a real Redis and SQLite, that notes what it shows.
type stage struct {
	t       *testing.T
	user    int // who calls
	redis   *testserver.RedisServer
	rdb     redis.UniversalClient
	db      *gorm.DB
	shop    *stock.Counter
	spans   *tracetest.SpanRecorder
	traces  *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
	server  *httptest.Server
	handler sync.Map // path -> http.Handler
	guards  []*holdfast.Guard
}

const prefix = "golden:"

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, user: 7, redis: testserver.NewRedis(t), spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	s.rdb = s.redis.Client(t)
	s.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	var err error
	s.db, err = gorm.Open(sqlite.Open(t.TempDir()+"/golden.db"), &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true})
	s.must(err)
	s.must(s.db.AutoMigrate(&goldenItem{}))
	s.must(s.db.Use(gormplugin.New(gormplugin.WithModels(&goldenItem{}), gormplugin.WithMeterProvider(s.meters), gormplugin.WithLogger(quiet))))
	s.must(s.db.Create(&goldenItem{ID: 1, Stock: 5}).Error)
	s.shop, err = stock.New(s.rdb, stock.Prefix(prefix), stock.WithTracerProvider(s.traces), stock.WithMeterProvider(s.meters), stock.WithLogger(quiet))
	s.must(err)
	_, err = s.shop.Warm(t.Context(), stock.Sale{Item: 1, Units: 1, Ends: time.Now().Add(time.Hour), Limit: stock.Limit{Units: 1}})
	s.must(err)
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := s.traces.Tracer("server").Start(r.Context(), "request "+r.Header.Get("X-Name"), trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		h, _ := s.handler.Load(r.Header.Get("X-Instance"))
		h.(http.Handler).ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() {
		pool, err := s.db.DB()
		if err == nil {
			err = pool.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return s
}

var quiet = slog.New(slog.DiscardHandler)

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// route mounts a route in one instance of the service.
func (s *stage) route(instance string, handler http.HandlerFunc, rules func(g *holdfast.Guard) chi.Middlewares) {
	s.t.Helper()
	guard, err := holdfast.New(s.rdb, holdfast.Prefix(prefix), holdfast.WithTracerProvider(s.traces), holdfast.WithMeterProvider(s.meters),
		holdfast.WithLogger(quiet), holdfast.WithValue("userID", func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }))
	s.must(err)
	s.guards = append(s.guards, guard)
	r := chi.NewRouter()
	r.With(rules(guard)...).Post("/items/{itemID}/orders", handler)
	s.handler.Store(instance, r)
}

func locked(opts ...holdfast.LockOption) func(g *holdfast.Guard) chi.Middlewares {
	return func(g *holdfast.Guard) chi.Middlewares { return chi.Middlewares{g.Lock("stock:{itemID|int}", opts...)} }
}

func deduped(opts ...holdfast.DedupOption) func(g *holdfast.Guard) chi.Middlewares {
	return func(g *holdfast.Guard) chi.Middlewares { return chi.Middlewares{g.Dedup("{userID}", opts...)} }
}

// call sends one request to an instance and returns its status.
func (s *stage) call(instance, name, key, body string) int {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.server.URL+"/items/1/orders", strings.NewReader(body))
	s.must(err)
	for k, v := range map[string]string{"X-Instance": instance, "X-Name": name, "X-User": fmt.Sprint(s.user), "Idempotency-Key": key} {
		req.Header.Set(k, v)
	}
	res, err := s.server.Client().Do(req)
	s.must(err)
	s.must(res.Body.Close())
	return res.StatusCode
}

// away stops Redis; a client that has no connection yet finds nobody.
func (s *stage) away() {
	s.t.Helper()
	s.redis.Kill(s.t)
	s.rdb = s.redis.Client(s.t)
}

// later sends the request while the scenario goes on.
func (s *stage) later(instance, name, key, body string) <-chan int {
	status := make(chan int, 1)
	go func() { status <- s.call(instance, name, key, body) }()
	return status
}

// value is the sum of an up-down counter now.
func (s *stage) value(name string) (sum int64) {
	s.t.Helper()
	var rm metricdata.ResourceMetrics
	s.must(s.reader.Collect(s.t.Context(), &rm))
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			if d, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range d.DataPoints {
					sum += p.Value
				}
			}
		}
	}
	return sum
}

// deduct is a handler that takes one unit of item 1.
func (s *stage) deduct(w http.ResponseWriter, r *http.Request) {
	if _, err := s.shop.Deduct(r.Context(), stock.Order{Item: 1, User: r.Header.Get("X-User"), Units: 1}); err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	created(w, r)
}

// sub takes one unit off the row of item 1.
func (s *stage) sub(w http.ResponseWriter, r *http.Request) {
	if err := s.db.WithContext(r.Context()).Model(&goldenItem{ID: 1}).Update("stock", gormplugin.Sub(1)).Error; err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	created(w, r)
}

func (s *stage) want(got, want int) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("status %d, want %d", got, want)
	}
}

// picture closes everything and returns what was shown. Up-down counters must be back at 0.
func (s *stage) picture() picture {
	s.t.Helper()
	s.server.Close()
	for _, g := range s.guards {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := g.Close(ctx); err != nil {
			s.t.Error(err)
		}
		cancel()
	}
	var rm metricdata.ResourceMetrics
	s.must(s.reader.Collect(s.t.Context(), &rm))
	p := picture{trees(s.spans.Ended()), series(rm)}
	for _, m := range p.Metrics {
		for _, point := range m.Points {
			if m.Kind == "up-down counter" && !strings.HasSuffix(point, ": 0") {
				s.t.Errorf("%s is not back at 0: %s", m.Name, point)
			}
		}
	}
	return p
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// door is a handler that waits inside.
type door struct{ in, out chan struct{} }

func newDoor() *door { return &door{make(chan struct{}), make(chan struct{})} }

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	close(d.in)
	<-d.out
	created(w, r)
}

// TestGolden runs each scenario and compares what it shows.
func TestGolden(t *testing.T) {
	for name, scenario := range map[string]func(s *stage){
		"acquired": func(s *stage) {
			s.route("a", created, locked())
			s.want(s.call("a", "1", "k", ""), 201)
		},
		"busy": func(s *stage) {
			d := newDoor()
			s.route("a", d.ServeHTTP, locked())
			s.route("b", created, locked(holdfast.Wait(0)))
			first := s.later("a", "first", "k1", "")
			<-d.in
			s.want(s.call("b", "second", "k2", ""), 429)
			close(d.out)
			s.want(<-first, 201)
		},
		"waited": func(s *stage) {
			d := newDoor()
			calls := 0
			s.route("a", func(w http.ResponseWriter, r *http.Request) { // one at a time: they share the lock
				if calls++; calls == 1 {
					d.ServeHTTP(w, r)
					return
				}
				created(w, r)
			}, locked(holdfast.Wait(time.Minute)))
			first := s.later("a", "first", "k1", "")
			<-d.in
			second := s.later("a", "second", "k2", "")
			testserver.Eventually(s.t, time.Minute, func() bool { return s.value("holdfast.lock.waiting") == 1 }, "the second request waits")
			close(d.out)
			s.want(<-first, 201)
			s.want(<-second, 201)
		},
		"lost": func(s *stage) {
			s.route("a", func(w http.ResponseWriter, r *http.Request) {
				s.must(s.rdb.Set(r.Context(), prefix+"lock:stock:1", "another", time.Minute).Err())
				<-r.Context().Done() // the next renewal finds another owner
				holdfast.WriteProblem(w, r, context.Cause(r.Context()))
			}, locked(holdfast.TTL(2*time.Second)))
			s.want(s.call("a", "1", "k", ""), 503)
		},
		"replay": func(s *stage) {
			s.route("a", created, deduped())
			s.want(s.call("a", "first", "k", ""), 201)
			s.want(s.call("a", "again", "k", ""), 201)
		},
		"in_flight": func(s *stage) {
			d := newDoor()
			s.route("a", d.ServeHTTP, deduped())
			s.route("b", created, deduped())
			first := s.later("a", "first", "k", "")
			<-d.in
			s.want(s.call("b", "second", "k", ""), 409)
			close(d.out)
			s.want(<-first, 201)
		},
		"mismatch": func(s *stage) {
			s.route("a", created, deduped())
			s.want(s.call("a", "first", "k", "1"), 201)
			s.want(s.call("a", "other", "k", "2"), 422)
		},
		"takeover": func(s *stage) {
			d := newDoor()
			s.route("a", d.ServeHTTP, deduped())
			s.route("b", created, deduped())
			first := s.later("a", "first", "k", "")
			<-d.in
			keys := s.redis.Keys(s.t, prefix+"idem:")
			if len(keys) != 1 {
				s.t.Fatalf("records %v, want one", keys)
			}
			s.must(s.rdb.HSet(s.t.Context(), keys[0], "lease", "1").Err()) // as if the first instance had stopped long ago
			s.want(s.call("b", "second", "k", ""), 201)
			close(d.out)
			s.want(<-first, 201)
		},
		"sold_out": func(s *stage) {
			s.route("a", s.deduct, func(g *holdfast.Guard) chi.Middlewares { return chi.Middlewares{g.RequestID("{userID}")} })
			s.want(s.call("a", "first", "k1", ""), 201)
			s.user = 8
			s.want(s.call("a", "second", "k2", ""), 409)
		},
		"limit": func(s *stage) {
			s.must(s.rdb.IncrBy(s.t.Context(), prefix+"stock:item:1", 5).Err())
			s.route("a", s.deduct, func(g *holdfast.Guard) chi.Middlewares { return chi.Middlewares{g.RequestID("{userID}")} })
			s.want(s.call("a", "first", "k1", ""), 201)
			s.want(s.call("a", "second", "k2", ""), 409)
		},
		"order": func(s *stage) { // dedup, lock, deduct, SQL: one connected picture
			s.route("a", func(w http.ResponseWriter, r *http.Request) {
				if _, err := s.shop.Deduct(r.Context(), stock.Order{Item: 1, User: 7, Units: 1}); err != nil {
					holdfast.WriteProblem(w, r, err)
					return
				}
				s.sub(w, r)
			}, func(g *holdfast.Guard) chi.Middlewares {
				return chi.Middlewares{g.Dedup("{userID}"), g.Lock("stock:{itemID|int}")}
			})
			s.want(s.call("a", "1", "k", ""), 201)
		},
		"stale_fence": func(s *stage) {
			s.route("a", func(w http.ResponseWriter, r *http.Request) {
				lease, _ := lock.FromContext(r.Context())
				s.must(s.db.Exec("UPDATE golden_items SET fence = ? WHERE id = 1", lease.Fence()+1).Error)
				s.sub(w, r)
			}, locked())
			s.want(s.call("a", "1", "k", ""), 409)
		},
		"redis_away": func(s *stage) {
			s.away()
			s.route("a", created, func(g *holdfast.Guard) chi.Middlewares {
				return chi.Middlewares{g.Dedup("{userID}"), g.Lock("stock:{itemID|int}")}
			})
			s.want(s.call("a", "1", "k", ""), 503)
		},
		"fail_open": func(s *stage) {
			s.away()
			s.route("a", created, func(g *holdfast.Guard) chi.Middlewares {
				return chi.Middlewares{g.Dedup("{userID}", holdfast.PassAtMost(1)), g.Lock("stock:{itemID|int}", holdfast.Wait(0), holdfast.PassAtMost(1))}
			})
			s.want(s.call("a", "1", "k", ""), 201)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			scenario(s)
			compare(t, s.picture())
		})
	}
}
