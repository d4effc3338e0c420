package middleware

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// F1: an answer that counts as done is seen only after it is stored.
func TestF1_VisibleMeansDurable(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		st := s.store()
		storing, goOn := make(chan struct{}), make(chan struct{})
		var sent atomic.Bool
		outside := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(telling{w, &sent}, r) })
		}
		st.complete = func(ctx context.Context, o dedup.Owner, r dedup.Result, ttl time.Duration) error {
			if sent.Load() {
				t.Error("sent before it was stored")
			}
			if ttl != 24*time.Hour {
				t.Errorf("stored for %v, want 24h", ttl)
			}
			close(storing)
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return st.Store.Complete(context.WithoutCancel(ctx), o, r, ttl)
		}
		var c counter
		s.With(outside, s.newGuard(WithStore(st)).Dedup("{userID}")).Post("/a", c.ServeHTTP)
		first := s.later(call{path: "/a", key: "k"})
		receive(t, storing)
		select {
		case got := <-first:
			t.Errorf("seen before it was stored: %d", got.status)
		case <-time.After(50 * time.Millisecond):
		}
		close(goOn)
		if got := receive(t, first); got.status != 201 || !sent.Load() {
			t.Errorf("%d", got.status)
		}
		if _, fields := s.record(); fields["st"] != "done" {
			t.Errorf("record %v", fields)
		}
	})
}

// telling is a writer that tells when the answer begins.
type telling struct {
	http.ResponseWriter
	sent *atomic.Bool
}

func (w telling) WriteHeader(code int) {
	w.sent.Store(true)
	w.ResponseWriter.WriteHeader(code)
}

// F2: a 4xx is not stored and its key is free: a corrected body may use it. F028: a refusal is judged afresh each time.
// Waiters in the process get the same refusal instead of running one after the other.
func TestF2_RefusalIsForgotten(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		var runs atomic.Int64
		s.With(s.guard.Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			code, _ := io.ReadAll(r.Body)
			if string(code) != "right" {
				_ = g.pass(r.Context())
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, "wrong code")
			}
		})
		first := s.later(call{path: "/a", key: "k", body: "wrong"})
		g.wait(t)
		waiting := s.later(call{path: "/a", key: "k", body: "wrong"})
		select {
		case got := <-waiting:
			t.Fatalf("did not wait: %d", got.status)
		case <-time.After(100 * time.Millisecond):
		}
		close(g.open)
		if got := receive(t, first); got.status != 400 || got.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("first: %d %v", got.status, got.header)
		}
		if got := receive(t, waiting); got.status != 400 || got.body != "wrong code" || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("waiting: %d %q %v", got.status, got.body, got.header)
		}
		if keys := s.keys("idem:"); len(keys) != 0 || runs.Load() != 1 {
			t.Errorf("left behind %v, %d runs", keys, runs.Load())
		}
		if got := s.do(call{path: "/a", key: "k", body: "right"}); got.status != 200 {
			t.Errorf("the right code: %d %s", got.status, got.body)
		}
	})
}

// F2: our own refusal before the handler ran is forgotten too, whatever its status and whatever StoreIf says.
func TestF2_OwnRefusalIsForgotten(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		storeAll := StoreIf(func(int, http.Header, []byte) bool { return true })
		s.With(s.guard.Lock("balance:{userID}")).Post("/hold", func(_ http.ResponseWriter, r *http.Request) { _ = g.pass(r.Context()) })
		s.With(s.guard.Dedup("{userID}", storeAll), s.guard.Lock("balance:{userID}", Wait(0))).Post("/a", func(http.ResponseWriter, *http.Request) {})
		holder := s.later(call{path: "/hold"})
		g.wait(t)
		if got := s.do(call{path: "/a", key: "k"}); got.status != 429 || got.header.Get("Retry-After") == "" {
			t.Errorf("busy: %d %v", got.status, got.header)
		}
		if keys := s.keys("idem:"); len(keys) != 0 {
			t.Errorf("left behind %v", keys)
		}
		close(g.open)
		receive(t, holder)
		if got := s.do(call{path: "/a", key: "k"}); got.status != 200 || got.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("again: %d %v", got.status, got.header)
		}
	})
}

