package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/lock"
)

// B03: one key for a merchant or user, never one global lock: two merchants overlap, one twice does not; so with users.
func TestB03_OneLockForEach(t *testing.T) {
	for name, keyed := range map[string]struct {
		template   string
		one, other call
	}{
		"merchants": {"quota:{merchant}", call{path: "/m/1"}, call{path: "/m/2"}},
		"users":     {"user_balance:{userID}", call{path: "/m/1", user: "1"}, call{path: "/m/1", user: "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, s *shop) {
				g := newGate()
				s.With(s.guard.Lock(keyed.template, Wait(0))).Post("/m/{merchant}", func(_ http.ResponseWriter, r *http.Request) { _ = g.pass(r.Context()) })
				one := s.later(keyed.one)
				g.wait(t)
				other := s.later(keyed.other)
				g.wait(t) // both are inside
				if got := s.do(keyed.one); got.status != 429 {
					t.Errorf("the same one twice: %d", got.status)
				}
				close(g.open)
				if a, b := receive(t, one), receive(t, other); a.status != 200 || b.status != 200 {
					t.Errorf("%d and %d", a.status, b.status)
				}
			})
		})
	}
}

// B02: all channels to one merchant share its key: by path, by body, and by what stands behind an API key.
func TestB02_AllChannelsShareTheKey(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		guard := s.newGuard(WithValue("apiMerchant", func(*http.Request) (string, error) { return "77", nil }))
		g := newGate()
		h := func(_ http.ResponseWriter, r *http.Request) { _ = g.pass(r.Context()) }
		s.With(guard.Lock("quota:{merchant|int}", Wait(0))).Post("/web/{merchant}", h)
		s.With(guard.Lock("quota:{body.merchant}", Wait(0))).Post("/mini", h)
		s.With(guard.Lock("quota:{apiMerchant}", Wait(0))).Post("/open", h)
		channels := []call{{path: "/web/077"}, {path: "/mini", body: `{"merchant": 77}`}, {path: "/open"}}
		for i, holder := range channels {
			first := s.later(holder)
			g.wait(t)
			for _, rival := range channels {
				if got := s.do(rival); got.status != 429 {
					t.Errorf("channel %d holds it, %s: %d", i, rival.path, got.status)
				}
			}
			g.open <- struct{}{}
			receive(t, first)
		}
	})
}

// F018: the handler overruns the TTL with its renewals cut off: its answer arrives unchanged, and the late release is
// counted and logged.
func TestF018_LateReleaseIsNoAnswer(t *testing.T) {
	srv := testserver.Redis(t)
	proxy := faultproxy.Redis(t, srv.Addr())
	rdb := srv.Client(t)
	reader := sdkmetric.NewManualReader()
	s := newShop(t, rdb, srv.Prefix(t))
	through := srv.Client(t, redisVia(proxy.Addr()))
	locker, err := lock.New(through, lock.Prefix(s.prefix), lock.WithLogger(slogTo(s.logs)), lock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	guard := s.newGuard(WithLocker(locker))
	s.With(guard.Lock("balance:{userID}", TTL(300*time.Millisecond))).Post("/a", func(w http.ResponseWriter, r *http.Request) {
		proxy.Stall()
		<-r.Context().Done()
		if cause := context.Cause(r.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("cause %v", cause)
		}
		proxy.Heal(t)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "order 1")
	})
	if got := s.do(call{path: "/a"}); got.status != 201 || got.body != "order 1" {
		t.Errorf("%d %s", got.status, got.body)
	}
	var rm metricdata.ResourceMetrics
	must(t, reader.Collect(t.Context(), &rm))
	if text := fmt.Sprint(rm); !strings.Contains(text, "holdfast.lock.hold.duration") || !strings.Contains(text, "lost") && !strings.Contains(text, "expired_before_release") {
		t.Errorf("not counted: %s", text)
	}
	if !s.logs.has("lost") {
		t.Errorf("not logged:\n%s", s.logs)
	}
}

// F019: a data key of the name of a lock is no obstacle and stays as it is.
func TestF019_LocksHaveTheirOwnPrefix(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		must(t, s.rdb.Set(t.Context(), s.prefix+"stock:1", "data", time.Minute).Err())
		s.With(s.guard.Lock("stock:{id}")).Post("/{id}", nothing)
		if got := s.do(call{path: "/1"}); got.status != 200 || s.rdb.Get(t.Context(), s.prefix+"stock:1").Val() != "data" {
			t.Errorf("%d", got.status)
		}
	})
}

