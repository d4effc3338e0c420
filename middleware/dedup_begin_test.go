package middleware

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func eventuallyPast(t *testing.T, s *shop, deadline string) {
	t.Helper()
	ms, err := strconv.ParseInt(deadline, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, 5*time.Second, func() bool {
		now, err := s.rdb.Time(context.Background()).Result()
		return err == nil && now.UnixMilli() > ms
	}, "the lease has not lapsed")
}

// B1: absent: runs as attempt 1, under a record id that is no text of the client's.
func TestB1_Absent(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		s.With(s.guard.Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, r *http.Request) {
			run := dedup.FromContext(r.Context())
			if len(run.RequestID()) != 43 || run.Attempt() != 1 || run.Takeover() {
				t.Errorf("id %q, attempt %d, takeover %v", run.RequestID(), run.Attempt(), run.Takeover())
			}
			w.WriteHeader(http.StatusCreated)
		})
		if got := s.do(call{path: "/a", key: "client-key"}); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%d %v", got.status, got.header)
		}
		key, fields := s.record()
		for _, text := range []string{"client-key", "42"} {
			if strings.Contains(key, text) {
				t.Errorf("%q is in the key %q", text, key)
			}
		}
		if fields["st"] != "done" || fields["att"] != "1" || fields["code"] != "201" {
			t.Errorf("record %v", fields)
		}
	})
}

// B2: the same request is running: wait for it, then its answer; another request under the key is refused at once.
func TestB2_Running(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		var c counter
		s.With(s.guard.Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, r *http.Request) {
			_ = g.pass(r.Context())
			c.ServeHTTP(w, r)
		})
		first := s.later(call{path: "/a", key: "k", body: "1"})
		g.wait(t)
		start := time.Now()
		if got := s.do(call{path: "/a", key: "k", body: "2"}); got.status != 422 || got.code() != "mismatch" || got.header.Get("Retry-After") != "" {
			t.Errorf("another body: %d %v %s", got.status, got.header, got.body)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("a mismatch was told after %v", took)
		}
		second := s.later(call{path: "/a", key: "k", body: "1"})
		start = time.Now()
		if got := s.do(call{path: "/a", key: "k", body: "1"}); got.status != 409 || got.code() != "in_flight" || got.header.Get("Retry-After") != "1" {
			t.Errorf("still running: %d %v %s", got.status, got.header, got.body)
		}
		if took := time.Since(start); took < 1900*time.Millisecond || took > 6*time.Second {
			t.Errorf("waited %v, want 2s", took)
		}
		receive(t, second) // it has waited as long

		third := s.later(call{path: "/a", key: "k", body: "1"})
		select {
		case got := <-third:
			t.Fatalf("did not wait: %d %s", got.status, got.body)
		case <-time.After(50 * time.Millisecond):
		}
		close(g.open)
		a, b := receive(t, first), receive(t, third)
		if a.status != 201 || b.status != 201 || a.body != b.body || b.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("first %d %q, third %d %q %v", a.status, a.body, b.status, b.body, b.header)
		}
		c.ran(t, 1)
	})
}

// B3: an earlier attempt has lapsed: it is taken over as the next attempt, which the handler can see. With
// TakeoverReject it is refused. Another request under the key is refused in either case.
func TestB3_Lapsed(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		stopped := s.newGuard(WithStore(s.lapsing(20 * time.Millisecond)))
		g := newGate()
		var attempts atomic.Int64
		handler := func(w http.ResponseWriter, r *http.Request) {
			run := dedup.FromContext(r.Context())
			attempts.Store(int64(run.Attempt()))
			if run.Attempt() == 1 {
				_ = g.pass(r.Context())
			} else if !run.Takeover() {
				t.Error("Takeover() is false")
			}
			io.WriteString(w, strconv.Itoa(run.Attempt()))
		}
		s.With(stopped.Dedup("{userID}", RouteName("a"))).Post("/stopped/a", handler)
		other := s.newGuard()
		// The same route in another process: the same method and pattern.
		second, third := miniRouter(s, other.Dedup("{userID}"), handler), miniRouter(s, other.Dedup("{userID}", TakeoverReject()), handler)

		first := s.later(call{path: "/stopped/a", key: "k", body: "1"})
		g.wait(t)
		s.lapsed(t)
		if got := second(call{path: "/stopped/a", key: "k", body: "2"}); got.status != 422 {
			t.Errorf("another body: %d %s", got.status, got.body)
		}
		if got := third(call{path: "/stopped/a", key: "k", body: "1"}); got.status != 409 || got.code() != "interrupted" || got.header.Get("Retry-After") != "" {
			t.Errorf("TakeoverReject: %d %s", got.status, got.body)
		}
		if got := second(call{path: "/stopped/a", key: "k", body: "1"}); got.status != 200 || got.body != "2" || attempts.Load() != 2 {
			t.Errorf("taken over: %d %q, attempt %d", got.status, got.body, attempts.Load())
		}
		close(g.open)
		// F7: the first one is answered, and its result is not stored.
		if got := receive(t, first); got.status != 200 || got.body != "1" {
			t.Errorf("first: %d %q", got.status, got.body)
		}
		if got := second(call{path: "/stopped/a", key: "k", body: "1"}); got.body != "2" || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("replay: %d %q, want the answer of the second attempt", got.status, got.body)
		}
	})
}

