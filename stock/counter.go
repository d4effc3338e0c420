package stock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

// Counter sells items whose stock is counted in Redis. It is made by [New] or [NewQuota] and safe for concurrent use. The
// Redis client stays the caller's. With WithSoldOutFilter or WithItemMetrics it is to be closed.
type Counter struct {
	rdb     *redisx.Client
	keys    keyspace
	cfg     config
	scripts *scripts
	places  places
	refills refills
	soldOut *soldOut // nil without the filter
	tel     *instruments
	turn    atomic.Uint32 // partition with which Expired begins

	takeOver time.Duration // usualTakeOver; tests cannot wait
}

// startTimeout bounds what New asks the server.
const startTimeout = 2 * time.Second

// New returns a Counter on rdb. The error names every option that is wrong, a script that the server cannot load, commands of
// the scripts that its access rules refuse, and a Redis Cluster without WithPartitions. A server that is away is no error; Warm asks again.
func New(rdb redis.UniversalClient, opts ...Option) (*Counter, error) {
	return newCounter(rdb, keyspace{}, opts)
}

// NewQuota returns a Counter of quotas: balances, credits, allowances that many spend from. Sale.Item and Order.Item name
// the quota's owner. Its units lie in the field remain of the hash quota:<item>, in money's minor units for example; there
// are no activities and no limits per user, and Order.User is optional. Sale.Segments, up to 100, spreads a quota over
// shards quota:<item>:<shard>, all in one slot, so that every decision and every sum sees all of them.
//
// Its keys are its own, so the same request id may take stock from one Counter and quota from another.
func NewQuota(rdb redis.UniversalClient, opts ...Option) (*Counter, error) {
	return newCounter(rdb, keyspace{quota: true}, opts)
}

func newCounter(rdb redis.UniversalClient, keys keyspace, opts []Option) (*Counter, error) {
	cfg, err := newConfig(opts)
	client, wrapErr := redisx.Wrap(rdb)
	if wrapErr != nil {
		err = errors.Join(err, fmt.Errorf("stock: %w", wrapErr))
	}
	if err != nil {
		return nil, err
	}
	keys.prefix, keys.parts = cfg.prefix, cfg.parts
	c := &Counter{rdb: client, cfg: cfg, keys: keys, scripts: newScripts(&keys, &cfg), takeOver: usualTakeOver}
	c.tel = c.newInstruments()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.start(ctx); err != nil {
		c.tel.stop()
		return nil, err
	}
	if cfg.filter > 0 {
		c.soldOut = newSoldOut(client, c.keys.channel(), cfg.filter)
	}
	return c, nil
}

// start asks the server what it must be asked before the first order.
func (c *Counter) start(ctx context.Context) error {
	if err := c.checkCluster(ctx); err != nil && !errors.Is(err, ErrUnavailable) {
		return err
	}
	if err := c.rdb.Preload(c.scripts.all()...); err != nil { //nolint:contextcheck // it has a limit of its own
		return fmt.Errorf("stock: %w", err)
	}
	if err := c.checkCommands(ctx); err != nil && !errors.Is(err, ErrUnavailable) {
		return err
	}
	if policy := c.rdb.EvictionPolicy(ctx); policy != "" && policy != "noeviction" {
		c.tel.mayEvict(ctx, policy)
	}
	return nil
}

// Close ends what the Counter does in the background, and waits for it: listening for the sold-out filter, and the gauge of
// items. A Counter with neither need not be closed. It may be called twice; afterwards the Counter works as without them.
func (c *Counter) Close() {
	c.tel.stop()
	if c.soldOut != nil {
		c.soldOut.close()
	}
}

// checkCluster refuses the flat keyspace on a cluster, whose scripts would need keys of several slots.
func (c *Counter) checkCluster(ctx context.Context) error {
	if c.keys.parts > 0 {
		return nil
	}
	cluster, err := c.rdb.IsCluster(ctx)
	switch {
	case err != nil:
		return &Error{sentinel: ErrUnavailable, cause: err}
	case cluster:
		return misuse("this Redis is a cluster, where the keys of one order must share a slot: add WithPartitions(n)")
	}
	return nil
}

// checkCommands refuses a server whose access rules would stop a script between its writes.
func (c *Counter) checkCommands(ctx context.Context) error {
	kind := "stock"
	switch {
	case c.keys.quota:
		kind = "quota"
	case c.keys.tokens:
		kind = "tokens"
	}
	// No request has an empty id.
	a, err := c.run(ctx, script("probe", "common"), []string{c.keys.request(0, "")}, kind, flag(c.cfg.stream))
	if err != nil {
		return reading(err)
	}
	if len(a) == 1 {
		return nil
	}
	names := make([]string, len(a)-1)
	for i := range names {
		names[i] = a.text(i + 1)
	}
	return misuse("this Redis refuses commands that the scripts call: allow its user " + strings.Join(names, ", "))
}

// partitions returns how many places there are to look through.
func (c *Counter) partitions() int { return max(c.keys.parts, 1) }

// Redis returns the client that the Counter uses, with its batcher in front: for whoever reads the Counter's streams.
func (c *Counter) Redis() redis.UniversalClient { return c.rdb }
