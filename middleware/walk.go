package middleware

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
)

// endpoint is a handler on a route, as chi finds it.
type endpoint struct {
	method  string
	pattern string   // full and normal
	chain   []string // router by router, as registered
	router  chi.Routes
	handler http.Handler // as registered, with its inline middlewares around it
	inner   http.Handler // without them
	rules   []attached   // outermost first
	opaque  bool         // a mount of something that is no chi router
}

func (e *endpoint) String() string { return e.method + " " + e.pattern }

// own is the pattern within the router.
func (e *endpoint) own() string { return e.chain[len(e.chain)-1] }

// attached is a rule where it was found.
type attached struct {
	guarding
	early bool // it runs before the route is known
}

// site is where a rule runs before its route is known: in the Use of a router, or on the mount of one.
type site struct {
	router chi.Routes // that is asked for the route
	use    bool
}

// tree is what a walk over a router finds. It does not call foreign middlewares.
type tree struct {
	endpoints []endpoint
	sites     map[*rule]map[string]site  // by chainKey
	mounts    map[string]chi.Routes      // by chainKey; nil: opaque
	routers   map[chi.Routes][]string    // the prefixes under which each was found
	rewrites  map[*rule][]string         // middlewares inside of an early rule that change the path
	exact     map[string]map[string]bool // method -> chains of real endpoints
	sharing   bool                       // an endpoint shares the pattern of a mount
	codes     codes
}

// codes are code pointers by which functions are recognised without being called.
type codes struct {
	rules     [3]uintptr // the methods that rules are given out as, which have one code pointer each
	mount     uintptr    // the handler that chi's Mount makes
	rewriters map[uintptr]string
}

func newCodes() codes {
	m := chi.NewRouter()
	m.Mount("/", http.NotFoundHandler())
	return codes{
		rules: [3]uintptr{codeOf((*lockRule)(nil).wrap), codeOf((*dedupRule)(nil).wrap), codeOf((*requestIDRule)(nil).wrap)},
		mount: codeOf(m.Routes()[0].Handlers["*"]),
		rewriters: map[uintptr]string{
			codeOf(chimiddleware.StripSlashes): "StripSlashes", codeOf(chimiddleware.CleanPath): "CleanPath", codeOf(chimiddleware.URLFormat): "URLFormat",
		},
	}
}

func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// rule returns the rule that a middleware is, nil for a foreign one, which is not called.
func (c *codes) rule(mw func(http.Handler) http.Handler) guarding {
	if !slices.Contains(c.rules[:], codeOf(mw)) {
		return nil
	}
	h, _ := mw(nil).(interface{ guarding() guarding })
	return h.guarding()
}

// isMount reports whether h is what chi's Mount registers.
func (c *codes) isMount(h http.Handler) bool {
	f, ok := h.(http.HandlerFunc)
	return ok && codeOf(f) == c.mount
}

// walk looks at every route of r and the routers below.
func walk(r chi.Routes) *tree {
	t := &tree{
		sites: map[*rule]map[string]site{}, mounts: map[string]chi.Routes{}, routers: map[chi.Routes][]string{},
		rewrites: map[*rule][]string{}, exact: map[string]map[string]bool{}, codes: newCodes(),
	}
	t.router(r, nil, nil)
	slices.SortStableFunc(t.endpoints, func(a, b endpoint) int {
		return strings.Compare(a.pattern+"\x00"+a.method, b.pattern+"\x00"+b.method)
	})
	return t
}

func (t *tree) router(r chi.Routes, chain []string, outer []attached) {
	if reflect.TypeOf(r).Comparable() {
		t.routers[r] = append(t.routers[r], "/"+strings.Trim(strings.TrimSuffix(normal(strings.Join(chain, "")), "*"), "/"))
	}
	outer = t.early(outer, r.Middlewares(), chain, site{r, true})
	for _, route := range r.Routes() {
		here := append(slices.Clip(chain), route.Pattern)
		if route.SubRoutes != nil {
			t.mounts[chainKey(here)] = route.SubRoutes
			inline := outer
			if c, ok := route.Handlers["*"].(*chi.ChainHandler); ok {
				inline = t.early(outer, c.Middlewares, here, site{route.SubRoutes, false})
			}
			t.router(route.SubRoutes, here, inline)
		}
		t.handlers(r, route, here, outer)
	}
}

// handlers adds the endpoints of one pattern. Of a mount these are only the handlers that share its pattern.
func (t *tree) handlers(r chi.Routes, route chi.Route, chain []string, outer []attached) {
	pattern := normal(strings.Join(chain, ""))
	for method, h := range route.Handlers {
		if method == "*" {
			continue // it is there for every method too
		}
		e := endpoint{method: method, pattern: pattern, chain: chain, router: r, handler: h, rules: outer}
		e.inner = h
		if c, ok := h.(*chi.ChainHandler); ok {
			e.inner = c.Endpoint
			e.rules = t.attach(outer, c.Middlewares)
		}
		if e.opaque = t.codes.isMount(e.inner); e.opaque {
			if route.SubRoutes != nil {
				continue // the mount itself: a method that RegisterMethod has added
			}
			t.mounts[chainKey(chain)] = nil
		}
		t.sharing = t.sharing || route.SubRoutes != nil
		if t.exact[method] == nil {
			t.exact[method] = map[string]bool{}
		}
		t.exact[method][strings.Join(chain, "\x00")] = true
		t.endpoints = append(t.endpoints, e)
	}
}

// early adds the rules among middlewares that run before the route is known.
func (t *tree) early(outer []attached, mws chi.Middlewares, chain []string, at site) []attached {
	all := slices.Clip(outer)
	for i, mw := range mws {
		g := t.codes.rule(mw)
		if g == nil {
			continue
		}
		all = append(all, attached{g, true})
		r := g.common()
		if t.sites[r] == nil {
			t.sites[r] = map[string]site{}
		}
		t.sites[r][chainKey(chain)] = at
		for _, inside := range mws[i+1:] {
			if name := t.codes.rewriters[codeOf(inside)]; name != "" {
				t.rewrites[r] = append(t.rewrites[r], name)
			}
		}
	}
	return all
}

// attach adds the rules among the middlewares of an endpoint.
func (t *tree) attach(outer []attached, mws chi.Middlewares) []attached {
	all := slices.Clip(outer)
	for _, mw := range mws {
		if g := t.codes.rule(mw); g != nil {
			all = append(all, attached{g, false})
		}
	}
	return all
}

// chainKey names a router by the patterns on the way to it. A mount is registered under three patterns, "/a", "/a/" and
// "/a/*", which are one here.
func chainKey(chain []string) string {
	var b strings.Builder
	for _, p := range chain {
		b.WriteString(strings.TrimSuffix(strings.TrimSuffix(p, "*"), "/"))
		b.WriteByte(0)
	}
	return b.String()
}
