package lockkey

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/internal/keyesc"
)

// answer is what a template gave for one request.
type answer struct {
	keys []string
	err  error
}

// guard returns a middleware that renders the template into got and goes on.
func guard(t *Template, got *answer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got.keys, got.err = t.Keys(r)
			next.ServeHTTP(w, r)
		})
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// do sends POST target to h as net/http would parse it, and reports whether it was answered with 200.
func do(tb testing.TB, h http.Handler, target string) bool {
	tb.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: shop.example\r\n\r\n")))
	if err != nil {
		tb.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code == http.StatusOK
}

// One resource, one key: however the route is mounted and, with |int, however the number is spelled (X32;
// go-chi/chi#832, #641, #642, #296). A middleware in Use runs before the route is known and gets an error that says so,
// never a key that many share (go-chi/chi#270).
func TestOneKeyHoweverMountedAndSpelled(t *testing.T) {
	const pattern = "/items/{itemID}"
	mounts := map[string]func(chi.Router, func(http.Handler) http.Handler){
		"With": func(r chi.Router, mw func(http.Handler) http.Handler) { r.With(mw).Post(pattern, ok) },
		"Group": func(r chi.Router, mw func(http.Handler) http.Handler) {
			r.Group(func(r chi.Router) {
				r.Use(mw)
				r.Post(pattern, ok)
			})
		},
		"With in Route": func(r chi.Router, mw func(http.Handler) http.Handler) {
			r.Route("/items", func(r chi.Router) { r.With(mw).Post("/{itemID}", ok) })
		},
		"With on the root of a Route": func(r chi.Router, mw func(http.Handler) http.Handler) {
			r.Route(pattern, func(r chi.Router) { r.With(mw).Post("/", ok) })
		},
		"With in Mount": func(r chi.Router, mw func(http.Handler) http.Handler) {
			sub := chi.NewRouter()
			sub.With(mw).Post("/{itemID}", ok)
			r.Mount("/items", sub)
		},
		"With in a nested Mount": func(r chi.Router, mw func(http.Handler) http.Handler) {
			inner, outer := chi.NewRouter(), chi.NewRouter()
			inner.With(mw).Post("/", ok)
			outer.Mount("/{itemID}", inner)
			r.Mount("/items", outer)
		},
		"Handle": func(r chi.Router, mw func(http.Handler) http.Handler) {
			r.Handle(pattern, mw(http.HandlerFunc(ok)))
		},
	}
	template := parse(t, "stock:{itemID|int}")
	for name, mount := range mounts {
		t.Run(name, func(t *testing.T) {
			var got answer
			router := chi.NewRouter()
			mount(router, guard(template, &got))
			for _, target := range []string{"/items/7", "/items/07", "/items/%37", "/items/+7", "/items/%30%37", "/items/7?x=8"} {
				got = answer{}
				if !do(t, router, target) || got.err != nil || len(got.keys) != 1 || got.keys[0] != "stock:7" {
					t.Errorf("POST %s: keys %q, %v; want stock:7", target, got.keys, got.err)
				}
			}
		})
	}
	t.Run("Use", func(t *testing.T) {
		var got answer
		router := chi.NewRouter()
		router.Use(guard(template, &got))
		router.Post(pattern, ok)
		if !do(t, router, "/items/7") || !errors.Is(got.err, ErrMisuse) {
			t.Errorf("in Use: keys %q, %v; want ErrMisuse", got.keys, got.err)
		}
	})
	t.Run("net/http", func(t *testing.T) {
		var got answer
		mux := http.NewServeMux()
		mux.Handle("POST "+pattern, guard(template, &got)(http.HandlerFunc(ok)))
		for _, target := range []string{"/items/7", "/items/07", "/items/%37"} {
			if !do(t, mux, target) || got.err != nil || got.keys[0] != "stock:7" {
				t.Errorf("POST %s: keys %q, %v; want stock:7", target, got.keys, got.err)
			}
		}
	})
}

func TestPercentDecoding(t *testing.T) {
	tests := map[string]struct{ target, want string }{
		"plain":                         {"/i/ab", "ab"},
		"a letter escaped":              {"/i/%61b", "ab"},
		"a slash escaped":               {"/i/a%2Fb", "a%2Fb"},
		"a slash escaped in lower case": {"/i/a%2fb", "a%2Fb"},
		"an escape escaped":             {"/i/%2561", "%2561"},
		"a colon":                       {"/i/a:b", "a%3Ab"},
		"a colon escaped":               {"/i/a%3Ab", "a%3Ab"},
		"a space":                       {"/i/a%20b", "a%20b"},
		"a plus sign stays one":         {"/i/a+b", "a%2Bb"},
		"what net/url need not escape":  {"/i/a%5Eb", "a%5Eb"},
		"the same, not escaped":         {"/i/a^b", "a%5Eb"},
	}
	template := parse(t, "i:{p}")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var inChi, inMux answer
			router, mux := chi.NewRouter(), http.NewServeMux()
			router.With(guard(template, &inChi)).Post("/i/{p}", ok)
			mux.Handle("POST /i/{p}", guard(template, &inMux)(http.HandlerFunc(ok)))
			for where, h := range map[string]http.Handler{"chi": router, "net/http": mux} {
				got := map[string]*answer{"chi": &inChi, "net/http": &inMux}[where]
				if !do(t, h, tt.target) || got.err != nil || got.keys[0] != "i:"+tt.want {
					t.Errorf("%s: POST %s: keys %q, %v; want %q", where, tt.target, got.keys, got.err, "i:"+tt.want)
				}
			}
		})
	}
}

