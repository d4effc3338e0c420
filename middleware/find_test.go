package middleware

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// seen is what a handler under a lock rule sees: the route, and the keys that are held.
type seen struct {
	route string
	keys  []string
}

// watcher returns a handler that tells what it sees.
func watcher(s *shop, ch chan seen) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		var v seen
		if rule := reqctx.RuleOf(r.Context()); rule != nil {
			v.route = rule.Method + " " + rule.Route
		}
		v.keys = s.keys("lock:")
		ch <- v
	}
}

// F022, go-chi/chi#270, #892, #468, #938, #676, #251, #260, #556, #594, PR #790, #692, PR #872, #1089, #1097, PR #986:
// the same key and the same full pattern for the same route, however the rule is mounted and the path is spelled, after
// any outer middleware; X32 and F023, go-chi/chi#832, #641, #642, #296: with |int the number's spelling does not count.
func TestF022_SameKeyHoweverMounted(t *testing.T) {
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r.Clone(r.Context())) })
	}
	type mount func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc)
	flat := map[string]mount{
		"With": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.With(outer, rule).Post("/items/{itemID}", h)
		},
		"Group": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Group(func(r chi.Router) { r.Use(outer, rule); r.Post("/items/{itemID}", h) })
		},
		"Use": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Use(outer, rule)
			s.Post("/items/{itemID}", h)
		},
		"Use in Route": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Route("/items", func(r chi.Router) { r.Use(rule); r.Post("/{itemID}", h) })
		},
		"Use in Route, at its root": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Route("/items/{itemID}", func(r chi.Router) { r.Use(outer, rule); r.Post("/", h) })
		},
		"With on Route": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.With(outer, rule).Route("/items", func(r chi.Router) { r.Post("/{itemID}", h) })
		},
		"With on Route, at its root": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.With(rule).Route("/items/{itemID}", func(r chi.Router) { r.Post("/", h) })
		},
		"Use on the root of nested": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Use(rule)
			s.Route("/items", func(r chi.Router) { r.Route("/{itemID}", func(r chi.Router) { r.Post("/", h) }) })
		},
		"Use in the middle of nested": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Route("/items", func(r chi.Router) {
				r.Use(rule)
				r.Route("/{itemID}", func(r chi.Router) { r.Post("/", h) })
			})
		},
		"Mount": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			sub := chi.NewRouter()
			sub.Use(outer, rule)
			sub.Post("/{itemID}", h)
			s.Mount("/items", sub)
		},
		"Mount at /": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			sub := chi.NewRouter()
			sub.Use(rule)
			sub.Post("/items/{itemID}", h)
			s.Mount("/", sub)
		},
		"Use below With": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.With(outer).Route("/items", func(r chi.Router) { r.With(outer).Group(func(r chi.Router) { r.Use(rule); r.Post("/{itemID}", h) }) })
		},
		"Apply": func(s *shop, _ func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Route("/items", func(r chi.Router) { r.With(outer).Post("/{itemID}", h) })
			must(s.t, s.guard.Apply(s.Mux, Annotations{"POST /items/{itemID}": {Lock: &LockRule{Keys: []string{"stock:{itemID|int}"}}}}))
		},
		"StripSlashes outside": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Use(chimiddleware.StripSlashes, rule)
			s.Post("/items/{itemID}", h)
		},
		"CleanPath and StripSlashes outside of a sub-router": func(s *shop, rule func(http.Handler) http.Handler, h http.HandlerFunc) {
			s.Use(chimiddleware.CleanPath, chimiddleware.StripSlashes)
			s.Route("/items", func(r chi.Router) { r.Use(rule); r.Post("/{itemID}", h) })
		},
	}
	for name, build := range flat {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := miniShop(t)
			ch := make(chan seen, 1)
			build(s, s.guard.Lock("stock:{itemID|int}"), watcher(s, ch))
			if err := s.guard.Validate(s.Mux); err != nil {
				t.Error(err)
			}
			paths := []string{"/items/7", "/items/07", "/items/%37", "/items/+7"}
			if strings.Contains(name, "root") || strings.Contains(name, "nested") || strings.Contains(name, "Slashes") {
				paths = append(paths, "/items/7/")
			}
			for _, path := range paths {
				if got := s.do(call{path: path}); got.status != 200 {
					t.Errorf("%s: %d %s\n%s", path, got.status, got.body, s.logs)
					continue
				}
				got := <-ch
				if want := (seen{"POST /items/{itemID}", []string{"lock:stock:7"}}); got.route != want.route || !slices.Equal(got.keys, want.keys) {
					t.Errorf("%s: %v, want %v", path, got, want)
				}
			}
		})
	}
}

