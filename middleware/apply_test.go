package middleware

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
)

func lockOn(key string) Annotation { return Annotation{Lock: &LockRule{Keys: []string{key}}} }

// Apply reaches every kind of endpoint, keeps what is around it, and leaves the others alone.
func TestApplyReachesEveryEndpoint(t *testing.T) {
	s := miniShop(t)
	ch := make(chan seen, 1)
	h := watcher(s, ch)
	trace := func(name string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Add("Trace", name)
				next.ServeHTTP(w, r)
			})
		}
	}
	s.Use(trace("root"))
	s.Post("/inline", h)
	s.With(trace("with")).Post("/with", h)
	s.Group(func(r chi.Router) { r.Use(trace("group")); r.Post("/group", h) })
	s.Route("/sub", func(r chi.Router) {
		r.Use(trace("sub"))
		r.Post("/", h)
		r.With(trace("deep")).Route("/{id:[0-9]{1,3}}", func(r chi.Router) { r.Patch("/x", h) })
	})
	s.Handle("/handle", h)
	s.Mount("/std", h)
	s.Mount("/{tenant}/std", h)
	s.Post("/slash/", h)
	s.Post("/slash", h)
	s.Get("/free", h)
	annotations := Annotations{}
	for _, key := range []string{
		"POST /inline", "POST /with", "POST /group", "POST /sub", "PATCH /sub/{id:[0-9]{1,3}}/x", "POST /handle", "POST /std/*", "POST /{tenant}/std/*", "POST /slash/",
	} {
		annotations[key] = lockOn("x:{userID}")
	}
	must(t, s.guard.Apply(s.Mux, annotations))
	must(t, s.guard.Validate(s.Mux))
	for request, want := range map[string]string{
		"POST /inline": "POST /inline root", "POST /with": "POST /with root with", "POST /group": "POST /group root group",
		"POST /sub": "POST /sub root sub", "POST /sub/": "POST /sub root sub", "PATCH /sub/123/x": "PATCH /sub/{id:[0-9]{1,3}}/x root sub deep",
		"POST /handle": "POST /handle root", "PUT /handle": " root", "POST /std": "POST /std/* root", "POST /std/": "POST /std/* root",
		"POST /std/a/b": "POST /std/* root", "GET /std": " root", "POST /t/std": "POST /{tenant}/std/* root", "POST /t/std/x": "POST /{tenant}/std/* root",
		"POST /slash": "POST /slash root", "POST /slash/": "POST /slash root", "GET /free": " root",
	} {
		method, path, _ := strings.Cut(request, " ")
		got := s.do(call{method: method, path: path})
		if got.status != 200 {
			t.Errorf("%s: %d %s", request, got.status, got.body)
			continue
		}
		v := <-ch
		if text := v.route + " " + strings.Join(got.header["Trace"], " "); text != want && v.route+" "+text != want {
			t.Errorf("%s: %q, want %q", request, text, want)
		}
		if locked := len(v.keys) == 1; locked != (v.route != "") {
			t.Errorf("%s: keys %v", request, v.keys)
		}
	}
	if got := s.do(call{method: "GET", path: "/inline"}); got.status != 405 {
		t.Errorf("a method that was not there: %d", got.status)
	}
}

