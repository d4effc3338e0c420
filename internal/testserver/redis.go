package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisServer is a standalone redis-server.
type RedisServer struct {
	*Server
}

// A RedisOption changes how a private Redis server is started.
type RedisOption func(*redisConfig)

type redisConfig struct {
	lines []string // of redis.conf
}

// AppendOnly makes the server write each command to its append-only file before
// it answers, so that Restart finds all of them. Without it Restart finds nothing.
//
// It sets appendfsync to "no": with "everysec", the default, Redis keeps commands that
// it has acknowledged in memory for up to two seconds while the disk is slow, and a
// kill loses them. RedisConfig can set that to show it.
func AppendOnly() RedisOption {
	return func(c *redisConfig) {
		RedisConfig("appendonly", "yes")(c)
		RedisConfig("appendfsync", "no")(c)
	}
}

// MaxMemory limits the memory, for example "4mb", and says what happens at the
// limit, for example "noeviction" or "allkeys-lru".
func MaxMemory(size, policy string) RedisOption {
	return func(c *redisConfig) {
		RedisConfig("maxmemory", size)(c)
		RedisConfig("maxmemory-policy", policy)(c)
	}
}

// RedisConfig sets any directive of redis.conf; it overrides what came before.
func RedisConfig(name string, values ...string) RedisOption {
	line := name
	for _, value := range values {
		line += " " + strconv.Quote(value)
	}
	return func(c *redisConfig) { c.lines = append(c.lines, line) }
}

// Redis returns the Redis server that all tests of this process share. Tests are
// kept apart by their keys: see Prefix. It must not be flushed, configured or
// filled up; NewRedis gives one that may.
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	return shared(t, "Redis", func() (*RedisServer, error) { return startRedis("Redis", nil) })
}

// NewRedis starts a Redis server for this test alone, which may be paused,
// killed, restarted and reconfigured. The end of the test stops it. It keeps no
// data on disk unless AppendOnly is given.
func NewRedis(t testing.TB, opts ...RedisOption) *RedisServer {
	t.Helper()
	return private(t, "Redis", func() (*RedisServer, error) { return startRedis("Redis", opts) })
}

func (s *RedisServer) servers() []*Server { return []*Server{s.Server} }

// redisConf is the configuration's name in the data folder.
const redisConf = "redis.conf"

func startRedis(name string, opts []RedisOption, args ...string) (*RedisServer, error) {
	path, err := find("redis-server", "valkey-server")
	if err != nil {
		return nil, missing{err}
	}
	c := redisConfig{lines: []string{`save ""`}}
	for _, opt := range opts {
		opt(&c)
	}
	s, err := start(program{
		name: name, path: path, stop: "KILL",
		// A file, because Sentinel lets servers rewrite it.
		prepare: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, redisConf), []byte(strings.Join(c.lines, "\n")+"\n"), 0o600)
		},
		args: func(dir string, port int) []string {
			return append([]string{
				filepath.Join(dir, redisConf), "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
			}, args...)
		},
		ready: redisReady,
	})
	if err != nil {
		return nil, err
	}
	return &RedisServer{s}, nil
}

// redisReady wants PONG, which a server that still loads its data does not say,
// and the right process behind the port.
func redisReady(ctx context.Context, p *proc) (err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte("PING\r\nINFO server\r\n")); err != nil {
		return err
	}
	in := bufio.NewScanner(conn)
	if !in.Scan() {
		return errors.Join(errors.New("no answer to PING"), in.Err())
	}
	if strings.HasPrefix(in.Text(), "-NOAUTH") {
		return nil // it serves, and asks for a password that RedisConfig has set
	}
	if in.Text() != "+PONG" {
		return fmt.Errorf("answer to PING: %s", in.Text())
	}
	for in.Scan() {
		if pid, ok := strings.CutPrefix(in.Text(), "process_id:"); ok {
			if pid != strconv.Itoa(p.pid) {
				return fmt.Errorf("process %s answers at %s, not %d", pid, p.addr, p.pid)
			}
			return nil
		}
	}
	return errors.Join(errors.New("no process_id in INFO"), in.Err())
}

// Client returns a new client for the server; the end of the test closes it. Each
// change is applied to the options, which are go-redis's defaults otherwise.
func (s *RedisServer) Client(t testing.TB, changes ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opts := &redis.Options{Addr: s.Addr()}
	for _, change := range changes {
		change(opts)
	}
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { closeClient(t, rdb) })
	return rdb
}

// closeClient closes a client that the test may have closed itself.
func closeClient(t testing.TB, rdb redis.UniversalClient) {
	t.Helper()
	if err := rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		t.Errorf("testserver: close the client: %v", err)
	}
}

// Prefix returns a new prefix for keys, such as "t17_acquirewaits:". No other
// call in this process returns the same one, nor one that begins with it.
func (s *RedisServer) Prefix(t testing.TB) string { return prefix(t) }
