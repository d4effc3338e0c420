package dedup

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// The errors of this package, for errors.Is. Each has ErrorType() string and Retryable() bool; what a call returns is an
// [*Error] around one of them, with details.
var (
	// ErrMismatch: the key has been used for another request. Nothing ran.
	ErrMismatch = fault.New(fault.Mismatch, "dedup: the key was used for another request")
	// ErrInFlight: the same request is still running, and did not end while this one waited.
	ErrInFlight = fault.New(fault.InFlight, "dedup: the same request is still running")
	// ErrInterrupted: an earlier attempt ended without a word, and the request does not allow to take over.
	ErrInterrupted = fault.New(fault.Interrupted, "dedup: an earlier attempt was interrupted and its outcome is unknown")
	// ErrLeaseLost: the claim is another's now; it is also the cause of a cancelled claim's context.
	ErrLeaseLost = fault.New(fault.Lost, "dedup: the claim was lost")
	// ErrCorrupt: what is stored under the key cannot be read, or is of a newer format. Nothing ran.
	ErrCorrupt = fault.New(fault.Corrupt, "dedup: the stored record cannot be read")
	// ErrInvalid: an argument is wrong. Nothing was sent.
	ErrInvalid = fault.New(fault.Misuse, "dedup: invalid argument")
	// ErrUnavailable: the store is away and did nothing, for certain.
	ErrUnavailable = fault.New(fault.Unavailable, "dedup: the store is unavailable")
	// ErrUnknownOutcome: the store did not answer, and may or may not have done what it was asked.
	ErrUnknownOutcome = fault.New(fault.UnknownOutcome, "dedup: the store did not answer")
	// ErrClosed: the Dedup was closed.
	ErrClosed = fault.New(fault.Closed, "dedup: closed")
	// ErrNoRecord: there is no such record. Stores and operator calls return it.
	ErrNoRecord = fault.New(fault.NotFound, "dedup: no such record")
)

// Error is what the functions of this package return: one of the sentinels, with details.
type Error struct {
	Err    error         // the sentinel
	Cause  error         // what was behind it, or nil: it may hold an address, so its text is not part of Error()
	Reason string        // more words for a person, or empty: "taken", "max_hold", "TTL is 1m0s, the least is 10m0s"
	Waited time.Duration // how long the call waited for the other request
	Code   int           // with ErrCorrupt: the code that could still be read, 0 if none
}

// Error returns the sentinel's text and the reason. It holds no key, no token and no address.
func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if e.Waited > 0 {
		text += " after " + e.Waited.Round(time.Millisecond).String()
	}
	return text
}

// Unwrap returns the sentinel and the cause, so that errors.Is finds both ErrInFlight and context.DeadlineExceeded.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// ErrorType returns the sentinel's type.
func (e *Error) ErrorType() string { return string(fault.TypeOf(e.Err)) }

// Retryable reports whether the same request may be answered otherwise later.
func (e *Error) Retryable() bool { return fault.Type(e.ErrorType()).Retryable() }

// RetryAfter is when to send the same request again, 0 where that is no use.
func (e *Error) RetryAfter() time.Duration {
	if e.Retryable() {
		return time.Second
	}
	return 0
}

func invalid(reason string) error { return &Error{Err: ErrInvalid, Reason: reason} }

// unsettled reports whether the same call, sent again, may still be answered.
func unsettled(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome)
}