// F3 and F032: after a 5xx, or a 2xx that StoreIf refused, the same key runs again at once, as the next attempt; nothing
// is pinned. After a 2xx that counts it is replayed.
func TestF3_FailureRunsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		inBody := StoreIf(func(status int, h http.Header, body []byte) bool {
			return status == 200 && h.Get("Content-Type") != "" && strings.Contains(string(body), `"code":0`)
		})
		s.With(s.guard.Dedup("{userID}", inBody)).Post("/{first}", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if attempt := dedup.FromContext(r.Context()).Attempt(); attempt == 1 {
				status, _ := strconv.Atoi(r.PathValue("first"))
				w.WriteHeader(status)
				io.WriteString(w, `{"code":7}`)
				return
			}
			io.WriteString(w, `{"code":0}`)
		})
		for _, status := range []int{500, 503, 200, 302} {
			path := "/" + strconv.Itoa(status)
			if got := s.do(call{path: path, key: path}); got.status != status {
				t.Errorf("%d: first %d", status, got.status)
			}
			if got := s.do(call{path: path, key: path}); got.status != 200 || got.body != `{"code":0}` || got.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%d: again %d %q", status, got.status, got.body)
			}
			if got := s.do(call{path: path, key: path}); got.status != 200 || got.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%d: third %d %v", status, got.status, got.header)
			}
		}
	})
}

// F4: a panic goes on unchanged, the claim has failed, and who waits is told to come back instead of running into the
// same panic.
func TestF4_Panic(t *testing.T) {
	for name, value := range map[string]any{"a panic": "on purpose", "ErrAbortHandler": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, s *shop) {
				g := newGate()
				recovered := make(chan any, 10)
				s.Use(func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer func() {
							if v := recover(); v != nil {
								recovered <- v
								w.WriteHeader(http.StatusBadGateway)
							}
						}()
						next.ServeHTTP(w, r)
					})
				})
				s.With(s.guard.Dedup("{userID}"), s.guard.Lock("balance:{userID}")).Post("/a", func(w http.ResponseWriter, r *http.Request) {
					if dedup.FromContext(r.Context()).Attempt() == 1 {
						io.WriteString(w, "half an answer")
						_ = g.pass(r.Context())
						panic(value)
					}
				})
				first := s.later(call{path: "/a", key: "k"})
				g.wait(t)
				waiting := s.later(call{path: "/a", key: "k"})
				select {
				case got := <-waiting:
					t.Fatalf("did not wait: %d", got.status)
				case <-time.After(100 * time.Millisecond):
				}
				close(g.open)
				if got := receive(t, first); got.status != 502 || got.body != "" {
					t.Errorf("first: %d %q", got.status, got.body)
				}
				if v := receive(t, recovered); v != value {
					t.Errorf("panicked again with %v, want %v", v, value)
				}
				if got := receive(t, waiting); got.status != 503 || got.code() != "unavailable" || got.header.Get("Retry-After") == "" {
					t.Errorf("waiting: %d %s", got.status, got.body)
				}
				if keys := s.keys("lock:"); len(keys) != 0 {
					t.Errorf("the lock is still there: %v", keys)
				}
				if _, fields := s.record(); fields["st"] != "failed" {
					t.Errorf("record %v", fields)
				}
				if got := s.do(call{path: "/a", key: "k"}); got.status != 200 {
					t.Errorf("again: %d", got.status)
				}
			})
		})
	}
}

// F5: nothing written is an implicit 200 while the request lives, and nothing at all once its time is over: chi's Timeout
// answers 504 and the key is free.
func TestF5_NothingWritten(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var runs atomic.Int64
		silent := func(_ http.ResponseWriter, r *http.Request) {
			if runs.Add(1) == 1 {
				<-r.Context().Done()
			}
		}
		s.With(s.guard.Dedup("{userID}")).Post("/live", func(http.ResponseWriter, *http.Request) {})
		s.With(chimiddleware.Timeout(50*time.Millisecond), s.guard.Dedup("{userID}")).Post("/over", silent)
		for i := range 2 {
			if got := s.do(call{path: "/live", key: "k"}); got.status != 200 || (got.header.Get("Idempotent-Replayed") == "true") != (i == 1) {
				t.Errorf("live: %d %v", got.status, got.header)
			}
		}
		if got := s.do(call{path: "/over", key: "l"}); got.status != 504 {
			t.Errorf("over: %d", got.status)
		}
		if got := s.do(call{path: "/over", key: "l"}); got.status != 200 || got.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("again: %d %v", got.status, got.header)
		}
	})
}

