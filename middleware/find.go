package middleware

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
)

// A rule in the Use of a router, or on the mount of one, runs before chi knows the route. It asks the router for it, as
// chi itself will, and renders its keys with the params of the answer.

// ahead finds the route that chi is going to find.
func (r *rule) ahead(t *tree, s site, req *http.Request, rctx *chi.Context, method string) (*place, *http.Request, bool, error) {
	look, path := chi.NewRouteContext(), routePath(req, rctx)
	if len(rctx.RoutePatterns) > 0 {
		look = rctx.Clone()
		if !s.use {
			path = restOf(rctx)
		}
	}
	known := len(look.RoutePatterns)
	found := s.router.Find(look, method, path) != ""
	if n := t.shared(method, look.RoutePatterns, known); n > 0 {
		cut(look, n)
		found = true
	}
	if !found {
		return nil, nil, false, nil
	}
	// At the path of a mount chi answers with the mount's own pattern, without asking the router there.
	for !t.exact[method][chainText(look.RoutePatterns)] {
		below, isMount := t.mounts[chainKey(look.RoutePatterns)]
		if !isMount || below == nil || strings.HasSuffix(look.RoutePatterns[len(look.RoutePatterns)-1], "*") {
			break
		}
		if below.Find(look, method, "/") == "" {
			return nil, nil, false, nil
		}
	}
	// A request that chi has routed would have this context. The one that goes on keeps its own.
	from := req.WithContext(context.WithValue(req.Context(), chi.RouteCtxKey, look))
	at, err := r.final(t, look, method)
	return at, from, true, err
}

// shared returns how many of the patterns lead to an endpoint that shares the pattern of a mount, which Find does not
// stop at though chi does (go-chi/chi#830); 0 if none does.
func (t *tree) shared(method string, patterns []string, from int) int {
	if !t.sharing {
		return 0
	}
	for n := from + 1; n <= len(patterns); n++ {
		if _, isMount := t.mounts[chainKey(patterns[:n])]; isMount && t.exact[method][chainText(patterns[:n])] {
			return n
		}
	}
	return 0
}

// cut takes a context back to where it had found n patterns.
func cut(look *chi.Context, n int) {
	params := 0
	for _, p := range look.RoutePatterns[:n] {
		depth := 0
		for _, c := range p {
			switch c {
			case '{':
				if depth++; depth == 1 {
					params++
				}
			case '}':
				depth--
			}
		}
		if strings.HasSuffix(p, "*") {
			params++
		}
	}
	look.RoutePatterns = look.RoutePatterns[:n]
	params = min(params, len(look.URLParams.Keys), len(look.URLParams.Values))
	look.URLParams.Keys = look.URLParams.Keys[:params]
	look.URLParams.Values = look.URLParams.Values[:params]
}

// final returns the place of a context that has been routed to its end.
func (r *rule) final(t *tree, rctx *chi.Context, method string) (*place, error) {
	patterns := rctx.RoutePatterns
	if at := r.places.find(method, patterns[len(patterns)-1], patterns); at != nil {
		return at, nil
	}
	pattern := t.patternOf(method, patterns, rctx.RoutePattern())
	if pattern == "" {
		return r.unrouted(method, "the route is "+rctx.RoutePattern()+", which stands for many")
	}
	return r.places.add(r.newPlace(method, pattern, patterns)), nil
}

// patternOf returns the pattern of a route that has been found; "" if it may stand for many.
func (t *tree) patternOf(method string, patterns []string, pattern string) string {
	if t.exact[method][chainText(patterns)] {
		return pattern
	}
	if t.has(method, patterns) {
		return normal(strings.Join(throughMounts(patterns), ""))
	}
	if below, isMount := t.mounts[chainKey(patterns)]; isMount && below == nil {
		return strings.TrimSuffix(pattern, "/*") + "/*" // "/std", "/std/" and "/std/*" are one route
	}
	if strings.HasSuffix(pattern, "/*") {
		return ""
	}
	return pattern // added after the walk
}

// has reports whether the patterns lead to a real endpoint.
func (t *tree) has(method string, patterns []string) bool {
	return t.exact[method][chainText(patterns)] || len(patterns) > 1 && t.exact[method][chainText(throughMounts(patterns))]
}

// throughMounts returns the patterns as chi lists them. The root of a mount is found under "/a" or "/a/", and listed under
// "/a/*" as all the rest.
func throughMounts(patterns []string) []string {
	listed := slices.Clone(patterns)
	for i, p := range listed[:len(listed)-1] {
		listed[i] = strings.TrimSuffix(strings.TrimSuffix(p, "*"), "/") + "/*"
	}
	return listed
}

// routePath is the path that a router looks for.
func routePath(req *http.Request, rctx *chi.Context) string {
	for _, path := range [...]string{rctx.RoutePath, req.URL.RawPath, req.URL.Path} {
		if path != "" {
			return path
		}
	}
	return "/"
}

// restOf is the path that a mount will hand to its router: what its wildcard has taken.
func restOf(rctx *chi.Context) string {
	last := rctx.RoutePatterns[len(rctx.RoutePatterns)-1]
	n := len(rctx.URLParams.Keys) - 1
	if strings.HasSuffix(last, "*") && n >= 0 && rctx.URLParams.Keys[n] == "*" && n < len(rctx.URLParams.Values) {
		return "/" + rctx.URLParams.Values[n]
	}
	return "/"
}

func chainText(chain []string) string {
	if len(chain) == 1 {
		return chain[0]
	}
	return strings.Join(chain, "\x00")
}

// trees are the routers that a guard has looked at, for what they had at that moment.
type trees struct {
	mu  sync.Mutex
	all sync.Map // chi.Routes -> *tree
	n   int
}

// maxTrees bounds what is kept, for a service that makes routers as it goes.
const maxTrees = 64

// of returns the tree of the router, from an earlier call if there was one.
func (ts *trees) of(root chi.Routes) *tree {
	if root == nil { // a context that a test has made
		return &tree{}
	}
	if t, ok := ts.all.Load(root); ok {
		return t.(*tree)
	}
	return ts.renew(root)
}

// renew looks at the router again.
func (ts *trees) renew(root chi.Routes) *tree {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := walk(root)
	if _, ok := ts.all.Load(root); !ok {
		if ts.n >= maxTrees {
			return t
		}
		ts.n++
	}
	ts.all.Store(root, t)
	return t
}