// Apply finds everything first; after an error the router is as it was.
func TestApplyIsAllOrNothing(t *testing.T) {
	twice := chi.NewRouter()
	twice.Post("/x", nothing)
	tests := map[string]struct {
		build       func(g *Guard, r *chi.Mux)
		annotations Annotations
		want        []string
	}{
		"unknown routes": {func(_ *Guard, r *chi.Mux) {
			r.Get("/items", nothing)
			r.Put("/items", nothing)
			r.Post("/items/{itemID}/orders", nothing)
		}, Annotations{"POST /items": lockOn("a"), "POST /item/{itemID}/orders": lockOn("a"), "POST /completely/else/and/much/longer/than/that": lockOn("a")}, []string{
			`POST /completely/else/and/much/longer/than/that: there is no such route; write the full pattern as the routers have it, or remove the annotation`,
			`POST /item/{itemID}/orders: there is no such route; write "POST /items/{itemID}/orders", or remove the annotation`,
			`POST /items: there is no such route; the pattern has GET, PUT; write one of these methods, or remove the annotation`,
		}},
		"below an opaque mount": {func(_ *Guard, r *chi.Mux) { r.Mount("/std", http.NotFoundHandler()) }, Annotations{"POST /std/a": lockOn("a")}, []string{
			`POST /std/a: it is below /std/*, which is no chi router; annotate "POST /std/*", or mount the chi router itself`,
		}},
		"a router mounted twice": {func(_ *Guard, r *chi.Mux) { r.Mount("/a", twice); r.Mount("/b", twice) }, Annotations{"POST /a/x": lockOn("a")}, []string{
			`POST /a/x: its router is mounted more than once: at /a, /b; mount a router of its own at each, or write the rule inline`,
		}},
		"a router that takes no endpoints": {func(_ *Guard, r *chi.Mux) { r.Mount("/a", readOnly{twice}) }, Annotations{"POST /a/x": lockOn("a")}, []string{
			`POST /a/x: the router that has it, a middleware.readOnly, takes no endpoints; mount a chi router, or write the rule inline`,
		}},
		"no rules and bad rules": {func(_ *Guard, r *chi.Mux) {
			r.Post("/a", nothing)
			r.Post("/b", nothing)
			r.Post("/c", nothing)
			r.Head("/h", nothing)
		}, Annotations{
			"POST /a": {}, "POST /b": {Lock: &LockRule{}}, "POST /c": {Dedup: &DedupRule{Scope: "all"}, RequestID: &RequestIDRule{Scope: "all"}, Lock: &LockRule{Keys: []string{"{"}, OnBusy: 200}},
			"/d": lockOn("a"), "POST /e": {Lock: &LockRule{Keys: []string{"a"}, TTL: None}}, "HEAD /h": {Dedup: &DedupRule{Scope: "all"}},
		}, []string{
			`/d: "/d" is no route; write method and pattern, such as "POST /items/{itemID}/orders"`,
			`HEAD /h: dedup: Methods("HEAD"): a HEAD has no effect to protect; leave it out`,
			`POST /a: no rule; write lock, dedup or request_id, or remove the route`,
			`POST /b: lock: no keys; write at least one template`,
			`POST /c: dedup and request_id are both there; dedup has the id too: remove request_id`,
			`POST /c: lock: OnBusy(200) is not allowed; write 409, 423 or 429`,
			`POST /c: lock: lockkey: template "{" at byte 0: `,
			`POST /e: lock: TTL(0s) is no time; leave it out for the default`,
		}},
		"a template that does not fit": {func(_ *Guard, r *chi.Mux) { r.Post("/a/{id}", nothing) }, Annotations{"POST /a/{id}": lockOn("a:{itemID}")}, []string{
			`POST /a/{id}: Lock("a:{itemID}"): {itemID} is no param of the route; write {id}, or register itemID with WithValue`,
		}},
		"with what is written inline": {func(g *Guard, r *chi.Mux) {
			r.With(g.Lock("b:{userID}"), g.Lock("a:{userID}")).Post("/a", nothing)
			r.With(g.Lock("a:{userID}")).Post("/b", nothing)
		}, Annotations{
			"POST /a": {Dedup: &DedupRule{Scope: "{userID}"}}, "POST /b": lockOn("b:{userID}"),
		}, []string{
			`POST /a: Dedup("{userID}") is inside of Lock("b:{userID}"): a replay would wait for the lock; put Dedup outside`,
			`POST /a: Dedup("{userID}") is inside of Lock("a:{userID}"): a replay would wait for the lock; put Dedup outside`,
			`POST /a, POST /b: locks are taken in a circle ("a:" then "b:", "b:" then "a:"): two requests can wait for each other; nest them in one order everywhere, or take them together with Also`,
		}},
		"the same route twice": {func(_ *Guard, r *chi.Mux) { r.Post("/a", nothing) }, Annotations{"POST /a": lockOn("a"), "POST /a/": lockOn("a")}, []string{
			`POST /a/: the route is annotated twice, also as "POST /a"; write it once`,
		}},
		"TimeoutHandler": {func(_ *Guard, r *chi.Mux) { r.Method("POST", "/a", http.TimeoutHandler(nil, 1, "")) }, Annotations{"POST /a": lockOn("a")}, []string{
			`POST /a: the endpoint is an http.TimeoutHandler, which answers while the work goes on; put http.TimeoutHandler around the router or the server`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := miniShop(t)
			tt.build(s.guard, s.Mux)
			before := fmt.Sprint(s.guard.Routes(s.Mux))
			err := s.guard.Apply(s.Mux, tt.annotations)
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")[1:]
			for i := range min(len(lines), len(tt.want)) {
				if strings.HasSuffix(tt.want[i], ": ") {
					lines[i] = lines[i][:min(len(lines[i]), len(tt.want[i]))]
				}
			}
			if diff := cmp.Diff(tt.want, lines); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if after := fmt.Sprint(s.guard.Routes(s.Mux)); after != before {
				t.Errorf("the router was changed: %s", after)
			}
		})
	}
}

// readOnly is a router of somebody else's that shows its routes and takes none.
type readOnly struct{ mux *chi.Mux }

func (r readOnly) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }
func (r readOnly) Routes() []chi.Route                                { return r.mux.Routes() }
func (r readOnly) Middlewares() chi.Middlewares                       { return r.mux.Middlewares() }
func (r readOnly) Match(rctx *chi.Context, method, path string) bool {
	return r.mux.Match(rctx, method, path)
}

func (r readOnly) Find(rctx *chi.Context, method, path string) string {
	return r.mux.Find(rctx, method, path)
}

