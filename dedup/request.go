package dedup

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const (
	// DefaultTTL is how long a record lives if the request does not say.
	DefaultTTL = 24 * time.Hour
	// MinTTL is the least life of a record: a retry that comes after it would run again.
	MinTTL = 10 * time.Minute
	// MaxTTL is the greatest life of a record.
	MaxTTL = 366 * 24 * time.Hour

	maxFingerprint = 64
)

// Request names one request that may be sent more than once. Two requests with the same Scope, Name and Key are the same
// request.
type Request struct {
	// Scope is whose keys these are: the authenticated user or tenant, never something the client chooses. Not empty.
	Scope string
	// Name is what is done: method and route, or the name of a job. One key under two names is two requests. May be empty.
	Name string
	// Key is the caller's own id of the request: an idempotency key, a message id, a period. Not empty.
	Key string
	// Fingerprint is a hash over what the request asks for, at most 64 bytes. The same key with another fingerprint is
	// refused with ErrMismatch. Nil is not compared. It must not be changed before the request has ended.
	Fingerprint []byte
	// TTL is how long the record lives, from its beginning and again from its completion, and so the longest time after
	// which a repeat is still recognised. 0 means DefaultTTL; from MinTTL to MaxTTL.
	TTL time.Duration
	// NoTakeover refuses with ErrInterrupted what would otherwise run as the next attempt, when an earlier attempt has
	// ended without a word and its outcome is unknown. It is for work that has no guard of its own in SQL; an operator then
	// settles the record or removes it.
	NoTakeover bool
	// StillTrue, if not nil, is asked before a Record is returned; its error is returned instead. It is for results that
	// can be taken back later. The record must not be changed.
	StillTrue func(ctx context.Context, rec *Record) error
	// Bypass, if not nil, is asked when the store is away, instead of returning ErrUnavailable or ErrUnknownOutcome. If it
	// reports true, the request runs without a record, and only repeats that come to this process meanwhile wait for it.
	// release, which may be nil, is called when it has ended. Whoever sets it counts, so that no more than a certain number
	// run that way.
	Bypass func() (release func(), ok bool)
}

// ID returns the record id, the request id of all other parts of holdfast: 43 characters of base64url, the SHA-256 of a
// version, Scope, Name and Key, each with its length. The client's key cannot be read from it.
func (r Request) ID() string {
	var stack [256]byte
	buf := append(stack[:0], '1')
	for _, part := range [...]string{r.Scope, r.Name, r.Key} {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	sum := sha256.Sum256(buf)
	return string(base64.RawURLEncoding.AppendEncode(stack[:0], sum[:]))
}

// Hash returns how Key shows in spans and logs: the first 16 hex digits of its SHA-256, whatever Scope and Name are.
func (r Request) Hash() string { return telemetry.Hash(r.Key) }

func (r Request) check() error {
	switch {
	case r.Scope == "":
		return invalid("Scope is empty: all callers would share one set of keys")
	case r.Key == "":
		return invalid("Key is empty")
	case len(r.Fingerprint) > maxFingerprint:
		return invalid(fmt.Sprintf("Fingerprint has %d bytes, at most %d: give a hash", len(r.Fingerprint), maxFingerprint))
	case r.TTL != 0 && r.TTL < MinTTL:
		return invalid(fmt.Sprintf("TTL is %v, the least is %v: a retry after it would run again", r.TTL, MinTTL))
	case r.TTL > MaxTTL:
		return invalid(fmt.Sprintf("TTL is %v, the greatest is %v", r.TTL, MaxTTL))
	}
	return nil
}

func (r Request) ttl() time.Duration {
	if r.TTL == 0 {
		return DefaultTTL
	}
	return r.TTL
}

// Result is what came out of a request.
type Result struct {
	// Code is an HTTP status or any other number from 0; it can be read even if Data is not there.
	Code int
	// Data is the answer. It is shared by all who get it and must not be changed.
	Data []byte
	// Omitted says that there was an answer and Data is not it: too large, streamed, or not known. A record with it is a
	// tombstone: the request is done and is not run again, but only Code is told.
	Omitted bool
}

// Record is the answer to a request that does not run again.
type Record struct {
	Result
	// Attempt is the attempt that gave the result, from 1.
	Attempt int
	// Stored says that the result is in the store and every later repeat gets it. It is false for a result that is only
	// shared with those who waited in this process.
	Stored bool
	// Waited says that the request was running when this one came.
	Waited bool
	// TraceParent is the W3C traceparent of the first execution, or empty.
	TraceParent string
}
