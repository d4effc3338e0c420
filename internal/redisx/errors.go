package redisx

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Kind says what is known about a call that got no answer.
type Kind uint8

const (
	Unavailable Kind = iota + 1 // not executed, for certain
	Unknown                     // sent, and the reply never came
	Failed                      // the server says that the script failed: a fault of ours, or of what lies under a key
)

// Error is the error of every call in this package. Its text may hold an address: it is for wrapping, not for showing.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return "redis: " + e.Err.Error() }

// Unwrap returns the client's error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of this package, 0 for nil and Unknown for any other error.
func KindOf(err error) Kind {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Unknown
}

// classify makes an Error of a client's error; one of ours stays as it is.
func classify(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	return &Error{kindOf(err), err}
}

func kindOf(err error) Kind {
	var answer redis.Error
	switch {
	case errors.As(err, &answer):
		if refused(answer.Error()) {
			return Unavailable
		}
		return Failed
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return Unavailable
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return Unavailable
	}
	return Unknown // time-out, EOF, reset, a context that ended: the bytes may be on their way
}

// refusals are the answers with which a server declines to run a command at all. The first write of a script may meet
// READONLY, OOM and MISCONF too; our scripts have then written nothing.
var refusals = [...]string{
	"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "OOM", "BUSY", "MISCONF",
	"MOVED", "ASK", "NOSCRIPT", "NOAUTH", "NOPERM", "WRONGPASS", "UNKILLABLE", "ERR max number of clients reached",
}

func refused(text string) bool {
	for _, r := range refusals {
		// Redis before 7 wraps the answer to a script's inner command: "ERR Error running script (...): -READONLY ...".
		if strings.HasPrefix(text, r) || strings.Contains(text, ": -"+r+" ") {
			return true
		}
	}
	return false
}
