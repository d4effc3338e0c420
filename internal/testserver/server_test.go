package testserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A server is what can be done to every private server.
type server interface {
	Addr() string
	Pause(t testing.TB)
	Resume(t testing.TB)
	Kill(t testing.TB)
	Restart(t testing.TB)
	RestartEmpty(t testing.TB)
}

// A store is a private server of some kind that keeps a set of numbers.
type store struct {
	server server
	init   func(ctx context.Context) error
	add    func(ctx context.Context, n int) error
	count  func(ctx context.Context) (int, error)
}

// kinds are all kinds of servers that keep data.
var kinds = []struct {
	name string
	open func(t *testing.T) store
}{
	{"Redis", func(t *testing.T) store {
		srv := testserver.NewRedis(t, testserver.AppendOnly())
		rdb := srv.Client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true })
		return store{
			server: srv,
			init:   func(ctx context.Context) error { return rdb.Del(ctx, "n").Err() },
			add:    func(ctx context.Context, n int) error { return rdb.SAdd(ctx, "n", n).Err() },
			count: func(ctx context.Context) (int, error) {
				n, err := rdb.SCard(ctx, "n").Result()
				return int(n), err
			},
		}
	}},
	{"PostgreSQL", func(t *testing.T) store {
		srv := testserver.NewPostgres(t)
		return sqlStore(t, srv, "pgx", srv.DSN(), "")
	}},
	{"MariaDB", func(t *testing.T) store {
		srv := testserver.NewMariaDB(t)
		return sqlStore(t, srv, "mysql", srv.DSN(), "mysql.")
	}},
}

func sqlStore(t *testing.T, srv server, driver, dsn, schema string) store {
	t.Helper()
	db := open(t, driver, dsn)
	exec := func(ctx context.Context, query string) error {
		_, err := db.ExecContext(ctx, query)
		return err
	}
	return store{
		server: srv,
		init: func(ctx context.Context) error {
			return exec(ctx, "CREATE TABLE "+schema+"holdfast_n (id int PRIMARY KEY)"+map[string]string{"mysql": " ENGINE=InnoDB"}[driver])
		},
		add: func(ctx context.Context, n int) error {
			return exec(ctx, fmt.Sprintf("INSERT INTO %sholdfast_n VALUES (%d)", schema, n))
		},
		count: func(ctx context.Context) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT count(*) FROM "+schema+"holdfast_n").Scan(&n)
			return n, err
		},
	}
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s store) want(t *testing.T, want int) {
	t.Helper()
	var got int
	testserver.Eventually(t, 20*time.Second, func() (ok bool) {
		var err error
		// A pool may first have to notice that its connections are dead.
		got, err = s.count(t.Context())
		return err == nil
	}, "the server answers")
	if got != want {
		t.Errorf("the server has %d numbers, want %d", got, want)
	}
}

func TestServer_PausedAndResumed(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := kind.open(t)
			must(t, s.init(t.Context()))
			must(t, s.add(t.Context(), 1)) // leaves a connection open, whose process is to stop too
			s.server.Pause(t)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := s.add(ctx, 2); err == nil {
				t.Error("a paused server answered")
			}
			if conn, err := net.Dial("tcp", s.server.Addr()); err != nil {
				t.Errorf("a paused server accepts no connection: %v", err)
			} else {
				must(t, conn.Close())
			}
			s.server.Resume(t)
			s.server.Resume(t) // has no effect
			testserver.Eventually(t, 20*time.Second, func() bool {
				_, err := s.count(t.Context())
				return err == nil
			}, "the resumed server answers")
		})
	}
}

// Everything that was acknowledged before the kill is there after the restart, at the
// same address: the servers skip the disk, not the hand-over to the system.
func TestServer_KilledAndRestartedWithItsData(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := kind.open(t)
			must(t, s.init(t.Context()))
			const n = 100
			for i := range n {
				must(t, s.add(t.Context(), i))
			}
			addr := s.server.Addr()
			s.server.Kill(t)
			s.server.Kill(t) // has no effect
			if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a killed server: got %v, want connection refused", err)
			}
			s.server.Restart(t)
			if got := s.server.Addr(); got != addr {
				t.Errorf("restarted at %s, was at %s", got, addr)
			}
			s.want(t, n)
			s.server.Restart(t) // while it runs
			s.want(t, n)
		})
	}
}

