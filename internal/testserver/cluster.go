package testserver

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterNodes is the number of primaries, the least that Redis Cluster supports.
const clusterNodes = 3

// clusterTimeout is how long nodes wait before they hold another for dead.
const clusterTimeout = 2000 * time.Millisecond

// RedisCluster is a Redis Cluster of three primaries, each with a third of the
// slots, and with a replica each if Replicas was given.
type RedisCluster struct {
	nodes    []*RedisServer // the primaries at the start
	replicas []*RedisServer // by index the replicas of nodes, or none
}

// A ClusterOption changes how a private cluster is started.
type ClusterOption func(*clusterConfig)

type clusterConfig struct {
	replicas bool
	redis    []RedisOption
}

// Replicas gives each primary of a cluster one replica, so that it can be failed over.
func Replicas() ClusterOption { return func(c *clusterConfig) { c.replicas = true } }

// EachNode starts every node of a cluster with these options.
func EachNode(opts ...RedisOption) ClusterOption {
	return func(c *clusterConfig) { c.redis = append(c.redis, opts...) }
}

// Cluster returns the three-node cluster that all tests of this process share.
// Tests are kept apart by their keys: see Prefix.
func Cluster(t testing.TB) *RedisCluster {
	t.Helper()
	return shared(t, "Cluster", func() (*RedisCluster, error) { return startCluster(nil) })
}

// NewCluster starts a cluster for this test alone, whose nodes may be paused,
// killed, restarted and failed over. The end of the test stops it. Starting one
// takes a few seconds, which Redis itself waits before it serves a new cluster.
func NewCluster(t testing.TB, opts ...ClusterOption) *RedisCluster {
	t.Helper()
	return private(t, "Cluster", func() (*RedisCluster, error) { return startCluster(opts) })
}

func (c *RedisCluster) servers() []*Server {
	var all []*Server
	for _, n := range c.all() {
		all = append(all, n.Server)
	}
	return all
}

func (c *RedisCluster) all() []*RedisServer {
	return append(append([]*RedisServer(nil), c.nodes...), c.replicas...)
}

func startCluster(opts []ClusterOption) (_ *RedisCluster, err error) {
	var cfg clusterConfig
	for _, opt := range opts {
		opt(&cfg)
	}
	nodeOpts := append([]RedisOption{
		RedisConfig("cluster-enabled", "yes"),
		RedisConfig("cluster-node-timeout", strconv.FormatInt(clusterTimeout.Milliseconds(), 10)),
		RedisConfig("repl-diskless-sync-delay", "0"),
	}, cfg.redis...)
	c := &RedisCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(c))
		}
	}()
	for range clusterNodes {
		n, err := startRedis("Cluster", nodeOpts)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, n)
		if !cfg.replicas {
			continue
		}
		if n, err = startRedis("Cluster", nodeOpts); err != nil {
			return nil, err
		}
		c.replicas = append(c.replicas, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err = c.form(ctx)
	return c, err
}

// Addrs returns the addresses of all nodes, primaries first.
func (c *RedisCluster) Addrs() []string {
	var addrs []string
	for _, n := range c.all() {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Client returns a new client for the cluster; the end of the test closes it.
func (c *RedisCluster) Client(t testing.TB, changes ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opts := &redis.ClusterOptions{Addrs: c.Addrs()}
	for _, change := range changes {
		change(opts)
	}
	rdb := redis.NewClusterClient(opts)
	t.Cleanup(func() { closeClient(t, rdb) })
	return rdb
}

// Prefix returns a new prefix for keys, as RedisServer.Prefix does. It holds no
// hash tag: keys with it are spread over the nodes.
func (c *RedisCluster) Prefix(t testing.TB) string { return prefix(t) }

// Nodes returns the nodes that were primaries when the cluster started.
func (c *RedisCluster) Nodes() []*RedisServer { return append([]*RedisServer(nil), c.nodes...) }

// Wait returns when every running node knows all others, serves all slots and, if
// it is a replica, is in step with its primary: after a node was restarted or resumed.
func (c *RedisCluster) Wait(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.healthy(ctx); err != nil {
		t.Fatal(err)
	}
}

// Node returns the primary that serves the key, according to the first node that runs.
func (c *RedisCluster) Node(t testing.TB, key string) *RedisServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, n := range c.all() {
		if !n.serving() {
			continue
		}
		addr, err := n.ownerOf(ctx, key)
		if err != nil {
			t.Fatalf("testserver: Cluster: %v", err)
		}
		for _, owner := range c.all() {
			if owner.Addr() == addr {
				return owner
			}
		}
	}
	t.Fatalf("testserver: Cluster: no running node knows who serves %q", key)
	return nil
}

// ownerOf returns the address of the primary that serves the key according to this node.
func (s *RedisServer) ownerOf(ctx context.Context, key string) (addr string, err error) {
	err = s.do(ctx, func(rdb *redis.Client) error {
		slot, err := rdb.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			return err
		}
		ranges, err := rdb.ClusterSlots(ctx).Result() //nolint:staticcheck // its successor needs Redis 7, and 6.2 is supported
		if err != nil {
			return err
		}
		for _, r := range ranges {
			if int(slot) >= r.Start && int(slot) <= r.End && len(r.Nodes) > 0 {
				addr = r.Nodes[0].Addr
			}
		}
		return nil
	})
	return addr, err
}
