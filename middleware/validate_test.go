package middleware

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/google/go-cmp/cmp"
)

func nothing(http.ResponseWriter, *http.Request) {}

// Each finding, with its exact text: route, fault, remedy.
func TestValidateFinds(t *testing.T) {
	pass := func(next http.Handler) http.Handler { return next }
	tests := map[string]struct {
		build func(g *Guard, r *chi.Mux)
		want  []string
	}{
		"nothing": {func(g *Guard, r *chi.Mux) {
			r.Use(pass)
			r.With(g.Dedup("{userID}"), g.Lock("balance:{userID}")).Post("/withdrawals", nothing)
			r.Route("/items/{itemID}", func(r chi.Router) { r.With(g.Lock("stock:{itemID}")).Post("/orders", nothing) })
		}, nil},
		"unknown param": {func(g *Guard, r *chi.Mux) {
			r.Route("/items/{item:[a-z]{2}}", func(r chi.Router) { r.With(g.Lock("stock:{itemID}")).Post("/orders", nothing) })
		}, []string{
			`POST /items/{item:[a-z]{2}}/orders: Lock("stock:{itemID}"): {itemID} is no param of the route; write {item}, or register itemID with WithValue`,
		}},
		"param on two levels": {func(g *Guard, r *chi.Mux) {
			r.Route("/a/{id}", func(r chi.Router) { r.With(g.Lock("x:{id}")).Post("/b/{id}", nothing) })
		}, []string{
			`POST /a/{id}/b/{id}: Lock("x:{id}"): {id} is a param on two levels of the route, and only the inner one can be read; rename one of them`,
		}},
		"ambiguous": {func(g *Guard, r *chi.Mux) { r.With(g.Lock("x:{userID}")).Post("/{userID}", nothing) }, []string{
			`POST /{userID}: Lock("x:{userID}"): {userID} is ambiguous: both a param of the route and a registered value; rename one of them`,
		}},
		"body on a method without": {func(g *Guard, r *chi.Mux) { r.With(g.Lock("x:{body.id}")).Delete("/a", nothing) }, []string{
			`DELETE /a: Lock("x:{body.id}"): {body.id} on a method without a body; take the key from the path, the query or a header`,
		}},
		"acts on none of its methods": {func(g *Guard, r *chi.Mux) { r.With(g.Lock("x:{userID}")).Get("/a", nothing) }, []string{
			`GET /a: Lock("x:{userID}") acts on POST, PUT, PATCH, DELETE only; add Methods("GET"), or remove the rule`,
		}},
		"a Group of some methods is right": {func(g *Guard, r *chi.Mux) {
			r.Group(func(r chi.Router) { r.Use(g.Lock("x:{userID}")); r.Get("/a", nothing); r.Post("/a", nothing) })
		}, nil},
		"the same namespace twice": {func(g *Guard, r *chi.Mux) {
			r.Use(g.Lock("account:{userID}"))
			r.With(g.Lock("account:{id}")).Post("/transfers/{id}", nothing)
		}, []string{
			`POST /transfers/{id}: Lock("account:{userID}") and, inside of it, Lock("account:{id}") lock "account:": the second may wait for the first; write one rule with Also`,
		}},
		"inverted order over two routes": {func(g *Guard, r *chi.Mux) {
			a, b := g.Lock("a:{userID}"), g.Lock("b:{userID}")
			r.With(a, b).Post("/one", nothing)
			r.With(b, a).Post("/two", nothing)
		}, []string{
			`POST /one, POST /two: locks are taken in a circle ("a:" then "b:", "b:" then "a:"): two requests can wait for each other; nest them in one order everywhere, or take them together with Also`,
		}},
		"circle over three routes": {func(g *Guard, r *chi.Mux) {
			a, b, c := g.Lock("a:{userID}"), g.Lock("b:{userID}"), g.Lock("c:{userID}")
			r.With(a, b).Post("/one", nothing)
			r.With(b, c).Post("/two", nothing)
			r.With(c, a).Post("/three", nothing)
			r.With(a, c).Get("/no-lock-acts-on-get", nothing)
		}, []string{
			`POST /one, POST /three, POST /two: locks are taken in a circle ("a:" then "b:", "b:" then "c:", "c:" then "a:"): two requests can wait for each other; nest them in one order everywhere, or take them together with Also`,
		}},
		"TimeoutHandler inside": {func(g *Guard, r *chi.Mux) {
			r.With(g.Lock("x:{userID}")).Method("POST", "/a", http.TimeoutHandler(http.HandlerFunc(nothing), time.Second, ""))
		}, []string{
			`POST /a: the endpoint is an http.TimeoutHandler, which answers while the work goes on; put http.TimeoutHandler around the router or the server`,
		}},
		"TimeoutHandler as a middleware inside": {func(g *Guard, r *chi.Mux) {
			timeout := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Second, "") }
			r.With(timeout, g.Lock("x:{userID}"), timeout).Post("/a", nothing)
			r.With(timeout, g.Lock("outside:{userID}")).Post("/b", nothing)
		}, []string{
			`Lock("x:{userID}"): an http.TimeoutHandler is right inside of it, which answers while the work goes on; put http.TimeoutHandler around the router or the server`,
		}},
		"Dedup inside Lock": {func(g *Guard, r *chi.Mux) { r.With(g.Lock("x:{userID}"), g.Dedup("{userID}")).Post("/a", nothing) }, []string{
			`POST /a: Dedup("{userID}") is inside of Lock("x:{userID}"): a replay would wait for the lock; put Dedup outside`,
		}},
		"Dedup twice": {func(g *Guard, r *chi.Mux) {
			r.Use(g.Dedup("{userID}"))
			r.With(g.RequestID("all")).Post("/a", nothing)
		}, []string{
			`POST /a: Dedup("{userID}") and, inside of it, RequestID("all"): one of the two is idle; remove one of them`,
		}},
		"a path that is changed inside": {func(g *Guard, r *chi.Mux) {
			r.Use(g.Lock("x:{userID}"), chimiddleware.StripSlashes, chimiddleware.CleanPath)
			r.Post("/a", nothing)
		}, []string{
			`Lock("x:{userID}"): StripSlashes is inside of it in the same Use and changes the path that the rule has asked for; mount StripSlashes outside`,
			`Lock("x:{userID}"): CleanPath is inside of it in the same Use and changes the path that the rule has asked for; mount CleanPath outside`,
		}},
		"all at once": {func(g *Guard, r *chi.Mux) {
			r.With(g.Lock("x:{a}")).Post("/a", nothing)
			r.With(g.Lock("x:{b}")).Post("/b", nothing)
		}, []string{
			`POST /a: Lock("x:{a}"): {a} is no param of the route; register a with WithValue; the route has no params`,
			`POST /b: Lock("x:{b}"): {b} is no param of the route; register b with WithValue; the route has no params`,
		}},
		"a rule of another guard is its own business": {func(_ *Guard, r *chi.Mux) {
			r.With(miniShop(t).guard.Lock("x:{nope}")).Post("/a", nothing)
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := miniShop(t)
			tt.build(s.guard, s.Mux)
			err := s.guard.Validate(s.Mux)
			var got []string
			if err != nil {
				lines := strings.Split(err.Error(), "\n")
				if lines[0] != "middleware: the rules do not fit the router" {
					t.Errorf("headline %q", lines[0])
				}
				got = lines[1:]
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// What is legal but hardly meant is logged: a number with leading zeros, a rule on no route or hidden in another
// middleware (go-chi/httprate#9).
func TestValidateWarns(t *testing.T) {
	s := miniShop(t)
	never := s.guard.Lock("never:{userID}")
	_ = never
	always := func(*http.Request) bool { return true }
	s.With(chimiddleware.Maybe(s.guard.Lock("hidden:{userID}"), always)).Post("/a", nothing)
	s.With(s.guard.Lock("n:{id}")).Post("/n/{id:[0-9]+}", nothing)
	if err := s.guard.Validate(s.Mux); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{`"level":"WARN"`, "on no route", "never:"}, {"on no route", "hidden:"}, {"POST /n/{id:[0-9]+}", "leading zeros", "{id|int}"},
	} {
		if !s.logs.has(want...) {
			t.Errorf("no line with %v in\n%s", want, s.logs)
		}
	}
	if n := strings.Count(s.logs.String(), `"level":"WARN"`); n != 3 {
		t.Errorf("%d warnings, want 3:\n%s", n, s.logs)
	}
}

// A key that begins with a value is shared with whatever has the same one elsewhere, so the lock should say what it is of.
func TestValidateWarnsOfLocksWithoutNamespace(t *testing.T) {
	s := miniShop(t)
	s.With(s.guard.Dedup("{userID}"), s.guard.Lock("{itemID}")).Post("/items/{itemID}", nothing)
	s.With(s.guard.Lock("order:{orderID}")).Post("/orders/{orderID}", nothing)
	if err := s.guard.Validate(s.Mux); err != nil {
		t.Fatal(err)
	}
	if !s.logs.has(`"level":"WARN"`, "POST /items/{itemID}", "begins with a value", `account:{itemID}`) {
		t.Errorf("no warning in\n%s", s.logs)
	}
	if n := strings.Count(s.logs.String(), `"level":"WARN"`); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, s.logs)
	}
}

