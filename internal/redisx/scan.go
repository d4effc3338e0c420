package redisx

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// scanCount is how many keys one SCAN looks at: enough for few round trips, little enough not to be noticed.
const scanCount = 500

// ScanPrefix yields the string keys that begin with prefix, in parts of a few hundred, from every master, until yield
// returns false. A key may come twice. yield is not called by two goroutines at once.
func (c *Client) ScanPrefix(ctx context.Context, prefix string, yield func(keys []string) bool) error {
	return c.scan(ctx, prefix, "string", yield)
}

// ScanHashes is ScanPrefix for hashes.
func (c *Client) ScanHashes(ctx context.Context, prefix string, yield func(keys []string) bool) error {
	return c.scan(ctx, prefix, "hash", yield)
}

// ScanAll is ScanPrefix for keys of every type.
func (c *Client) ScanAll(ctx context.Context, prefix string, yield func(keys []string) bool) error {
	return c.scan(ctx, prefix, "", yield)
}

func (c *Client) scan(ctx context.Context, prefix, kind string, yield func(keys []string) bool) error {
	match := globEscaper.Replace(prefix) + "*"
	var mu sync.Mutex
	enough := false
	scan := func(ctx context.Context, node redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := scanOnce(ctx, node, cursor, match, kind)
			if err != nil {
				return classify(err)
			}
			mu.Lock()
			if !enough && len(keys) > 0 {
				enough = !yield(keys)
			}
			stop := enough
			mu.Unlock()
			if cursor = next; stop || cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return scan(ctx, node) })
	}
	return scan(ctx, c.UniversalClient)
}

func scanOnce(ctx context.Context, node redis.Cmdable, cursor uint64, match, kind string) ([]string, uint64, error) {
	if kind == "" {
		return node.Scan(ctx, cursor, match, scanCount).Result()
	}
	return node.ScanType(ctx, cursor, match, scanCount, kind).Result()
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
