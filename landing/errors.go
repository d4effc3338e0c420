package landing

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// Sentinels. What this package itself has to say is an [*Error] that wraps one of them; ask with errors.Is. Errors of SQL
// and of the Counter are handed on as package gormplugin and package stock made them.
var (
	// ErrInvalid: called wrongly, or with models that this package cannot work on. Its text says what to write instead.
	ErrInvalid error = fault.New(fault.Misuse, "landing: invalid use")
	// ErrAlreadyPaid: the order is paid for. A second payment is to be refunded; an order that is paid for is not closed.
	ErrAlreadyPaid error = fault.New(fault.AlreadyConfirmed, "landing: order already paid")
	// ErrClosed: the order was closed before the payment came, or before somebody else wanted to close it. Its units are
	// given back; whether a late payment is refunded or the order is sold anew is the service's decision.
	ErrClosed error = fault.New(fault.AlreadyReleased, "landing: order closed")
	// ErrNotLanded: there is no row of this order yet. If it was accepted it will land: try again later.
	ErrNotLanded error = fault.New(fault.NotLanded, "landing: order not landed")
	// ErrStale: Redis and SQL differ otherwise than when the plan was made, and what the plan says of that was not done. Compare
	// and plan anew.
	ErrStale error = fault.New(fault.VersionConflict, "landing: plan is stale")
	// ErrNotFound: there is no such dead letter: replayed, given up, or never there.
	ErrNotFound error = fault.New(fault.NotFound, "landing: no such dead letter")
	// ErrUnavailable: Redis could not be asked for the stream; nothing is lost, the same call may be made again.
	ErrUnavailable error = fault.New(fault.Unavailable, "landing: Redis unavailable")
)

// Error is what every error of this package's own is: a sentinel with details. It is immutable and safe for concurrent use.
type Error struct {
	sentinel error
	cause    error
	reason   string // what is wrong and what to write instead; holds no value
}

// Error returns a text that begins with "landing:". It holds no id, no address and no SQL, so it may be logged.
func (e *Error) Error() string {
	if e.reason == "" {
		return e.sentinel.Error()
	}
	return e.sentinel.Error() + ": " + e.reason
}

// Unwrap returns the sentinel and, where there is one, the error behind it.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.sentinel}
	}
	return []error{e.sentinel, e.cause}
}

// ErrorType returns the type, one of the project's list.
func (e *Error) ErrorType() string { return string(fault.TypeOf(e.sentinel)) }

// Retryable reports whether the same call may succeed later without anybody's doing.
func (e *Error) Retryable() bool {
	return e.sentinel == ErrNotLanded || e.sentinel == ErrUnavailable //nolint:errorlint // a field of ours, never wrapped
}

// RetryAfter returns how long to wait before the same call is worth another try, 0 where it is not.
func (e *Error) RetryAfter() time.Duration {
	if e.Retryable() {
		return time.Second
	}
	return 0
}

func fail(sentinel error, reason string) *Error { return &Error{sentinel: sentinel, reason: reason} }
