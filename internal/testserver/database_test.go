package testserver_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

var databases = []struct {
	name   string
	driver string
	create func(t testing.TB) testserver.Database
	// find is a query that counts the schemas or databases of a name.
	find string
}{
	{"PostgreSQL", "pgx", testserver.Postgres, "SELECT count(*) FROM pg_namespace WHERE nspname = '%s'"},
	{"MariaDB", "mysql", testserver.MariaDB, "SELECT count(*) FROM information_schema.schemata WHERE schema_name = '%s'"},
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// Tests that run at the same time create the same table and see their own rows only.
func TestDatabase_TestsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for _, name := range []string{"one", "two", "three"} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				own := d.create(t)
				db := open(t, d.driver, own.DSN)
				for _, query := range []string{"CREATE TABLE a (name varchar(10) UNIQUE)", "INSERT INTO a VALUES ('" + name + "')"} {
					if _, err := db.ExecContext(t.Context(), query); err != nil {
						t.Fatalf("%s: %v", query, err)
					}
				}
				var got string
				must(t, db.QueryRowContext(t.Context(), "SELECT name FROM a").Scan(&got))
				if got != name {
					t.Errorf("got %q, want %q", got, name)
				}
			})
		}
	}
}

// It is dropped at the end of its test even if a transaction is still open on it.
func TestDatabase_DroppedWithItsTest(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			watcher := open(t, d.driver, d.create(t).DSN)
			count := func(name string) (n int) {
				must(t, watcher.QueryRowContext(t.Context(), strings.Replace(d.find, "%s", name, 1)).Scan(&n))
				return n
			}
			var name string
			var left *sql.DB
			var tx *sql.Tx
			t.Run("inner", func(t *testing.T) {
				own := d.create(t)
				name = own.Name
				db, err := sql.Open(d.driver, own.DSN)
				must(t, err)
				left = db
				_, err = db.ExecContext(t.Context(), "CREATE TABLE a (id int)")
				must(t, err)
				tx, err = db.Begin()
				must(t, err)
				_, err = tx.Exec("INSERT INTO a VALUES (1)")
				must(t, err)
				if count(name) != 1 {
					t.Errorf("%s is not there", name)
				}
			})
			if err := tx.Rollback(); err == nil {
				t.Error("the connection of the open transaction was not ended")
			}
			must(t, left.Close())
			if count(name) != 0 {
				t.Errorf("%s is still there", name)
			}
		})
	}
}
