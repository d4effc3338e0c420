package stock

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// Sentinels. Each error of this package is an [*Error] that wraps one of them; ask with errors.Is.
var (
	// ErrNotWarmed: the item's counter is not there: never warmed up for this activity, expired, or evicted. It is not
	// "sold out", and nothing is created. Worth a retry once somebody has warmed it up.
	ErrNotWarmed error = fault.New(fault.NotWarmed, "stock: not warmed up")
	// ErrInsufficient: fewer units are left than were asked for. The user's chance is not used up.
	ErrInsufficient error = fault.New(fault.Insufficient, "stock: not enough left")
	// ErrLimitReached: with this order the user would have more units than the sale's limit allows.
	ErrLimitReached error = fault.New(fault.LimitReached, "stock: user's limit reached")
	// ErrReleased: this request was done once and all its units have been given back since. It is no success.
	ErrReleased error = fault.New(fault.Released, "stock: done and given back since")
	// ErrMismatch: the request id, the order id or the operation id is known, for something else.
	ErrMismatch error = fault.New(fault.Mismatch, "stock: id already used for something else")
	// ErrStale: the item is not as it was seen, so a step that was worked out from that was not made. See [AsSeen].
	ErrStale error = fault.New(fault.VersionConflict, "stock: item changed since it was surveyed")
	// ErrInFlight: an order of several lines is still being taken under this request id.
	ErrInFlight error = fault.New(fault.InFlight, "stock: request still running")
	// ErrPaused: the item's sale is paused by an operator, or frozen because SQL had less than Redis promised.
	ErrPaused error = fault.New(fault.Paused, "stock: sale paused")
	// ErrNotStarted: the sale has not begun. RetryAfter says how long it takes until it does.
	ErrNotStarted error = fault.New(fault.NotStarted, "stock: sale not started")
	// ErrEnded: the sale is over.
	ErrEnded error = fault.New(fault.Ended, "stock: sale ended")
	// ErrNotHeld: nothing is held under this order id: never deducted, or so long ago that its record has expired.
	// Nothing was changed.
	ErrNotHeld error = fault.New(fault.NotHeld, "stock: nothing held")
	// ErrAlreadyConfirmed: a release came too late, the units are paid for. Nothing was changed.
	ErrAlreadyConfirmed error = fault.New(fault.AlreadyConfirmed, "stock: already confirmed")
	// ErrAlreadyReleased: a confirmation came too late, the units were given back. Nothing was changed.
	ErrAlreadyReleased error = fault.New(fault.AlreadyReleased, "stock: already released")
	// ErrInvalid: an argument or a stored value is wrong; nothing was written. Its type says whose fault it is:
	// "invalid" the client's (units out of range), "corrupt" a stored value's, "misuse" the service's.
	ErrInvalid error = fault.New(fault.Invalid, "stock: invalid")
	// ErrStray: something lies under a counter's key that no warm-up of ours has put there.
	ErrStray error = fault.New(fault.ForeignKey, "stock: a counter that is not ours")
	// ErrOverloaded: landing is too far behind; nothing was deducted.
	ErrOverloaded error = fault.New(fault.Overloaded, "stock: landing too far behind")
	// ErrRateLimited is for rate limits and admission in front of Deduct, so that they are answered like the rest; this
	// package never returns it.
	ErrRateLimited error = fault.New(fault.RateLimited, "stock: rate limited")
	// ErrUnavailable: Redis could not be asked, or refused to work; nothing was done, for certain.
	ErrUnavailable error = fault.New(fault.Unavailable, "stock: Redis unavailable")
	// ErrUnknownOutcome: the reply was lost: done or not done, nobody knows yet. Repeat with the same request id, order
	// id or operation id: what was done is then answered again, and not done twice.
	ErrUnknownOutcome error = fault.New(fault.UnknownOutcome, "stock: outcome unknown")
)

// Error is what every error of this package is: a sentinel with details. It is immutable and safe for concurrent use.
type Error struct {
	sentinel error
	cause    error      // the client's error, the context's cause
	typ      fault.Type // where it is not the sentinel's
	reason   string     // what is wrong and what to write instead; holds no value
	after    time.Duration
	line     int // 1 is the first; 0 means none
}

// Error returns a text that begins with "stock:". It names the argument or the stored value that is wrong, never its
// value, and no key or address, so it may be logged.
func (e *Error) Error() string {
	if e.reason == "" {
		return e.sentinel.Error()
	}
	return e.sentinel.Error() + ": " + e.reason
}

// Unwrap returns the sentinel and, where there is one, the client's error and the context's cause.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.sentinel}
	}
	return []error{e.sentinel, e.cause}
}

// ErrorType returns the type, one of the project's list: "insufficient", "limit_reached" and so on.
func (e *Error) ErrorType() string {
	if e.typ != "" {
		return string(e.typ)
	}
	return string(fault.TypeOf(e.sentinel))
}

// Retryable reports whether the same request, with the same request id, may succeed later without anybody's doing.
func (e *Error) Retryable() bool { return fault.Type(e.ErrorType()).Retryable() }

// RetryAfter returns how long to wait before the same request is worth another try, 0 where nobody knows.
func (e *Error) RetryAfter() time.Duration {
	if e.after == 0 && e.Retryable() {
		return time.Second
	}
	return e.after
}

// Line returns the index, from 0, of the line of [Order.Lines] that was refused; -1 where it was about no line.
func (e *Error) Line() int { return e.line - 1 }

func fail(sentinel error, reason string) *Error { return &Error{sentinel: sentinel, reason: reason} }

// misuse is the service's fault.
func misuse(reason string) *Error {
	return &Error{sentinel: ErrInvalid, typ: fault.Misuse, reason: reason}
}

// corrupt is a stored value that no script of ours has written.
func corrupt(what string) *Error {
	return &Error{sentinel: ErrInvalid, typ: fault.Corrupt, reason: "stored " + what + " cannot be read"}
}

// as returns err's *Error.
func as(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