// A 404 or 405 is never locked, wherever the rule is (go-chi/chi#163: NotFound handlers run unguarded); a mount's own path
// is asked for below the mount.
func TestNotFoundIsNotGuarded(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	s.Use(s.guard.Lock("all:{userID}"))
	s.NotFound(watcher(s, ch))
	s.MethodNotAllowed(watcher(s, ch))
	s.Route("/a", func(r chi.Router) {
		r.Use(s.guard.Lock("below:{userID}"))
		r.Put("/", nothing)
		r.Put("/x", nothing)
	})
	s.Get("/g", nothing)
	for _, path := range []string{"/nowhere", "/a", "/a/", "/a/x", "/a/y", "/g"} {
		s.do(call{path: path})
		if got := <-ch; len(got.keys) != 0 || got.route != "" {
			t.Errorf("POST %s: %v, want no lock", path, got)
		}
	}
}

// go-chi/chi#830, PR #1148: a route that shares a mount's pattern has its own answer.
func TestChi830_RouteSharesTheMountsPattern(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	s.Use(s.guard.Lock("use:{userID}"))
	sub := chi.NewRouter()
	sub.Use(s.guard.Lock("sub:{userID}"))
	sub.Post("/", nothing)
	sub.Put("/", watcher(s, ch))
	s.Mount("/a", sub)
	s.Post("/a", watcher(s, ch))
	s.Patch("/a/*", watcher(s, ch))
	for _, c := range []struct {
		method, path, route string
		locks               int
	}{
		{"POST", "/a", "POST /a", 1}, {"PUT", "/a", "PUT /a", 2}, {"PATCH", "/a/x", "PATCH /a/*", 1},
	} {
		s.do(call{method: c.method, path: c.path})
		if got := <-ch; got.route != c.route || len(got.keys) != c.locks {
			t.Errorf("%s %s: %v, want %s under %d locks", c.method, c.path, got, c.route, c.locks)
		}
	}
}

// One rule, given to a route and to the router that is mounted under the same pattern, guards both.
func TestOneRuleOnARouteAndTheMountBesideIt(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	rule := s.guard.Lock("x:{userID}")
	s.Route("/a", func(r chi.Router) {
		r.Use(rule)
		r.Put("/", watcher(s, ch))
		r.Post("/b", watcher(s, ch))
	})
	s.With(rule).Post("/a", watcher(s, ch))
	for request, route := range map[string]string{"POST /a": "POST /a", "PUT /a": "PUT /a", "PUT /a/": "PUT /a", "POST /a/b": "POST /a/b"} {
		method, path, _ := strings.Cut(request, " ")
		s.do(call{method: method, path: path})
		if got := <-ch; got.route != route || len(got.keys) != 1 {
			t.Errorf("%s: %v, want %s under one lock", request, got, route)
		}
	}
}