// A RawPath that does not decode can only have been set by hand. The value is kept as it is, and escaped.
func TestUndecodableRawPathIsKept(t *testing.T) {
	var got answer
	router := chi.NewRouter()
	router.With(guard(parse(t, "i:{p}"), &got)).Post("/i/{p}", ok)
	r := httptest.NewRequest(http.MethodPost, "/i/x", nil)
	r.URL.RawPath = "/i/%zz"
	router.ServeHTTP(httptest.NewRecorder(), r)
	if got.err != nil || got.keys[0] != "i:%25zz" {
		t.Errorf("keys %q, %v; want i:%%25zz", got.keys, got.err)
	}
}

// StripSlashes routes on the decoded path although RawPath is set. Decoding again may merge two keys, but one resource
// still has one.
func TestStripSlashesNeverSplitsAKey(t *testing.T) {
	var got answer
	router := chi.NewRouter()
	router.Use(middleware.StripSlashes)
	router.With(guard(parse(t, "i:{p}"), &got)).Post("/i/{p}", ok)
	for _, target := range []string{"/i/ab", "/i/ab/", "/i/%61b", "/i/%61b/"} {
		if got = (answer{}); !do(t, router, target) || got.err != nil || got.keys[0] != "i:ab" {
			t.Errorf("POST %s: keys %q, %v; want i:ab", target, got.keys, got.err)
		}
	}
}

func TestPathParams(t *testing.T) {
	tests := map[string]struct {
		template string
		pattern  string
		target   string
		want     string // key, or
		reason   string
		sentinel error
	}{
		"two":                  {template: "{a}:{b}", pattern: "/{a}/x/{b}", target: "/1/x/2", want: "1:2"},
		"a regular expression": {template: "x:{id}", pattern: "/{id:[0-9]{2}}", target: "/12", want: "x:12"},
		"part of a segment":    {template: "x:{id}", pattern: "/{id}.json", target: "/12.json", want: "x:12"},
		"empty": {
			template: "x:{id}", pattern: "/a/{id}/b", target: "/a//b",
			reason: "path parameter id is empty", sentinel: ErrInvalid,
		},
		"not of its form": {
			template: "x:{id|int}", pattern: "/{id}", target: "/seven",
			reason: "path parameter id is not an integer of 64 bits", sentinel: ErrInvalid,
		},
		"too long": {
			template: "x:{id}", pattern: "/{id}", target: "/" + strings.Repeat("a", maxRaw+1),
			reason: "path parameter id is longer than 8 KiB", sentinel: ErrInvalid,
		},
		"unknown": {
			template: "x:{itemID}", pattern: "/{id}", target: "/1",
			reason: "the route has no path parameter itemID, or is not known yet", sentinel: ErrMisuse,
		},
		"wildcard":        {template: "f:{*}", pattern: "/files/*", target: "/files/a/b", want: "f:a%2Fb"},
		"wildcard, empty": {template: "f:{*}", pattern: "/files/*", target: "/files/", reason: "the path's wildcard is empty", sentinel: ErrInvalid},
		"wildcard, none": {
			template: "f:{*}", pattern: "/{id}", target: "/1",
			reason: "the route has no wildcard, or is not known yet", sentinel: ErrMisuse,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got answer
			router := chi.NewRouter()
			router.With(guard(parse(t, tt.template), &got)).Post(tt.pattern, ok)
			if !do(t, router, tt.target) {
				t.Fatalf("POST %s did not reach %s", tt.target, tt.pattern)
			}
			check(t, got, tt.want, tt.reason, tt.sentinel)
		})
	}
}

// check compares with one key, or with a reason and a sentinel.
func check(t *testing.T, got answer, want, reason string, sentinel error) {
	t.Helper()
	if reason == "" {
		if got.err != nil || len(got.keys) != 1 || got.keys[0] != want {
			t.Errorf("keys %q, %v; want %q", got.keys, got.err, want)
		}
		return
	}
	var failed *KeyError
	if !errors.As(got.err, &failed) || failed.Reason != reason || !errors.Is(got.err, sentinel) || got.keys != nil {
		t.Errorf("keys %q, %v; want reason %q and %v", got.keys, got.err, reason, sentinel)
	}
}

