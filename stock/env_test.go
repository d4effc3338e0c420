package stock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// env is one Redis of a test, with a prefix of its own.
type env struct {
	*testing.T
	rdb    redis.UniversalClient
	prefix string
	mini   *miniredis.Miniredis // nil on a real server
	ids    atomic.Int64
}

// everywhere runs the test on miniredis and on a real server.
func everywhere(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(newMini(t))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		srv := testserver.Redis(t)
		test(&env{T: t, rdb: srv.Client(t), prefix: srv.Prefix(t)})
	})
}

func newMini(t *testing.T) *env {
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return &env{T: t, rdb: rdb, mini: srv, prefix: "t:"}
}

func (e *env) counter(opts ...Option) *Counter {
	e.Helper()
	c, err := New(e.rdb, append([]Option{Prefix(e.prefix)}, opts...)...)
	if err != nil {
		e.Fatal(err)
	}
	return c
}

func (e *env) warm(c *Counter, s Sale) Warmed {
	e.Helper()
	if s.Item == nil {
		s.Item = 1001
	}
	if s.Ends.IsZero() {
		s.Ends = time.Now().Add(time.Hour)
	}
	w, err := c.Warm(e.Context(), s)
	if err != nil {
		e.Fatalf("Warm: %v", err)
	}
	return w
}

// order is one unit of item 1001 for a user, under a request id of its own.
func (e *env) order(user ID) Order {
	return Order{Item: 1001, User: user, Units: 1, RequestID: fmt.Sprint("r", e.ids.Add(1))}
}

func (e *env) deduct(c *Counter, o Order) Result {
	e.Helper()
	res, err := c.Deduct(e.Context(), o)
	if err != nil {
		e.Fatalf("Deduct(%+v): %v", o, err)
	}
	return res
}

func (e *env) refused(c *Counter, o Order, want error) *Error {
	e.Helper()
	res, err := c.Deduct(e.Context(), o)
	return e.wants(err, want, "Deduct of %+v gave %+v", o, res)
}

// wants checks an error's sentinel, and that it has a type of the project's list.
func (e *env) wants(err, want error, format string, args ...any) *Error {
	e.Helper()
	what := fmt.Sprintf(format, args...)
	if !errors.Is(err, want) {
		e.Fatalf("%s: err = %v, want %v", what, err, want)
	}
	typed, ok := as(err)
	if !ok || !slices.Contains(fault.All(), fault.Type(typed.ErrorType())) {
		e.Fatalf("%s: %v is not an *Error with a type of the list", what, err)
	}
	return typed
}

func (e *env) left(c *Counter, want int64) {
	e.Helper()
	if got, err := c.Remaining(e.Context(), 1001); err != nil || got != want {
		e.Errorf("remaining = %d, %v; want %d", got, err, want)
	}
}

// key is a key's full name.
func (e *env) key(name string) string { return e.prefix + name }

func (e *env) set(key string, value any) {
	e.Helper()
	if err := e.rdb.Set(e.Context(), e.key(key), value, 0).Err(); err != nil {
		e.Fatal(err)
	}
}

func (e *env) del(key string) {
	e.Helper()
	if err := e.rdb.Del(e.Context(), e.key(key)).Err(); err != nil {
		e.Fatal(err)
	}
}

func (e *env) hash(key string) map[string]string {
	e.Helper()
	m, err := e.rdb.HGetAll(e.Context(), e.key(key)).Result()
	if err != nil {
		e.Fatalf("HGETALL %s: %v", key, err)
	}
	return m
}

// dump returns everything that is stored, without TTLs.
func (e *env) dump() map[string]string {
	e.Helper()
	ctx := e.Context()
	all := map[string]string{}
	for _, key := range e.names() {
		var value any
		var err error
		switch kind := e.rdb.Type(ctx, key).Val(); kind {
		case "string":
			value, err = e.rdb.Get(ctx, key).Result()
		case "hash":
			value, err = e.rdb.HGetAll(ctx, key).Result()
		case "zset":
			value, err = e.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		case "stream":
			value, err = e.rdb.XRange(ctx, key, "-", "+").Result()
		case "list":
			value, err = e.rdb.LRange(ctx, key, 0, -1).Result()
		default:
			e.Fatalf("%s has type %q", key, kind)
		}
		if err != nil {
			e.Fatal(err)
		}
		all[key[len(e.prefix):]] = fmt.Sprint(value)
	}
	return all
}

func (e *env) names() []string {
	e.Helper()
	var names []string
	it := e.rdb.Scan(e.Context(), 0, e.prefix+"*", 1000).Iterator()
	for it.Next(context.Background()) {
		names = append(names, it.Val())
	}
	if err := it.Err(); err != nil {
		e.Fatal(err)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unchanged runs fn and checks that it has stored, changed and removed nothing.
func (e *env) unchanged(what string, fn func()) {
	e.Helper()
	before := e.dump()
	fn()
	if after := e.dump(); !maps.Equal(before, after) {
		e.Errorf("%s changed what is stored:\nbefore %v\nafter  %v", what, before, after)
	}
}

// ttl checks a key's time to live, exactly but for the second that the test takes, or ten on a busy machine.
func (e *env) ttl(key string, want time.Duration) {
	e.Helper()
	got, err := e.rdb.PTTL(e.Context(), e.key(key)).Result()
	if err != nil || got > want || got < want-10*time.Second {
		e.Errorf("TTL of %s = %v, %v; want %v", key, got, err, want)
	}
}

// everyKeyExpires checks that every key has a TTL.
func (e *env) everyKeyExpires() {
	e.Helper()
	for _, key := range e.names() {
		if ttl := e.rdb.PTTL(e.Context(), key).Val(); ttl <= 0 {
			e.Errorf("%s has no TTL (%v)", key, ttl)
		}
	}
}
