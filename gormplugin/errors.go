package gormplugin

import (
	"errors"
	"strings"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/fault"
)

// Sentinels. Each error of this package is an [*Error] that wraps one of them; ask with errors.Is.
var (
	// ErrInsufficient: a guarded column would leave its bounds: not enough stock, balance or quota, or more than max.
	ErrInsufficient error = fault.New(fault.Insufficient, "gormplugin: not enough left")
	// ErrNotFound: no row matched the statement's own conditions. errors.Is finds gorm.ErrRecordNotFound too.
	ErrNotFound error = fault.New(fault.NotFound, "gormplugin: row not found")
	// ErrStaleFence: a newer holder of the lock, or a newer attempt of the request, has written the row already; or the
	// lease in the context is over, and then errors.Is also finds its verdict (lock.ErrLost).
	ErrStaleFence error = fault.New(fault.StaleFence, "gormplugin: a newer holder has written")
	// ErrVersionConflict: the row moved on since it was read.
	ErrVersionConflict error = fault.New(fault.VersionConflict, "gormplugin: the row has changed since it was read")
	// ErrAlreadyApplied: the request's row is there already, so its effect is too. It is no refusal: whatever the
	// request took elsewhere was taken for that row.
	ErrAlreadyApplied error = fault.New(fault.Duplicate, "gormplugin: request already applied")
	// ErrDuplicate: a unique index refused the row. What WithUnique maps an index to is found together with it.
	// errors.Is finds gorm.ErrDuplicatedKey and errors.As the driver's error too.
	ErrDuplicate error = fault.New(fault.Duplicate, "gormplugin: duplicate of a unique index")
	// ErrUnguardedWrite: the statement would have written a guarded column without its guard. Nothing was sent.
	ErrUnguardedWrite error = fault.New(fault.Unguarded, "gormplugin: write to a guarded column without its guard")
	// ErrInvalid: an argument is wrong. An amount out of range has the type "invalid", all else is the service's fault
	// and has the type "misuse".
	ErrInvalid error = fault.New(fault.Misuse, "gormplugin: invalid use")
	// ErrConflict: a serialization failure, a deadlock or a lock wait that timed out; the transaction is over and the
	// same request may succeed when repeated. Retry repeats it.
	ErrConflict error = fault.New(fault.Conflict, "gormplugin: conflict with another transaction")
	// ErrUnavailable: the database could not be asked, or refuses to work; nothing was written, for certain.
	ErrUnavailable error = fault.New(fault.Unavailable, "gormplugin: database unavailable")
	// ErrUnknownOutcome: the reply to a COMMIT, or to a guarded statement outside a transaction, was lost: it was done
	// or not, and nobody knows yet. Repeat with the same request id; never give back what was taken elsewhere.
	ErrUnknownOutcome error = fault.New(fault.UnknownOutcome, "gormplugin: outcome unknown")
)

// Error is what every error of this package is: a sentinel with details. Which details are set depends on the reason;
// those that say nothing are "". It is immutable and safe for concurrent use.
//
// Its fields are unexported on purpose: gorm's drivers translate errors by reflecting on or marshalling a field Code.
type Error struct {
	sentinel error      // one of the package's
	mapped   error      // what WithUnique or WithCheck made of it
	cause    error      // driver's error, verdict of a lease, the context's cause; several are joined
	typ      fault.Type // where it is not the sentinel's
	reason   string
	hint     string // what to write instead; holds no value
	table    string
	column   string
	index    string
	line     int // 1 is the first; 0 means none

	available, requested, limit string
	ours, stored                string
	raced                       bool
	keys                        []any // primary keys of the rows that a partial write left out
}

// Error returns a text that begins with "gormplugin:". It names the table, the column and the reason, never a value, a
// constraint or SQL, so it may be logged; for the client there are problem documents.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.sentinel.Error())
	switch {
	case e.table != "" && e.column != "":
		b.WriteString(": " + e.table + "." + e.column)
	case e.table+e.column != "":
		b.WriteString(": " + e.table + e.column)
	}
	if e.reason != "" {
		b.WriteString(" (" + e.reason + ")")
	}
	if e.hint != "" {
		b.WriteString(": " + e.hint)
	}
	switch {
	case e.mapped != nil:
		b.WriteString(": " + e.mapped.Error())
	case e.index != "" && errors.Is(e.sentinel, ErrDuplicate):
		b.WriteString(": by " + e.index + ", to which WithUnique gives no meaning")
	}
	return b.String()
}