func TestServer_RestartedWithoutItsData(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := kind.open(t)
			must(t, s.init(t.Context()))
			must(t, s.add(t.Context(), 1))
			addr := s.server.Addr()
			s.server.RestartEmpty(t)
			if got := s.server.Addr(); got != addr {
				t.Errorf("restarted at %s, was at %s", got, addr)
			}
			testserver.Eventually(t, 20*time.Second, func() bool { return s.init(t.Context()) == nil }, "the table can be created anew")
			s.want(t, 0)
		})
	}
}

// A paused server can be killed, restarted, and left to the end of the test.
func TestServer_PausedAndKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := kind.open(t)
			must(t, s.init(t.Context()))
			must(t, s.add(t.Context(), 1))
			s.server.Pause(t)
			s.server.Restart(t)
			s.want(t, 1)
			s.server.Pause(t)
		})
	}
}

func TestRedis_WithoutAppendOnlyARestartIsEmpty(t *testing.T) {
	t.Parallel()
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t)
	must(t, rdb.Set(t.Context(), "a", "1", 0).Err())
	srv.Restart(t)
	if err := rdb.Get(t.Context(), "a").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET after the restart: got %v, want no value", err)
	}
}

func TestRedis_OptionsReachTheServer(t *testing.T) {
	t.Parallel()
	srv := testserver.NewRedis(t, testserver.MaxMemory("5mb", "allkeys-lru"), testserver.RedisConfig("notify-keyspace-events", "Ex"),
		testserver.RedisConfig("requirepass", `a "b" \c`))
	rdb := srv.Client(t, func(o *redis.Options) { o.Password = `a "b" \c` })
	for name, want := range map[string]string{"maxmemory": "5242880", "maxmemory-policy": "allkeys-lru", "notify-keyspace-events": "xE"} {
		if got := rdb.ConfigGet(t.Context(), name).Val()[name]; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestPostgresAndMariaDB_OptionsReachTheServer(t *testing.T) {
	t.Parallel()
	pg := testserver.NewPostgres(t, testserver.PostgresConfig("max_connections", "7"))
	maria := testserver.NewMariaDB(t, testserver.MariaDBConfig("max-connections", "17"))
	for _, row := range []struct{ driver, dsn, query, want string }{
		{"pgx", pg.DSN(), "SHOW max_connections", "7"},
		{"mysql", maria.DSN(), "SELECT @@max_connections", "17"},
	} {
		db := open(t, row.driver, row.dsn)
		var got string
		must(t, db.QueryRowContext(t.Context(), row.query).Scan(&got))
		if got != row.want {
			t.Errorf("%s: got %s, want %s", row.query, got, row.want)
		}
	}
}

// A server that does not start says why, with its own words.
func TestServer_FailureShowsItsLog(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		start func(t testing.TB)
		want  string
	}{
		"Redis":      {func(t testing.TB) { testserver.NewRedis(t, testserver.RedisConfig("nonsense", "1")) }, "Bad directive"},
		"PostgreSQL": {func(t testing.TB) { testserver.NewPostgres(t, testserver.PostgresConfig("nonsense", "1")) }, "unrecognized configuration parameter"},
		"MariaDB":    {func(t testing.TB) { testserver.NewMariaDB(t, testserver.MariaDBConfig("nonsense", "1")) }, "unknown variable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := watch(t, row.start)
			if !v.failed || !strings.Contains(v.text, row.want) {
				t.Errorf("got %+v, want a failure with %q", v, row.want)
			}
		})
	}
}

// Pausing what does not run is a mistake in the test, and must not stop anything else.
func TestServer_PausedThoughItDoesNotRun(t *testing.T) {
	t.Parallel()
	srv := testserver.NewRedis(t)
	srv.Kill(t)
	if v := watch(t, srv.Pause); !v.failed || !strings.Contains(v.text, "not running") {
		t.Errorf("got %+v, want a failure", v)
	}
	srv.Restart(t)
	must(t, srv.Client(t).Ping(t.Context()).Err())
}

func TestServer_SharedOnesCannotBeHarmed(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	for name, harm := range map[string]func(testing.TB){
		"Pause": srv.Pause, "Kill": srv.Kill, "Restart": srv.Restart, "RestartEmpty": srv.RestartEmpty,
		"Cluster":  func(t testing.TB) { testserver.Cluster(t).Nodes()[0].Kill(t) },
		"Sentinel": func(t testing.TB) { testserver.Sentinel(t).Failover(t) },
	} {
		if v := watch(t, harm); !v.failed || !strings.Contains(v.text, "New") {
			t.Errorf("%s: got %+v, want a failure that says what to use instead", name, v)
		}
	}
	must(t, srv.Client(t).Ping(t.Context()).Err())
}
