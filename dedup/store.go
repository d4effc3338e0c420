package dedup

import (
	"context"
	"time"
)

// Store keeps the records. [NewRedisStore] makes the one of this package; package deduptest has the tests that any
// other must pass.
//
// Every call is one atomic step and may be sent twice with the same token: the second has no further effect and gives
// the same answer. Deadlines are judged by the store's own clock. Nothing is changed or deleted under another token. A
// call ends with its context, which lives for 250 ms at most; one that is on the wire may take as long as the client's
// own time-out. What it is given is not kept after it has returned, nor is what it returned.
//
// An error that is neither of those named at a method is ErrUnavailable (nothing was done, for certain),
// ErrUnknownOutcome (nobody knows), ErrCorrupt (what lies there is not a record of this format; it is left alone) or
// ErrInvalid (a duration under 1 ms, an empty token; nothing was sent). An error never means "there is no record".
type Store interface {
	// Begin makes the caller the owner of the record if it may run, and says so.
	Begin(ctx context.Context, b BeginRequest) (Answer, error)
	// Renew gives the owner a new lease from now, even if the old one has lapsed, as long as nobody has taken over. It
	// returns ErrLeaseLost if the record is not running under this token, ErrNoRecord if there is none.
	Renew(ctx context.Context, o Owner, lease time.Duration) error
	// Complete stores the result and makes the record live for ttl from now, whether or not the lease has lapsed, and
	// writes a record that is gone anew. It returns ErrLeaseLost, and stores nothing, if the record is another's or was
	// given up under this token.
	Complete(ctx context.Context, o Owner, r Result, ttl time.Duration) error
	// Fail gives the record up: the next Begin runs, as the next attempt. It returns ErrLeaseLost if the record is
	// another's or done, ErrNoRecord if there is none.
	Fail(ctx context.Context, o Owner) error
	// Forget removes the record of an owner who has done nothing. If it is not the first attempt, it is Fail, since what
	// the earlier ones did is not known. It returns what Fail returns.
	Forget(ctx context.Context, o Owner) error
}

// Owner is who a call speaks for.
type Owner struct {
	ID          string // record id, see Request.ID
	Token       string // 128 random bits as text, new for each claim; secret
	Attempt     int    // as answered by Begin, to which it says nothing
	Fingerprint []byte // nil: not compared, none stored
}

// BeginRequest is the argument of Store.Begin.
type BeginRequest struct {
	Owner
	Lease       time.Duration // until the record counts as lapsed, from now; at least 1 ms
	TTL         time.Duration // life of the record, from now; at least 1 ms
	NoTakeover  bool
	TraceParent string // kept if this is the first execution
}

// Verdict is what Store.Begin has decided.
type Verdict uint8

// The verdicts, in the order in which they are looked for. A record with the token of the caller, still running, is
// VerdictRun again, with the same attempt and a fresh lease.
const (
	VerdictRun         Verdict = iota + 1 // there was no record, it had failed, or it had lapsed and was taken over
	VerdictReplay                         // done
	VerdictMismatch                       // another fingerprint, in whatever state
	VerdictInFlight                       // running under another token, lease alive
	VerdictInterrupted                    // lapsed, and NoTakeover
	VerdictCorrupt                        // not a record, or not of this format
)

// Answer is the answer of Store.Begin.
type Answer struct {
	Verdict     Verdict
	Attempt     int           // of this run, of the result, or of the one that is running
	Takeover    bool          // run: an earlier attempt had lapsed, and may still be at work
	Result      Result        // replay; corrupt: Code, where it can be read
	Rest        time.Duration // in flight: what is left of the lease
	TraceParent string        // of the first execution
	State       string        // corrupt: the state as stored
}
