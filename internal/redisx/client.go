package redisx

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Client is a user's client with a batcher in front. It is a redis.UniversalClient itself, so that one Client can be
// handed to several constructors and all of them share the batcher. Safe for concurrent use.
type Client struct {
	redis.UniversalClient
	batchers sync.Map // address of a master, "" without a cluster -> *batcher
}

// Wrap returns a Client on rdb, or rdb itself if it is one already. A nil client and a Ring are refused: a Ring moves
// keys to other servers when one is away, and two servers would then hold one lock.
func Wrap(rdb redis.UniversalClient) (*Client, error) {
	switch rdb := rdb.(type) {
	case nil:
		return nil, errors.New("the Redis client is nil")
	case *Client:
		return rdb, nil
	case *redis.Ring:
		return nil, errors.New("a redis.Ring moves keys between servers when one is away: use a Client, a FailoverClient or a ClusterClient")
	}
	return &Client{UniversalClient: rdb}, nil
}

// IsCluster asks the server, not the client's type, whether it is part of a cluster. An error means that it did not
// answer.
func (c *Client) IsCluster(ctx context.Context) (bool, error) {
	info, err := c.ClusterInfo(ctx).Result()
	var answer redis.Error
	switch {
	case err == nil:
		return strings.Contains(info, "cluster_state:"), nil
	case errors.As(err, &answer) && !refused(answer.Error()):
		return false, nil // cluster support disabled
	}
	return false, classify(err)
}

// EvictionPolicy returns the server's maxmemory-policy, "" where it does not tell.
func (c *Client) EvictionPolicy(ctx context.Context) string {
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ := strings.Cut(rest, "\r\n")
	return policy
}

// IsClusterClient reports whether the client is one for a cluster; IsCluster asks the server.
func (c *Client) IsClusterClient() bool {
	_, ok := c.UniversalClient.(*redis.ClusterClient)
	return ok
}
