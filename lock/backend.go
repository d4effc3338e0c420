package lock

import (
	"context"
	"time"
)

// A Backend is where leases are kept. It does single steps; waiting, renewing, repeating and telling the holder live in
// [Locker]. The Redis backend is made by [New]; another one is given to [NewWith].
//
// Every step may be sent twice, since a reply may be lost: each names its token, and a repeat has the effect of one. A
// step must come back when ctx ends, or as soon after it as the transport lets it. An error matches ErrUnavailable if
// nothing was done, for certain, ErrForeignKey if something that is no lease is in the way, and ErrUnknownOutcome in any
// other case. All methods are safe for concurrent use.
type Backend interface {
	// Acquire takes all keys of the request or none, by one attempt. Keys that hold the request's token already are
	// taken again: their TTL starts anew and their number stays.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew starts the TTL of the keys anew if all of them hold the token, and changes nothing otherwise. It creates no
	// key.
	Renew(ctx context.Context, h Held) (State, error)

	// Release removes those keys that hold the token, and no other.
	Release(ctx context.Context, h Held) (Released, error)
}

// A HandoverBackend can pass a lock from one token to the next in one step. It is optional; without it a lock is
// released and acquired.
type HandoverBackend interface {
	Backend

	// Handover gives the key of h, of which there is one, to the token and TTL of the request. The state is that of h
	// before: if it is not Ours, nothing was changed.
	Handover(ctx context.Context, h Held, to Request) (Grant, State, error)
}

// A WatchBackend can tell when a key may have become free. It is optional; without it the back-off works alone.
type WatchBackend interface {
	Backend

	// Watch returns a Watch that calls wake with a key that was added to it, whenever that key was freed by somebody
	// else, and each time a watch of it begins, as something may have been missed before. wake does not block.
	Watch(wake func(key string)) Watch
}

// A Watch is a changing set of keys that are watched. Its methods do not block, and all but Close may be called from
// within wake.
type Watch interface {
	Add(key string)
	Remove(key string)
	Close() // waits until wake is called no more
}

// A Request is what an attempt wants.
type Request struct {
	Keys  []string // with prefix, sorted, each once
	Token string
	TTL   time.Duration

	// Repeat says that an attempt with this token had no answer; it is better sent another way than the last one.
	Repeat bool
}

// held is what the request has if it was granted.
func (r *Request) held() Held { return Held{Keys: r.Keys, Token: r.Token, TTL: r.TTL} }

// A Grant is the answer to an attempt.
type Grant struct {
	Held  bool  // the keys hold the token now
	Fence int64 // if Held: the number of all keys, above each earlier one of each of them

	Taken int           // if not Held: index of the key that has another holder
	Left  time.Duration // and how much of its lease is left
}

// Held is what a lease has in the backend.
type Held struct {
	Keys  []string // as in the Request
	Token string
	TTL   time.Duration

	Repeat bool // as in the Request
	Orphan bool // nobody holds this any more: tell the waiters of this process of the release too
}

// A State says whether keys hold a token.
type State int8

// The values of [State].
const (
	Ours    State = iota // all of them hold it
	Missing              // one of them is not there
	Foreign              // one of them holds another
)

// Released is the answer to a release.
type Released struct {
	State  State // before the release
	Others int   // how many other processes wait for one of the keys, as far as is known; -1 if nothing is
}