// B4: done: replayed; another request under the key is refused and its handler not run. D58: same status, body and
// order number.
func TestB4_Done(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		s.With(s.guard.Dedup("{userID}")).Post("/a", c.ServeHTTP)
		first := s.do(call{path: "/a", key: "k", body: "1"})
		again := s.do(call{path: "/a", key: "k", body: "1"})
		if again.status != 201 || again.body != first.body || again.header.Get("Location") != "/orders/1" || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again %d %v %q, first %q", again.status, again.header, again.body, first.body)
		}
		if got := s.do(call{path: "/a", key: "k", body: "2"}); got.status != 422 || got.code() != "mismatch" {
			t.Errorf("another body: %d %s", got.status, got.body)
		}
		for name, other := range map[string]call{"another user": {path: "/a", key: "k", user: "43", body: "1"}, "another key": {path: "/a", key: "l", body: "1"}} {
			if got := s.do(other); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: %d %v", name, got.status, got.header)
			}
		}
		c.ran(t, 3)
	})
}

// B5: a tombstone: the status and the headers again, without the body.
func TestB5_Tombstone(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		s.With(s.guard.Dedup("{userID}", MaxBody(100, 3))).Post("/a", c.ServeHTTP)
		if got := s.do(call{path: "/a", key: "k", body: "1"}); got.status != 201 || got.body != "order " {
			t.Errorf("first: %d %q", got.status, got.body)
		}
		got := s.do(call{path: "/a", key: "k", body: "1"})
		if got.status != 201 || got.body != "" || got.header.Get("Idempotency-Body") != "omitted" || got.header.Get("Location") != "/orders/1" ||
			got.header.Get("Idempotent-Replayed") != "true" || got.header.Get("Content-Length") != "0" {
			t.Errorf("again: %d %v %q", got.status, got.header, got.body)
		}
		if got := s.do(call{path: "/a", key: "k", body: "2"}); got.status != 422 {
			t.Errorf("another body: %d", got.status)
		}
		c.ran(t, 1)
	})
}

// B6: failed: runs again at once as the next attempt; another request under the key is refused, since it is not known
// what the first one did.
func TestB6_Failed(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		s.With(s.guard.Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, r *http.Request) {
			if run := dedup.FromContext(r.Context()); run.Attempt() == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			io.WriteString(w, strconv.Itoa(dedup.FromContext(r.Context()).Attempt()))
		})
		if got := s.do(call{path: "/a", key: "k", body: "1"}); got.status != 500 {
			t.Errorf("first: %d", got.status)
		}
		if got := s.do(call{path: "/a", key: "k", body: "2"}); got.status != 422 {
			t.Errorf("another body: %d", got.status)
		}
		if got := s.do(call{path: "/a", key: "k", body: "1"}); got.status != 200 || got.body != "2" {
			t.Errorf("again: %d %q", got.status, got.body)
		}
	})
}

