package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a PostgreSQL server with the superuser "postgres", who needs
// no password. What was committed survives Kill and Restart; fsync is off, which
// matters to the machine's crashes only.
type PostgresServer struct {
	*Server
}

// A PostgresOption changes how a private PostgreSQL server is started.
type PostgresOption func(*postgresConfig)

type postgresConfig struct {
	args []string
}

// PostgresConfig sets any directive of postgresql.conf.
func PostgresConfig(name, value string) PostgresOption {
	return func(c *postgresConfig) { c.args = append(c.args, "-c", name+"="+value) }
}

// Postgres returns an empty schema on the PostgreSQL server that all tests of
// this process share. The DSN's search_path is that schema, so unqualified names
// are created and found there.
func Postgres(t testing.TB) Database {
	t.Helper()
	return shared(t, "Postgres", func() (*PostgresServer, error) { return startPostgres(nil) }).Database(t)
}

// NewPostgres starts a PostgreSQL server for this test alone, which may be
// paused, killed and restarted. The end of the test stops it.
func NewPostgres(t testing.TB, opts ...PostgresOption) *PostgresServer {
	t.Helper()
	return private(t, "Postgres", func() (*PostgresServer, error) { return startPostgres(opts) })
}

func (s *PostgresServer) servers() []*Server { return []*Server{s.Server} }

func startPostgres(opts []PostgresOption) (*PostgresServer, error) {
	path, err := find("postgres")
	if err != nil {
		return nil, missing{err}
	}
	// The link in a folder of the PATH may lead to where initdb and the libraries are.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	acc, err := unprivileged("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	var c postgresConfig
	for _, opt := range opts {
		opt(&c)
	}
	s, err := start(program{
		name: "Postgres", path: path, account: acc, stop: "QUIT",
		prepare: func(dir string) error {
			from, err := template("postgres", path, acc, func(dir string) error { return initPostgres(path, dir, acc) })
			if err != nil {
				return err
			}
			return copyTree(dir, from)
		},
		args: func(dir string, port int) []string {
			return append([]string{
				"-D", dir, "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", "",
				// Commits are handed to the system before they are answered, and not forced to the disk.
				"-c", "fsync=off", "-c", "full_page_writes=off",
				"-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap", "-c", "max_connections=200",
				"-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "autovacuum=off", "-c", "jit=off",
			}, c.args...)
		},
		ready:   postgresReady,
		discard: freeSharedMemory,
	})
	if err != nil {
		return nil, err
	}
	return &PostgresServer{s}, nil
}

// dropTemplates leaves the database "postgres" alone in a cluster: two thirds of its
// files are templates for further databases, which the tests do not create.
const dropTemplates = `UPDATE pg_database SET datistemplate = false
DROP DATABASE template0
DROP DATABASE template1
`

// initPostgres initialises a cluster that is quickly copied: with one database and
// small segments of the log.
func initPostgres(postgres, dir string, acc *account) error {
	err := runAs(acc, dir, "", filepath.Join(filepath.Dir(postgres), "initdb"), "-D", dir, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions", "--wal-segsize=1")
	if err != nil {
		return err
	}
	return runAs(acc, dir, dropTemplates, postgres, "--single", "-D", dir, "-c", "fsync=off", "-c", "exit_on_error=on", "postgres")
}

func postgresReady(ctx context.Context, p *proc) (err error) {
	conn, err := pgx.Connect(ctx, postgresURL(p.addr, nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var dir string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir); err != nil {
		return err
	}
	if dir != p.dir {
		return fmt.Errorf("the server of %s answers at %s, not that of %s", dir, p.addr, p.dir)
	}
	return nil
}

// freeSharedMemory removes the segment that a killed server leaves behind. Its
// number is on the seventh line of postmaster.pid, which a clean stop removes.
func freeSharedMemory(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return
	}
	if f := strings.Fields(lines[6]); len(f) == 2 {
		// Best effort: the segment has 56 bytes, and may be gone already.
		_ = exec.CommandContext(context.Background(), "ipcrm", "-m", f[1]).Run()
	}
}

func postgresURL(addr string, settings url.Values) string {
	if settings == nil {
		settings = url.Values{}
	}
	settings.Set("sslmode", "disable")
	return (&url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addr, Path: "/postgres", RawQuery: settings.Encode()}).String()
}

// DSN returns the URL of the server's database "postgres" with the schema "public".
func (s *PostgresServer) DSN() string { return postgresURL(s.Addr(), nil) }

// Database returns an empty schema on this server.
func (s *PostgresServer) Database(t testing.TB) Database {
	t.Helper()
	name := uniqueName(t)
	s.exec(t, "CREATE SCHEMA "+name)
	t.Cleanup(func() {
		if !s.serving() {
			return // the test has ended the server, and the data goes with it
		}
		// A transaction that a test left open would keep its tables locked.
		s.exec(t, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '"+name+"'")
		s.exec(t, "DROP SCHEMA "+name+" CASCADE")
	})
	settings := url.Values{"search_path": {name}, "application_name": {name}}
	return Database{DSN: postgresURL(s.Addr(), settings), Addr: s.Addr(), Name: name}
}

func (s *PostgresServer) exec(t testing.TB, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	_, err = conn.Exec(ctx, sql)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatalf("testserver: %s: %v", sql, err)
	}
}
