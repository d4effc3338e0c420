package gormplugin

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// ContextWithFence returns a context in which the lock is held with the fencing number n, for a service whose lock is not
// of this project: statements of guarded tables with guard:"fence,lock=NAMESPACE" write n and are refused once the row has
// seen a greater one. lock is the key that is held, "stock:1001"; it counts for the namespace before its first colon.
// Numbers of one key must grow with each holder; n below 1 fails the statements with [ErrInvalid].
//
// The lease never ends by itself: whoever loses the lock has to cancel ctx.
func ContextWithFence(ctx context.Context, lock string, n int64) context.Context {
	return reqctx.WithLease(ctx, &reqctx.Lease{Keys: []string{lock}, Fence: n, Verdict: func() error { return nil }})
}

// ContextWithRequest returns a context with the identity of a request that may come more than once, for a consumer or a job
// without the middleware: rows with guard:"request" get id where they bring none of their own. id is at most as long as the
// column, 43 characters where the column follows the documentation, and never the client's own text. attempt counts from
// 1; 0 means that nobody counts.
func ContextWithRequest(ctx context.Context, id string, attempt int) context.Context {
	return reqctx.WithRequest(ctx, reqctx.Request{ID: id, Attempt: attempt})
}

// contextOver returns the error for a context that has ended, and nil before. Nothing was sent under it.
func contextOver(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &Error{sentinel: ErrUnavailable, reason: "context", cause: contextCause(ctx)}
}

// contextCause is why ctx ended: its error, and the cause given for it if there is another.
func contextCause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return cause
	}
	return errors.Join(err, cause)
}
