package middleware

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/keyesc"
)

// counter is a handler that counts its runs.
type counter struct{ n atomic.Int64 }

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/orders/1")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, strings.Repeat("order ", int(c.n.Add(1))))
}

func (c *counter) ran(t *testing.T, want int64) {
	t.Helper()
	if got := c.n.Load(); got != want {
		t.Errorf("the handler ran %d times, want %d", got, want)
	}
}

// E1: a method that is not covered passes without a record; Methods covers others.
func TestE1_MethodNotCovered(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var puts, covered counter
		s.With(s.guard.Dedup("{userID}")).Put("/a", puts.ServeHTTP)
		s.With(s.guard.Dedup("{userID}", Methods("PUT"))).Put("/b", covered.ServeHTTP)
		for range 2 {
			s.do(call{method: "PUT", path: "/a", key: "k"})
		}
		if keys := s.keys("idem:"); len(keys) != 0 {
			t.Errorf("records %v, want none", keys)
		}
		for range 2 {
			s.do(call{method: "PUT", path: "/b", key: "k"})
		}
		puts.ran(t, 2)
		covered.ran(t, 1)
	})
}

// E2: where the route is not known the request is refused, and a 404 or 405 never has a record. An opaque mount is one
// route.
func TestE2_RouteNotKnown(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c, opaque counter
		always := func(*http.Request) bool { return true }
		s.Route("/hidden", func(r chi.Router) {
			r.Use(chimiddleware.Maybe(s.guard.Dedup("{userID}"), always))
			r.Post("/x", c.ServeHTTP)
		})
		s.Route("/named", func(r chi.Router) {
			r.Use(chimiddleware.Maybe(s.guard.Dedup("{userID}", RouteName("named")), always))
			r.Post("/x", opaque.ServeHTTP)
		})
		s.With(s.guard.Dedup("{userID}")).Mount("/std", &opaque)
		s.With(s.guard.Dedup("{userID}")).Post("/a", c.ServeHTTP)
		got := s.do(call{path: "/hidden/x", key: "k"})
		if got.status != 500 || got.code() != "misuse" || !s.logs.has("RouteName", "With, in a Group") {
			t.Errorf("hidden in another middleware: %d %s; log:\n%s", got.status, got.body, s.logs)
		}
		if got := s.do(call{path: "/nowhere", key: "k"}); got.status != 404 {
			t.Errorf("no such route: %d", got.status)
		}
		if got := s.do(call{method: "PATCH", path: "/a", key: "k"}); got.status != 405 {
			t.Errorf("no such method: %d", got.status)
		}
		if keys := s.keys("idem:"); len(keys) != 0 {
			t.Errorf("records %v, want none", keys)
		}
		c.ran(t, 0)
		for _, path := range []string{"/std/x", "/named/x", "/std/x", "/named/x"} {
			if got := s.do(call{path: path, key: "k"}); got.status != 201 {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		opaque.ran(t, 2)
	})
}

// E3 (D57): without a key the request is refused and the detail names the header; with Optional it passes unprotected.
func TestE3_KeyAbsent(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var strict, optional, field counter
		s.With(s.guard.Dedup("{userID}")).Post("/strict", strict.ServeHTTP)
		s.With(s.guard.Dedup("{userID}", Optional())).Post("/optional", optional.ServeHTTP)
		s.With(s.guard.Dedup("{userID}", Key("{body.requestId}"))).Post("/field", field.ServeHTTP)
		got := s.do(call{path: "/strict"})
		if got.status != 400 || got.code() != "key_missing" || !strings.Contains(got.body, "Idempotency-Key") {
			t.Errorf("%d %s, want 400 key_missing that names the header", got.status, got.body)
		}
		got = s.do(call{path: "/field", body: `{}`})
		if got.status != 400 || got.code() != "key_missing" || !strings.Contains(got.body, "requestId") {
			t.Errorf("%d %s, want 400 key_missing that names the field", got.status, got.body)
		}
		for range 2 {
			if got := s.do(call{path: "/optional"}); got.status != 201 {
				t.Errorf("optional: %d %s", got.status, got.body)
			}
		}
		strict.ran(t, 0)
		field.ran(t, 0)
		optional.ran(t, 2)
		if keys := s.keys("idem:"); len(keys) != 0 {
			t.Errorf("records %v, want none", keys)
		}
	})
}