// B7: a record that cannot be read is never run: its status if that much is readable, else 503.
func TestB7_NotDecodable(t *testing.T) {
	tests := map[string]struct {
		change func(ctx context.Context, s *shop, key string) error
		status int
		code   string
	}{
		"newer format, done": {func(ctx context.Context, s *shop, key string) error { return s.rdb.HSet(ctx, key, "v", "99").Err() }, 201, ""},
		"newer format, running": {func(ctx context.Context, s *shop, key string) error {
			return s.rdb.HSet(ctx, key, "v", "99", "st", "running", "code", "").Err()
		}, 503, "corrupt"},
		"another type": {func(ctx context.Context, s *shop, key string) error {
			if err := s.rdb.Del(ctx, key).Err(); err != nil {
				return err
			}
			return s.rdb.Set(ctx, key, "x", time.Minute).Err()
		}, 503, "corrupt"},
		"answer of another version": {func(ctx context.Context, s *shop, key string) error {
			return s.rdb.HSet(ctx, key, "res", "\x09???").Err()
		}, 201, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, s *shop) {
				var c counter
				s.With(s.guard.Dedup("{userID}")).Post("/a", c.ServeHTTP)
				s.do(call{path: "/a", key: "k"})
				key, _ := s.record()
				if err := tt.change(t.Context(), s, key); err != nil {
					t.Fatal(err)
				}
				got := s.do(call{path: "/a", key: "k"})
				if got.status != tt.status || got.code() != tt.code || tt.status == 201 && got.header.Get("Idempotency-Body") != "omitted" {
					t.Errorf("%d %v %s, want %d %s", got.status, got.header, got.body, tt.status, tt.code)
				}
				if !s.logs.has(`"level":"ERROR"`, "corrupt", "record") {
					t.Errorf("nothing in the log:\n%s", s.logs)
				}
				c.ran(t, 1)
			})
		})
	}
}

// B8: the store is away, hangs, or its script fails: 503; PassAtMost lets so many through, marked, and no more.
func TestB8_StoreAway(t *testing.T) {
	away := map[string]func(t *testing.T, s *shop, srv *testserver.RedisServer){
		"killed": func(t *testing.T, _ *shop, srv *testserver.RedisServer) { srv.Kill(t) },
		"paused": func(t *testing.T, _ *shop, srv *testserver.RedisServer) { srv.Pause(t) },
		"readonly": func(t *testing.T, s *shop, _ *testserver.RedisServer) {
			must(t, s.rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
		},
	}
	for name, takeAway := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, srv := privateShop(t)
			var strict, open counter
			g := newGate()
			s.With(s.guard.Dedup("{userID}")).Post("/strict", strict.ServeHTTP)
			s.With(s.guard.Dedup("{userID}", PassAtMost(1))).Post("/open", func(w http.ResponseWriter, r *http.Request) {
				if dedup.FromContext(r.Context()).RequestID() == "" {
					t.Error("no id in the context: SQL cannot refuse a repeat")
				}
				_ = g.pass(r.Context())
				open.ServeHTTP(w, r)
			})
			takeAway(t, s, srv)
			got := s.do(call{path: "/strict", key: "k"})
			if got.status != 503 || got.code() != "unavailable" && got.code() != "unknown_outcome" || got.header.Get("Retry-After") == "" {
				t.Errorf("strict: %d %v %s", got.status, got.header, got.body)
			}
			first := s.later(call{path: "/open", key: "k"})
			g.wait(t)
			if got := s.do(call{path: "/open", key: "l"}); got.status != 503 {
				t.Errorf("beyond the limit: %d %s", got.status, got.body)
			}
			close(g.open)
			if got := receive(t, first); got.status != 201 || got.header.Get("Idempotency-Status") != "bypassed" {
				t.Errorf("within the limit: %d %v", got.status, got.header)
			}
			strict.ran(t, 0)
			open.ran(t, 1)
			if name == "paused" {
				srv.Resume(t)
			}
			if name == "readonly" {
				must(t, s.rdb.Do(t.Context(), "replicaof", "no", "one").Err())
			}
			if name == "killed" {
				srv.RestartEmpty(t)
			}
			testserver.Eventually(t, 5*time.Second, func() bool { return s.do(call{path: "/strict", key: "m"}).status == 201 }, "does not recover")
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// B9: the reply to begin is lost: asked again with the same token, which the store knows. Still no reply: 503, no
// handler, and the claim that nobody has is forgotten.
func TestB9_ReplyLost(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var lost atomic.Int64
		var tokens []string
		st := s.store()
		st.begin = func(ctx context.Context, b dedup.BeginRequest) (dedup.Answer, error) {
			a, err := st.Store.Begin(ctx, b)
			tokens = append(tokens, b.Token)
			if lost.Add(-1) >= 0 {
				return dedup.Answer{}, dedup.ErrUnknownOutcome
			}
			return a, err
		}
		var c counter
		s.With(s.newGuard(WithStore(st)).Dedup("{userID}")).Post("/a", c.ServeHTTP)
		lost.Store(1)
		if got := s.do(call{path: "/a", key: "once"}); got.status != 201 {
			t.Errorf("lost once: %d %s", got.status, got.body)
		}
		if len(tokens) != 2 || tokens[0] != tokens[1] {
			t.Errorf("tokens %v, want one, twice", tokens)
		}
		lost.Store(2)
		if got := s.do(call{path: "/a", key: "always"}); got.status != 503 || got.code() != "unknown_outcome" || got.header.Get("Retry-After") == "" {
			t.Errorf("lost twice: %d %s", got.status, got.body)
		}
		c.ran(t, 1)
		testserver.Eventually(t, 5*time.Second, func() bool { return len(s.keys("idem:")) == 1 }, "the claim of nobody is not forgotten")
		if got := s.do(call{path: "/a", key: "always"}); got.status != 201 {
			t.Errorf("afterwards: %d %s", got.status, got.body)
		}
	})
}

