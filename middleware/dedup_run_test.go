package middleware

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/dedup"
)

// memory is a store of one record, for tests on a fake clock.
type memory struct {
	mu       sync.Mutex
	owner    string
	attempt  int
	done     *dedup.Result
	renewals int
	renewErr func(n int) error
}

func (m *memory) Begin(_ context.Context, b dedup.BeginRequest) (dedup.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done != nil {
		return dedup.Answer{Verdict: dedup.VerdictReplay, Attempt: m.attempt, Result: *m.done}, nil
	}
	m.owner = b.Token
	m.attempt++
	return dedup.Answer{Verdict: dedup.VerdictRun, Attempt: m.attempt}, nil
}

func (m *memory) Renew(context.Context, dedup.Owner, time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewals++
	if m.renewErr != nil {
		return m.renewErr(m.renewals)
	}
	return nil
}

func (m *memory) Complete(_ context.Context, o dedup.Owner, r dedup.Result, _ time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.Token != m.owner {
		return dedup.ErrLeaseLost
	}
	m.done = &r
	return nil
}

func (m *memory) Fail(context.Context, dedup.Owner) error   { return nil }
func (m *memory) Forget(context.Context, dedup.Owner) error { return nil }

// onFakeClock serves one request on a fake clock and returns its answer.
func onFakeClock(t *testing.T, st *memory, handler http.HandlerFunc, rows func(rec *httptest.ResponseRecorder)) {
	locker := testLocker(t)
	synctest.Test(t, func(t *testing.T) {
		g, err := New(nil, WithStore(st), WithLocker(locker), WithValue("userID", currentUser), WithLogger(quietLogger()))
		if err != nil {
			t.Fatal(err)
		}
		mux := chi.NewRouter()
		mux.With(g.Dedup("{userID}")).Post("/a", handler)
		r := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader(""))
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-User", "42")
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, r)
		rows(rec)
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// R1: renewed at a third of 30 s; a request that is shorter costs nothing; single errors are survived; after 5 min the
// handler is cancelled.
func TestR1_Renewed(t *testing.T) {
	rest := func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.Run("short", func(t *testing.T) {
		st := &memory{}
		onFakeClock(t, st, func(_ http.ResponseWriter, r *http.Request) { _ = rest(r.Context(), 9*time.Second) }, func(*httptest.ResponseRecorder) {
			if st.renewals != 0 {
				t.Errorf("%d renewals", st.renewals)
			}
		})
	})
	t.Run("with an error", func(t *testing.T) {
		st := &memory{renewErr: func(n int) error {
			if n == 1 {
				return dedup.ErrUnavailable
			}
			return nil
		}}
		onFakeClock(t, st, func(_ http.ResponseWriter, r *http.Request) {
			if err := rest(r.Context(), 45*time.Second); err != nil {
				t.Errorf("cancelled: %v", err)
			}
		}, func(rec *httptest.ResponseRecorder) {
			if st.renewals < 4 || rec.Code != 200 || st.done == nil {
				t.Errorf("%d renewals, status %d, stored %v", st.renewals, rec.Code, st.done)
			}
		})
	})
	t.Run("beyond 5 min", func(t *testing.T) {
		st := &memory{}
		onFakeClock(t, st, func(_ http.ResponseWriter, r *http.Request) {
			start := time.Now()
			if err := rest(r.Context(), time.Hour); !errors.Is(err, dedup.ErrLeaseLost) || time.Since(start) > 6*time.Minute {
				t.Errorf("%v after %v, want ErrLeaseLost after 5m", err, time.Since(start))
			}
		}, func(rec *httptest.ResponseRecorder) {
			if rec.Code != 503 || st.done != nil {
				t.Errorf("status %d, stored %v, want 503 and nothing", rec.Code, st.done)
			}
		})
	})
}

// R2: another has taken over: the handler's context ends with ErrLeaseLost, its result is never stored, and an answer
// that it does not give is 503, not an empty 200.
func TestR2_TakenOver(t *testing.T) {
	for name, answer := range map[string]bool{"silent": false, "answers": true} {
		t.Run(name, func(t *testing.T) {
			st := &memory{renewErr: func(int) error { return dedup.ErrLeaseLost }}
			onFakeClock(t, st, func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				if cause := context.Cause(r.Context()); !errors.Is(cause, dedup.ErrLeaseLost) {
					t.Errorf("cause %v", cause)
				}
				if answer {
					io.WriteString(w, "done")
				}
			}, func(rec *httptest.ResponseRecorder) {
				if want := map[bool]int{false: 503, true: 200}[answer]; rec.Code != want || st.done != nil {
					t.Errorf("status %d, stored %v, want %d and nothing", rec.Code, st.done, want)
				}
			})
		})
	}
}

