package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/lockkey"
)

// kind is what a rule does.
type kind string

const (
	kindLock      kind = "Lock"
	kindDedup     kind = "Dedup"
	kindRequestID kind = "RequestID"
)

// rule is what rules of all kinds have. It is made at start-up; only the counters and the places change.
type rule struct {
	g       *Guard
	kind    kind
	text    string // as it was written, for people: Lock("balance:{userID}")
	methods []string
	name    string   // RouteName; may be empty
	keyed   []string // key templates of a lock, as they were written
	fixed   *place   // of a rule that Apply has put on a route
	places  places
	pass    passes
	timed   atomic.Bool // an http.TimeoutHandler is the next handler, perhaps the endpoint
}

func (g *Guard) newRule(k kind, written string, c *ruleConfig, methods ...string) rule {
	if c.methods != nil {
		methods = c.methods
	}
	return rule{
		g: g, kind: k, text: string(k) + "(" + strconv.Quote(written) + ")", methods: methods, name: c.name,
		pass: passes{most: int64(c.pass)},
	}
}

// acts reports whether the rule is for requests of the method.
func (r *rule) acts(method string) bool { return slices.Contains(r.methods, method) }

// around remembers what can only be seen while the handlers are put together.
func (r *rule) around(next http.Handler) {
	if isTimeoutHandler(next) {
		r.timed.Store(true)
	}
}

// parse parses a template of the rule with the values that the guard knows.
func (r *rule) parse(template string, opts ...lockkey.Option) (*lockkey.Template, error) {
	return lockkey.Parse(template, append(opts, r.g.values...)...)
}

// mustBeSound panics with the faults of a rule that is written in the code, as chi does with a bad pattern.
func (r *rule) mustBeSound(faults []error) {
	if err := errors.Join(faults...); err != nil {
		panic(fmt.Sprintf("holdfast/middleware: %s: %v", r.text, err))
	}
}

// unguarded serves a request that the rule does not act on. If that was because its route is not there, and a middleware inside
// has led it to one that is, it has run without the rule: that is told, since nothing else would.
func (r *rule) unguarded(next http.Handler, w http.ResponseWriter, req *http.Request) {
	next.ServeHTTP(w, req)
	rctx := chi.RouteContext(req.Context())
	if rctx == nil || req.Method == http.MethodHead || !r.acts(rctx.RouteMethod) {
		return
	}
	if r.g.trees.of(rctx.Routes).has(rctx.RouteMethod, rctx.RoutePatterns) {
		r.report(req.Context(), slog.LevelError, &r.g.quiet.passedBy, nil,
			"holdfast: a request ran without the rule: a middleware inside of it has changed path or method; mount that outside", fault.Misuse,
			slog.String("route", rctx.RouteMethod+" "+rctx.RoutePattern()))
	}
}

// refuse answers a request that does not reach its handler, or whose handler has left nothing to answer with.
func (r *rule) refuse(w http.ResponseWriter, req *http.Request, at *place, err error) {
	if t := fault.TypeOf(err); t == fault.Misuse || t == fault.Internal {
		r.report(req.Context(), slog.LevelError, &r.g.quiet.misuse, at, "holdfast: the rule cannot work", t, slog.String("error", fault.TextOf(err)))
	}
	if begun(w) {
		return
	}
	if r.g.onError != nil {
		r.g.onError(w, req, err)
		return
	}
	writeProblem(w, req, err)
}

// quiet thins out what the rules report, each kind for itself.
type quiet struct{ misuse, passedBy, handedOver, unreadable telemetry.Quiet }

// report logs for the operator, at most once a second for a rule and kind.
func (r *rule) report(ctx context.Context, level slog.Level, kind *telemetry.Quiet, at *place, msg string, t fault.Type, attrs ...slog.Attr) {
	var who *reqctx.Rule
	if at != nil {
		who = at.rule
	}
	suppressed, ok := kind.Allow(who)
	if !ok || !r.g.log.Enabled(ctx, level) {
		return
	}
	attrs = append(attrs, slog.String("error_type", string(t)), slog.String("written", r.text))
	if who != nil {
		attrs = append(attrs, slog.String("rule", who.Name), slog.String("route", who.Route))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	r.g.log.LogAttrs(ctx, level, msg, attrs...)
}

// passes counts the requests of a rule that are under way without Redis.
type passes struct {
	most int64
	n    atomic.Int64
}

// enter takes a place, if there is one.
func (p *passes) enter() (leave func(), ok bool) {
	if p.n.Add(1) > p.most {
		p.n.Add(-1)
		return nil, false
	}
	return func() { p.n.Add(-1) }, true
}
