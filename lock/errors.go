package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// The sentinels of this package, for errors.Is. Each error that Acquire, Release and the others return is one of
// [BusyError], [LostError] and [Error] and matches one of these; a wait that a context ended matches the context's error
// too. All have ErrorType and Retryable, found with errors.As.
var (
	// ErrBusy means that somebody else has the lock, for certain, and that it was not had in time. The error is a
	// *BusyError.
	ErrBusy = fault.New(fault.Busy, "lock: busy")

	// ErrLost means that a lease ended under its holder, who must stop writing. The error is a *LostError.
	ErrLost = fault.New(fault.Lost, "lock: lost")

	// ErrReleased means that a lease was used after it had been released: a nested one after its owner, or one of
	// whose contexts something is still running.
	ErrReleased = fault.New(fault.LeaseReleased, "lock: lease already released")

	// ErrUnavailable means that Redis did not answer and that nothing was done, for certain. It never means busy.
	ErrUnavailable = fault.New(fault.Unavailable, "lock: Redis is unavailable")

	// ErrUnknownOutcome means that the last reply never came. After an acquire nothing is left behind for longer than
	// the TTL; after a release the lock is free within the TTL at the latest.
	ErrUnknownOutcome = fault.New(fault.UnknownOutcome, "lock: no reply from Redis")

	// ErrInvalid means that the package was called with something it does not take: a bad key, duration or option.
	ErrInvalid = fault.New(fault.Misuse, "lock: invalid argument")

	// ErrForeignKey means that something which is no lease lies under the lock's name in Redis: another type, a value
	// without TTL, a fence counter that is no number. It is not waited for, since nobody would free it.
	ErrForeignKey = fault.New(fault.ForeignKey, "lock: a value that is no lease lies under the key")

	// ErrClosed means that the Locker was closed.
	ErrClosed = fault.New(fault.Closed, "lock: closed")
)

// BusyReason says why a lock was not had.
type BusyReason string

// The values of [BusyError.Reason].
const (
	NoWait    BusyReason = "no_wait"    // the call was not to wait
	QueueFull BusyReason = "queue_full" // too many wait for this key, or in this process
	Budget    BusyReason = "budget"     // the wait budget is used up
	Cancelled BusyReason = "cancelled"  // the context of the call ended
)

// BusyError is the error of an acquire that did not get the lock. It matches [ErrBusy] and, with Reason Cancelled, the
// context's error.
type BusyError struct {
	Keys     []string      // the keys wanted
	Reason   BusyReason    // why it gave up
	Attempts int           // how often Redis was asked; 0 if the answer was known in this process
	Waited   time.Duration // from the call to the answer

	rule       *reqctx.Rule
	retryAfter time.Duration
	cause      error
}

// Error names the rule, never a key.
func (e *BusyError) Error() string {
	return fmt.Sprintf("lock: busy after %s in %s%s", plural(e.Attempts, "attempt"), rounded(e.Waited), ofRule(e.rule))
}

// Unwrap returns ErrBusy and, if there is one, the context's error.
func (e *BusyError) Unwrap() []error { return sentinelAnd(ErrBusy, e.cause) }

// RetryAfter estimates when the lock may be free: after a command the rest of the holder's lease, else from the length
// of the queue. It is a hint, at least 1 ms. Nobody is refused because of it.
func (e *BusyError) RetryAfter() time.Duration { return max(e.retryAfter, time.Millisecond) }

// LostReason says how a lease ended under its holder.
type LostReason string

// The values of [LostError.Reason].
const (
	Gone        LostReason = "gone"        // the key is missing: expired, evicted, deleted or lost in a failover
	Taken       LostReason = "taken"       // the key has another owner
	Unconfirmed LostReason = "unconfirmed" // no renewal was confirmed before the safe deadline
	HeldTooLong LostReason = "max_hold"    // held for longer than MaxHold
	LockerGone  LostReason = "closed"      // the Locker was closed before the work had ended
)

// LostError is the error of a lease that ended under its holder, and the cause of its contexts. It matches [ErrLost].
type LostError struct {
	Keys   []string // the keys of the lease
	Reason LostReason

	rule *reqctx.Rule
}

// Error names the rule, never a key.
func (e *LostError) Error() string { return fmt.Sprintf("lock: lost (%s)%s", e.Reason, ofRule(e.rule)) }

// Unwrap returns ErrLost.
func (e *LostError) Unwrap() error { return ErrLost }

// Error is every other error of the package: a sentinel with the keys it is about.
type Error struct {
	Keys []string // as given by the caller; may be empty

	sentinel  *fault.Error // nil: the context ended before anything was known
	detail    string
	rule      *reqctx.Rule
	cause     error
	cancelled bool // the context of the call ended meanwhile
}

// Error tells what went wrong and names the rule. The text of a cause is not in it: it may hold an address.
func (e *Error) Error() string {
	text := "lock: the context ended before the lock was tried"
	if e.sentinel != nil {
		text = e.sentinel.Error()
	}
	if e.detail != "" {
		text += ": " + e.detail
	}
	return text + ofRule(e.rule)
}

// Unwrap returns the sentinel and the cause, where there are any.
func (e *Error) Unwrap() []error { return sentinelAnd(e.sentinel, e.cause) }

func sentinelAnd(sentinel *fault.Error, cause error) []error {
	errs := make([]error, 0, 2)
	if sentinel != nil {
		errs = append(errs, sentinel)
	}
	if cause != nil {
		errs = append(errs, cause)
	}
	return errs
}

// invalid is the error of a wrong argument; the text says what to write instead and holds no value from a request.
func invalid(format string, args ...any) error {
	return &Error{sentinel: ErrInvalid, detail: fmt.Sprintf(format, args...)}
}

// ended returns the error of a context that is over, with its cause if that tells more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return errors.Join(err, cause)
}

func ofRule(rule *reqctx.Rule) string {
	if rule == nil {
		return ""
	}
	return fmt.Sprintf(" (rule %q)", rule.Name)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// rounded leaves three digits or so of a duration, for people.
func rounded(d time.Duration) time.Duration {
	for unit := time.Second; unit >= time.Microsecond; unit /= 10 {
		if d >= 10*unit {
			return d.Round(unit / 10)
		}
	}
	return d
}