// A mount leaves an empty wildcard behind in chi's context. It is not the route's.
func TestWildcardOfAMountIsNotTheRoutes(t *testing.T) {
	var got answer
	sub := chi.NewRouter()
	sub.With(guard(parse(t, "f:{*}"), &got)).Post("/{id}", ok)
	sub.With(guard(parse(t, "f:{*}"), &got)).Post("/rest/*", ok)
	router := chi.NewRouter()
	router.Mount("/sub", sub)
	do(t, router, "/sub/1")
	check(t, got, "", "the route has no wildcard, or is not known yet", ErrMisuse)
	do(t, router, "/sub/rest/a")
	check(t, got, "f:a", "", nil)
}

// The inner of two params of one name is the one that the handler reads, too.
func TestInnerParamCounts(t *testing.T) {
	var got answer
	router := chi.NewRouter()
	router.Route("/shops/{id}", func(r chi.Router) { r.With(guard(parse(t, "x:{id}"), &got)).Post("/items/{id}", ok) })
	do(t, router, "/shops/1/items/2")
	check(t, got, "x:2", "", nil)
}

// net/http outside, inside and instead of chi: what chi does not know comes from r.PathValue, decoded already.
func TestPathValue(t *testing.T) {
	t.Run("ServeMux outside chi", func(t *testing.T) {
		var got answer
		router := chi.NewRouter()
		router.With(guard(parse(t, "{tenant}:{id}"), &got)).Post("/{t}/{id}", ok)
		mux := http.NewServeMux()
		mux.Handle("/{tenant}/", router)
		do(t, mux, "/a%2Fb/1")
		check(t, got, "a%2Fb:1", "", nil)
	})
	t.Run("ServeMux inside chi", func(t *testing.T) {
		var got answer
		mux := http.NewServeMux()
		mux.Handle("POST /std/{id}", guard(parse(t, "x:{id}"), &got)(http.HandlerFunc(ok)))
		router := chi.NewRouter()
		router.Mount("/std", mux)
		do(t, router, "/std/%2561")
		check(t, got, "x:%2561", "", nil)
	})
	t.Run("the rest of the path, empty", func(t *testing.T) {
		var got answer
		mux := http.NewServeMux()
		mux.Handle("POST /std/{rest...}", guard(parse(t, "x:{rest}"), &got)(http.HandlerFunc(ok)))
		do(t, mux, "/std/a/b")
		check(t, got, "x:a%2Fb", "", nil)
		do(t, mux, "/std/")
		check(t, got, "", "path parameter rest is empty", ErrInvalid)
	})
	t.Run("unknown", func(t *testing.T) {
		var got answer
		mux := http.NewServeMux()
		mux.Handle("POST /std/{id}", guard(parse(t, "x:{itemID}"), &got)(http.HandlerFunc(ok)))
		do(t, mux, "/std/1")
		check(t, got, "", "the route has no path parameter itemID, or is not known yet", ErrMisuse)
	})
	t.Run("no wildcard", func(t *testing.T) {
		got, err := parse(t, "x:{*}").Keys(httptest.NewRequest(http.MethodPost, "/std/1", nil))
		check(t, answer{got, err}, "", "the route has no wildcard, or is not known yet", ErrMisuse)
	})
}

// Whatever the request line, chi's param gives the key that net/http's PathValue gives.
func FuzzPathValueOracle(f *testing.F) {
	for _, seed := range []string{"ab", "%61b", "a%2Fb", "a%2fb", "%2561", "a:b", "a%3Ab", "a%20b", "a^b", "a^%2Fb", "%zz", "é", "%c3%a9", "a;b", "a+b", "..", "%2e%2e"} {
		f.Add(seed)
	}
	template := parse(f, "i:{p}")
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.ContainsAny(raw, " \r\n") {
			return
		}
		line := "POST /i/" + raw + " HTTP/1.1\r\nHost: shop.example\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line)))
		if err != nil {
			return
		}
		var inChi, inMux answer
		var want string
		router, mux := chi.NewRouter(), http.NewServeMux()
		router.With(guard(template, &inChi)).Post("/i/{p}", ok)
		mux.Handle("POST /i/{p}", guard(template, &inMux)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			want = "i:" + string(keyesc.Append(nil, r.PathValue("p")))
		})))
		router.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context()))
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if inChi.keys == nil || inMux.keys == nil {
			return // the one cleans the path or does not have the route
		}
		if inChi.keys[0] != want || inMux.keys[0] != want {
			t.Fatalf("POST /i/%s: chi gives %q, net/http %q, want %q", raw, inChi.keys, inMux.keys, want)
		}
	})
}