// F016 and F020: what the handler does last, a commit or a rollback after an error or a panic, is done under the lock;
// then the lock is gone.
func TestF016_TheLockOutlivesTheCommit(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		held := make(chan int, 3)
		transaction := func(fn func() error) (err error) {
			defer func() { held <- len(s.keys("lock:")) }() // commit or rollback
			return fn()
		}
		s.With(recoverer, s.guard.Lock("balance:{userID}")).Post("/{how}", func(w http.ResponseWriter, r *http.Request) {
			err := transaction(func() error {
				switch r.PathValue("how") {
				case "fails":
					return errTest
				case "panics":
					panic("on purpose")
				}
				return nil
			})
			if err != nil {
				WriteProblem(w, r, err)
			}
		})
		for how, status := range map[string]int{"commits": 200, "fails": 500, "panics": 500} {
			if got := s.do(call{path: "/" + how}); got.status != status {
				t.Errorf("%s: %d", how, got.status)
			}
			if n := <-held; n != 1 {
				t.Errorf("%s: %d locks while the transaction ended, want 1", how, n)
			}
			if keys := s.keys("lock:"); len(keys) != 0 {
				t.Errorf("%s: left behind %v", how, keys)
			}
		}
	})
}

// F021: http.TimeoutHandler outside: the client gets its 503, and the key stays until the handler has ended. (Inside it is
// refused by Validate.) F025, letsencrypt/ctile PR #17: a panic there moves to another goroutine and still releases, once.
func TestF021_TimeoutHandlerOutside(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		panics := make(chan any, 2)
		inner := chi.NewRouter()
		inner.With(s.guard.Lock("balance:{userID}")).Post("/slow", func(_ http.ResponseWriter, r *http.Request) {
			g.entered <- struct{}{}
			<-g.open // it does not look at its context
		})
		inner.With(s.guard.Lock("balance:{userID}")).Post("/panics", func(http.ResponseWriter, *http.Request) { panic("on purpose") })
		s.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if v := recover(); v != nil {
						panics <- v
						w.WriteHeader(http.StatusInternalServerError)
					}
				}()
				next.ServeHTTP(w, r)
			})
		})
		s.Mount("/", http.TimeoutHandler(inner, 200*time.Millisecond, "too slow"))
		if got := s.do(call{path: "/slow"}); got.status != 503 || got.body != "too slow" {
			t.Errorf("%d %q", got.status, got.body)
		}
		g.wait(t)
		if keys := s.keys("lock:"); len(keys) != 1 {
			t.Errorf("the handler still works, and the keys are %v", keys)
		}
		close(g.open)
		testserver.Eventually(t, 5*time.Second, func() bool { return len(s.keys("lock:")) == 0 }, "the handler has ended: the lock is still there")

		if got := s.do(call{path: "/panics"}); got.status != 500 {
			t.Errorf("panics: %d", got.status)
		}
		if v := <-panics; v != "on purpose" || len(panics) != 0 {
			t.Errorf("reported %v, and %d more", v, len(panics))
		}
		if keys := s.keys("lock:"); len(keys) != 0 {
			t.Errorf("after the panic: %v", keys)
		}
	})
}

// chi's Timeout, on either side: the lock is held until the handler returns.
func TestChiTimeoutOnEitherSide(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		timeout := chimiddleware.Timeout(500 * time.Millisecond)
		var held atomic.Int64
		h := func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			held.Store(int64(len(s.keys("lock:"))))
		}
		s.With(timeout, s.guard.Lock("balance:{userID}")).Post("/outside", h)
		s.With(s.guard.Lock("balance:{userID}"), timeout).Post("/inside", h)
		for _, path := range []string{"/outside", "/inside"} {
			if got := s.do(call{path: path}); got.status != 504 || held.Load() != 1 || len(s.keys("lock:")) != 0 {
				t.Errorf("%s: %d, %d locks in the handler, %v after it", path, got.status, held.Load(), s.keys("lock:"))
			}
		}
	})
}