// B9: the record vanishes while a repeat waits: it begins, atomically.
func TestB9_RecordVanishes(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		var c counter
		handler := func(w http.ResponseWriter, r *http.Request) {
			_ = g.pass(r.Context())
			c.ServeHTTP(w, r)
		}
		s.With(s.guard.Dedup("{userID}")).Post("/a", handler)
		elsewhere := miniRouter(s, s.newGuard().Dedup("{userID}"), handler)
		first := s.later(call{path: "/a", key: "k"})
		g.wait(t)
		second := make(chan reply, 1)
		go func() { second <- elsewhere(call{path: "/a", key: "k"}) }()
		key, _ := s.record()
		must(t, s.rdb.Del(t.Context(), key).Err())
		g.wait(t) // the second one runs
		close(g.open)
		if a, b := receive(t, first), receive(t, second); a.status != 201 || b.status != 201 {
			t.Errorf("%d and %d", a.status, b.status)
		}
		c.ran(t, 2)
	})
}

// miniRouter serves the same route in another process of the service.
func miniRouter(s *shop, mw func(http.Handler) http.Handler, handler http.HandlerFunc) func(call) reply {
	s.t.Helper()
	other := &shop{Mux: newMux(), t: s.t, rdb: s.rdb, prefix: s.prefix, logs: s.logs}
	for _, path := range []string{"/a", "/stopped/a"} {
		other.With(mw).Post(path, handler)
	}
	other.server()
	return other.do
}

// One hundred identical requests at once, in one process and in two: one run, one hundred equal answers. F030: the result
// is stored before a waiter sees that the claim is gone.
func TestOneHundredAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		s.With(s.guard.Dedup("{userID}")).Post("/a", c.ServeHTTP)
		elsewhere := miniRouter(s, s.newGuard().Dedup("{userID}"), c.ServeHTTP)
		s.server()
		replies := make(chan reply, 200)
		patient := func(do func(call) reply) {
			for {
				got := do(call{path: "/a", key: "k"})
				if got.status != 409 && got.status != 503 { // a slow machine: try again with the same key, as it says
					replies <- got
					return
				}
			}
		}
		for range 100 {
			go patient(s.do)
			go patient(elsewhere)
		}
		replayed := 0
		for range 200 {
			got := receive(t, replies)
			if got.status != 201 || got.body != "order " {
				t.Errorf("%d %q %v", got.status, got.body, got.err)
			}
			if got.header.Get("Idempotent-Replayed") == "true" {
				replayed++
			}
		}
		c.ran(t, 1)
		if replayed != 199 {
			t.Errorf("%d replays, want 199", replayed)
		}
	})
}

// F030: two requests with one id at once, a thousand rounds: the handler is called once a round.
func TestF030_TwoAtOnceRoundAfterRound(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c atomic.Int64
		s.With(s.guard.Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, _ *http.Request) { c.Add(1); w.WriteHeader(201) })
		s.server()
		for i := range 1000 {
			second := make(chan reply, 1)
			go func() { second <- s.do(call{path: "/a", key: strconv.Itoa(i)}) }()
			a, b := s.do(call{path: "/a", key: strconv.Itoa(i)}), receive(t, second)
			if a.status != 201 || b.status != 201 || c.Load() != int64(i+1) {
				t.Fatalf("round %d: %d and %d, %d runs", i, a.status, b.status, c.Load())
			}
		}
	})
}

