package middleware

import (
	"github.com/holdfast-go/holdfast/internal/fault"
)

// Sentinels. A refusal by the guard wraps one of these or one of package lock, dedup or lockkey; an error handler set
// with [WithErrorHandler] asks with errors.Is.
var (
	// ErrMisuse: a rule cannot work where it is mounted: the service's fault, answered 500. [Guard.Validate] finds it
	// at start-up.
	ErrMisuse error = fault.New(fault.Misuse, "middleware: rule mounted where it cannot work")
	// ErrKeyMissing: the request has no idempotency key and the rule is not [Optional].
	ErrKeyMissing error = fault.New(fault.KeyMissing, "middleware: no idempotency key")
	// ErrKeyMalformed: the idempotency key is there, but empty, doubled, a list, too long or not of its form.
	ErrKeyMalformed error = fault.New(fault.KeyMalformed, "middleware: malformed idempotency key")
	// ErrWithdrawn: the request has succeeded and its success was taken back since, as [StillTrue] says.
	ErrWithdrawn error = fault.New(fault.Withdrawn, "middleware: the first success was withdrawn")
	// ErrUnavailable: a question that must be answered before the handler may run could not be: the request's time was
	// over, or StillTrue failed. Nothing was done.
	ErrUnavailable error = fault.New(fault.Unavailable, "middleware: a check could not be made")
)

// refusal is an error with what the client may be told beyond the row of its type.
type refusal struct {
	sentinel error  // or the error of another package
	cause    error  // may be nil
	text     string // for logs: what and where, no value from the request; "" for the sentinel's
	detail   string // for the client; "" for the row's
	status   int    // 0 for the row's
}

func (e *refusal) Error() string {
	if e.text != "" {
		return "middleware: " + e.text
	}
	return e.sentinel.Error()
}

// ErrorType returns the type of what is wrapped.
func (e *refusal) ErrorType() string { return string(fault.TypeOf(e.sentinel)) }

func (e *refusal) Unwrap() []error {
	if e.cause == nil {
		return []error{e.sentinel}
	}
	return []error{e.sentinel, e.cause}
}

func misuse(text string) error {
	return &refusal{sentinel: ErrMisuse, text: text}
}
