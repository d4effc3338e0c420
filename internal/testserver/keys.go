package testserver

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keys returns the keys that begin with the prefix, sorted.
func (s *RedisServer) Keys(t testing.TB, prefix string) []string {
	t.Helper()
	keys, err := s.keys(prefix, nil)
	if err != nil {
		t.Fatalf("testserver: keys: %v", err)
	}
	return keys
}

// Eternal returns the keys that begin with the prefix and never expire, sorted.
// After a test of this project there must be none.
func (s *RedisServer) Eternal(t testing.TB, prefix string) []string {
	t.Helper()
	keys, err := s.keys(prefix, isEternal)
	if err != nil {
		t.Fatalf("testserver: keys: %v", err)
	}
	return keys
}

// Keys returns the keys on all running nodes that begin with the prefix, sorted.
func (c *RedisCluster) Keys(t testing.TB, prefix string) []string {
	t.Helper()
	return c.collect(t, prefix, nil)
}

// Eternal returns the keys on all running nodes that begin with the prefix and
// never expire, sorted.
func (c *RedisCluster) Eternal(t testing.TB, prefix string) []string {
	t.Helper()
	return c.collect(t, prefix, isEternal)
}

func (c *RedisCluster) collect(t testing.TB, prefix string, keep keep) []string {
	t.Helper()
	var all []string
	for _, n := range c.all() {
		if !n.serving() {
			continue
		}
		keys, err := n.keys(prefix, keep)
		if err != nil {
			t.Fatalf("testserver: keys of %s: %v", n.Addr(), err)
		}
		all = append(all, keys...)
	}
	// A replica has its primary's keys.
	slices.Sort(all)
	return slices.Compact(all)
}

// Keys returns the keys on the primary that begin with the prefix, sorted.
func (s *RedisSentinel) Keys(t testing.TB, prefix string) []string {
	t.Helper()
	return s.Primary(t).Keys(t, prefix)
}

// Eternal returns the keys on the primary that begin with the prefix and never
// expire, sorted.
func (s *RedisSentinel) Eternal(t testing.TB, prefix string) []string {
	t.Helper()
	return s.Primary(t).Eternal(t, prefix)
}

// keep chooses keys.
type keep func(ctx context.Context, rdb *redis.Client, key string) (bool, error)

func isEternal(ctx context.Context, rdb *redis.Client, key string) (bool, error) {
	const noExpiry = -1 // PTTL's answer; -2 means that there is no such key
	ttl, err := rdb.PTTL(ctx, key).Result()
	return ttl == noExpiry, err
}

// keys scans for the keys that begin with prefix, which is not a pattern.
func (s *RedisServer) keys(prefix string, keep keep) (found []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = s.do(ctx, func(rdb *redis.Client) error {
		scan := rdb.Scan(ctx, 0, escapePattern(prefix)+"*", 1000).Iterator()
		for scan.Next(ctx) {
			found = append(found, scan.Val())
		}
		// SCAN may return a key twice.
		slices.Sort(found)
		found = slices.Compact(found)
		if keep == nil || scan.Err() != nil {
			return scan.Err()
		}
		var kept []string
		for _, key := range found {
			ok, err := keep(ctx, rdb, key)
			if err != nil {
				return err
			}
			if ok {
				kept = append(kept, key)
			}
		}
		found = kept
		return nil
	})
	return found, err
}

// escapePattern makes a text match only itself in SCAN's patterns.
func escapePattern(text string) string {
	var out []byte
	for i := range len(text) {
		switch text[i] {
		case '*', '?', '[', ']', '\\', '^', '-':
			out = append(out, '\\')
		}
		out = append(out, text[i])
	}
	return string(out)
}
