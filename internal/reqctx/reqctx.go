// Package reqctx is what the parts of holdfast tell each other through the context of one request: the rule that guards
// it, the leases it holds, and its request id.
//
// It is the only place where the HTTP half and the SQL half meet: middleware, lock and dedup write here, stock and
// gormplugin read. Everything in the context is immutable but the open-transaction mark of a lease.
package reqctx

import (
	"context"
	"strings"
	"sync/atomic"
)

type (
	ruleKey    struct{}
	leaseKey   struct{}
	requestKey struct{}
)

// Rule says which rule of which route a request is under. It is made once, at start-up, and shared by all requests of
// the rule: a pointer to it may serve as the key of prepared telemetry.
type Rule struct {
	Name   string // for people: the name given, else method and route
	Method string // as the route was registered; empty outside HTTP
	Route  string // full pattern; empty outside HTTP

	KeyTemplates []string // of a lock, as they were written; empty elsewhere
}

// WithRule returns a context that carries the rule.
func WithRule(ctx context.Context, r *Rule) context.Context {
	return context.WithValue(ctx, ruleKey{}, r)
}

// RuleOf returns the rule, nil where there is none.
func RuleOf(ctx context.Context) *Rule {
	r, _ := ctx.Value(ruleKey{}).(*Rule)
	return r
}

// Request is the identity of a request that may be sent more than once.
type Request struct {
	ID      string // the record id: a hash of 43 characters, never the client's text
	Attempt int    // counts from 1; 0 where nobody counts
	Hash    string // first 16 hex digits of SHA-256 of the client's key alone, for spans and logs
}

// WithRequest returns a context that carries the request's identity.
func WithRequest(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestOf returns the request's identity, or false where there is none.
func RequestOf(ctx context.Context) (Request, bool) {
	r, ok := ctx.Value(requestKey{}).(Request)
	return r, ok
}

// Lease is one lease in the context.
type Lease struct {
	Keys    []string     // the caller's keys, without prefix: "stock:1001"
	Fence   int64        // fencing token, one for all Keys
	Verdict func() error // nil while the lease is held, else why it is over; safe for concurrent use
	Owner   any          // whatever the package that made the lease wants to find again; may be nil

	outer  *Lease
	openTx atomic.Int32
}

// In reports whether one of the lease's keys lies in the namespace: "stock" has "stock" and "stock:1001", not "stock2:1".
func (l *Lease) In(namespace string) bool {
	for _, key := range l.Keys {
		if rest, ok := strings.CutPrefix(key, namespace); ok && namespace != "" && (rest == "" || rest[0] == ':') {
			return true
		}
	}
	return false
}

// OpenTx reports whether a transaction that was begun under this lease has not ended yet.
func (l *Lease) OpenTx() bool { return l.openTx.Load() > 0 }

// WithLease returns a context that carries l in front of the leases that ctx has. A Lease is put into one context only.
func WithLease(ctx context.Context, l *Lease) context.Context {
	l.outer = innermost(ctx)
	return context.WithValue(ctx, leaseKey{}, l)
}

// WithoutLeases returns a context that carries no lease, for work that must compete like a stranger.
func WithoutLeases(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaseKey{}, (*Lease)(nil))
}

// Leases yields the leases in the context, innermost first.
func Leases(ctx context.Context) func(yield func(*Lease) bool) {
	return func(yield func(*Lease) bool) {
		for l := innermost(ctx); l != nil; l = l.outer {
			if !yield(l) {
				return
			}
		}
	}
}

// BeginTx marks every lease in the context as having a transaction open until end is called, so that a release before
// the commit can be told. Calling end twice counts once.
func BeginTx(ctx context.Context) (end func()) {
	for l := range Leases(ctx) {
		l.openTx.Add(1)
	}
	var done atomic.Bool
	return func() {
		if done.Swap(true) {
			return
		}
		for l := range Leases(ctx) {
			l.openTx.Add(-1)
		}
	}
}

func innermost(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}
