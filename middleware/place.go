package middleware

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// place is a rule on one route and method.
type place struct {
	method   string
	patterns []string     // as chi has gathered them, from the outermost router inwards
	rule     *reqctx.Rule // the one pointer for all requests here
	id       string       // method and pattern, or RouteName where no pattern is known: part of a request's id
}

// places are those that a rule has been found in. There are as many as routes, so they are never removed.
type places struct {
	mu     sync.Mutex
	byLast atomic.Pointer[map[string][]*place] // by the last pattern; replaced, never changed
}

// locate returns where the request is, and the request to render keys from, which knows the params of the route. covered
// is false if the rule does not act on it, or if there is no such route: chi will answer 404 or 405. Otherwise an error
// means that the route is not known.
func (r *rule) locate(req *http.Request) (at *place, from *http.Request, covered bool, err error) {
	rctx := chi.RouteContext(req.Context())
	method := req.Method
	// Behind chi's GetHead the route is that of GET, and the request still HEAD: obeyed by what the client has sent.
	if rctx != nil && rctx.RouteMethod != "" && method != http.MethodHead {
		method = rctx.RouteMethod
	}
	switch {
	case !r.acts(method):
		return nil, nil, false, nil
	case r.fixed != nil:
		return r.fixed, req, true, nil
	case rctx == nil:
		at, err = r.outsideChi(req, method)
		return at, req, true, err
	}
	t := r.g.trees.of(rctx.Routes)
	if sites := t.sites[r]; sites != nil && !t.exact[method][chainText(rctx.RoutePatterns)] {
		if s, early := sites[chainKey(rctx.RoutePatterns)]; early {
			return r.ahead(t, s, req, rctx, method)
		}
	}
	at, err = r.insideChi(t, rctx, method)
	return at, req, true, err
}

// insideChi is for a rule that chi has routed to: With, a Group, a mount of something that is no chi router.
func (r *rule) insideChi(t *tree, rctx *chi.Context, method string) (*place, error) {
	patterns := rctx.RoutePatterns
	if len(patterns) == 0 {
		return r.unrouted(method, "the route is not known yet")
	}
	last := patterns[len(patterns)-1]
	if rctx.RoutePath == "/" && last != "/" && !t.has(method, patterns) {
		// Within the Use of a sub-router that is asked for its root, the mount's pattern looks like a route. A wildcard
		// that stands for nothing is one.
		return r.unrouted(method, "the route is not known yet")
	}
	return r.final(t, rctx, method)
}

// outsideChi is for net/http's own router, and for no router at all.
func (r *rule) outsideChi(req *http.Request, method string) (*place, error) {
	pattern := req.Pattern
	if _, path, ok := strings.Cut(pattern, " "); ok {
		pattern = strings.TrimLeft(path, " \t")
	}
	if pattern == "" {
		return r.unrouted(method, "there is no router")
	}
	if at := r.places.find(method, pattern, nil); at != nil {
		return at, nil
	}
	return r.places.add(r.newPlace(method, pattern, nil)), nil
}

// unrouted is for a request whose route is not known: it has the name that the rule was given, or is refused.
func (r *rule) unrouted(method, why string) (*place, error) {
	if r.name == "" {
		return nil, misuse(r.text + ": " + why + "; mount it with With, in a Group with Use, or by Apply, or name it with RouteName")
	}
	if at := r.places.find(method, "", nil); at != nil {
		return at, nil
	}
	return r.places.add(r.newPlace(method, "", nil)), nil
}

func (r *rule) newPlace(method, pattern string, patterns []string) *place {
	at := &place{method: method, patterns: slices.Clone(patterns), id: method + " " + pattern}
	if pattern == "" {
		at.id = method + " " + r.name
	}
	at.rule = &reqctx.Rule{Name: r.name, Method: method, Route: pattern, KeyTemplates: r.keyed}
	if r.name == "" {
		at.rule.Name = at.id
	}
	return at
}

// key is what places are sorted by: the last pattern in chi, the pattern outside, nothing where no route is known.
func (at *place) key() string {
	if n := len(at.patterns); n > 0 {
		return at.patterns[n-1]
	}
	return at.rule.Route
}

// find returns the place, nil if it has not been added. Strings that are the same in memory compare at once, which
// those of a router are.
func (p *places) find(method, key string, patterns []string) *place {
	m := p.byLast.Load()
	if m == nil {
		return nil
	}
	for _, at := range (*m)[key] {
		if at.method == method && slices.Equal(at.patterns, patterns) {
			return at
		}
	}
	return nil
}

// add adds the place, or returns the one that another request has added meanwhile.
func (p *places) add(at *place) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if there := p.find(at.method, at.key(), at.patterns); there != nil {
		return there
	}
	next := map[string][]*place{}
	if m := p.byLast.Load(); m != nil {
		for k, v := range *m {
			next[k] = v
		}
	}
	next[at.key()] = append(slices.Clone(next[at.key()]), at)
	p.byLast.Store(&next)
	return at
}