// D25 and D44: a request waits for its lock no longer than its own deadline, and is answered even then.
func TestWaitEndsWithTheRequestsDeadline(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		s.With(s.guard.Lock("balance:{userID}")).Post("/hold", func(_ http.ResponseWriter, r *http.Request) { _ = g.pass(r.Context()) })
		deadline := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
				defer cancel()
				next.ServeHTTP(w, r.WithContext(ctx))
			})
		}
		over := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				cancel()
				next.ServeHTTP(w, r.WithContext(ctx))
			})
		}
		s.With(deadline, s.guard.Lock("balance:{userID}", Wait(time.Minute))).Post("/a", nothing)
		s.With(over, s.guard.Lock("balance:{userID}")).Post("/over", nothing)
		holder := s.later(call{path: "/hold"})
		g.wait(t)
		start := time.Now()
		if got := s.do(call{path: "/a"}); got.status != 429 || time.Since(start) > 2*time.Second {
			t.Errorf("%d after %v", got.status, time.Since(start))
		}
		if got := s.do(call{path: "/over"}); got.status != 503 || got.code() != "unavailable" {
			t.Errorf("no time left: %d %s", got.status, got.body)
		}
		close(g.open)
		receive(t, holder)
	})
}

// B06: Redis away is 503 and never busy; PassAtMost lets so many through, marked, and no more.
func TestLockWhileRedisIsAway(t *testing.T) {
	s, srv := privateShop(t)
	g := newGate()
	s.With(s.guard.Lock("balance:{userID}")).Post("/strict", func(http.ResponseWriter, *http.Request) { t.Error("called") })
	s.With(s.guard.Lock("balance:{userID}", PassAtMost(2))).Post("/open", func(_ http.ResponseWriter, r *http.Request) {
		if _, ok := lock.FromContext(r.Context()); ok {
			t.Error("a lease in the context: SQL would take its fence for true")
		}
		_ = g.pass(r.Context())
	})
	srv.Kill(t)
	if got := s.do(call{path: "/strict"}); got.status != 503 || got.code() != "unavailable" || got.header.Get("Retry-After") == "" {
		t.Errorf("strict: %d %v %s", got.status, got.header, got.body)
	}
	replies := make(chan reply, 20)
	for i := range 20 {
		go func() { replies <- s.do(call{path: "/open", user: strconv.Itoa(i)}) }()
	}
	g.wait(t)
	g.wait(t)
	for range 18 {
		if got := receive(t, replies); got.status != 503 {
			t.Errorf("beyond the limit: %d", got.status)
		}
	}
	close(g.open)
	for range 2 {
		if got := receive(t, replies); got.status != 200 || got.header.Get("Lock-Status") != "bypassed" {
			t.Errorf("within the limit: %d %v", got.status, got.header)
		}
	}
	if !s.logs.has(`"level":"WARN"`, "bypassed") {
		t.Errorf("not logged:\n%s", s.logs)
	}
}