// An opaque mount is one route, at its root and below; a wildcard too.
func TestOpaqueMountIsOneRoute(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	s.With(s.guard.Lock("with:{userID}")).Mount("/std", watcher(s, ch))
	s.With(s.guard.Lock("file:{*}")).Post("/files/*", watcher(s, ch))
	s.Route("/sub", func(r chi.Router) { r.Use(s.guard.Lock("use:{userID}")); r.Mount("/std", watcher(s, ch)) })
	for path, want := range map[string]seen{
		"/std": {"POST /std/*", []string{"lock:with:42"}}, "/std/": {"POST /std/*", []string{"lock:with:42"}},
		"/std/x": {"POST /std/*", []string{"lock:with:42"}}, "/files/a/b": {"POST /files/*", []string{"lock:file:a%2Fb"}},
		"/sub/std": {"POST /sub/std/*", []string{"lock:use:42"}}, "/sub/std/x": {"POST /sub/std/*", []string{"lock:use:42"}},
	} {
		if got := s.do(call{path: path}); got.status != 200 {
			t.Errorf("%s: %d %s\n%s", path, got.status, got.body, s.logs)
			continue
		}
		if got := <-ch; got.route != want.route || !slices.Equal(got.keys, want.keys) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// Outside chi the pattern of net/http counts, then the name that the rule was given; there is no panic.
func TestOutsideChi(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	mux := http.NewServeMux()
	mux.Handle("POST /items/{itemID}", s.guard.Lock("stock:{itemID|int}")(watcher(s, ch)))
	s.server()
	plain := httptest.NewServer(mux)
	defer plain.Close()
	if got := s.doOn(plain, call{path: "/items/07"}); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := <-ch; got.route != "POST /items/{itemID}" || !slices.Equal(got.keys, []string{"lock:stock:7"}) {
		t.Errorf("under net/http: %v", got)
	}
	for name, rule := range map[string]func(http.Handler) http.Handler{
		"named": s.guard.Lock("x:{userID}", RouteName("named")), "no name": s.guard.Lock("x:{userID}"),
	} {
		bare := httptest.NewServer(rule(watcher(s, ch)))
		got := s.doOn(bare, call{path: "/"})
		bare.Close()
		switch {
		case name == "named":
			if v := <-ch; got.status != 200 || v.route != "POST " || len(v.keys) != 1 {
				t.Errorf("named: %d, %v", got.status, v)
			}
		case got.status != 500 || got.code() != "misuse" || !s.logs.has("there is no router", "RouteName"):
			t.Errorf("no name: %d %s", got.status, got.body)
		}
	}
}

// A rule that is hidden in another middleware, or in a router that was mounted after the first request, is refused
// where its route is not known, never let through.
func TestARuleWhoseRouteIsNotKnownIsRefused(t *testing.T) {
	always := func(*http.Request) bool { return true }
	s := miniShop(t)
	hidden := chimiddleware.Maybe(s.guard.Lock("x:{userID}"), always)
	s.Get("/first", nothing)
	s.With(hidden).Post("/with", nothing)
	s.Route("/sub", func(r chi.Router) {
		r.Use(hidden)
		r.Post("/", func(http.ResponseWriter, *http.Request) { t.Error("called") })
		r.Post("/x", func(http.ResponseWriter, *http.Request) { t.Error("called") })
	})
	s.do(call{path: "/with"}) // the guard has looked at the router now
	s.Route("/late", func(r chi.Router) {
		r.Use(s.guard.Lock("x:{userID}"))
		r.Post("/", func(http.ResponseWriter, *http.Request) { t.Error("called") })
		r.Post("/x", func(http.ResponseWriter, *http.Request) { t.Error("called") })
	})
	for path, status := range map[string]int{"/with": 200, "/sub": 500, "/sub/": 500, "/sub/x": 500, "/late": 500, "/late/": 500, "/late/x": 500} {
		if got := s.do(call{path: path}); got.status != status {
			t.Errorf("%s: %d %s, want %d", path, got.status, got.body, status)
		}
	}
	if !s.logs.has("With", "Apply", "RouteName") {
		t.Errorf("the log does not say what to do:\n%s", s.logs)
	}
	// A route that was added later to a router that is known is found.
	u := miniShop(t)
	ch := make(chan seen, 1)
	u.Use(u.guard.Lock("x:{userID}"))
	u.Post("/a", nothing)
	u.do(call{path: "/a"})
	u.Post("/b/{c}", watcher(u, ch))
	u.do(call{path: "/b/1"})
	if got := <-ch; got.route != "POST /b/{c}" || len(got.keys) != 1 {
		t.Errorf("added later: %v", got)
	}
}

// A handler test that makes a routing context of its own gets an answer, not a panic.
func TestContextWithoutARouter(t *testing.T) {
	s := miniShop(t)
	for name, want := range map[string]int{"": 500, "named": 200} {
		opts := []LockOption{}
		if name != "" {
			opts = append(opts, RouteName(name))
		}
		rctx := chi.NewRouteContext()
		rctx.URLParams.Add("id", "7")
		r := s.request(call{path: "/items/7"})
		r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, rctx))
		rec := httptest.NewRecorder()
		s.guard.Lock("stock:{id}", opts...)(http.HandlerFunc(nothing)).ServeHTTP(rec, r)
		if rec.Code != want {
			t.Errorf("name %q: %d %s, want %d", name, rec.Code, rec.Body, want)
		}
	}
}

