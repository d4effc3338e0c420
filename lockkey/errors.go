package lockkey

import (
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// Sentinels. Each [*KeyError] wraps one of them; ask with errors.Is.
var (
	// ErrInvalid: a part of the request that the key is made of is absent, empty, given twice or not of its form.
	ErrInvalid error = fault.New(fault.Invalid, "lockkey: a part of the request is missing or wrong")
	// ErrTooManyKeys: the request asks for more than 32 different keys.
	ErrTooManyKeys error = fault.New(fault.TooManyKeys, "lockkey: too many keys")
	// ErrBodyTooLarge: the body that must be read is over its limit.
	ErrBodyTooLarge error = fault.New(fault.BodyTooLarge, "lockkey: body too large")
	// ErrBodyEncoding: the body that must be read has a Content-Encoding other than identity.
	ErrBodyEncoding error = fault.New(fault.BodyEncoding, "lockkey: encoded body")
	// ErrMisuse: the service's fault, not the client's: the route does not have the param, a registered value failed or
	// is empty, or the body was read by somebody else before.
	ErrMisuse error = fault.New(fault.Misuse, "lockkey: template does not fit the route")
)

// ParseError says what is wrong with a template and what to write instead. [Parse] returns it.
type ParseError struct {
	Template string // as it was given
	Offset   int    // of the first wrong byte, from 0; -1 when an option is at fault, not the template
	Reason   string
	Instead  string // what to write instead
}

// Error returns a text of one line that begins with "lockkey:".
func (e *ParseError) Error() string {
	where := ""
	if e.Offset >= 0 {
		where = "template " + strconv.Quote(e.Template) + " at byte " + strconv.Itoa(e.Offset) + ": "
	}
	return "lockkey: " + where + e.Reason + "; " + e.Instead
}

// CheckError says why a template does not fit a route and what to do about it. [Template.Check] returns one for each
// placeholder that does not fit, joined.
type CheckError struct {
	Template    string
	Placeholder string // with its braces: "{itemID}"
	Method      string // as given to Check; may be empty
	Pattern     string
	Reason      string
	Instead     string // what to write instead
}

// Error returns a text of one line that begins with "lockkey:".
func (e *CheckError) Error() string {
	route := strings.TrimSpace(e.Method + " " + e.Pattern)
	return "lockkey: template " + strconv.Quote(e.Template) + " on " + route + ": " + e.Reason + "; " + e.Instead
}

// KeyError says why a request has no key: the placeholder and the reason, never the value. It wraps one of the
// package's sentinels and, where there is one, the error of the registered value or of the body's reader. That cause is
// for errors.Is and errors.As only: its text may hold values and addresses.
type KeyError struct {
	Template    string // as [Template.String] prints it; empty for an error of [BufferBody]
	Placeholder string // with its braces: "{header.X-Merchant}"; empty when no single one is at fault
	Reason      string // "header X-Merchant is absent": names the part of the request, for the client too

	sentinel error
	cause    error
	status   int
	absent   bool
}

// Error returns a text of one line that begins with "lockkey:" and holds no value of the request.
func (e *KeyError) Error() string {
	var where []string
	if e.Placeholder != "" {
		where = append(where, "placeholder "+e.Placeholder)
	}
	if e.Template != "" {
		where = append(where, "template "+strconv.Quote(e.Template))
	}
	if where == nil {
		return "lockkey: " + e.Reason
	}
	return "lockkey: " + e.Reason + " (" + strings.Join(where, ", ") + ")"
}

// Unwrap returns the sentinel and the cause.
func (e *KeyError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.sentinel}
	}
	return []error{e.sentinel, e.cause}
}

// ErrorType returns "invalid", "too_many_keys", "body_too_large", "body_encoding" or "misuse". When a registered value
// fails with an error that has both a status and a type, it returns that error's type.
func (e *KeyError) ErrorType() string {
	var typed interface{ ErrorType() string }
	if e.status != 0 && errors.As(e.cause, &typed) {
		return typed.ErrorType()
	}
	return string(fault.TypeOf(e.sentinel))
}

// HTTPStatus returns the status, 400 to 599, that the error of a registered value asks for with a method
// HTTPStatus() int. It returns 0 for all other errors: there the error type decides.
func (e *KeyError) HTTPStatus() int { return e.status }

// Absent reports whether the request has nothing of what a client must supply for this template: no header, no query
// parameter and no body member that it names. It is false when the client has tried, so when one of several is there,
// when a member is null or spelled in another case, or when a value is empty.
func (e *KeyError) Absent() bool { return e.absent }
