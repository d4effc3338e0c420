package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lock"
)

// Names of baselines.
const (
	plain         = "plain scripts"
	redsyncName   = "redsync"
	redislockName = "redislock"
	mutexName     = "sync.Mutex"
)

// lockTTL is that of all subjects.
const lockTTL = 30 * time.Second

// A locker is one of the subjects. acquire waits until it has the lock, or for little longer than ctx.
type locker struct {
	name    string
	acquire func(ctx context.Context, key string) (release func() error, err error)
}

func (l locker) pair(ctx context.Context, key string) error {
	release, err := l.acquire(ctx, key)
	if err != nil {
		return err
	}
	return release()
}

// lockers are all that keep the lock in Redis, each on a client of its own.
func lockers(e *Env) []locker {
	return []locker{newHoldfast(e, e.Client()), newPlain(e), newRedsync(e.Client()), newRedislock(e.Client())}
}

// newHoldfast gives up no wait that has begun: leases that are handed over are then all used.
func newHoldfast(e *Env, rdb redis.UniversalClient) locker {
	l, err := lock.New(rdb, lock.WithLogger(quiet), lock.Wait(time.Minute), lock.TTL(lockTTL))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			e.Error(err)
		}
	})
	return locker{holdfast, func(ctx context.Context, key string) (func() error, error) {
		ctx = context.WithoutCancel(ctx)
		lease, err := l.Acquire(ctx, []string{key})
		if err != nil {
			return nil, err
		}
		return func() error { return lease.Release(ctx) }, nil
	}}
}

// newPlain sends by hand what holdfast sends for one lock: the same scripts with the same arguments.
func newPlain(e *Env) locker {
	const key = "recorded"
	var sent recorder
	if err := newHoldfast(e, e.Client(&sent)).pair(context.Background(), key); err != nil {
		e.Fatal(err)
	}
	if len(sent.sent) != 2 {
		e.Fatalf("one lock sent %d scripts, want one to acquire and one to release: %v", len(sent.sent), sent.sent)
	}
	token := sent.sent[1][4].(string) // of the release: EVALSHA, SHA, 1, key, token
	acquire, release := replay{sent.sent[0], []string{key, token}}, replay{sent.sent[1], []string{key, token}}
	rdb := e.Client()
	send := func(ctx context.Context, what replay, key, token string) error {
		val, err := what.send(ctx, rdb, key, token)
		if err != nil {
			return err
		}
		if list, ok := val.([]any); !ok || list[0] != int64(1) {
			return fmt.Errorf("answer %v", val)
		}
		return nil
	}
	return locker{plain, func(ctx context.Context, key string) (func() error, error) {
		token := newToken()
		if err := send(ctx, acquire, key, token); err != nil {
			return nil, err
		}
		return func() error { return send(ctx, release, key, token) }, nil
	}}
}

func newToken() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// newRedsync has redsync's own pauses between tries, and as many of them as it takes.
func newRedsync(rdb redis.UniversalClient) locker {
	rs := redsync.New(goredis.NewPool(rdb))
	return locker{redsyncName, func(ctx context.Context, key string) (func() error, error) {
		m := rs.NewMutex(key, redsync.WithExpiry(lockTTL), redsync.WithTries(1<<30))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error {
			ok, err := m.Unlock()
			if err == nil && !ok {
				err = errors.New("redsync: not unlocked")
			}
			return err
		}, nil
	}}
}

// newRedislock has the strategy that its documentation shows, from the least pause it recommends.
func newRedislock(rdb redis.UniversalClient) locker {
	client := redislock.New(rdb)
	return locker{redislockName, func(ctx context.Context, key string) (func() error, error) {
		l, err := client.Obtain(ctx, key, lockTTL, &redislock.Options{RetryStrategy: redislock.ExponentialBackoff(16*time.Millisecond, 0)})
		if err != nil {
			return nil, err
		}
		return func() error { return l.Release(context.Background()) }, nil
	}}
}

// newMutex is the ideal: one process, no network.
func newMutex() locker {
	var mu sync.Mutex
	return locker{mutexName, func(context.Context, string) (func() error, error) {
		mu.Lock()
		return func() error { mu.Unlock(); return nil }, nil
	}}
}
