package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	return c, c.form(ctx)
}

// form assigns the slots, lets the nodes meet, and waits until all of them serve.
func (c *RedisCluster) form(ctx context.Context) error {
	const slots = 16384
	for i, n := range c.nodes {
		err := n.do(ctx, func(rdb *redis.Client) error {
			return errors.Join(
				rdb.ClusterAddSlotsRange(ctx, i*slots/clusterNodes, (i+1)*slots/clusterNodes-1).Err(),
				// Different from the start, so that the nodes need not agree on them first.
				rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		})
		if err != nil {
			return fmt.Errorf("testserver: Cluster: assign slots: %w", err)
		}
	}
	for _, n := range c.all()[1:] {
		err := n.do(ctx, func(rdb *redis.Client) error {
			host, port, err := net.SplitHostPort(c.nodes[0].Addr())
			if err != nil {
				return err
			}
			return rdb.ClusterMeet(ctx, host, port).Err()
		})
		if err != nil {
			return fmt.Errorf("testserver: Cluster: meet: %w", err)
		}
	}
	for i, r := range c.replicas {
		if err := r.replicate(ctx, c.nodes[i]); err != nil {
			return fmt.Errorf("testserver: Cluster: replicate: %w", err)
		}
	}
	return c.healthy(ctx)
}

// replicate makes r a replica of primary as soon as the two know each other.
func (s *RedisServer) replicate(ctx context.Context, primary *RedisServer) error {
	var id string
	err := primary.do(ctx, func(rdb *redis.Client) (err error) {
		id, err = rdb.ClusterMyID(ctx).Result()
		return err
	})
	if err != nil {
		return err
	}
	return s.do(ctx, func(rdb *redis.Client) error {
		var last error
		err := until(ctx, func() (bool, error) {
			last = rdb.ClusterReplicate(ctx, id).Err()
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("%w (last answer: %v)", err, last)
		}
		return nil
	})
}

// healthy waits until every running node knows all others and serves all slots,
// and every replica is in step with its primary.
func (c *RedisCluster) healthy(ctx context.Context) error {
	var last string
	err := until(ctx, func() (bool, error) {
		for _, n := range c.all() {
			if !n.serving() {
				continue
			}
			err := n.do(ctx, func(rdb *redis.Client) error {
				info, err := rdb.ClusterInfo(ctx).Result()
				if err != nil {
					return err
				}
				if infoField(info, "cluster_state") != "ok" || infoField(info, "cluster_known_nodes") != strconv.Itoa(len(c.all())) ||
					infoField(info, "cluster_size") != strconv.Itoa(clusterNodes) {
					return errors.New(info)
				}
				return replicationReady(ctx, rdb)
			})
			if err != nil {
				last = fmt.Sprintf("%s: %v", n.Addr(), err)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("testserver: Cluster does not serve: %w; %s", err, last)
	}
	return nil
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
		ranges, err := rdb.ClusterSlots(ctx).Result()
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

// Failover makes the replica of the node that serves the key a primary in its
// place and returns when every running node knows. The old primary becomes its
// replica if it runs; if it was killed or paused, the replica takes over without
// it, and what was not replicated is lost. Only a cluster of the test's own, with
// Replicas, can be failed over. Clients notice on their own schedule.
func (c *RedisCluster) Failover(t testing.TB, key string) {
	t.Helper()
	if len(c.replicas) == 0 || c.nodes[0].shared {
		t.Fatal("testserver: only a cluster from NewCluster(t, Replicas()) can be failed over")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.failover(ctx, c.Node(t, key), key); err != nil {
		t.Fatalf("testserver: fail over the Cluster: %v", err)
	}
}

func (c *RedisCluster) failover(ctx context.Context, old *RedisServer, key string) error {
	next := c.partner(old)
	args := []any{"CLUSTER", "FAILOVER"}
	if !old.serving() {
		args = append(args, "TAKEOVER")
	}
	if err := next.do(ctx, func(rdb *redis.Client) error { return rdb.Do(ctx, args...).Err() }); err != nil {
		return err
	}
	err := until(ctx, func() (bool, error) {
		for _, n := range c.all() {
			if !n.serving() {
				continue
			}
			if addr, err := n.ownerOf(ctx, key); err != nil || addr != next.Addr() {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return c.healthy(ctx)
}

// partner returns the other node of a pair of primary and replica.
func (c *RedisCluster) partner(n *RedisServer) *RedisServer {
	for i := range c.replicas {
		switch n {
		case c.nodes[i]:
			return c.replicas[i]
		case c.replicas[i]:
			return c.nodes[i]
		}
	}
	return nil
}
