package middleware

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// Apply puts annotations into effect on a finished router: each annotated endpoint is registered again, under the same
// pattern on the router that has it, with its rules innermost, inside of every Use, With and Group. Call it after the
// last route and before serving, on the router itself, not on what With or Group returned.
//
// It checks everything first, as [Guard.Validate] does, and returns all it finds, joined: routes that do not exist,
// rules and templates that do not fit. After an error the router is as it was. A second Apply on an annotated route is an
// error.
//
// The middlewares that With or Group have put around an annotated endpoint are constructed a second time. What lies below
// a handler that is no chi router is out of reach; the mount itself, "POST /std/*", can be annotated and is one route.
func (g *Guard) Apply(r chi.Router, routes Annotations) error {
	t := walk(r)
	var fs findings
	if isInline(r) {
		fs.add("Apply", "give the router itself", "the router is what With or Group returned, whose middlewares would be added again")
	}
	var work []application
	seen := map[string]string{}
	for _, key := range sortedKeys(routes) {
		method, pattern, err := splitRoute(key)
		if err != nil {
			fs.add(key, "", "%v", err) // it says what to write
			continue
		}
		route := method + " " + pattern
		if before, ok := seen[route]; ok {
			fs.add(key, "write it once", "the route is annotated twice, also as %q", before)
			continue
		}
		seen[route] = key
		rules, faults := routes[key].compile(g, method)
		for _, err := range faults {
			fs.add(key, "", "%v", err) // it says what to write
		}
		if len(faults) > 0 {
			continue
		}
		at := fixedPlace(rules, method, pattern)
		endpoints := t.find(method, pattern)
		if len(endpoints) == 0 {
			fs.unknown(t, method, pattern)
			continue
		}
		for _, e := range endpoints {
			for _, rule := range rules {
				rule.common().fixed = at
				e.rules = append(slices.Clip(e.rules), attached{rule, false})
			}
			fs.applicable(g, t, e)
			fs.check(e, g.own(e.rules))
			work = append(work, application{e, rules})
		}
	}
	own := g.ownOf(t.endpoints)
	fs.order(own)
	fs.spellings(own)
	if err := fs.err("the annotations cannot be applied, and nothing was changed"); err != nil {
		return err
	}
	g.warn(fs.warnings)
	for _, w := range work {
		w.register()
	}
	return nil
}

// fixedPlace is the place of all rules of an annotation.
func fixedPlace(rules []guarding, method, pattern string) *place {
	return rules[0].common().newPlace(method, pattern, nil)
}

// application is an endpoint and the rules that it gets.
type application struct {
	*endpoint
	rules []guarding
}

// registrar is a router that takes another endpoint.
type registrar interface {
	Method(method, pattern string, h http.Handler)
}

// register registers the endpoint again. A panic of chi's is not recovered: it would leave a damaged tree.
func (w application) register() {
	var mws chi.Middlewares
	if c, ok := w.handler.(*chi.ChainHandler); ok {
		mws = slices.Clone(c.Middlewares)
	}
	for _, r := range w.rules {
		mws = append(mws, r.middleware())
	}
	h := mws.Handler(w.inner)
	for _, pattern := range w.patterns() {
		w.router.(registrar).Method(w.method, pattern, h) // applicable has looked
	}
}

// patterns are those that the endpoint is registered under: one, but for an opaque mount, which chi registers as "/std",
// "/std/" and "/std/*" and lists as the last.
func (w application) patterns() []string {
	own := w.own()
	base := strings.TrimSuffix(own, "/*")
	if !w.opaque || base == "" || base == own {
		return []string{own}
	}
	patterns := []string{own}
	for _, p := range [...]string{base, base + "/"} {
		if look := chi.NewRouteContext(); w.router.Find(look, w.method, sample(p)) == p {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// sample returns a path that the pattern matches, as far as its expressions let it.
func sample(pattern string) string {
	var b strings.Builder
	depth := 0
	for _, c := range pattern {
		switch {
		case c == '{':
			if depth++; depth == 1 {
				b.WriteByte('1')
			}
		case c == '}':
			depth--
		case depth == 0:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// find returns the endpoints of a route. There may be several: "/a" and "/a/" are one.
func (t *tree) find(method, pattern string) []*endpoint {
	var found []*endpoint
	for i := range t.endpoints {
		if e := &t.endpoints[i]; e.method == method && e.pattern == pattern {
			found = append(found, e)
		}
	}
	return found
}

// applicable checks that the endpoint can be registered again.
func (fs *findings) applicable(g *Guard, t *tree, e *endpoint) {
	if _, ok := e.router.(registrar); !ok {
		fs.add(e.String(), "mount a chi router, or write the rule inline", "the router that has it, a %T, takes no endpoints", e.router)
	}
	if prefixes := t.routers[e.router]; len(prefixes) > 1 {
		fs.add(e.String(), "mount a router of its own at each, or write the rule inline", "its router is mounted more than once: at %s", strings.Join(prefixes, ", "))
	}
	c, ok := e.handler.(*chi.ChainHandler)
	if !ok {
		return
	}
	for _, mw := range c.Middlewares {
		if r := t.codes.rule(mw); r != nil && r.common().fixed != nil && r.common().g == g {
			fs.add(e.String(), "call Apply once", "the route has been annotated before")
			return
		}
	}
}

// unknown says what there is instead of a route that does not exist.
func (fs *findings) unknown(t *tree, method, pattern string) {
	where := method + " " + pattern
	var methods []string
	nearest, distance := "", len(pattern)
	for i := range t.endpoints {
		e := &t.endpoints[i]
		switch {
		case e.pattern == pattern:
			methods = append(methods, e.method)
		case e.opaque && e.method == method && strings.HasPrefix(pattern, strings.TrimSuffix(e.pattern, "*")):
			fs.add(where, fmt.Sprintf("annotate %q, or mount the chi router itself", e.String()), "it is below %s, which is no chi router", e.pattern)
			return
		case e.method == method:
			if d := editDistance(pattern, e.pattern); d < distance {
				nearest, distance = e.pattern, d
			}
		}
	}
	switch {
	case methods != nil:
		slices.Sort(methods)
		fs.add(where, "write one of these methods, or remove the annotation", "there is no such route; the pattern has %s", strings.Join(methods, ", "))
	case nearest != "" && distance <= max(3, len(pattern)/2):
		fs.add(where, fmt.Sprintf("write %q, or remove the annotation", method+" "+nearest), "there is no such route")
	default:
		fs.add(where, "write the full pattern as the routers have it, or remove the annotation", "there is no such route")
	}
}

// editDistance is how many bytes must be inserted, removed or replaced to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// isInline reports whether r is a router that With or Group returned, as far as can be told.
func isInline(r chi.Router) bool {
	m, ok := r.(*chi.Mux)
	if !ok {
		return false
	}
	field := reflect.ValueOf(m).Elem().FieldByName("inline") // not exported; a test pins it
	return field.IsValid() && field.Kind() == reflect.Bool && field.Bool()
}
