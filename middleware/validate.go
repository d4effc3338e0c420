package middleware

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/lockkey"
)

// Validate looks at every route of the router and at every rule of this guard on it, and returns all it finds, joined:
// templates that name a param which the route does not have, rules that cannot know their route or act on none of
// theirs, locks nested in two orders, a Dedup inside of a Lock, an http.TimeoutHandler as endpoint or right inside of a
// rule. Each names the route, the fault and what to do. What is legal but hardly meant is logged as a warning: a rule
// that is on no route, a lock whose key begins with a value, locks of one namespace with |int and without.
//
// Call it when all routes are there, before serving. It does not call other middlewares, so it does not see a rule that
// is hidden in one, nor what lies below a handler that is no chi router.
func (g *Guard) Validate(r chi.Routes) error {
	t := g.trees.renew(r)
	var fs findings
	found := map[*rule]*attachments{}
	for i := range t.endpoints {
		e := &t.endpoints[i]
		own := g.own(e.rules)
		fs.check(e, own)
		for _, a := range own {
			at := found[a.common()]
			if at == nil {
				at = &attachments{}
				found[a.common()] = at
			}
			at.add(e, a)
		}
	}
	own := g.ownOf(t.endpoints)
	fs.order(own)
	fs.spellings(own)
	for _, inline := range g.written() {
		c := inline.common()
		at := found[c]
		switch {
		case at == nil && t.sites[c] == nil:
			fs.warn(c.text, "mount it, or Validate the router that has it", "the rule is on no route: never mounted, or hidden in another middleware")
		case at != nil && !at.acts:
			fs.add(at.first, "add "+methodsOption(at.methods)+", or remove the rule", "%s acts on %s only", c.text, strings.Join(c.methods, ", "))
		}
		if c.timed.Load() && (at == nil || !at.timed) {
			fs.add(c.text, "put http.TimeoutHandler around the router or the server",
				"an http.TimeoutHandler is right inside of it, which answers while the work goes on")
		}
		for _, name := range slices.Compact(t.rewrites[c]) {
			fs.add(c.text, "mount "+name+" outside", "%s is inside of it in the same Use and changes the path that the rule has asked for", name)
		}
	}
	g.warn(fs.warnings)
	return fs.err("the rules do not fit the router")
}

// attachments are the endpoints that a rule is on.
type attachments struct {
	first   string
	methods []string
	acts    bool
	timed   bool // one of them is an http.TimeoutHandler itself, which check tells
}

func (at *attachments) add(e *endpoint, a attached) {
	if at.first == "" {
		at.first = e.String()
	}
	at.methods = append(at.methods, e.method)
	at.timed = at.timed || isTimeoutHandler(e.inner)
	at.acts = at.acts || a.common().acts(e.method)
}

func methodsOption(methods []string) string {
	slices.Sort(methods)
	return `Methods("` + strings.Join(slices.Compact(methods), `", "`) + `")`
}

// own are the rules of this guard.
func (g *Guard) own(rules []attached) []attached {
	var own []attached
	for _, r := range rules {
		if r.common().g == g {
			own = append(own, r)
		}
	}
	return own
}

func (g *Guard) ownOf(endpoints []endpoint) []endpoint {
	own := slices.Clone(endpoints)
	for i := range own {
		own[i].rules = g.own(own[i].rules)
	}
	return own
}

// written are the rules that were written inline.
func (g *Guard) written() []guarding {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.rules)
}

func (g *Guard) warn(warnings []finding) {
	for _, f := range warnings {
		g.log.LogAttrs(context.Background(), slog.LevelWarn, "holdfast: "+f.fault, slog.String("where", f.where), slog.String("remedy", f.remedy))
	}
}

// RouteInfo is a route and what guards it.
type RouteInfo struct {
	Method, Pattern string   // the pattern is chi's full one
	Rules           []string // as written, in the order in which they act: `Dedup("{userID}")`
}

// Routes lists every route of the router, sorted by pattern and method, with the rules of this guard that act on it, so
// that a test of the service can tell a route that should be guarded and is not.
func (g *Guard) Routes(r chi.Routes) []RouteInfo {
	var all []RouteInfo
	t := walk(r)
	for i := range t.endpoints {
		e := &t.endpoints[i]
		info := RouteInfo{Method: e.method, Pattern: e.pattern}
		for _, a := range g.own(e.rules) {
			if c := a.common(); c.acts(e.method) {
				info.Rules = append(info.Rules, c.text)
			}
		}
		all = append(all, info)
	}
	return all
}

// fromCheck adds what a template's Check has found.
func (fs *findings) fromCheck(e *endpoint, r attached, err error) {
	fault, remedy := err.Error(), "write a template that fits the route"
	var check *lockkey.CheckError
	if errors.As(err, &check) {
		fault, remedy = check.Reason, check.Instead
	}
	fs.add(e.String(), remedy, "%s: %s", r.common().text, fault)
}

// unjoin returns the errors that were joined.
func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // this very value, not one inside
		return joined.Unwrap()
	}
	return []error{err}
}

// isTimeoutHandler reports whether h is what http.TimeoutHandler returns.
func isTimeoutHandler(h http.Handler) bool {
	return reflect.TypeOf(h) == reflect.TypeOf(http.TimeoutHandler(nil, time.Second, ""))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