// Unwrap returns the sentinel, the error that WithUnique or WithCheck mapped it to, gorm's sentinel of the same meaning
// and the driver's error, as far as there are such.
func (e *Error) Unwrap() []error {
	errs := make([]error, 1, 4)
	errs[0] = e.sentinel
	if e.mapped != nil {
		errs = append(errs, e.mapped)
	}
	switch {
	case errors.Is(e.sentinel, ErrNotFound):
		errs = append(errs, gorm.ErrRecordNotFound)
	case errors.Is(e.sentinel, ErrDuplicate), errors.Is(e.sentinel, ErrAlreadyApplied):
		errs = append(errs, gorm.ErrDuplicatedKey)
	}
	if e.cause != nil {
		errs = append(errs, e.cause)
	}
	return errs
}

// ErrorType returns the type, one of the project's list: "insufficient", "duplicate" and so on. Under a lease that is
// over it is the type of the lease's verdict.
func (e *Error) ErrorType() string {
	if e.typ != "" {
		return string(e.typ)
	}
	return string(fault.TypeOf(e.sentinel))
}

// Retryable reports whether the same request, with the same request id, may succeed later without anybody's doing. A
// refusal with the reason "raced" is one of them: the row moved between the statement and its diagnosis.
func (e *Error) Retryable() bool { return e.raced || fault.Type(e.ErrorType()).Retryable() }

// Reason returns why, in one word that is stable:
//
//   - "below_min", "above_max", "null", "out_of_range", "partial", "check" with [ErrInsufficient];
//   - "fence", "attempt", "lease" with [ErrStaleFence];
//   - "version", "state" with [ErrVersionConflict];
//   - "absolute", "whole_row", "expression", "no_fence", "raw" and the like with [ErrUnguardedWrite];
//   - "deadlock", "serialization", "lock_wait", "raced" with [ErrConflict];
//   - "begin", "reply_lost", "transaction_over", "context" with [ErrUnavailable], "commit" too with [ErrUnknownOutcome];
//   - "raced" and "unknown" with whichever check comes first: the row moved on, or could not be read afterwards.
func (e *Error) Reason() string { return e.reason }

// Table returns the table, "" where none is known.
func (e *Error) Table() string { return e.table }

// Column returns the column that decided, "" where none did.
func (e *Error) Column() string { return e.column }

// Index returns the unique index or the check constraint that refused the row, "" where none did or the database does
// not say. Two unique indexes over the same columns cannot be told apart on SQLite: both, with a comma between.
func (e *Error) Index() string { return e.index }

// Line returns the index, from 0, of the line that was refused by [TakeAll], or of the row in a batch; -1 where it was
// about no line.
func (e *Error) Line() int { return e.line - 1 }

// Available returns what the column held, as decimal text, when the refused statement was diagnosed. By the time the
// caller reads it, it may have changed.
func (e *Error) Available() string { return e.available }

// Requested returns the amount that was asked for, as decimal text.
func (e *Error) Requested() string { return e.requested }

// Limit returns the bound that would have been broken, as decimal text.
func (e *Error) Limit() string { return e.limit }

// Ours returns the fence number, attempt, version or state that the statement came with, as text.
func (e *Error) Ours() string { return e.ours }

// Stored returns the fence number, attempt, version or state that the row had, as text.
func (e *Error) Stored() string { return e.stored }

// Refused reports whether err is a refusal: the database, or the guard before it, said no, nothing was written for
// certain, and the same request would hear the same again; so what was taken for it elsewhere may be given back.
//
// It is false for nil, for [ErrAlreadyApplied] (the request's effect is there), for whatever the same request id may
// still turn into a success ([ErrConflict], [ErrUnavailable], a lost lease), for [ErrUnknownOutcome], and for errors that
// are not of this package.
func Refused(err error) bool {
	var e *Error
	if !errors.As(err, &e) || errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrAlreadyApplied) {
		return false
	}
	return !fault.Type(e.ErrorType()).Retryable()
}

// fail is the constructor for errors without numbers; whoever has numbers fills an Error.
func fail(sentinel error, reason, hint string) *Error {
	return &Error{sentinel: sentinel, reason: reason, hint: hint}
}