// One row has one key on every route: a namespace that is read with |int here and without there is warned of. What the
// service registers is as it wants it, and other namespaces and methods do not count.
func TestValidateWarnsOfTwoSpellingsOfOneNamespace(t *testing.T) {
	s := miniShop(t)
	s.With(s.guard.Lock("account:{id|int}", Also("account:{userID}"))).Post("/accounts/{id}", nothing)
	s.With(s.guard.Lock("item:{id}")).Post("/items/{id}", nothing)
	s.With(s.guard.Lock("account:{id}", Methods("PUT"))).Group(func(r chi.Router) {
		r.Put("/accounts/{id}", nothing)
		r.Post("/accounts/{id}/close", nothing)
	})
	if err := s.guard.Validate(s.Mux); err != nil {
		t.Fatal(err)
	}
	if !s.logs.has(`"level":"WARN"`, `POST /accounts/{id}: \"account:{id|int}\"`, `PUT /accounts/{id}: \"account:{id}\"`, "in different ways", "|int") {
		t.Errorf("no warning in\n%s", s.logs)
	}
	if n := strings.Count(s.logs.String(), `"level":"WARN"`); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, s.logs)
	}
}

// go-chi/chi#759: foreign middlewares are never called to find ours.
func TestChi759_ForeignMiddlewaresAreNotCalled(t *testing.T) {
	s := miniShop(t)
	called := 0
	foreign := func(next http.Handler) http.Handler { called++; return next }
	s.Use(foreign)
	s.With(foreign, s.guard.Lock("x:{userID}"), foreign).Post("/a", nothing)
	before := called
	if err := s.guard.Validate(s.Mux); err != nil {
		t.Fatal(err)
	}
	s.guard.Routes(s.Mux)
	if called != before {
		t.Errorf("called %d times", called-before)
	}
}

