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

// primaryName is the name under which Sentinel watches the primary.
const primaryName = "holdfast"

// How long Sentinel waits before it holds the primary for dead. The shared one
// waits longer, so that a busy machine does not make it fail over by mistake.
const (
	privateDownAfter = time.Second
	sharedDownAfter  = time.Minute
)

// RedisSentinel is a primary with one replica, watched by one Sentinel.
type RedisSentinel struct {
	redis    [2]*RedisServer
	sentinel *RedisServer
}

// Sentinel returns the primary, replica and Sentinel that all tests of this
// process share. Tests are kept apart by their keys: see Prefix.
func Sentinel(t testing.TB) *RedisSentinel {
	t.Helper()
	return shared(t, "Sentinel", func() (*RedisSentinel, error) { return startSentinel(sharedDownAfter, nil) })
}

// NewSentinel starts a primary, a replica and a Sentinel for this test alone, which
// may be paused, killed, restarted and failed over; the options are for primary and
// replica, which have AppendOnly. The end of the test stops them. Sentinel itself
// fails over to the replica about one second after the primary stopped answering.
func NewSentinel(t testing.TB, opts ...RedisOption) *RedisSentinel {
	t.Helper()
	return private(t, "Sentinel", func() (*RedisSentinel, error) { return startSentinel(privateDownAfter, opts) })
}

func (s *RedisSentinel) servers() []*Server {
	var all []*Server
	for _, r := range []*RedisServer{s.sentinel, s.redis[0], s.redis[1]} {
		if r != nil {
			all = append(all, r.Server)
		}
	}
	return all
}

func startSentinel(downAfter time.Duration, opts []RedisOption) (_ *RedisSentinel, err error) {
	s := &RedisSentinel{}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(s))
		}
	}()
	opts = append([]RedisOption{RedisConfig("repl-diskless-sync-delay", "0"), AppendOnly()}, opts...)
	if s.redis[0], err = startRedis("Sentinel", opts); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.redis[0].Addr())
	if err != nil {
		return nil, err
	}
	if s.redis[1], err = startRedis("Sentinel", append(opts, RedisConfig("replicaof", host, port))); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// Sentinel looks for replicas every ten seconds, but also at once: so the replica goes first.
	err = until(ctx, func() (bool, error) { return s.redis[1].do(ctx, inStep(ctx)) == nil, nil })
	if err != nil {
		return nil, fmt.Errorf("testserver: Sentinel: the replica got no link to its primary: %w", err)
	}
	s.sentinel, err = startRedis("Sentinel", []RedisOption{
		RedisConfig("sentinel", "monitor", primaryName, host, port, "1"),
		RedisConfig("sentinel", "down-after-milliseconds", primaryName, strconv.FormatInt(downAfter.Milliseconds(), 10)),
		RedisConfig("sentinel", "failover-timeout", primaryName, "5000"),
	}, "--sentinel")
	if err != nil {
		return nil, err
	}
	err = s.watched(ctx)
	return s, err
}

func inStep(ctx context.Context) func(*redis.Client) error {
	return func(rdb *redis.Client) error { return replicationReady(ctx, rdb) }
}

// watched waits until Sentinel has found the replica and could promote it.
func (s *RedisSentinel) watched(ctx context.Context) error {
	last := ""
	err := until(ctx, func() (bool, error) {
		replicas, err := s.replicas(ctx)
		last = fmt.Sprint(replicas, err)
		return len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok", nil
	})
	if err != nil {
		return fmt.Errorf("testserver: Sentinel does not see the replica: %w; %s", err, last)
	}
	return nil
}

// replicas returns what Sentinel knows about the replicas.
func (s *RedisSentinel) replicas(ctx context.Context) (list []map[string]string, err error) {
	err = s.asked(func(sc *redis.SentinelClient) error {
		list, err = sc.Replicas(ctx, primaryName).Result()
		return err
	})
	return list, err
}

// primaryAddr returns the address that Sentinel gives to clients.
func (s *RedisSentinel) primaryAddr(ctx context.Context) (addr string, err error) {
	err = s.asked(func(sc *redis.SentinelClient) error {
		parts, err := sc.GetMasterAddrByName(ctx, primaryName).Result()
		if err != nil {
			return err
		}
		addr = net.JoinHostPort(parts[0], parts[1])
		return nil
	})
	return addr, err
}

func (s *RedisSentinel) asked(f func(sc *redis.SentinelClient) error) (err error) {
	sc := redis.NewSentinelClient(&redis.Options{Addr: s.sentinel.Addr(), MaxRetries: -1})
	defer func() { err = errors.Join(err, sc.Close()) }()
	return f(sc)
}

// Client returns a new client that asks Sentinel for the primary; the end of the
// test closes it.
func (s *RedisSentinel) Client(t testing.TB, changes ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	opts := &redis.FailoverOptions{MasterName: primaryName, SentinelAddrs: []string{s.sentinel.Addr()}}
	for _, change := range changes {
		change(opts)
	}
	rdb := redis.NewFailoverClient(opts)
	t.Cleanup(func() { closeClient(t, rdb) })
	return rdb
}

// Prefix returns a new prefix for keys, as RedisServer.Prefix does.
func (s *RedisSentinel) Prefix(t testing.TB) string { return prefix(t) }

// SentinelServer returns the Sentinel itself, to be paused, killed or restarted.
func (s *RedisSentinel) SentinelServer() *RedisServer { return s.sentinel }

// Primary returns the server that Sentinel names as the primary at the moment.
func (s *RedisSentinel) Primary(t testing.TB) *RedisServer {
	t.Helper()
	primary, _ := s.roles(t)
	return primary
}

// Replica returns the other server: a replica, or an old primary that does not
// yet know, or does not run.
func (s *RedisSentinel) Replica(t testing.TB) *RedisServer {
	t.Helper()
	_, replica := s.roles(t)
	return replica
}

func (s *RedisSentinel) roles(t testing.TB) (primary, replica *RedisServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	addr, err := s.primaryAddr(ctx)
	switch {
	case err != nil:
		t.Fatalf("testserver: Sentinel: %v", err)
	case addr == s.redis[0].Addr():
		return s.redis[0], s.redis[1]
	case addr == s.redis[1].Addr():
		return s.redis[1], s.redis[0]
	}
	t.Fatalf("testserver: Sentinel names a primary that is not ours: %s", addr)
	return nil, nil
}