// Two accounts in one rule are taken together in one order: opposite transfers at once all succeed.
func TestAlsoTakesAllAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var inside, most atomic.Int64
		s.With(s.guard.Lock("account:{body.from}", Also("account:{body.to}"), Wait(10*time.Second))).Post("/transfers", func(http.ResponseWriter, *http.Request) {
			most.Store(max(most.Load(), inside.Add(1)))
			if keys := s.keys("lock:"); !slices.Contains(keys, "lock:account:a") || !slices.Contains(keys, "lock:account:b") {
				t.Errorf("keys %v", keys)
			}
			inside.Add(-1)
		})
		var wg sync.WaitGroup
		s.server()
		for i := range 40 {
			body := []string{`{"from":"a","to":"b"}`, `{"from":"b","to":"a"}`, `{"from":"a","to":"b"}`}[i%3]
			wg.Go(func() {
				if got := s.do(call{path: "/transfers", body: body}); got.status != 200 {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 {
			t.Errorf("%d at once inside", most.Load())
		}
	})
}

// With Dedup and Lock on one route a request waits for three round trips: begin, acquire, and complete beside release.
// A panic and a complete that fails wait for the release too.
func TestCompleteAndReleaseSideBySide(t *testing.T) {
	srv := testserver.Redis(t)
	proxy := faultproxy.Redis(t, srv.Addr())
	through := srv.Client(t, redisVia(proxy.Addr()))
	s := newShop(t, through, srv.Prefix(t))
	s.rdb = srv.Client(t)
	s.With(recoverer, s.guard.Dedup("{userID}"), s.guard.Lock("balance:{userID}")).Post("/{how}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("how") == "panics" {
			panic("on purpose")
		}
		io.WriteString(w, "ok")
	})
	var warm []<-chan reply
	for i := range 8 { // scripts are loaded, connections made
		warm = append(warm, s.later(call{path: "/warm", key: strconv.Itoa(i), user: strconv.Itoa(i)}))
	}
	for _, ch := range warm {
		receive(t, ch)
	}
	before := proxy.Count(faultproxy.Named("EVALSHA").Containing(s.prefix))
	const delay = 100 * time.Millisecond
	proxy.Delay(delay)
	for how, status := range map[string]int{"returns": 200, "panics": 500} {
		start := time.Now()
		got := s.do(call{path: "/" + how, key: how})
		took := time.Since(start)
		// The proxy delays each way, or each message: measured with one command.
		one := time.Now()
		must(t, through.Ping(t.Context()).Err())
		trip := time.Since(one)
		if trips := float64(took) / float64(trip); got.status != status || trips > 3.6 {
			t.Errorf("%s: %d after %v, %.1f round trips of %v, want 3", how, got.status, took, trips, trip)
		}
		if keys := s.keys("lock:"); len(keys) != 0 {
			t.Errorf("%s: left behind %v", how, keys)
		}
	}
	if n := proxy.Count(faultproxy.Named("EVALSHA").Containing(s.prefix)) - before; n != 8 {
		t.Errorf("%d commands for two requests, want 4 each", n)
	}
}

// F024: the pattern is the route everywhere, however many paths there are; the raw path is nowhere.
func TestF024_RouteIsThePattern(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	s := miniShop(t, WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	s.With(s.guard.Dedup("{userID}"), s.guard.Lock("stock:{itemID}")).Post("/items/{itemID}", nothing)
	for i := range 1000 {
		s.do(call{path: "/items/planted" + strconv.Itoa(i), key: strconv.Itoa(i)})
	}
	var rm metricdata.ResourceMetrics
	must(t, reader.Collect(t.Context(), &rm))
	text := fmt.Sprint(rm)
	if strings.Contains(text, "planted") || s.logs.has("planted") || !strings.Contains(text, "/items/{itemID}") {
		t.Errorf("a path is a label, or the pattern is none")
	}
	at := 0
	for _, p := range s.guard.rules {
		if m := p.common().places.byLast.Load(); m != nil {
			at += len(*m)
		}
	}
	if at != 2 {
		t.Errorf("%d places for one route under two rules", at)
	}
}

// go-chi/chi PR #1028, #1157: chi reuses its routing context; nothing of ours reads it once the request is over. For the
// race detector.
func TestChi1157_PooledContextIsNotReadLater(t *testing.T) {
	s := miniShop(t)
	s.Use(s.guard.RequestID("{userID}", Optional()))
	s.Route("/items/{itemID}", func(r chi.Router) {
		r.Use(s.guard.Dedup("{userID}"))
		r.With(s.guard.Lock("stock:{itemID}", TTL(900*time.Millisecond))).Post("/", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(chi.URLParam(r, "itemID"), "50") { // long enough to be renewed
				<-time.After(400 * time.Millisecond)
			}
			io.WriteString(w, chi.URLParam(r, "itemID")+dedup.FromContext(r.Context()).RequestID()[:1])
		})
	})
	s.server()
	var wg sync.WaitGroup
	for worker := range 20 {
		wg.Go(func() {
			for i := range 100 {
				id := strconv.Itoa(worker*100 + i)
				if got := s.do(call{path: "/items/" + id, key: id}); got.status == 200 && !strings.HasPrefix(got.body, id) {
					t.Errorf("%s: %d %q", id, got.status, got.body)
				}
			}
		})
	}
	wg.Wait()
}