// F6: the client has gone and the handler finished: stored all the same, and the retry gets it.
func TestF6_ClientGone(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		inside := newGate()
		var c counter
		s.With(s.guard.Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, r *http.Request) {
			_ = inside.pass(r.Context())
			c.ServeHTTP(w, r)
		})
		ctx, leave := context.WithCancel(t.Context())
		first := s.later(call{path: "/a", key: "k", ctx: ctx})
		inside.wait(t)
		leave()
		receive(t, first)
		if got := s.do(call{path: "/a", key: "k"}); got.status != 201 || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("retry: %d %v", got.status, got.header)
		}
		c.ran(t, 1)
	})
}

// F7: the lease has lapsed and nobody took over: the result is accepted. (Taken over: TestB3.)
func TestF7_LapsedIsAccepted(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		var c counter
		s.With(s.newGuard(WithStore(s.lapsing(20*time.Millisecond))).Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, r *http.Request) {
			_ = g.pass(r.Context())
			c.ServeHTTP(w, r)
		})
		first := s.later(call{path: "/a", key: "k"})
		g.wait(t)
		s.lapsed(t)
		close(g.open)
		if got := receive(t, first); got.status != 201 {
			t.Errorf("first: %d", got.status)
		}
		if got := s.do(call{path: "/a", key: "k"}); got.status != 201 || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %d %v", got.status, got.header)
		}
		c.ran(t, 1)
	})
}

// F8: storing fails: tried again within a second, then the answer is sent and the record stays running, and it is tried
// on. It is never given up: that is the usual way to run twice.
func TestF8_StoringFails(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var away atomic.Bool
		var tried atomic.Int64
		st := s.store()
		st.complete = func(ctx context.Context, o dedup.Owner, r dedup.Result, ttl time.Duration) error {
			tried.Add(1)
			if away.Load() {
				return dedup.ErrUnavailable
			}
			return st.Store.Complete(ctx, o, r, ttl)
		}
		st.fail = func(context.Context, dedup.Owner) error { t.Error("given up"); return nil }
		var c counter
		s.With(s.newGuard(WithStore(st)).Dedup("{userID}")).Post("/a", c.ServeHTTP)
		away.Store(true)
		start := time.Now()
		if got := s.do(call{path: "/a", key: "k"}); got.status != 201 || tried.Load() < 2 {
			t.Errorf("first: %d after %d tries", got.status, tried.Load())
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("answered after %v, want about 1s", took)
		}
		if _, fields := s.record(); fields["st"] != "running" {
			t.Errorf("record %v, want it running", fields)
		}
		if got := s.do(call{path: "/a", key: "k"}); got.status != 201 || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("meanwhile: %d %v", got.status, got.header)
		}
		away.Store(false)
		testserver.Eventually(t, 10*time.Second, func() bool { _, fields := s.record(); return fields["st"] == "done" }, "not stored later")
		if got := s.do(call{path: "/a", key: "k"}); got.status != 201 {
			t.Errorf("later: %d", got.status)
		}
		c.ran(t, 1)
		if !s.logs.has(`"level":"ERROR"`, "persist_failed") {
			t.Errorf("nothing in the log:\n%s", s.logs)
		}
	})
}

// F9: the process dies before its effect or after it: the claim lapses and is taken over, the handler sees that; after
// the answer was stored it is replayed by any other process.
func TestF9_Crash(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		st := s.lapsing(20 * time.Millisecond)
		var alive atomic.Bool
		st.complete = func(ctx context.Context, o dedup.Owner, r dedup.Result, ttl time.Duration) error {
			if !alive.Load() {
				return dedup.ErrUnavailable
			}
			return st.Store.Complete(ctx, o, r, ttl)
		}
		defer alive.Store(true) // what was left to store is now too late
		dying := s.newGuard(WithStore(st))
		handler := func(w http.ResponseWriter, r *http.Request) {
			e := dedup.FromContext(r.Context())
			io.WriteString(w, strconv.Itoa(e.Attempt())+strconv.FormatBool(e.Takeover()))
		}
		first := miniRouter(s, dying.Dedup("{userID}"), handler)
		if got := first(call{path: "/a", key: "k"}); got.body != "1false" {
			t.Errorf("first: %q", got.body)
		}
		s.lapsed(t)
		second := miniRouter(s, s.newGuard().Dedup("{userID}"), handler)
		if got := second(call{path: "/a", key: "k"}); got.body != "2true" {
			t.Errorf("taken over: %q", got.body)
		}
		third := miniRouter(s, s.newGuard().Dedup("{userID}"), handler)
		if got := third(call{path: "/a", key: "k"}); got.body != "2true" || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("replayed: %q %v", got.body, got.header)
		}
	})
}

