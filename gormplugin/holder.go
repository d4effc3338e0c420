package gormplugin

import (
	"context"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// leaseOver returns a refusal when any lease in the context is over: who lost a lock must not write under it, whichever
// row the lock was for.
func leaseOver(ctx context.Context, t *table) *Error {
	for l := range reqctx.Leases(ctx) {
		if l.Verdict == nil {
			continue
		}
		if why := l.Verdict(); why != nil {
			over := &Error{sentinel: ErrStaleFence, reason: "lease", table: t.name, cause: why}
			if typ := fault.TypeOf(why); typ != fault.Internal {
				over.typ = typ
			}
			return over
		}
	}
	return nil
}

// fenceIn returns the fencing number of the lease whose namespace is that of the column's lock. Leases of other namespaces
// are about other rows: their numbers come from other counters and say nothing here.
func fenceIn(ctx context.Context, t *table) (n int64, found bool, refusal *Error) {
	for l := range reqctx.Leases(ctx) {
		if !l.In(t.fence.lock) {
			continue
		}
		if l.Fence < 1 {
			return 0, false, fail(ErrInvalid, "fence", "a fencing number is at least 1").at(t, t.fence.name)
		}
		if found && l.Fence != n {
			return 0, false, &Error{
				sentinel: ErrInvalid, reason: "two_fences", table: t.name, column: t.fence.name,
				hint: "two leases in the namespace of one row: lock all its keys at once, which gives one number",
				ours: strconv.FormatInt(n, 10), stored: strconv.FormatInt(l.Fence, 10),
			}
		}
		n, found = l.Fence, true
	}
	return n, found, nil
}
