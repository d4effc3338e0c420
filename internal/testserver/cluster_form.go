package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"
)

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
			return fmt.Errorf("%w (last answer: %w)", err, last)
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
