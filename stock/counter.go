package stock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

// Counter sells items whose stock is counted in Redis. It is made by [New], safe for concurrent use, and keeps nothing
// to close: the Redis client stays the caller's.
type Counter struct {
	rdb     *redisx.Client
	keys    keyspace
	cfg     config
	scripts *scripts
	scopes  sync.Map // sale, see scopeOf -> Scope; only of limits that do not count over item and activity
}

// startTimeout bounds what New asks the server.
const startTimeout = 2 * time.Second

// New returns a Counter on rdb. The error names every option that is wrong, a script that the server cannot load, and a
// Redis Cluster: this keyspace needs a single primary. A server that is away is no error; Warm asks again.
func New(rdb redis.UniversalClient, opts ...Option) (*Counter, error) {
	cfg, err := newConfig(opts)
	client, wrapErr := redisx.Wrap(rdb)
	if wrapErr != nil {
		err = errors.Join(err, fmt.Errorf("stock: %w", wrapErr))
	}
	if err != nil {
		return nil, err
	}
	c := &Counter{rdb: client, cfg: cfg, keys: keyspace{prefix: cfg.prefix}, scripts: newScripts()}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.checkCluster(ctx); err != nil && !errors.Is(err, ErrUnavailable) {
		return nil, err
	}
	if err := client.Preload(c.scripts.all()...); err != nil {
		return nil, fmt.Errorf("stock: %w", err)
	}
	return c, nil
}

// checkCluster refuses the flat keyspace on a cluster, whose scripts would need keys of several slots.
func (c *Counter) checkCluster(ctx context.Context) error {
	cluster, err := c.rdb.IsCluster(ctx)
	switch {
	case err != nil:
		return &Error{sentinel: ErrUnavailable, cause: err}
	case cluster:
		return misuse("this Redis is a cluster, where the keys of one order must share a slot: add WithPartitions(n)")
	}
	return nil
}
