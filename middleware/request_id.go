package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/lockkey"
)

// RequestID returns a middleware that checks the client's key and derives the request's id exactly as [Guard.Dedup]
// does, and puts it into the context: stock.Order and a column tagged guard:"request" are filled from there, so that the
// effect itself refuses to happen twice. Nothing is sent to Redis, nothing recorded, no body compared.
//
// It takes Key, Optional, Methods and RouteName. Under a Dedup of the same guard it does nothing. RequestID panics on a
// bad template or option.
func (g *Guard) RequestID(scope string, opts ...DedupOption) func(http.Handler) http.Handler {
	q := &requestIDRule{}
	q.mustBeSound(q.compile(g, scope, opts))
	g.remember(q)
	return q.wrap
}

// requestIDRule is a rule made by RequestID. Immutable.
type requestIDRule struct {
	rule
	identity
}

// compile makes the rule and returns all that is wrong with it.
func (q *requestIDRule) compile(g *Guard, scope string, opts []DedupOption) (faults []error) {
	c, faults := newDedupConfig(opts)
	q.rule = g.newRule(kindRequestID, scope, &c.ruleConfig, http.MethodPost, http.MethodPatch)
	if len(c.recorded) > 0 {
		faults = append(faults, fmt.Errorf("%s needs a record, and RequestID keeps none; leave it out or use Dedup", strings.Join(c.recorded, ", ")))
	}
	return append(faults, q.identity.compile(&q.rule, scope, &c)...)
}

func (q *requestIDRule) common() *rule                  { return &q.rule }
func (q *requestIDRule) templates() []*lockkey.Template { return q.identity.templates() }

func (q *requestIDRule) middleware() func(http.Handler) http.Handler { return q.wrap }

func (q *requestIDRule) wrap(next http.Handler) http.Handler {
	q.around(next)
	return &requestIDHandler{q, next}
}

// requestIDHandler is a requestIDRule around a handler.
type requestIDHandler struct {
	rule *requestIDRule
	next http.Handler
}

func (h *requestIDHandler) guarding() guarding { return h.rule }

func (h *requestIDHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := h.rule
	at, from, covered, err := q.locate(r)
	switch {
	case exchangeOf(r.Context(), q.g) != nil:
		h.next.ServeHTTP(w, r)
		return
	case !covered:
		q.unguarded(h.next, w, r)
		return
	}
	var req dedup.Request
	if err == nil {
		req, err = q.identity.of(from, at)
		r.Body = from.Body // perhaps read and put back
	}
	switch {
	case errors.Is(err, errNoKey):
		h.next.ServeHTTP(w, r)
		return
	case err != nil:
		q.refuse(w, r, at, err)
		return
	}
	ctx := reqctx.WithRequest(reqctx.WithRule(r.Context(), at.rule), reqctx.Request{ID: req.ID(), Hash: req.Hash()})
	h.next.ServeHTTP(w, r.WithContext(ctx))
}
