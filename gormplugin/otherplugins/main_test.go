package otherplugins

import (
	"log/slog"
	"testing"

	"github.com/glebarez/sqlite"
	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/plugin/dbresolver"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// gorm's cache of prepared statements has a goroutine that nothing ends.
func TestMain(m *testing.M) {
	testserver.Main(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

var quiet = slog.New(slog.DiscardHandler)

// A database is opened again and again, each time the same one.
type database struct{ name, dsn string }

func onEach(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	for _, name := range []string{"sqlite", "postgres", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newDatabase(t, name))
		})
	}
}

func newDatabase(t *testing.T, name string) database {
	t.Helper()
	switch name {
	case "postgres":
		return database{name, testserver.Postgres(t).DSN}
	case "mariadb":
		return database{name, testserver.MariaDB(t).DSN}
	}
	return database{name, t.TempDir() + "/test.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"}
}

func (d database) dialector() gorm.Dialector {
	switch d.name {
	case "postgres":
		return postgres.Open(d.dsn)
	case "mariadb":
		return mysql.Open(d.dsn)
	}
	return sqlite.Open(d.dsn)
}

func (d database) open(t *testing.T, config gorm.Config) *gorm.DB {
	t.Helper()
	config.Logger = logger.Discard
	db, err := gorm.Open(d.dialector(), &config)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return db
}

// use hands the plugins to db.Use in their order.
func use(t *testing.T, db *gorm.DB, plugins ...gorm.Plugin) *gorm.DB {
	t.Helper()
	for _, p := range plugins {
		if err := db.Use(p); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func migrate(t *testing.T, db *gorm.DB, models ...any) {
	t.Helper()
	if err := db.AutoMigrate(models...); err != nil {
		t.Fatal(err)
	}
}

// closing closes the pools that dbresolver opened by itself.
func closing(t *testing.T, db *gorm.DB) *gorm.DB {
	t.Helper()
	r, ok := db.Plugins["gorm:db_resolver"].(*dbresolver.DBResolver)
	if !ok {
		return db
	}
	t.Cleanup(func() {
		_ = r.Call(func(pool gorm.ConnPool) error {
			if c, ok := pool.(interface{ Close() error }); ok {
				return c.Close()
			}
			return nil
		})
	})
	return db
}