// Behind GetHead the route is that of GET and the request still HEAD: obeyed by what the client has sent.
func TestGetHead(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	s.Use(chimiddleware.GetHead)
	s.With(s.guard.Lock("x:{userID}", Methods("GET"))).Get("/a", watcher(s, ch))
	for method, locks := range map[string]int{"GET": 1, "HEAD": 0} {
		s.do(call{method: method, path: "/a"})
		if got := <-ch; len(got.keys) != locks {
			t.Errorf("%s: %v, want %d locks", method, got, locks)
		}
	}
}

// X32, go-chi/chi#832: a slash that is escaped belongs to the value; an escaped percent sign is decoded once.
func TestEscapedPathsAreDecodedOnce(t *testing.T) {
	for name, early := range map[string]bool{"With": false, "Use": true} {
		t.Run(name, func(t *testing.T) {
			s := miniShop(t)
			ch := make(chan seen, 1)
			if early {
				s.Use(s.guard.Lock("i:{id}"))
				s.Post("/i/{id}", watcher(s, ch))
			} else {
				s.With(s.guard.Lock("i:{id}")).Post("/i/{id}", watcher(s, ch))
			}
			for path, key := range map[string]string{
				"/i/ab": "i:ab", "/i/%61b": "i:ab", "/i/a%2Fb": "i:a%2Fb", "/i/a%2fb": "i:a%2Fb", "/i/%2561": "i:%2561", "/i/a:b": "i:a%3Ab", "/i/a%3Ab": "i:a%3Ab",
			} {
				s.do(call{path: path})
				if got := <-ch; !slices.Equal(got.keys, []string{"lock:" + key}) {
					t.Errorf("%s: %v, want %s", path, got.keys, key)
				}
			}
		})
	}
}

// A body that a rule has read is read by the handler as if nobody had, also when the rule runs before routing.
func TestBodyIsPutBack(t *testing.T) {
	s := miniShop(t)
	rules := map[string]func(http.Handler) http.Handler{
		"Dedup":     s.guard.Dedup("{userID}", Key("{body.id}")),
		"Lock":      s.guard.Lock("a:{body.from}", Also("a:{body.to}")),
		"RequestID": s.guard.RequestID("{userID}", Key("{body.id}")),
	}
	for name, rule := range rules {
		for _, where := range []string{"With", "Use"} {
			t.Run(name+" in "+where, func(t *testing.T) {
				got := make(chan string, 1)
				h := func(_ http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					got <- string(b)
				}
				u := &shop{Mux: newMux(), t: t, rdb: s.rdb, prefix: s.prefix, logs: s.logs}
				if where == "Use" {
					u.Use(rule)
					u.Post("/use", h)
				} else {
					u.With(rule).Post("/with", h)
				}
				body := `{"id": "1", "from": "x", "to": "y", "text": "` + strings.Repeat("x", 60<<10) + `"}`
				if got := u.do(call{path: "/" + strings.ToLower(where), body: body}); got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
				if b := <-got; b != body {
					t.Errorf("the handler read %d bytes, want %d", len(b), len(body))
				}
			})
		}
	}
}