// Rules are recognised by the code of one method each, which they share however they are made.
func TestRulesShareTheirCode(t *testing.T) {
	g := miniShop(t).guard
	c := newCodes()
	for name, mw := range map[string]func(http.Handler) http.Handler{
		"Lock": g.Lock("a"), "Lock with options": g.Lock("{userID}", Wait(0), Also("b")), "Dedup": g.Dedup("all"), "RequestID": g.RequestID("all"),
	} {
		if r := c.rule(mw); r == nil || !strings.HasPrefix(name, string(r.common().kind)) {
			t.Errorf("%s is not recognised: %v", name, r)
		}
	}
	if c.rule(chimiddleware.Recoverer) != nil || c.rule(func(h http.Handler) http.Handler { return h }) != nil {
		t.Error("a foreign middleware was taken for ours")
	}
}

func TestRoutesListsWhatGuardsThem(t *testing.T) {
	s := miniShop(t)
	s.Use(s.guard.RequestID("all", Optional(), Methods("PUT")))
	s.Get("/items", nothing)
	s.Route("/items/{itemID}", func(r chi.Router) {
		r.Use(s.guard.Dedup("{userID}"))
		r.With(s.guard.Lock("stock:{itemID}")).Post("/orders", nothing)
		r.Put("/", nothing)
	})
	want := []RouteInfo{
		{"GET", "/items", nil},
		{"PUT", "/items/{itemID}", []string{`RequestID("all")`}},
		{"POST", "/items/{itemID}/orders", []string{`Dedup("{userID}")`, `Lock("stock:{itemID}")`}},
	}
	if diff := cmp.Diff(want, s.guard.Routes(s.Mux)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