// go-chi/chi#45, #540, #797, #127: a rule is named by what it was given, else by method and pattern.
func TestChi540_RuleHasAName(t *testing.T) {
	s := miniShop(t)
	g := newGate()
	h := func(_ http.ResponseWriter, r *http.Request) { _ = g.pass(r.Context()) }
	errs := make(chan error, 2)
	guard := s.newGuard(WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
		errs <- err
		w.WriteHeader(Describe(err).Status)
	}))
	s.With(guard.Lock("a:{userID}", Wait(0))).Post("/items/{id}", h)
	s.With(guard.Lock("a:{userID}", Wait(0), RouteName("named"))).Post("/named", h)
	holder := s.later(call{path: "/items/1"})
	g.wait(t)
	for path, name := range map[string]string{"/items/2": "POST /items/{id}", "/named": "named"} {
		got := s.do(call{path: path}) // go-chi/httprate#4: an answer of one's own
		if err := <-errs; got.status != 429 || got.body != "" || !strings.Contains(err.Error(), strconv.Quote(name)) || strings.Contains(err.Error(), "a:42") {
			t.Errorf("%s: %d, %v", path, got.status, err)
		}
	}
	close(g.open)
	receive(t, holder)
}

// RequestID: the id of Dedup, without Redis and without a record.
func TestRequestID(t *testing.T) {
	s := miniShop(t)
	ids := make(chan *dedup.Execution, 1)
	h := func(_ http.ResponseWriter, r *http.Request) { ids <- dedup.FromContext(r.Context()) }
	s.Route("/a", func(r chi.Router) { r.With(s.guard.RequestID("{userID}")).Post("/{id}", h) })
	deduped := newMux()
	deduped.With(s.guard.Dedup("{userID}")).Post("/a/{id}", h)
	s.do(call{path: "/a/1", key: "k"})
	id := <-ids
	s.do(call{path: "/a/2", key: `"k"`}) // another path, and no record to compare it with
	if again := <-ids; again.RequestID() != id.RequestID() || len(id.RequestID()) != 43 || id.Attempt() != 0 {
		t.Errorf("%q, then %q", id.RequestID(), again.RequestID())
	}
	if keys := s.keys(""); len(keys) != 0 {
		t.Errorf("keys %v, want none", keys)
	}
	if got := s.do(call{path: "/a/1"}); got.status != 400 || got.code() != "key_missing" {
		t.Errorf("without a key: %d %s", got.status, got.body)
	}
	other := &shop{Mux: deduped, t: t, rdb: s.rdb, prefix: s.prefix, logs: s.logs}
	other.do(call{path: "/a/1", key: "k"})
	if with := <-ids; with.RequestID() != id.RequestID() {
		t.Errorf("Dedup derives %q, RequestID %q", with.RequestID(), id.RequestID())
	}
}

// After Close requests are refused, and nothing of the guard is left.
func TestClose(t *testing.T) {
	s := miniShop(t)
	g := newGate()
	s.With(s.guard.Dedup("{userID}"), s.guard.Lock("a:{userID}")).Post("/a", func(_ http.ResponseWriter, r *http.Request) { _ = g.pass(r.Context()) })
	first := s.later(call{path: "/a", key: "k"})
	g.wait(t)
	closed := make(chan error, 1)
	go func() { closed <- s.guard.Close(context.Background()) }()
	testserver.Eventually(t, 5*time.Second, func() bool { return s.do(call{path: "/a", key: "l"}).code() == "closed" }, "new requests are let in")
	select {
	case err := <-closed:
		t.Fatalf("closed while a request is under way: %v", err)
	default:
	}
	close(g.open)
	if got := receive(t, first); got.status != 200 {
		t.Errorf("the one under way: %d", got.status)
	}
	if err := receive(t, closed); err != nil || len(s.keys("lock:")) != 0 {
		t.Errorf("%v, left behind %v", err, s.keys("lock:"))
	}
	if err := s.guard.Close(context.Background()); err != nil {
		t.Errorf("again: %v", err)
	}
}

func slogTo(l *logBook) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Values that are each within their limit and together make no key are the client's fault.
func TestValuesThatAreTooLongTogether(t *testing.T) {
	s := miniShop(t)
	s.With(s.guard.Lock("x:{header.A}:{header.B}:{header.C}")).Post("/", nothing)
	long := strings.Repeat("/", 128)
	got := s.do(call{path: "/", header: http.Header{"A": {long}, "B": {long}, "C": {long}}})
	if got.status != http.StatusBadRequest || got.code() != "invalid" || strings.Contains(got.body, "//") {
		t.Errorf("%d %s, want 400 invalid, without the values", got.status, got.body)
	}
}
