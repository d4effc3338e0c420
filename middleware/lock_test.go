package middleware

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/lock"
)

// A05 and D44: who does not get the lock is told at once: 429, Retry-After, a problem; the handler is not called and no
// lock is left. F017: no lease, no handler.
func TestA05_BusyIsToldAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		runs := 0
		s.With(s.guard.Lock("balance:{userID}", Wait(0))).Post("/a", func(_ http.ResponseWriter, r *http.Request) {
			runs++
			_ = g.pass(r.Context())
		})
		first := s.later(call{path: "/a"})
		g.wait(t)
		start := time.Now()
		got := s.do(call{path: "/a"})
		if took := time.Since(start); took > 500*time.Millisecond { // 50 ms for users, ten times as much here
			t.Errorf("told after %v", took)
		}
		wait, err := strconv.Atoi(got.header.Get("Retry-After"))
		if got.status != 429 || got.code() != "busy" || err != nil || wait < 1 || wait > 60 || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %v %s", got.status, got.header, got.body)
		}
		close(g.open)
		if got := receive(t, first); got.status != 200 || runs != 1 {
			t.Errorf("the holder got %d, runs %d", got.status, runs)
		}
		if keys := s.keys("lock:"); len(keys) != 0 {
			t.Errorf("left behind: %v", keys)
		}
	})
}

func TestOnBusyChoosesTheStatus(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := newGate()
		for _, status := range []int{409, 423, 429} {
			s.With(s.guard.Lock("balance:{userID}", Wait(0), OnBusy(status))).Post("/"+strconv.Itoa(status), func(_ http.ResponseWriter, r *http.Request) {
				_ = g.pass(r.Context())
			})
		}
		first := s.later(call{path: "/429"})
		g.wait(t)
		for _, status := range []int{409, 423, 429} {
			got := s.do(call{path: "/" + strconv.Itoa(status)})
			if got.status != status || got.code() != "busy" || got.header.Get("Retry-After") == "" {
				t.Errorf("%d %v %s, want %d busy", got.status, got.header, got.body, status)
			}
		}
		close(g.open)
		receive(t, first)
	})
}

// C07 and F002: released on every way out, at once: the handler returns, fails, panics, or its client disconnects.
func TestC07_ReleasedOnEveryWayOut(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		inside := newGate()
		left := make(chan struct{})
		s.With(s.guard.Lock("balance:{userID}")).Post("/{how}", func(w http.ResponseWriter, r *http.Request) {
			if keys := s.keys("lock:"); len(keys) != 1 || keys[0] != "lock:balance:42" { // A02
				t.Errorf("keys while the handler runs: %v", keys)
			}
			switch r.PathValue("how") {
			case "returns":
				io.WriteString(w, "ok")
			case "fails":
				WriteProblem(w, r, errTest)
			case "panics":
				panic("on purpose")
			case "aborts":
				panic(http.ErrAbortHandler)
			case "client-leaves":
				defer close(left)
				_ = inside.pass(r.Context())
			}
		})
		for how, status := range map[string]int{"returns": 200, "fails": 500, "panics": 0, "aborts": 0} {
			got := s.do(call{path: "/" + how})
			if got.status != status {
				t.Errorf("%s: %d %v", how, got.status, got.err)
			}
			testserver.Eventually(t, time.Second, func() bool { return len(s.keys("lock:")) == 0 }, how+": the lock is still there")
		}
		ctx, leave := context.WithCancel(t.Context())
		first := s.later(call{path: "/client-leaves", ctx: ctx})
		inside.wait(t)
		leave()
		receive(t, first)
		<-left
		testserver.Eventually(t, time.Second, func() bool { return len(s.keys("lock:")) == 0 }, "the client has left: the lock is still there")
	})
}

// A client that reads the last byte of the answer finds the lock free.
func TestReleasedBeforeTheAnswerIsComplete(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		s.With(s.guard.Lock("balance:{userID}")).Post("/a", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
		s.With(s.guard.Dedup("{userID}"), s.guard.Lock("balance:{userID}")).Post("/b", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
		for range 100 {
			s.do(call{path: "/a"})
			if keys := s.keys("lock:"); len(keys) != 0 {
				t.Fatalf("left behind: %v", keys)
			}
			s.do(call{path: "/b", key: "k"})
			if keys := s.keys("lock:"); len(keys) != 0 {
				t.Fatalf("with Dedup, left behind: %v", keys)
			}
		}
	})
}

func TestTheHandlerFindsItsLease(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		s.With(s.guard.Lock("balance:{userID}")).Post("/a", func(_ http.ResponseWriter, r *http.Request) {
			if lease, ok := lock.FromContext(r.Context()); !ok || lease.Fence() == 0 || lease.Err() != nil {
				t.Errorf("no live lease in the context: %v, %v", lease, ok)
			}
		})
		s.do(call{path: "/a"})
	})
}

// The lock is lost while the handler works: its context ends with the cause, and an answer that it does not give is 503.
func TestLostWhileWorking(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		for path, answer := range map[string]bool{"/silent": false, "/answers": true} {
			s.With(s.guard.Lock("balance:{userID}", TTL(300*time.Millisecond))).Post(path, func(w http.ResponseWriter, r *http.Request) {
				if err := s.rdb.Del(context.Background(), s.prefix+"lock:balance:42").Err(); err != nil {
					t.Error(err)
				}
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Second):
				}
				if cause := context.Cause(r.Context()); !errors.Is(cause, lock.ErrLost) {
					t.Errorf("cause %v, want ErrLost", cause)
				}
				if answer {
					io.WriteString(w, "done")
				}
			})
		}
		if got := s.do(call{path: "/silent"}); got.status != 503 || got.code() != "lost" || got.header.Get("Retry-After") == "" {
			t.Errorf("no answer: %d %s", got.status, got.body)
		}
		// F018: that the release came too late does not take the answer back.
		if got := s.do(call{path: "/answers"}); got.status != 200 || got.body != "done" {
			t.Errorf("an answer: %d %s", got.status, got.body)
		}
	})
}
