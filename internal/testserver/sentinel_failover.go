package testserver

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Failover makes the replica the primary and returns when Sentinel names it and it
// accepts writes. What the old primary had not replicated is lost. If the old primary
// runs, it goes on as a primary for up to some ten seconds, until Sentinel makes it
// a replica: two primaries, as they happen in production. A second Failover waits
// for that.
func (s *RedisSentinel) Failover(t testing.TB) {
	t.Helper()
	if s.sentinel.shared {
		t.Fatal("testserver: only servers from NewSentinel can be failed over")
	}
	s.failoverTo(t, s.Replica(t))
}

// failoverTo returns when next is the primary, whether by this call or because Sentinel has found the old one dead by itself.
func (s *RedisSentinel) failoverTo(t testing.TB, next *RedisServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.failover(ctx, next); err != nil {
		t.Fatalf("testserver: fail over by Sentinel: %v; its log:\n%s", err, s.sentinel.Log())
	}
}

// FailoverLosing runs write while the replica is cut off from the primary, kills the
// primary and fails over: what write did was acknowledged, and is lost. What was
// written before is kept. The old primary may be restarted, and then becomes a replica.
func (s *RedisSentinel) FailoverLosing(t testing.TB, write func()) {
	t.Helper()
	primary, replica := s.roles(t)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := caughtUp(ctx, primary, replica); err != nil {
		t.Fatalf("testserver: Sentinel: the replica is not in step: %v", err)
	}
	if s.sentinel.shared {
		t.Fatal("testserver: only servers from NewSentinel can be failed over")
	}
	replica.Kill(t)
	write()
	primary.Kill(t)
	replica.Restart(t)
	s.failoverTo(t, replica) // asked now, Sentinel might call the dead one the replica already
}

// caughtUp waits until the replica has executed all that the primary has.
func caughtUp(ctx context.Context, primary, replica *RedisServer) error {
	offset := func(s *RedisServer, field string) (value string, err error) {
		err = s.do(ctx, func(rdb *redis.Client) error {
			info, err := rdb.Info(ctx, "replication").Result()
			value = infoField(info, field)
			return err
		})
		return value, err
	}
	want, err := offset(primary, "master_repl_offset")
	if err != nil {
		return err
	}
	need, err := strconv.Atoi(want)
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		got, err := offset(replica, "slave_repl_offset")
		if err != nil {
			return false, err
		}
		has, err := strconv.Atoi(got)
		return has >= need, err
	})
}

func (s *RedisSentinel) failover(ctx context.Context, next *RedisServer) error {
	err := until(ctx, func() (bool, error) {
		if addr, err := s.primaryAddr(ctx); err == nil && addr == next.Addr() {
			return true, nil // by itself
		}
		err := s.asked(func(sc *redis.SentinelClient) error { return sc.Failover(ctx, primaryName).Err() })
		// It has not yet seen that the replica is fit, or is at it already.
		if err != nil && (strings.HasPrefix(err.Error(), "NOGOODSLAVE") || strings.HasPrefix(err.Error(), "INPROG")) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		addr, err := s.primaryAddr(ctx)
		if err != nil || addr != next.Addr() {
			return false, err
		}
		var info string
		err = next.do(ctx, func(rdb *redis.Client) error {
			info, err = rdb.Info(ctx, "replication").Result()
			return err
		})
		return infoField(info, "role") == "master", err
	})
}