// E4 (D57): a key that is empty, doubled, a list, too long or malformed is refused before any command, also under
// Optional: a client that tries must not be silently unprotected.
func TestE4_KeyMalformed(t *testing.T) {
	for name, lines := range map[string][]string{
		"empty": {""}, "doubled": {"a", "a"}, "a list": {"a, b"}, "too long": {strings.Repeat("a", 256)}, "open quote": {`"a`},
		"quoted empty": {`""`}, "parameters": {`"a";q=1`}, "not ASCII": {"ä"},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, s *shop) {
				var c counter
				s.With(s.guard.Dedup("{userID}")).Post("/strict", c.ServeHTTP)
				s.With(s.guard.Dedup("{userID}", Optional())).Post("/optional", c.ServeHTTP)
				for _, path := range []string{"/strict", "/optional"} {
					got := s.do(call{path: path, header: http.Header{"Idempotency-Key": lines}})
					if got.status != 400 || got.code() != "key_malformed" {
						t.Errorf("%s: %d %s, want 400 key_malformed", path, got.status, got.body)
					}
				}
				c.ran(t, 0)
				if keys := s.keys("idem:"); len(keys) != 0 {
					t.Errorf("records %v, want none", keys)
				}
			})
		})
	}
}

// E5: a scope that cannot be told is refused, and never is one bucket for all.
func TestE5_Scope(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		g := s.newGuard(WithValue("broken", func(*http.Request) (string, error) { return "", errTest }))
		var c counter
		s.With(g.Dedup("{header.X-Tenant}")).Post("/header", c.ServeHTTP)
		s.With(g.Dedup("{userID}")).Post("/user", c.ServeHTTP)
		s.With(g.Dedup("{broken}")).Post("/broken", c.ServeHTTP)
		tests := map[string]struct {
			call   call
			status int
			code   string
		}{
			"a header is missing":                  {call{path: "/header"}, 400, "invalid"},
			"a value fails with a status":          {call{path: "/user", user: "nobody"}, 401, "invalid"},
			"a value fails":                        {call{path: "/broken"}, 500, "misuse"},
			"a value is empty: a bug, no bad user": {call{path: "/user", user: " "}, 500, "misuse"},
		}
		for name, tt := range tests {
			tt.call.key = "k"
			got := s.do(tt.call)
			if got.status != tt.status || got.code() != tt.code {
				t.Errorf("%s: %d %s, want %d %s", name, got.status, got.body, tt.status, tt.code)
			}
			if strings.Contains(got.body, "expired") || strings.Contains(got.body, "secret") {
				t.Errorf("%s: the error's text is in the answer: %s", name, got.body)
			}
		}
		if strings.Contains(s.logs.String(), "secret") {
			t.Errorf("the error's text is in the log: %s", s.logs)
		}
		c.ran(t, 0)
	})
}

// E6: a body that is too large, cannot be read, or was read outside.
func TestE6_Body(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		s.With(s.guard.Dedup("{userID}", MaxBody(10, 10))).Post("/a", c.ServeHTTP)
		drain := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				next.ServeHTTP(w, r)
			})
		}
		parse := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				next.ServeHTTP(w, r)
			})
		}
		s.With(drain, s.guard.Dedup("{userID}")).Post("/drained", c.ServeHTTP)
		s.With(parse, s.guard.Dedup("{userID}")).Post("/parsed", c.ServeHTTP)

		if got := s.do(call{path: "/a", key: "1", body: strings.Repeat("x", 11)}); got.status != 413 || got.code() != "body_too_large" {
			t.Errorf("too large: %d %s", got.status, got.body)
		}
		for _, path := range []string{"/drained", "/parsed"} {
			got := s.do(call{path: path, key: "2", body: "a=b", header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}})
			if got.status != 500 || got.code() != "misuse" {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		if !s.logs.has("mount this outside of what parses it") {
			t.Errorf("the log does not say what to do:\n%s", s.logs)
		}
		c.ran(t, 0)
		if got := s.do(call{path: "/a", key: "1", body: strings.Repeat("x", 10)}); got.status != 201 {
			t.Errorf("at the limit: %d %s", got.status, got.body)
		}

		for name, body := range map[string]io.Reader{"too large, length unknown": strings.NewReader("12345678901"), "broken": brokenBody{}} {
			r := s.request(call{path: "/a", key: "3"})
			r.Body, r.ContentLength = io.NopCloser(body), -1
			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, r)
			want := map[string]int{"too large, length unknown": 413, "broken": 400}[name]
			if rec.Code != want {
				t.Errorf("%s: %d %s, want %d", name, rec.Code, rec.Body, want)
			}
		}
	})
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errTest }

// E7: mounted twice, the inner one passes, and so does a RequestID.
func TestE7_MountedTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, s *shop) {
		var c counter
		ids := make(chan string, 2)
		remember := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ids <- dedup.FromContext(r.Context()).RequestID()
				next.ServeHTTP(w, r)
			})
		}
		s.Group(func(r chi.Router) {
			r.Use(s.guard.Dedup("{userID}"))
			r.With(remember, s.guard.Dedup("all"), s.guard.RequestID("all"), remember).Post("/a", c.ServeHTTP)
		})
		for range 2 {
			if got := s.do(call{path: "/a", key: "k"}); got.status != 201 || got.body != "order " {
				t.Errorf("%d %s", got.status, got.body)
			}
		}
		c.ran(t, 1)
		if outer, inner := <-ids, <-ids; outer != inner || outer == "" {
			t.Errorf("ids %q outside and %q inside", outer, inner)
		}
		s.record()
	})
}

