package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/lockkey"
)

// Dedup returns a middleware under which a request that is sent again gets the first answer again, marked
// Idempotent-Replayed: true, and the handler runs once. It acts on POST and PATCH.
//
// The scope is a template that names whose keys these are: the authenticated principal, "{userID}" or
// "{tenant}:{userID}", never an address or something the client chooses; or the word "all", on purpose. The client's key
// is by default the header Idempotency-Key; the same key on another method or route is another request. With another
// path, query or body on the same route it is refused: 422.
//
// An answer that counts as done ([StoreIf], by default 2xx and 3xx) is stored before it leaves, for 24 h. A 4xx is not
// stored and its key is free again; after a 5xx or a panic the next request with the key runs at once, as the next
// attempt; dedup.FromContext tells the handler which. A repeat of a request that is still running waits up to 2 s, then
// gets 409. When the handler streams, by Flush or with more than [MaxBody], a repeat gets the status without the body;
// when it hijacks the connection, nothing is recorded and its context ends.
//
// While Redis is away requests get 503: see [PassAtMost]. Dedup panics on a bad template or option.
func (g *Guard) Dedup(scope string, opts ...DedupOption) func(http.Handler) http.Handler {
	d := &dedupRule{}
	d.mustBeSound(d.compile(g, scope, opts))
	g.remember(d)
	return d.wrap
}

// dedupRule is a rule made by Dedup. Immutable.
type dedupRule struct {
	rule
	identity
	dedupConfig
}

func newDedupConfig(opts []DedupOption) (c dedupConfig, faults []error) {
	c = dedupConfig{key: defaultKey, storeIf: storeSuccess, fingerprint: fingerprintOf, maxRequest: 1 << 20, maxResponse: 1 << 20}
	for _, opt := range opts {
		if opt == nil {
			faults = append(faults, errors.New("an option is nil; leave it out"))
		} else if err := opt.applyDedup(&c); err != nil {
			faults = append(faults, err)
		}
	}
	for _, m := range c.methods {
		if m == http.MethodHead {
			faults = append(faults, fmt.Errorf("Methods(%q): a HEAD has no effect to protect; leave it out", m))
		}
	}
	return c, faults
}

func storeSuccess(status int, _ http.Header, _ []byte) bool { return 200 <= status && status <= 399 }

func fingerprintOf(r *http.Request, body []byte) ([]byte, error) { return fingerprint(r, body), nil }

// compile makes the rule and returns all that is wrong with it.
func (d *dedupRule) compile(g *Guard, scope string, opts []DedupOption) (faults []error) {
	d.dedupConfig, faults = newDedupConfig(opts)
	d.rule = g.newRule(kindDedup, scope, &d.ruleConfig, http.MethodPost, http.MethodPatch)
	if err := checkTTL(d.ttl); err != nil {
		faults = append(faults, err)
	}
	return append(faults, d.identity.compile(&d.rule, scope, &d.dedupConfig)...)
}

func (d *dedupRule) common() *rule                  { return &d.rule }
func (d *dedupRule) templates() []*lockkey.Template { return d.identity.templates() }

func (d *dedupRule) middleware() func(http.Handler) http.Handler { return d.wrap }

func (d *dedupRule) wrap(next http.Handler) http.Handler {
	d.around(next)
	return &dedupHandler{d, next}
}

// dedupHandler is a dedupRule around a handler.
type dedupHandler struct {
	rule *dedupRule
	next http.Handler
}

func (h *dedupHandler) guarding() guarding { return h.rule }

func (h *dedupHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := h.rule
	at, from, covered, err := d.locate(r)
	switch {
	case exchangeOf(r.Context(), d.g) != nil: // mounted twice, and the outer one is at work
		h.next.ServeHTTP(w, r)
		return
	case !covered:
		d.unguarded(h.next, w, r)
		return
	}
	var req dedup.Request
	if err == nil {
		req, err = d.request(from, at)
		r.Body = from.Body // read and put back
	}
	ctx := r.Context()
	if at != nil {
		ctx = reqctx.WithRule(ctx, at.rule)
	}
	switch {
	case errors.Is(err, errNoKey):
		d.g.dedup.Refused(ctx, nil)
		h.next.ServeHTTP(w, r)
		return
	case err != nil:
		d.g.dedup.Refused(ctx, err)
		d.refuse(w, r, at, err)
		return
	}
	claim, rec, err := d.g.dedup.Begin(ctx, req)
	switch {
	case err != nil:
		d.refuse(w, r, at, err)
	case rec != nil:
		d.replay(w, r, at, req, rec)
	default:
		run := execution{dedupHandler: h, at: at, ctx: ctx, claim: claim, x: &exchange{}}
		run.serve(w, r)
	}
}

// request says which request this is and what it asks for.
func (d *dedupRule) request(r *http.Request, at *place) (dedup.Request, error) {
	req, err := d.identity.of(r, at)
	if err != nil {
		return req, err
	}
	body, err := lockkey.BufferBody(r, d.maxRequest)
	if err != nil {
		return req, err
	}
	req.Fingerprint, err = d.fingerprint(r, body)
	req.TTL, req.NoTakeover = d.ttl, d.noTakeover
	if d.pass.most > 0 {
		req.Bypass = d.pass.enter
	}
	if d.stillTrue != nil {
		id := req.ID()
		req.StillTrue = func(ctx context.Context, rec *dedup.Record) error { return d.ask(ctx, id, rec) }
	}
	return req, err
}

// replay answers with what an earlier or simultaneous execution has answered.
func (d *dedupRule) replay(w http.ResponseWriter, r *http.Request, at *place, req dedup.Request, rec *dedup.Record) {
	fields, body, omitted, err := readRecord(rec)
	if err != nil {
		d.report(r.Context(), slog.LevelError, &d.g.quiet.unreadable, at, "holdfast: a stored answer cannot be read; its status is answered", fault.Corrupt,
			slog.String("request_hash", req.Hash()), slog.String("record", req.ID()))
	}
	if rec.Code < 200 || rec.Code > 999 {
		d.refuse(w, r, at, &refusal{sentinel: dedup.ErrCorrupt, text: "the stored status cannot be read"})
		return
	}
	h := w.Header()
	apply(h, fields)
	h.Set("Idempotent-Replayed", "true")
	if omitted {
		h.Set("Idempotency-Body", "omitted")
	}
	if bodyAllowed(rec.Code) {
		h.Set("Content-Length", fmt.Sprint(len(body)))
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body) // fails if the client has left
}

// readRecord returns the stored answer; one that cannot be read is one whose body was omitted.
func readRecord(rec *dedup.Record) (fields []field, body []byte, omitted bool, err error) {
	if rec.Omitted && len(rec.Data) == 0 {
		return nil, nil, true, nil
	}
	fields, body, err = decodeRecord(rec.Data)
	if err != nil || rec.Omitted {
		body = nil
	}
	return fields, body, rec.Omitted || err != nil, err
}

// ask asks the service whether the success that would be replayed still holds.
func (d *dedupRule) ask(ctx context.Context, requestID string, rec *dedup.Record) error {
	if rec.Code < 200 || rec.Code > 299 {
		return nil
	}
	switch ok, err := d.stillTrue(ctx, requestID); {
	case err != nil:
		return &refusal{sentinel: ErrUnavailable, cause: err, text: "StillTrue failed"}
	case !ok:
		return ErrWithdrawn
	}
	return nil
}
