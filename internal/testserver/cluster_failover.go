package testserver

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

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