// F029: method and route belong to the key: one id on two routes is two requests.
func TestF029_OneKeyOnTwoRoutes(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var a, b counter
		s.With(s.guard.Dedup("{userID}")).Post("/a", a.ServeHTTP)
		s.With(s.guard.Dedup("{userID}")).Post("/b", b.ServeHTTP)
		s.With(s.guard.Dedup("{userID}")).Patch("/a", a.ServeHTTP)
		for range 2 {
			for _, c := range []call{{path: "/a", key: "k"}, {path: "/b", key: "k"}, {method: "PATCH", path: "/a", key: "k"}} {
				if got := s.do(c); got.status != 201 {
					t.Errorf("%v: %d", c, got.status)
				}
			}
		}
		a.ran(t, 2)
		b.ran(t, 1)
	})
}

// F031: the store says "done", and whatever fails afterwards, the handler is not called.
func TestF031_AfterAHitTheHandlerIsNeverCalled(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		st := s.store()
		var away atomic.Bool
		st.begin = func(ctx context.Context, b dedup.BeginRequest) (dedup.Answer, error) {
			if away.Load() {
				return dedup.Answer{}, dedup.ErrUnavailable
			}
			return st.Store.Begin(ctx, b)
		}
		s.With(s.newGuard(WithStore(st)).Dedup("{userID}")).Post("/a", c.ServeHTTP)
		s.do(call{path: "/a", key: "k"})
		for i := range 4 {
			away.Store(i%2 == 0)
			if got := s.do(call{path: "/a", key: "k"}); got.status != map[bool]int{true: 503, false: 201}[i%2 == 0] {
				t.Errorf("%d: %d", i, got.status)
			}
		}
		c.ran(t, 1)
	})
}

// F034: a proxy that makes a new X-Request-Id each time does not disturb the default key; with Key the header counts,
// and one id on different requests shows as 422.
func TestF034_ProxyOverwritesTheTracingHeader(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c, byHeader counter
		s.With(s.guard.Dedup("{userID}")).Post("/a", c.ServeHTTP)
		s.With(s.guard.Dedup("{userID}", Key("{header.X-Request-Id}"))).Post("/b", byHeader.ServeHTTP)
		for i := range 3 {
			header := http.Header{"X-Request-Id": {"proxy-" + strconv.Itoa(i)}}
			if got := s.do(call{path: "/a", key: "k", header: header}); got.status != 201 {
				t.Errorf("%d", got.status)
			}
		}
		c.ran(t, 1)
		same := http.Header{"X-Request-Id": {"1"}}
		s.do(call{path: "/b", body: "1", header: same})
		if got := s.do(call{path: "/b", body: "2", header: same}); got.status != 422 {
			t.Errorf("one id, two requests: %d", got.status)
		}
	})
}

// F035: chi's RequestID makes ids of its own; Dedup reads the client's value, wherever chi's is mounted, and the log line
// has both.
func TestF035_ChisRequestIDDoesNotCount(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var outside, inside counter
		s.With(chimiddleware.RequestID, s.guard.Dedup("{userID}", Key("{header.X-Request-Id}"))).Post("/a", outside.ServeHTTP)
		s.With(s.guard.Dedup("{userID}", Key("{header.X-Request-Id}")), chimiddleware.RequestID, chimiddleware.RequestID).Post("/b", inside.ServeHTTP)
		for _, path := range []string{"/a", "/b"} {
			if got := s.do(call{path: path}); got.status != 400 || got.code() != "key_missing" {
				t.Errorf("%s without the client's header: %d %s", path, got.status, got.body)
			}
			for range 2 {
				if got := s.do(call{path: path, header: http.Header{"X-Request-Id": {"client-7"}}}); got.status != 201 {
					t.Errorf("%s: %d", path, got.status)
				}
			}
		}
		outside.ran(t, 1)
		inside.ran(t, 1)
		req := dedup.Request{Key: "client-7"}
		if !s.logs.has(`"request_hash":"`+req.Hash()+`"`, `"request_id":"client-7"`) {
			t.Errorf("no line has the request_hash %s next to chi's request_id:\n%s", req.Hash(), s.logs)
		}
	})
}