// Inside of a Dedup a lock's key is read from what that has buffered, whatever its size.
func TestLockReadsWhatDedupHasBuffered(t *testing.T) {
	s := miniShop(t)
	s.With(s.guard.Dedup("{userID}"), s.guard.Lock("a:{body.from}")).Post("/a", nothing)
	s.With(s.guard.Lock("a:{body.from}")).Post("/b", nothing)
	body := `{"from": "x", "text": "` + strings.Repeat("x", 500<<10) + `"}`
	for path, status := range map[string]int{"/a": 200, "/b": 413} {
		if got := s.do(call{path: path, key: "k", body: body}); got.status != status {
			t.Errorf("%s: %d %s, want %d", path, got.status, got.body, status)
		}
	}
}

// A wildcard may stand for nothing at all: the root of a sub-router, or of the router where a middleware has set the
// path that chi looks for. The route is known there as anywhere else.
func TestAWildcardThatStandsForNothing(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	s.Use(chimiddleware.CleanPath)
	sub := chi.NewRouter()
	sub.With(s.guard.Lock("files:{userID}")).Post("/*", watcher(s, ch))
	s.Mount("/files", sub)
	s.Route("/used", func(r chi.Router) {
		r.Use(s.guard.Lock("used:{userID}"))
		r.Post("/*", watcher(s, ch))
	})
	s.With(s.guard.Lock("rest:{userID}")).Post("/*", watcher(s, ch))
	for path, route := range map[string]string{
		"/files/x": "POST /files/*", "/files/": "POST /files/*", "/files": "POST /files/*",
		"/used/x": "POST /used/*", "/used/": "POST /used/*", "/used": "POST /used/*",
		"/x": "POST /*", "/": "POST /*",
	} {
		if got := s.do(call{path: path}); got.status != http.StatusOK {
			t.Errorf("%s: %d %s, want 200", path, got.status, got.body)
			continue
		}
		if v := <-ch; v.route != route || len(v.keys) != 1 {
			t.Errorf("%s: %v, want %s under one lock", path, v, route)
		}
	}
}

// A middleware inside of a rule that changes the path, or the method, leads past it: the route that the rule has asked for
// is not the one that is served. That is told, once for each kind of rule; a plain 404 or 405 is not.
func TestARequestThatIsLedPastARuleIsTold(t *testing.T) {
	rules := map[string]func(*Guard) func(http.Handler) http.Handler{
		"Lock":      func(g *Guard) func(http.Handler) http.Handler { return g.Lock("x:{userID}") },
		"Dedup":     func(g *Guard) func(http.Handler) http.Handler { return g.Dedup("{userID}") },
		"RequestID": func(g *Guard) func(http.Handler) http.Handler { return g.RequestID("{userID}") },
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			s := miniShop(t)
			s.Use(rule(s.guard), func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.URL.Path = strings.TrimPrefix(r.URL.Path, "/v1")
					next.ServeHTTP(w, r)
				})
			})
			s.Post("/items/{itemID}", nothing)
			s.Get("/g", nothing)
			for _, path := range []string{"/nowhere", "/g", "/items/7"} {
				s.do(call{path: path, key: "k"})
			}
			if s.logs.has("without the rule") {
				t.Errorf("nothing was led past it:\n%s", s.logs)
			}
			if got := s.do(call{path: "/v1/items/7", key: "k"}); got.status != http.StatusOK || !s.logs.has("without the rule", "POST /items/{itemID}", name) {
				t.Errorf("%d, and the log does not tell:\n%s", got.status, s.logs)
			}
		})
	}
}