func TestApplyTwice(t *testing.T) {
	s := miniShop(t)
	s.Post("/a", nothing)
	s.Post("/b", nothing)
	must(t, s.guard.Apply(s.Mux, Annotations{"POST /a": lockOn("x:{userID}")}))
	err := s.guard.Apply(s.Mux, Annotations{"POST /a": lockOn("y:{userID}"), "POST /b": lockOn("y:{userID}")})
	if err == nil || !strings.Contains(err.Error(), "POST /a: the route has been annotated before; call Apply once") {
		t.Errorf("%v", err)
	}
	want := []RouteInfo{{"POST", "/a", []string{`Lock("x:{userID}")`}}, {"POST", "/b", nil}}
	if diff := cmp.Diff(want, s.guard.Routes(s.Mux)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestApplyOnWhatWithReturned(t *testing.T) {
	s := miniShop(t)
	s.Post("/a", nothing)
	if err := s.guard.Apply(s.With(), Annotations{"POST /a": lockOn("x:{userID}")}); err == nil || !strings.Contains(err.Error(), "give the router itself") {
		t.Errorf("%v", err)
	}
}

// The rules of an annotation act in their order, and its name is that of the rule.
func TestAnnotationActs(t *testing.T) {
	s := miniShop(t)
	var c counter
	s.Post("/withdrawals/{id}", c.ServeHTTP)
	file := `{"POST /withdrawals/{id}": {"name": "withdraw",
		"lock": {"keys": ["balance:{userID}", "w:{id|int}"], "ttl": "10s", "wait": "0s", "on_busy": 423},
		"dedup": {"scope": "{userID}", "ttl": "1h", "optional": true}}}`
	annotations, err := LoadAnnotations(strings.NewReader(file))
	must(t, err)
	must(t, s.guard.Apply(s.Mux, annotations))
	for range 2 {
		if got := s.do(call{path: "/withdrawals/7", key: "k"}); got.status != 201 {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	c.ran(t, 1)
	s.do(call{path: "/withdrawals/7"})
	c.ran(t, 2)
	if !s.logs.has(`"rule":"withdraw"`, `"route":"/withdrawals/{id}"`) {
		t.Errorf("the rule's name is nowhere:\n%s", s.logs)
	}
	want := []RouteInfo{{"POST", "/withdrawals/{id}", []string{`Dedup("{userID}")`, `Lock("balance:{userID}", Also("w:{id|int}"))`}}}
	if diff := cmp.Diff(want, s.guard.Routes(s.Mux)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// What Apply leans on in chi.

// go-chi/chi#313, #687, #792, PR #337: a later registration of the same method and pattern replaces the earlier one, so
// our wrapper is there once.
func TestChi313_ReRegistrationReplaces(t *testing.T) {
	r := chi.NewRouter()
	var first, second atomic.Int64
	r.Post("/a/{id}", func(http.ResponseWriter, *http.Request) { first.Add(1) })
	r.Post("/a/{id}", func(http.ResponseWriter, *http.Request) { second.Add(1) })
	s := &shop{Mux: r, t: t, logs: &logBook{}}
	s.do(call{path: "/a/1"})
	if first.Load() != 0 || second.Load() != 1 || len(r.Routes()) != 1 {
		t.Errorf("first %d, second %d, routes %v", first.Load(), second.Load(), r.Routes())
	}
}

func TestChiChainHandlerTellsItsParts(t *testing.T) {
	r := chi.NewRouter()
	r.With(func(h http.Handler) http.Handler { return h }).Post("/a", nothing)
	c, ok := r.Routes()[0].Handlers["POST"].(*chi.ChainHandler)
	if !ok || c.Endpoint == nil || len(c.Middlewares) != 1 {
		t.Errorf("%T", r.Routes()[0].Handlers["POST"])
	}
	if !isInline(r.With()) || isInline(r) {
		t.Error("what With returned is not recognised")
	}
}

// go-chi/chi#125, #712: Apply comes after the last route; a route that is added later is unguarded and Routes shows it.
func TestChi712_ApplyAfterTheLastRoute(t *testing.T) {
	s := miniShop(t)
	s.Post("/a", nothing)
	must(t, s.guard.Apply(s.Mux, Annotations{"POST /a": lockOn("x:{userID}")}))
	s.Post("/a", nothing)
	if got := s.guard.Routes(s.Mux); len(got) != 1 || got[0].Rules != nil {
		t.Errorf("%v", got)
	}
}

// go-chi/chi#990, PR #1161: the panic of a malformed pattern is not swallowed.
func TestChi990_MalformedPatternPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s := miniShop(t)
	s.With(s.guard.Lock("x:{userID}")).Post("/a/{id", nothing)
}

// An inline or applied rule costs a route without one nothing: it is not wrapped.
func TestOtherRoutesAreNotWrapped(t *testing.T) {
	s := miniShop(t)
	free := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "free") })
	s.Method("GET", "/a", free)
	s.Post("/a", nothing)
	s.With(s.guard.Lock("x:{userID}")).Post("/b", nothing)
	must(t, s.guard.Apply(s.Mux, Annotations{"POST /a": lockOn("x:{userID}")}))
	for _, route := range s.Mux.Routes() {
		if h, ok := route.Handlers["GET"]; ok && codeOf(h) != codeOf(free) {
			t.Errorf("GET %s is %T", route.Pattern, h)
		}
	}
}
