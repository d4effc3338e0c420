package testserver

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// do runs f with a client of its own that does not repeat commands.
func (s *RedisServer) do(ctx context.Context, f func(rdb *redis.Client) error) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, PoolSize: 1})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	return f(rdb)
}

// replicationReady returns an error while a replica is not in step with its
// primary. A primary is always ready.
func replicationReady(ctx context.Context, rdb *redis.Client) error {
	info, err := rdb.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if infoField(info, "role") == "slave" && infoField(info, "master_link_status") != "up" {
		return errors.New("the replica has no link to its primary yet")
	}
	return nil
}

// infoField returns the value of a field in the answer to INFO or CLUSTER INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
