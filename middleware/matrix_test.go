package middleware

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// neighbours are what services mount next to Dedup, inside of it or outside. With use they are mounted by Use.
func neighbours(s *shop) map[string]struct {
	mw  func(http.Handler) http.Handler
	use bool
} {
	type n = struct {
		mw  func(http.Handler) http.Handler
		use bool
	}
	return map[string]n{
		"none":           {func(next http.Handler) http.Handler { return next }, false},
		"Timeout":        {chimiddleware.Timeout(matrixDeadline), false},
		"TimeoutHandler": {func(next http.Handler) http.Handler { return http.TimeoutHandler(next, matrixDeadline, "too slow") }, false},
		"Recoverer":      {recoverer, false},
		"Compress":       {chimiddleware.Compress(5), false},
		"Throttle":       {chimiddleware.Throttle(10), false},
		"CORS":           {cors, false},
		"Logger":         {chimiddleware.RequestLogger(&chimiddleware.DefaultLogFormatter{Logger: discard{}, NoColor: true}), false},
		"RequestID":      {chimiddleware.RequestID, false},
		"StripSlashes":   {chimiddleware.StripSlashes, true},
		"CleanPath":      {chimiddleware.CleanPath, true},
		"GetHead":        {chimiddleware.GetHead, true},
		"Lock":           {s.guard.Lock("balance:{userID}"), false},
	}
}

const matrixDeadline = 400 * time.Millisecond

type discard struct{}

func (discard) Print(...any) {}

// cors is what go-chi/cors does to an actual request.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		w.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
		next.ServeHTTP(w, r)
	})
}

// In every cell: no stored answer that nobody decided on, one effect for a key, the retry's status equals the first's or
// the work runs again after a failure, no header twice, no gzip label on plain bytes.
func TestOrderMatrix(t *testing.T) {
	s := miniShop(t)
	for name := range neighbours(s) {
		for _, side := range []string{"outside", "inside"} {
			t.Run(name+"/"+side, func(t *testing.T) {
				t.Parallel()
				matrixColumn(t, name, side)
			})
		}
	}
}

func matrixColumn(t *testing.T, name, side string) {
	s := miniShop(t)
	neighbour := neighbours(s)[name]
	rule := s.guard.Dedup("{userID}")
	deadline := chimiddleware.Timeout(2 * matrixDeadline) // for columns without one
	chain := []func(http.Handler) http.Handler{recoverer, deadline}
	switch {
	case side == "inside":
		chain = append(chain, rule, neighbour.mw)
	case neighbour.use:
		s.Use(neighbour.mw)
		chain = append(chain, rule)
	default:
		chain = append(chain, neighbour.mw, rule)
	}
	var runs [6]atomic.Int64
	inside := newGate()
	answer := func(w http.ResponseWriter, status int) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(status)
		io.WriteString(w, strings.Repeat("the same text again and again ", 40))
	}
	handlers := []struct {
		name   string
		handle http.HandlerFunc
	}{
		{"success", func(w http.ResponseWriter, _ *http.Request) { answer(w, 201) }},
		{"4xx", func(w http.ResponseWriter, _ *http.Request) { answer(w, 409) }},
		{"5xx", func(w http.ResponseWriter, r *http.Request) {
			if dedup.FromContext(r.Context()).Attempt() == 1 {
				answer(w, 500)
				return
			}
			answer(w, 201)
		}},
		{"panic", func(w http.ResponseWriter, r *http.Request) {
			if dedup.FromContext(r.Context()).Attempt() == 1 {
				panic("on purpose")
			}
			answer(w, 201)
		}},
		{"deadline", func(w http.ResponseWriter, r *http.Request) {
			if dedup.FromContext(r.Context()).Attempt() == 1 {
				<-r.Context().Done()
				return
			}
			answer(w, 201)
		}},
		{"client-gone", func(w http.ResponseWriter, r *http.Request) {
			if runs[5].Load() == 1 {
				_ = inside.pass(r.Context())
			}
			answer(w, 201)
		}},
	}
	for i, h := range handlers {
		s.With(chain...).Post("/"+h.name, func(w http.ResponseWriter, r *http.Request) {
			runs[i].Add(1)
			h.handle(w, r)
		})
	}

	timeoutInside := name == "TimeoutHandler" && side == "inside"
	want := map[string]struct {
		first, retry int
		runs         int64
	}{
		"success": {201, 201, 1}, "4xx": {409, 409, 2}, "5xx": {500, 201, 2}, "panic": {500, 201, 2}, "deadline": {504, 201, 2}, "client-gone": {0, 201, 1},
	}
	for i, h := range handlers {
		w := want[h.name]
		if h.name == "deadline" && name == "TimeoutHandler" {
			w.first = 503
		}
		if h.name == "client-gone" && timeoutInside {
			w.runs = 2 // it returns while the work goes on: there attempt and unique index decide
		}
		c := call{path: "/" + h.name, key: h.name, header: http.Header{"Accept-Encoding": {"gzip"}}}
		var first reply
		if h.name == "client-gone" {
			ctx, leave := context.WithCancel(t.Context())
			gone := c
			gone.ctx = ctx
			ch := s.later(gone)
			inside.wait(t)
			leave()
			receive(t, ch)
		} else {
			first = s.do(c)
		}
		retry := s.do(c)
		if first.status != w.first || retry.status != w.retry || runs[i].Load() != w.runs {
			t.Errorf("%s: %d, retry %d, %d runs; want %+v", h.name, first.status, retry.status, runs[i].Load(), w)
		}
		for _, r := range []reply{first, retry} {
			if r.status == 201 || r.status == 409 {
				plausible(t, h.name, name, r)
			}
		}
		replayed := retry.header.Get("Idempotent-Replayed") == "true"
		if replayed != (w.runs == 1) {
			t.Errorf("%s: replayed %v after %d runs", h.name, replayed, w.runs)
		}
	}
	// The last of them has left; its answer may be replayed before its lock is free.
	testserver.Eventually(t, 5*time.Second, func() bool { return len(s.keys("lock:")) == 0 }, "no lock is left behind")
}

// plausible checks what every answer of the matrix must be.
func plausible(t *testing.T, row, name string, r reply) {
	t.Helper()
	for field, lines := range r.header {
		if unique := slices.Compact(slices.Sorted(slices.Values(lines))); len(unique) != len(lines) || field != "Vary" && len(lines) > 1 {
			t.Errorf("%s: header %s is there as %q", row, field, lines)
		}
	}
	body := r.body
	if r.header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(bytes.NewReader([]byte(body)))
		if err != nil {
			t.Errorf("%s: labelled gzip and is %q", row, body[:min(20, len(body))])
			return
		}
		plain, err := io.ReadAll(zip)
		if err != nil {
			t.Errorf("%s: %v", row, err)
		}
		body = string(plain)
	} else if name == "Compress" {
		t.Errorf("%s: not compressed", row)
	}
	if !strings.HasPrefix(body, "the same text") || len(body) != 40*len("the same text again and again ") {
		t.Errorf("%s: body %q", row, body[:min(40, len(body))])
	}
	if r.header.Get("Location") != "/orders/1" {
		t.Errorf("%s: headers %v", row, r.header)
	}
	if name == "CORS" && r.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("%s: without the neighbour's header: %v", row, r.header)
	}
}