// R3: a handler that flushes, or answers with more than MaxBody, is sent as it goes; a repeat gets the status and the
// headers, without the body. It is not run again.
func TestR3_Streamed(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		flushed := make(chan struct{})
		runs := 0
		s.With(s.guard.Dedup("{userID}")).Post("/flush", func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "one ")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-flushed
			io.WriteString(w, "two")
		})
		s.With(s.guard.Dedup("{userID}")).Post("/large", func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				io.WriteString(w, strings.Repeat("x", 512<<10))
			}
		})
		r := s.request(call{path: "/flush", key: "k"})
		r.URL.Host = s.server().Listener.Addr().String()
		res, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 4)
		if _, err := io.ReadFull(res.Body, part); err != nil || string(part) != "one " {
			t.Errorf("before the handler has returned: %q, %v", part, err)
		}
		close(flushed)
		rest, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(rest) != "two" || err != nil {
			t.Errorf("the rest: %q, %v", rest, err)
		}
		if got := s.do(call{path: "/large", key: "k"}); len(got.body) != 3<<19 || got.status != 200 {
			t.Errorf("large: %d, %d bytes", got.status, len(got.body))
		}
		for _, path := range []string{"/flush", "/large"} {
			got := s.do(call{path: path, key: "k"})
			if got.status != 200 || got.body != "" || got.header.Get("Idempotency-Body") != "omitted" || got.header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("%s again: %d %v %q", path, got.status, got.header, got.body)
			}
		}
		if runs != 2 {
			t.Errorf("%d runs, want 2", runs)
		}
	})
}

// R4: a hijacked connection has no answer to store: the claim is forgotten before the hand-over. io.Copy is captured,
// 1xx are passed on and not recorded.
func TestR4_HijackCopyInformational(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		s.With(s.guard.Dedup("{userID}")).Post("/hijack", func(w http.ResponseWriter, r *http.Request) {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if keys := s.keys("idem:"); len(keys) != 0 {
				t.Errorf("not forgotten: %v", keys)
			}
			buf.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
			buf.Flush()
		})
		s.With(s.guard.Dedup("{userID}")).Post("/copy", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
			io.Copy(w, bufio.NewReader(strings.NewReader("file")))
		})
		for range 2 {
			if got := s.do(call{path: "/hijack", key: "k"}); got.status != 200 || got.body != "hi" {
				t.Errorf("hijack: %d %q %v", got.status, got.body, got.err)
			}
		}
		if !s.logs.has("not recorded") {
			t.Error("nothing in the log")
		}
		first, again := s.do(call{path: "/copy", key: "k"}), s.do(call{path: "/copy", key: "k"})
		if first.status != 201 || again.status != 201 || first.body != "file" || again.body != "file" || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("copy: %d %q, again %d %q", first.status, first.body, again.status, again.body)
		}
	})
}

// R5: what the handler says beats StoreIf.
func TestR5_TheHandlerDecides(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		say := map[string]func(*dedup.Execution, http.ResponseWriter){
			"pin":           func(e *dedup.Execution, w http.ResponseWriter) { e.Pin(20 * time.Minute); w.WriteHeader(409) },
			"nostore":       func(e *dedup.Execution, w http.ResponseWriter) { e.NoStore(); w.WriteHeader(201) },
			"commit":        func(e *dedup.Execution, w http.ResponseWriter) { e.Commit(); w.WriteHeader(502) },
			"commit-silent": func(e *dedup.Execution, w http.ResponseWriter) { e.Commit() },
			"commit-panics": func(e *dedup.Execution, w http.ResponseWriter) { e.Commit(); panic(http.ErrAbortHandler) },
			"nostore-pin":   func(e *dedup.Execution, w http.ResponseWriter) { e.NoStore(); e.Pin(0); w.WriteHeader(201) },
		}
		runs := map[string]int{}
		var mu sync.Mutex
		s.With(s.guard.Dedup("{userID}")).Post("/{what}", func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			runs[r.PathValue("what")]++
			mu.Unlock()
			say[r.PathValue("what")](dedup.FromContext(r.Context()), w)
		})
		tests := map[string]struct{ first, again, runs int }{
			"pin": {409, 409, 1}, "nostore": {201, 201, 2}, "commit": {502, 502, 1}, "commit-silent": {200, 200, 1},
			"commit-panics": {0, 500, 1}, "nostore-pin": {201, 201, 2},
		}
		for what, tt := range tests {
			first, again := s.do(call{path: "/" + what, key: what}), s.do(call{path: "/" + what, key: what})
			if what == "commit-panics" {
				first.status = 0 // nothing, or what net/http's client gets that tries again by itself, since there is a key
			}
			if first.status != tt.first || again.status != tt.again || runs[what] != tt.runs {
				t.Errorf("%s: %d, again %d, %d runs; want %+v", what, first.status, again.status, runs[what], tt)
			}
		}
		// A pinned refusal lives for as long as it was pinned, a success for 24 h.
		for _, key := range s.keys("idem:") {
			ttl := s.rdb.PTTL(t.Context(), s.prefix+key).Val()
			code := s.rdb.HGet(t.Context(), s.prefix+key, "code").Val()
			if code == "409" && (ttl > 20*time.Minute || ttl < 19*time.Minute) || code == "502" && (ttl > 24*time.Hour || ttl < 23*time.Hour) {
				t.Errorf("the record with code %s lives for %v", code, ttl)
			}
			if ttl <= 0 {
				t.Errorf("a record without TTL")
			}
		}
	})
}
