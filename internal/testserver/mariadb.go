package testserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MariaDBServer is a MariaDB server with the account "root", who needs no
// password. What was committed survives Kill and Restart; fsync is off, which
// matters to the machine's crashes only.
type MariaDBServer struct {
	*Server
}

// A MariaDBOption changes how a private MariaDB server is started.
type MariaDBOption func(*mariadbConfig)

type mariadbConfig struct {
	args []string
}

// MariaDBConfig sets any system variable of the server.
func MariaDBConfig(name, value string) MariaDBOption {
	return func(c *mariadbConfig) { c.args = append(c.args, "--"+name+"="+value) }
}

// MariaDB returns an empty database on the MariaDB server that all tests of this
// process share.
func MariaDB(t testing.TB) Database {
	t.Helper()
	return shared(t, "MariaDB", func() (*MariaDBServer, error) { return startMariaDB(nil) }).Database(t)
}

// NewMariaDB starts a MariaDB server for this test alone, which may be paused,
// killed and restarted. The end of the test stops it.
func NewMariaDB(t testing.TB, opts ...MariaDBOption) *MariaDBServer {
	t.Helper()
	return private(t, "MariaDB", func() (*MariaDBServer, error) { return startMariaDB(opts) })
}

func (s *MariaDBServer) servers() []*Server { return []*Server{s.Server} }

// innodbLog is the size of the log, small so that it is quickly copied; it is
// the same at initialisation and at start, else each start would resize it.
const innodbLog = "--innodb-log-file-size=8M"

func startMariaDB(opts []MariaDBOption) (*MariaDBServer, error) {
	path, err := find("mariadbd")
	if err != nil {
		return nil, missing{err}
	}
	install, err := find("mariadb-install-db")
	if err != nil {
		return nil, missing{err}
	}
	acc, err := unprivileged("mysql", "nobody")
	if err != nil {
		return nil, err
	}
	var c mariadbConfig
	for _, opt := range opts {
		opt(&c)
	}
	s, err := start(program{
		name: "MariaDB", path: path, account: acc, stop: "KILL",
		prepare: func(dir string) error {
			from, err := template("mariadb", path, acc, func(dir string) error { return installMariaDB(install, dir, acc) })
			if err != nil {
				return err
			}
			return copyTree(dir, from)
		},
		args: func(dir string, port int) []string {
			return append([]string{
				"--no-defaults", "--datadir=" + dir, "--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
				"--socket=", "--pid-file=" + filepath.Join(dir, "pid"), "--skip-name-resolve",
				// Commits are handed to the system before they are answered, and not forced to the disk.
				"--innodb-flush-log-at-trx-commit=2", "--loose-innodb-doublewrite=0", "--loose-innodb-flush-method=fsync",
				innodbLog, "--innodb-buffer-pool-size=32M", "--key-buffer-size=1M", "--aria-pagecache-buffer-size=8M",
				"--loose-innodb-use-native-aio=0", "--loose-innodb-buffer-pool-load-at-startup=0",
				"--max-connections=200", "--character-set-server=utf8mb4",
			}, c.args...)
		},
		ready: mariadbReady,
	})
	if err != nil {
		return nil, err
	}
	return &MariaDBServer{s}, nil
}

func installMariaDB(install, dir string, acc *account) error {
	return runAs(acc, dir, "", install, "--no-defaults", "--datadir="+dir, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", innodbLog, "--loose-innodb-use-native-aio=0")
}

func mariadbReady(ctx context.Context, p *proc) error {
	var dir string
	err := withMariaDB(p.addr, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir)
	})
	if err != nil {
		return err
	}
	if filepath.Clean(dir) != p.dir {
		return fmt.Errorf("the server of %s answers at %s, not that of %s", dir, p.addr, p.dir)
	}
	return nil
}

// withMariaDB runs do with a connection as root.
func withMariaDB(addr string, do func(db *sql.DB) error) (err error) {
	cfg := mariadbConnection(addr, "")
	cfg.Logger = silent{} // a server that is not up yet is not worth a line
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

type silent struct{}

func (silent) Print(...any) {}

func mariadbConnection(addr, name string) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "tcp", addr, name
	cfg.ParseTime = true // gorm needs it
	return cfg
}

// DSN returns the data source name of the server without a database.
func (s *MariaDBServer) DSN() string { return mariadbConnection(s.Addr(), "").FormatDSN() }

// Database returns an empty database on this server.
func (s *MariaDBServer) Database(t testing.TB) Database {
	t.Helper()
	name := uniqueName(t)
	s.do(t, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+name)
		return err
	})
	t.Cleanup(func() {
		if !s.serving() {
			return // the test has ended the server, and the data goes with it
		}
		s.do(t, func(ctx context.Context, db *sql.DB) error { return dropMariaDB(ctx, db, name) })
	})
	return Database{DSN: mariadbConnection(s.Addr(), name).FormatDSN(), Addr: s.Addr(), Name: name}
}

// dropMariaDB drops a database after ending the connections that use it: a
// transaction that a test left open would keep its tables locked.
func dropMariaDB(ctx context.Context, db *sql.DB, name string) error {
	ids, err := usersOfMariaDB(ctx, db, name)
	if err != nil {
		return err
	}
	for _, id := range ids {
		_, err := db.ExecContext(ctx, "KILL "+strconv.FormatInt(id, 10))
		const noSuchThread = 1094
		if e := (*mysql.MySQLError)(nil); errors.As(err, &e) && e.Number == noSuchThread {
			continue // it has ended meanwhile
		}
		if err != nil {
			return err
		}
	}
	_, err = db.ExecContext(ctx, "DROP DATABASE "+name)
	return err
}

// usersOfMariaDB returns the connections that use a database.
func usersOfMariaDB(ctx context.Context, db *sql.DB, name string) (ids []int64, err error) {
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = ?", name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (s *MariaDBServer) do(t testing.TB, do func(ctx context.Context, db *sql.DB) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := withMariaDB(s.Addr(), func(db *sql.DB) error { return do(ctx, db) }); err != nil {
		t.Fatalf("testserver: %v", err)
	}
}
