package lock

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

// fenceMillis is how long a fence counter lives after its last write: 24 h. A counter that is gone does no harm: the
// next number is at least the server's clock in microseconds.
const fenceMillis = 24 * 60 * 60 * 1000

// redisBackend keeps leases in Redis: a string with the token under the lock's name, a counter beside it, a channel for
// whoever waits.
type redisBackend struct {
	rdb    *redisx.Client
	sender any // a string, message of our releases, so that our own watch can tell them from others'
	logger *slog.Logger
	mode   atomic.Int32 // whether the server is part of a cluster: one of the values below
	watch  atomic.Pointer[redisWatch]
}

const (
	modeUnknown = iota
	modeSingle
	modeCluster
)

func newRedisBackend(rdb *redisx.Client, sender string, logger *slog.Logger) *redisBackend {
	return &redisBackend{rdb: rdb, sender: sender, logger: logger}
}

// look repeats the question what the server is until it answers or ctx ends. It is for the background.
func (b *redisBackend) look(ctx context.Context) {
	for wait := time.Second; !b.detect(ctx); wait = min(2*wait, 30*time.Second) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
	b.warn(ctx)
}

// warn warns of a server that may drop leases.
func (b *redisBackend) warn(ctx context.Context) {
	if policy := b.rdb.EvictionPolicy(ctx); policy != "" && policy != "noeviction" {
		b.logger.LogAttrs(ctx, slog.LevelWarn, "lock: this Redis may evict locks when its memory is full; set maxmemory-policy noeviction",
			slog.String("maxmemory_policy", policy))
	}
}

// fenceKey and freeChannel lie in the slot of the key, since that hashes whole and they by what is in braces.
func fenceKey(key string) string    { return "{" + key + "}:fence" }
func freeChannel(key string) string { return "{" + key + "}:free" }

// withFences returns the keys and behind them their fence counters.
func withFences(keys []string) []string {
	all := make([]string, 0, 2*len(keys))
	all = append(all, keys...)
	for _, k := range keys {
		all = append(all, fenceKey(k))
	}
	return all
}

// Acquire implements Backend.
func (b *redisBackend) Acquire(ctx context.Context, r Request) (Grant, error) {
	if len(r.Keys) > 1 {
		return b.acquireGroups(ctx, r, b.groups(r.Keys))
	}
	return b.acquire(ctx, r, 0)
}

// acquire takes keys of one slot, with a number of at least floor.
func (b *redisBackend) acquire(ctx context.Context, r Request, floor int64) (Grant, error) {
	val, err := b.send(ctx, r.Repeat, scripts.acquire, withFences(r.Keys), r.Token, r.TTL.Milliseconds(), fenceMillis, floor)
	if err != nil {
		return Grant{}, err
	}
	a, err := parse(scripts.acquire, val)
	switch {
	case err != nil:
		return Grant{}, err
	case a.code == 1:
		return Grant{Held: true, Fence: a.n}, nil
	case a.code == 0:
		return Grant{Taken: int(a.n) - 1, Left: time.Duration(a.left) * time.Millisecond}, nil
	}
	return Grant{}, ErrForeignKey
}

// Renew implements Backend.
func (b *redisBackend) Renew(ctx context.Context, h Held) (State, error) {
	s, err := b.eachGroup(ctx, h.Keys, func(ctx context.Context, keys []string) (State, error) {
		val, err := b.send(ctx, h.Repeat, scripts.renew, keys, h.Token, h.TTL.Milliseconds())
		if err != nil {
			return 0, err
		}
		return state(val)
	})
	if s != Ours { // a key that is lost is, whatever the master of another has to say
		return s, nil
	}
	return s, err
}

// Release implements Backend.
func (b *redisBackend) Release(ctx context.Context, h Held) (Released, error) {
	if len(h.Keys) == 1 {
		s, others, err := b.release(ctx, h, h.Keys)
		return Released{s, others}, err
	}
	var mu sync.Mutex
	others := 0
	s, err := b.eachGroup(ctx, h.Keys, func(ctx context.Context, keys []string) (State, error) {
		s, n, err := b.release(ctx, h, keys)
		mu.Lock()
		defer mu.Unlock()
		if n < 0 || others < 0 {
			others = -1
		} else {
			others = max(others, n)
		}
		return s, err
	})
	return Released{s, others}, err
}

// release deletes keys of one slot and returns how many others listen for one of them.
func (b *redisBackend) release(ctx context.Context, h Held, keys []string) (s State, others int, err error) {
	args := make([]any, 0, 3+len(keys))
	args = append(args, h.Token, b.publish(), b.message(h.Orphan))
	for _, k := range keys {
		args = append(args, freeChannel(k))
	}
	val, err := b.send(ctx, h.Repeat, scripts.release, keys, args...)
	if err != nil {
		return 0, -1, err
	}
	a, err := parse(scripts.release, val)
	if err != nil {
		return 0, -1, err
	}
	if s, err = state(a.code); err != nil {
		return 0, -1, err
	}
	if w := b.watch.Load(); w != nil {
		return s, w.others(keys, int(a.n)), nil
	}
	return s, -1, nil
}

// Handover implements HandoverBackend.
func (b *redisBackend) Handover(ctx context.Context, h Held, to Request) (Grant, State, error) {
	val, err := b.send(ctx, false, scripts.handover, withFences(h.Keys), h.Token, to.Token, to.TTL.Milliseconds(), fenceMillis)
	if err != nil {
		return Grant{}, 0, err
	}
	a, err := parse(scripts.handover, val)
	if err != nil {
		return Grant{}, 0, err
	}
	s, err := state(a.code)
	return Grant{Held: s == Ours && err == nil, Fence: a.n}, s, err
}

func (b *redisBackend) send(ctx context.Context, alone bool, s *redisx.Script, keys []string, args ...any) (any, error) {
	var val any
	var err error
	if alone { // two calls and no variable for the function: args then stay on the stack
		val, err = b.rdb.Alone(ctx, s, keys, args...)
	} else {
		val, err = b.rdb.Once(ctx, s, keys, args...)
	}
	return val, translate(err)
}

// translate gives an error of redisx the sentinel that says what is known.
func translate(err error) error {
	switch redisx.KindOf(err) {
	case 0:
		return nil
	case redisx.Unavailable:
		return &Error{sentinel: ErrUnavailable, cause: err}
	}
	return &Error{sentinel: ErrUnknownOutcome, cause: err} // a script that failed may have written something
}

// answer is what the scripts return: a code and up to two numbers.
type answer struct{ code, n, left int64 }

func parse(s *redisx.Script, val any) (answer, error) {
	var a answer
	list, ok := val.([]any)
	if !ok || len(list) == 0 || len(list) > 3 {
		return a, unreadable(s.Name())
	}
	for i, to := range []*int64{&a.code, &a.n, &a.left}[:len(list)] {
		switch v := list[i].(type) {
		case int64:
			*to = v
		case string:
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return a, unreadable(s.Name())
			}
			*to = n
		default:
			return a, unreadable(s.Name())
		}
	}
	return a, nil
}

func state(code any) (State, error) {
	switch code {
	case int64(1):
		return Ours, nil
	case int64(0):
		return Missing, nil
	case int64(-1):
		return Foreign, nil
	}
	return 0, unreadable("a script")
}

func unreadable(script string) error {
	return &Error{sentinel: ErrUnknownOutcome, detail: "unreadable answer", cause: errors.New("answer of " + script)}
}
