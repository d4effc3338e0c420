package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/lock"
	"github.com/holdfast-go/holdfast/lockkey"
)

// Lock returns a middleware under which a handler runs only while its request holds the lock that the template names,
// "balance:{userID}" for example; see package lockkey. It acts on POST, PUT, PATCH and DELETE.
//
// A request that does not get the lock within [Wait] is answered 429 with Retry-After; one for which Redis cannot say,
// 503. Its handler is not called. The handler's context carries the lease, which gormplugin and lock.FromContext find,
// and ends with cause lock.ErrLost when the lock is lost; a handler that then answers nothing is answered 503. The lock
// is released when the handler has returned or panicked, whether or not the client is still there, before the answer is
// complete.
//
// The template and the options are checked at once: Lock panics with a text that begins with "holdfast/middleware:".
// Several templates of one rule are written with [Also].
func (g *Guard) Lock(template string, opts ...LockOption) func(http.Handler) http.Handler {
	l := &lockRule{}
	l.mustBeSound(l.compile(g, template, opts))
	g.remember(l)
	return l.wrap
}

// lockRule is a rule made by Lock. Immutable.
type lockRule struct {
	rule
	keys    []*lockkey.Template
	acquire []lock.AcquireOption
	onBusy  int
}

const (
	// routeWait is how long a request waits for a lock. The default of package lock is for work without a client.
	routeWait = 2 * time.Second

	minLockTTL = 10 * time.Millisecond
	maxLockTTL = 5 * time.Minute
	maxLockKey = 1024 // bytes
)

// compile makes the rule and returns all that is wrong with it.
func (l *lockRule) compile(g *Guard, template string, opts []LockOption) (faults []error) {
	c := lockConfig{templates: []string{template}, onBusy: http.StatusTooManyRequests}
	for _, opt := range opts {
		if opt == nil {
			faults = append(faults, errors.New("an option is nil; leave it out"))
		} else if err := opt.applyLock(&c); err != nil {
			faults = append(faults, err)
		}
	}
	l.rule = g.newRule(kindLock, template, &c.ruleConfig, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
	l.text, l.keyed = lockText(c.templates), c.templates
	l.onBusy = c.onBusy
	for _, text := range c.templates {
		t, err := l.parse(text)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		l.keys = append(l.keys, t)
	}
	wait := routeWait
	if c.wait != nil {
		wait = *c.wait
	}
	l.acquire = append(l.acquire, lock.Wait(wait))
	if c.ttl != 0 {
		if c.ttl < minLockTTL || c.ttl > maxLockTTL || c.ttl%time.Millisecond != 0 {
			faults = append(faults, fmt.Errorf("TTL(%v) is out of range; write whole milliseconds from %v to %v", c.ttl, minLockTTL, maxLockTTL))
		}
		l.acquire = append(l.acquire, lock.TTL(c.ttl))
	}
	if c.maxHold != nil {
		l.acquire = append(l.acquire, lock.MaxHold(*c.maxHold))
	}
	return faults
}

// lockText is the rule as it was written.
func lockText(templates []string) string {
	text := strconv.Quote(templates[0])
	for _, also := range templates[1:] {
		text += ", Also(" + strconv.Quote(also) + ")"
	}
	return "Lock(" + text + ")"
}

func (l *lockRule) common() *rule                  { return &l.rule }
func (l *lockRule) templates() []*lockkey.Template { return l.keys }

func (l *lockRule) middleware() func(http.Handler) http.Handler { return l.wrap }

func (l *lockRule) wrap(next http.Handler) http.Handler {
	l.around(next)
	return &lockHandler{l, next}
}

// lockHandler is a lockRule around a handler.
type lockHandler struct {
	rule *lockRule
	next http.Handler
}

func (h *lockHandler) guarding() guarding { return h.rule }

func (h *lockHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := h.rule
	at, from, covered, err := l.locate(r)
	if !covered {
		l.unguarded(h.next, w, r)
		return
	}
	x := exchangeOf(r.Context(), l.g)
	var keys []string
	if err == nil {
		keys, err = l.render(from)
		r.Body = from.Body // perhaps read and put back
	}
	if err != nil {
		x.refuse()
		l.refuse(w, r, at, err)
		return
	}
	ctx := reqctx.WithRule(r.Context(), at.rule)
	lease, err := l.take(ctx, keys)
	switch {
	case err == nil:
		h.hold(w, r, ctx, lease, at, x)
	case h.bypass(w, r, ctx, keys, err):
	default:
		x.refuse()
		l.refuse(w, r, at, err)
	}
}

// bypass runs the handler without the lock if Redis could not decide and PassAtMost allows it.
func (h *lockHandler) bypass(w http.ResponseWriter, r *http.Request, ctx context.Context, keys []string, err error) bool {
	l := h.rule
	t := fault.TypeOf(err)
	if t != fault.Unavailable && t != fault.UnknownOutcome || ctx.Err() != nil {
		return false
	}
	leave, ok := l.pass.enter()
	if !ok {
		return false
	}
	defer leave()
	l.g.locker.Bypassed(ctx, keys)
	w.Header().Set("Lock-Status", "bypassed")
	h.next.ServeHTTP(w, r.WithContext(ctx))
	return true
}

// render returns the keys of all templates of the rule.
func (l *lockRule) render(r *http.Request) ([]string, error) {
	keys := make([]string, 0, len(l.keys))
	for _, t := range l.keys {
		var err error
		if keys, err = t.AppendKeys(keys, r); err != nil {
			return nil, err
		}
	}
	for _, key := range keys {
		if len(key) > maxLockKey {
			return nil, &refusal{sentinel: lockkey.ErrInvalid, text: "a key is too long", detail: "Values of the request are too long together."}
		}
	}
	return keys, nil
}

// take acquires the keys, all or none.
func (l *lockRule) take(ctx context.Context, keys []string) (*lock.Lease, error) {
	lease, err := l.g.locker.Acquire(ctx, keys, l.acquire...)
	switch t := fault.TypeOf(err); {
	case err == nil:
		return lease, nil
	case t == fault.Busy && l.onBusy != http.StatusTooManyRequests:
		return nil, &refusal{sentinel: err, status: l.onBusy}
	case t == fault.Internal && ctx.Err() != nil:
		return nil, &refusal{sentinel: ErrUnavailable, cause: err, text: "the request's context ended before the lock was tried"}
	}
	return nil, err
}

// hold runs the handler under the lease.
func (h *lockHandler) hold(w http.ResponseWriter, r *http.Request, ctx context.Context, lease *lock.Lease, at *place, x *exchange) {
	defer func() { // on return, panic and runtime.Goexit alike
		if !x.releaseAlongside(ctx, lease) {
			release(ctx, lease)
		}
	}()
	watched := watch(w)
	if rw, ok := watched.(*response); ok && watched != w {
		defer rw.finish()
	}
	h.next.ServeHTTP(watched, r.WithContext(lease.Context(ctx)))
	if !begun(watched) {
		if err := lease.Err(); err != nil {
			h.rule.refuse(w, r, at, err)
		}
	}
}

// release frees the lock, on a context of its own. That the lease had ended before is told by package lock, in log and
// metric; it is no reason to take back the handler's answer.
func release(ctx context.Context, lease *lock.Lease) { _ = lease.Release(ctx) }
