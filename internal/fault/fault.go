// Package fault holds the one list of error types of holdfast and the small value that every sentinel is made of.
//
// A type is one string for the whole project: the outcome attribute of spans and metrics, error.type, the end of a
// problem's type URI, the log field error_type and what tests assert. Packages keep sentinels of their own, since
// errors.Is(err, lock.ErrUnavailable) must be false when PostgreSQL is down; what belongs together shares a Type.
package fault

import (
	"errors"
	"fmt"
	"slices"
)

// Type names what went wrong, or why the answer is no. Its values are stable: they are part of the public API.
type Type string

// The list. A new entry also needs a row in middleware/problem.go, a line in the docs and, where a span or metric
// carries it, a value in internal/telemetry; tests walk All and find each of them.
const (
	AlreadyConfirmed Type = "already_confirmed" // the hold ended the other way: paid
	AlreadyReleased  Type = "already_released"  // the hold ended the other way: given back
	BodyEncoding     Type = "body_encoding"     // a body that must be read is compressed
	BodyTooLarge     Type = "body_too_large"    // a body that must be read is over its limit
	Busy             Type = "busy"              // a lock was not had in time
	Closed           Type = "closed"            // the locker, dedup or guard was closed
	Conflict         Type = "conflict"          // serialization failure or deadlock after the retries
	Corrupt          Type = "corrupt"           // a stored value is not ours or of a newer format
	Duplicate        Type = "duplicate"         // a unique index refused the row
	Ended            Type = "ended"             // the sale is over
	ForeignKey       Type = "foreign_key"       // something that is not ours lies under our key
	InFlight         Type = "in_flight"         // the same request id is still running
	Insufficient     Type = "insufficient"      // not enough left
	Internal         Type = "internal"          // an error without a type
	Interrupted      Type = "interrupted"       // an earlier attempt lapsed and the route forbids a takeover
	Invalid          Type = "invalid"           // an argument from outside is wrong
	KeyMalformed     Type = "key_malformed"     // an idempotency key that is there but not of its form
	KeyMissing       Type = "key_missing"       // no idempotency key
	LeaseReleased    Type = "lease_released"    // a nested lease after its owner's release
	LimitReached     Type = "limit_reached"     // the user has had their share
	Lost             Type = "lost"              // a lock ended under its holder
	Mismatch         Type = "mismatch"          // the same request id for another request
	Misuse           Type = "misuse"            // holdfast was called wrongly: the service's fault
	NotFound         Type = "not_found"         // the row is not there
	NotHeld          Type = "not_held"          // nothing is held under this order
	NotLanded        Type = "not_landed"        // the order was accepted, if ever, and has no row yet
	NotStarted       Type = "not_started"       // the sale has not begun
	NotWarmed        Type = "not_warmed"        // the counter is not there
	Overloaded       Type = "overloaded"        // landing is too far behind
	Paused           Type = "paused"            // the sale is paused or frozen
	RateLimited      Type = "rate_limited"      // refused by a rate limit or admission
	Released         Type = "released"          // done once, and given back since
	StaleFence       Type = "stale_fence"       // a newer holder has written already
	TooManyKeys      Type = "too_many_keys"     // a request that asks for more keys than a rule may lock
	Unavailable      Type = "unavailable"       // Redis or SQL is away; nothing was done, for certain
	Unguarded        Type = "unguarded"         // a write to a guarded column without its guard
	UnknownOutcome   Type = "unknown_outcome"   // the reply was lost: done or not done, nobody knows yet
	VersionConflict  Type = "version_conflict"  // the row's version moved on
	Withdrawn        Type = "withdrawn"         // a success that was taken back since
)

var all = []Type{
	AlreadyConfirmed, AlreadyReleased, BodyEncoding, BodyTooLarge, Busy, Closed, Conflict, Corrupt, Duplicate, Ended,
	ForeignKey, InFlight, Insufficient, Internal, Interrupted, Invalid, KeyMalformed, KeyMissing, LeaseReleased,
	LimitReached, Lost, Mismatch, Misuse, NotFound, NotHeld, NotLanded, NotStarted, NotWarmed, Overloaded, Paused, RateLimited,
	Released, StaleFence, TooManyKeys, Unavailable, Unguarded, UnknownOutcome, VersionConflict, Withdrawn,
}

// All returns every type, sorted.
func All() []Type { return slices.Clone(all) }

// Retryable reports whether the same request, with the same request id, may succeed later without anybody's doing.
func (t Type) Retryable() bool {
	switch t {
	case Busy, Closed, Conflict, InFlight, Lost, NotLanded, NotWarmed, Overloaded, RateLimited, Unavailable, UnknownOutcome:
		return true
	}
	return false
}

// Failure reports whether the type is a fault, answered with a 5xx unless the service decides otherwise. Everything else
// is an answer: it turns no span red and is not logged above info.
func (t Type) Failure() bool {
	switch t {
	case Closed, Conflict, Corrupt, ForeignKey, Internal, LeaseReleased, Lost, Misuse, NotWarmed, Overloaded, Unavailable, Unguarded,
		UnknownOutcome:
		return true
	}
	return false
}

// Error is what sentinels are made of: a text and a type. Compare sentinels with errors.Is, never their text.
type Error struct {
	typ  Type
	text string
}

// New returns a sentinel. The text is lower case, begins with the package's name and holds no value from a request.
func New(typ Type, text string) *Error { return &Error{typ, text} }

// Error returns the text.
func (e *Error) Error() string { return e.text }

// ErrorType returns the type.
func (e *Error) ErrorType() string { return string(e.typ) }

// Retryable reports whether the same request may succeed later.
func (e *Error) Retryable() bool { return e.typ.Retryable() }

// TypeOf returns the type of the first error in err's tree that has one, or Internal when none has; "" for nil.
func TypeOf(err error) Type {
	if err == nil {
		return ""
	}
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return Type(typed.ErrorType())
	}
	return Internal
}

// TextOf returns the text of an error of ours, which holds no value and no address and so may be logged; of others only what Go
// type they are.
func TextOf(err error) string {
	var typed interface {
		error
		ErrorType() string
	}
	if errors.As(err, &typed) {
		return typed.Error()
	}
	return fmt.Sprintf("%T", err)
}
