package stock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
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
	parts  int                  // partitions of the counters, 0: flat
	mini   *miniredis.Miniredis // nil on a real server
	ids    atomic.Int64
}

// everywhere runs the test on miniredis and on real servers, with the flat keyspace and with partitions: the same rule
// must hold, and every script must run, on all of them. F053: on a cluster all keys of a script share a slot.
func everywhere(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	t.Parallel()
	for name, make := range map[string]func(t *testing.T) *env{
		"miniredis":             func(t *testing.T) *env { return newMini(t, 0) },
		"miniredis, partitions": func(t *testing.T) *env { return newMini(t, 16) },
		"redis":                 newReal,
		"cluster":               newCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make(t))
		})
	}
}

func newMini(t *testing.T, parts int) *env {
	srv := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: patience})
	t.Cleanup(func() { _ = rdb.Close() })
	return &env{T: t, rdb: rdb, mini: srv, prefix: "t:", parts: parts}
}

func newReal(t *testing.T) *env {
	srv := testserver.Redis(t)
	return &env{T: t, rdb: srv.Client(t, func(o *redis.Options) { o.ReadTimeout = patience }), prefix: srv.Prefix(t)}
}

func newCluster(t *testing.T) *env {
	srv := testserver.Cluster(t)
	rdb := srv.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout = patience })
	return &env{T: t, rdb: rdb, prefix: srv.Prefix(t), parts: 16}
}

// patience is the read time-out where none is wanted: a busy machine may be slow. Tests of lost replies set their own.
const patience = time.Minute

// options are what a Counter of this Redis needs.
func (e *env) options(more ...Option) []Option {
	opts := []Option{Prefix(e.prefix), WithLogger(slog.New(slog.DiscardHandler))}
	if e.parts > 0 {
		opts = append(opts, WithPartitions(e.parts))
	}
	return append(opts, more...)
}

func (e *env) counter(more ...Option) *Counter {
	e.Helper()
	c, err := New(e.rdb, e.options(more...)...)
	if err != nil {
		e.Fatal(err)
	}
	return c
}

func (e *env) quota(more ...Option) *Counter {
	e.Helper()
	c, err := NewQuota(e.rdb, e.options(more...)...)
	if err != nil {
		e.Fatal(err)
	}
	return c
}

// warm opens a sale of item 1001 for an hour, unless s says otherwise.
func (e *env) warm(c *Counter, s Sale) Warmed {
	e.Helper()
	w, err := c.Warm(e.Context(), usual(s))
	if err != nil {
		e.Fatalf("Warm: %v", err)
	}
	return w
}

func usual(s Sale) Sale {
	if s.Item == nil {
		s.Item = 1001
	}
	if s.Ends.IsZero() {
		s.Ends = time.Now().Add(time.Hour)
	}
	return s
}

// order is one unit of item 1001 for a user, under a request id of its own.
func (e *env) order(user ID) Order {
	return Order{Item: 1001, User: user, Units: 1, RequestID: e.id()}
}

func (e *env) id() string { return fmt.Sprint("r", e.ids.Add(1)) }

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
		e.Errorf("%s: err = %v, want %v", what, err, want)
		return &Error{sentinel: want}
	}
	typed, ok := as(err)
	if !ok || !slices.Contains(fault.All(), fault.Type(typed.ErrorType())) || !strings.HasPrefix(err.Error(), "stock: ") {
		e.Errorf("%s: %q is not an *Error with a type of the list", what, err)
		return &Error{sentinel: want}
	}
	return typed
}

func (e *env) left(c *Counter, want int64) {
	e.Helper()
	if got, err := c.Remaining(e.Context(), 1001); err != nil || got != want {
		e.Errorf("remaining = %d, %v; want %d", got, err, want)
	}
}

func (e *env) ended(got Ended, err error) func(want Ended) {
	e.Helper()
	return func(want Ended) {
		e.Helper()
		if err != nil || got != want {
			e.Errorf("ended %+v, %v; want %+v", got, err, want)
		}
	}
}

// key is a key's full name in the partition of item 1001: "stock:item:1001" becomes "t:stock:{05}:item:1001".
func (e *env) key(name string) string {
	if e.parts == 0 {
		return e.prefix + name
	}
	family, rest, _ := strings.Cut(name, ":")
	if after, ok := strings.CutPrefix(rest, "quota:"); ok && family == "req" {
		family, rest = "req:quota", after
	}
	return fmt.Sprintf("%s%s:{%02d}:%s", e.prefix, family, spread("1001", e.parts), rest)
}

func (e *env) set(key string, value any) {
	e.Helper()
	if err := e.rdb.Set(e.Context(), e.key(key), value, 0).Err(); err != nil {
		e.Fatal(err)
	}
}

func (e *env) del(key string) {
	e.Helper()
	if n, err := e.rdb.Del(e.Context(), e.key(key)).Result(); err != nil || n != 1 {
		e.Fatalf("DEL %s = %d, %v", e.key(key), n, err)
	}
}

func (e *env) hset(key string, pairs ...any) {
	e.Helper()
	if err := e.rdb.HSet(e.Context(), e.key(key), pairs...).Err(); err != nil {
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

func (e *env) exists(key string) bool {
	e.Helper()
	n, err := e.rdb.Exists(e.Context(), e.key(key)).Result()
	if err != nil {
		e.Fatal(err)
	}
	return n == 1
}

func (e *env) kind(key string) string {
	e.Helper()
	return e.rdb.Type(e.Context(), e.key(key)).Val()
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

// names returns all keys of the test, sorted.
func (e *env) names() []string {
	e.Helper()
	var mu sync.Mutex
	var names []string
	scan := func(ctx context.Context, node *redis.Client) error {
		it := node.Scan(ctx, 0, e.prefix+"*", 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			names = append(names, it.Val())
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	switch rdb := e.rdb.(type) {
	case *redis.ClusterClient:
		err = rdb.ForEachMaster(e.Context(), scan)
	case *redis.Client:
		err = scan(e.Context(), rdb)
	}
	if err != nil {
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

// ttl checks a key's time to live: not longer, and not shorter by more than a busy machine takes.
func (e *env) ttl(key string, want time.Duration) {
	e.Helper()
	got, err := e.rdb.PTTL(e.Context(), e.key(key)).Result()
	if err != nil || got > want || got < want-30*time.Second {
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

// crowd is n on a real server; miniredis compiles a script anew for each call, so there it is less.
func (e *env) crowd(n int) int {
	if e.mini != nil {
		return max(n/5, 50)
	}
	return n
}

// parallel runs fn n times at once and waits for all.
func parallel(n int, fn func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}
