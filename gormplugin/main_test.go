package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/glebarez/sqlite"
	gosql "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// gorm's cache of prepared statements has a goroutine that nothing ends.
func TestMain(m *testing.M) {
	testserver.Main(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// database opens databases of one kind, each time the same one.
type database struct {
	name string
	dsn  string
}

// onEach runs a test on SQLite, PostgreSQL and MariaDB, each with an empty database of its own.
func onEach(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	for _, name := range []string{dialectSQLite, dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newDatabase(t, name))
		})
	}
}

// mysqlServer names a MySQL 8 server, in the driver's format and as a user who may create databases. With it, as with
// `make test-mysql`, every test of this package that has a MariaDB of its own has a database there instead.
const mysqlServer = "HOLDFAST_MYSQL_DSN"

var mysqlDatabases atomic.Int64

// mysqlDatabase returns the DSN of an empty database on the server, which the end of the test drops.
func mysqlDatabase(t testing.TB, server string) string {
	t.Helper()
	config, err := gosql.ParseDSN(server)
	if err != nil {
		t.Fatal(err) // the driver's errors hold no password
	}
	config.ParseTime, config.DBName = true, ""
	pool, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("holdfast_test_%d_%d", os.Getpid(), mysqlDatabases.Add(1))
	if _, err := pool.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := pool.ExecContext(context.Background(), "DROP DATABASE "+name)
		if err = errors.Join(err, pool.Close()); err != nil {
			t.Error(err)
		}
	})
	config.DBName = name
	return config.FormatDSN()
}

func newDatabase(t testing.TB, name string) database {
	t.Helper()
	switch name {
	case dialectPostgres:
		return database{name, testserver.Postgres(t).DSN}
	case dialectMySQL:
		if server := os.Getenv(mysqlServer); server != "" {
			return database{name, mysqlDatabase(t, server)}
		}
		return database{name, testserver.MariaDB(t).DSN}
	}
	return database{name, t.TempDir() + "/test.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"}
}

// open opens the database, with the plugin that opts make, and creates the tables of models.
func (d database) open(t testing.TB, config gorm.Config, models []any, opts ...Option) *gorm.DB {
	t.Helper()
	db := d.bare(t, config)
	if err := db.AutoMigrate(models...); err != nil {
		t.Fatal(err)
	}
	if err := db.Use(New(append([]Option{WithModels(models...)}, opts...)...)); err != nil {
		t.Fatal(err)
	}
	return db
}

// bare opens the database without the plugin.
func (d database) bare(t testing.TB, config gorm.Config) *gorm.DB {
	t.Helper()
	if config.Logger == nil {
		config.Logger = logger.Discard
	}
	db, err := gorm.Open(d.dialector(), &config)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func (d database) dialector() gorm.Dialector {
	switch d.name {
	case dialectPostgres:
		return postgres.Open(d.dsn)
	case dialectMySQL:
		return mysql.Open(d.dsn)
	}
	return sqlite.Open(d.dsn)
}