// The headers of a replay are those that the handler has set; what belongs to one exchange or client is not kept.
func TestReplayedHeaders(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		outside := 0
		s.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outside++
				w.Header().Set("From-Outside", strconv.Itoa(outside))
				w.Header().Set("Removed", "1")
				w.Header().Set("Vary", "Origin")
				next.ServeHTTP(w, r)
			})
		})
		s.With(s.guard.Dedup("{userID}")).Post("/a", func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Location", "/orders/1")
			h.Set("Etag", `"1"`)
			h.Add("Vary", "Accept")
			h["Link"] = []string{"</a>", "</b>"}
			h.Del("Removed")
			h.Set("Set-Cookie", "session=secret")
			h.Set("Retry-After", "5")
			w.WriteHeader(http.StatusCreated)
			h.Set("Late", "1")
			io.WriteString(w, `{"order":1}`)
		})
		a, b := s.do(call{path: "/a", key: "k"}), s.do(call{path: "/a", key: "k"})
		if a.header.Get("Set-Cookie") == "" || a.header.Get("Late") != "" {
			t.Errorf("first: %v", a.header)
		}
		for _, h := range []http.Header{a.header, b.header} {
			h.Del("Date")
		}
		want := a.header.Clone()
		want.Del("Set-Cookie")
		want.Del("Retry-After")
		want.Set("From-Outside", "2")
		want.Set("Idempotent-Replayed", "true")
		if diff := cmp.Diff(want, b.header); diff != "" || a.body != b.body {
			t.Errorf("replay -want +got\n%s", diff)
		}
	})
}

// No answer is replayed to a stranger: authentication is outside, and the scope is the principal.
func TestNoReplayBeforeAuthentication(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		s.With(s.guard.Dedup("{userID}")).Post("/a", c.ServeHTTP)
		s.do(call{path: "/a", key: "k"})
		if got := s.do(call{path: "/a", key: "k", user: "nobody"}); got.status != 401 || strings.Contains(got.body, "order") {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// StillTrue: a success that was taken back since is 409; an answer that cannot be had fails closed; a refusal that was
// pinned is not asked about.
func TestStillTrue(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var truth atomic.Pointer[error]
		still, asked := true, ""
		s.With(s.guard.Dedup("{userID}", StillTrue(func(_ context.Context, id string) (bool, error) {
			asked = id
			if err := truth.Load(); err != nil {
				return true, *err
			}
			return still, nil
		}))).Post("/a", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Id", dedup.FromContext(r.Context()).RequestID())
			w.WriteHeader(http.StatusCreated)
		})
		first := s.do(call{path: "/a", key: "k"})
		if got := s.do(call{path: "/a", key: "k"}); got.status != 201 || asked != first.header.Get("Id") || asked == "" {
			t.Errorf("still true: %d, asked about %q", got.status, asked)
		}
		still = false
		if got := s.do(call{path: "/a", key: "k"}); got.status != 409 || got.code() != "withdrawn" {
			t.Errorf("withdrawn: %d %s", got.status, got.body)
		}
		truth.Store(&errTest)
		if got := s.do(call{path: "/a", key: "k"}); got.status != 503 || got.code() != "unavailable" || strings.Contains(got.body, "secret") {
			t.Errorf("not known: %d %s", got.status, got.body)
		}
	})
}

// A problem's body is JSON with these members and no value of the request.
func TestRefusalsShowNoValue(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		s.With(s.guard.Dedup("{userID}"), s.guard.Lock("balance:{body.account|int}")).Post("/{name}", c.ServeHTTP)
		for _, c := range []call{
			{path: "/planted", key: `"planted`}, {path: "/planted", key: "planted", body: `{"account":"planted"}`}, {path: "/planted?planted=1", key: "1", body: `{`},
		} {
			got := s.do(c)
			var p map[string]any
			if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != 400 {
				t.Errorf("%d %s %v", got.status, got.body, err)
			}
			if strings.Contains(got.body, "planted") {
				t.Errorf("a value of the request is in %s", got.body)
			}
		}
		if s.logs.has("planted") {
			t.Errorf("a value of the request is in the log:\n%s", s.logs)
		}
		c.ran(t, 0)
	})
}