// An idempotency key is a string of RFC 8941 or its bare spelling: one request. So is another spelling of the path, and
// another boundary of the same form.
func TestOneRequestInTwoSpellings(t *testing.T) {
	form := func(boundary string) string {
		return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--" + boundary + "--\r\n"
	}
	tests := map[string][2]call{
		"quoted key": {{path: "/i/7", header: http.Header{"Idempotency-Key": {`"k"`}}}, {path: "/i/7", header: http.Header{"Idempotency-Key": {"k"}}}},
		"path":       {{path: "/i/7", key: "k"}, {path: "/i/%37", key: "k"}},
		"boundary": {
			{path: "/i/7", key: "k", body: form("aaa"), header: http.Header{"Content-Type": {"multipart/form-data; boundary=aaa"}}},
			{path: "/i/7", key: "k", body: form("bbb"), header: http.Header{"Content-Type": {"multipart/form-data; boundary=bbb"}}},
		},
	}
	for name, calls := range tests {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, s *shop) {
				var c counter
				s.With(s.guard.Dedup("{userID}")).Post("/i/{id}", c.ServeHTTP)
				for _, call := range calls {
					if got := s.do(call); got.status != 201 {
						t.Errorf("%d %s", got.status, got.body)
					}
				}
				c.ran(t, 1)
			})
		})
	}
}

// The service's own panic text names the rule and the remedy.
func TestARuleThatCannotBeIsRefusedWhenItIsWritten(t *testing.T) {
	g := miniShop(t).guard
	tests := map[string]struct {
		write func()
		want  []string
	}{
		"a scope for everybody": {func() { g.Dedup("userID") }, []string{`Dedup("userID")`, "{userID}"}},
		"no such form":          {func() { g.Lock("stock:{itemID|number}") }, []string{`Lock("stock:{itemID|number}")`, "|int"}},
		"no separator":          {func() { g.Lock("{a}{b}") }, []string{`Lock("{a}{b}")`}},
		"short record":          {func() { g.Dedup("all", TTL(1e9)) }, []string{"TTL(1s)", "10m"}},
		"long lock":             {func() { g.Lock("a", TTL(600e9)) }, []string{"TTL(10m0s)", "5m0s"}},
		"all faults at once":    {func() { g.Lock("a", OnBusy(200), Wait(-1), PassAtMost(0)) }, []string{"OnBusy(200)", "Wait(-1ns)", "PassAtMost(0)"}},
		"a wait without unit":   {func() { g.Lock("a", Wait(2)) }, []string{"Wait(2ns)", "1ms to 1m0s", "nanoseconds"}},
		"a hold without unit":   {func() { g.Lock("a", MaxHold(30)) }, []string{"MaxHold(30ns)", "nanoseconds"}},
		"option without record": {func() { g.RequestID("all", TTL(600e9), StoreIf(storeSuccess)) }, []string{"TTL, StoreIf", "Dedup"}},
		"HEAD":                  {func() { g.Dedup("all", Methods("HEAD")) }, []string{"HEAD"}},
		"nil":                   {func() { g.Dedup("all", nil, StillTrue(nil)) }, []string{"option is nil", "StillTrue(nil)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				text, _ := recover().(string)
				if !strings.HasPrefix(text, "holdfast/middleware: ") {
					t.Errorf("panic %q, want one that begins with holdfast/middleware:", text)
				}
				for _, part := range tt.want {
					if !strings.Contains(text, part) {
						t.Errorf("panic %q does not say %q", text, part)
					}
				}
			}()
			tt.write()
		})
	}
}

func TestNewTellsAllFaults(t *testing.T) {
	_, err := New(nil, WithLocker(nil), WithStore(nil), WithValue("", currentUser), nil)
	for _, part := range []string{"WithLocker(nil)", "WithStore(nil)", `WithValue("")`, "an option is nil"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
	if _, err := New(nil); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("no client: %v", err)
	}
}

// Different keys are different requests: also a long key, which is hashed, and the hash of it, typed.
func TestDifferentKeysStayDifferent(t *testing.T) {
	i := identity{bare: true}
	seen := map[string]string{}
	long := string(keyesc.Append(nil, strings.Repeat("a", 200)))
	values := []string{strings.Repeat("a", 200), long, string(keyesc.Append(nil, long)), "%253D" + long[1:], "%", "=", "%3D", "%25", ":", "%3A", "a b", "a%20b"}
	for _, value := range values {
		key := i.plain(string(keyesc.Append(nil, value)))
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q are one key, %q", other, value, key)
		}
		seen[key] = value
	}
	if got := i.plain(string(keyesc.Append(nil, "order:1 a=b%"))); got != "order:1 a=b%" {
		t.Errorf("an ordinary key is %q", got)
	}
}
