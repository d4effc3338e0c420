package gormplugin

import (
	"context"
	"database/sql"
	"reflect"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// noDatabase answers every statement with one row, so that a benchmark sees gorm and the plugin alone.
type noDatabase struct{}

type oneRow struct{}

func (oneRow) LastInsertId() (int64, error) { return 1, nil }
func (oneRow) RowsAffected() (int64, error) { return 1, nil }

func (noDatabase) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, nil }
func (noDatabase) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return oneRow{}, nil
}
func (noDatabase) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, nil }
func (noDatabase) QueryRowContext(context.Context, string, ...any) *sql.Row        { return nil }

// withoutDatabase returns a *gorm.DB on noDatabase, with the plugin or without.
func withoutDatabase(tb testing.TB, plugin bool) *gorm.DB {
	tb.Helper()
	// The dialector wants to ask a database for its version while it opens.
	pool, err := sql.Open(sqlite.DriverName, ":memory:")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = pool.Close() })
	db, err := gorm.Open(&sqlite.Dialector{Conn: pool}, &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true})
	if err != nil {
		tb.Fatal(err)
	}
	if plugin {
		if err := db.Use(New()); err != nil {
			tb.Fatal(err)
		}
	}
	db.ConnPool, db.Statement.ConnPool = noDatabase{}, noDatabase{}
	return db
}

type unguardedItem struct {
	ID    int64
	Title string
	Stock int64
}

// inCallbacks returns a *gorm.DB as callbacks see it.
func inCallbacks(tb testing.TB, db *gorm.DB, model any) *gorm.DB {
	tb.Helper()
	tx := db.Model(model).Where("id = ?", 1)
	tx.Statement.Dest = map[string]any{"stock": 1}
	tx.Statement.BuildClauses = tx.Callback().Update().Clauses
	if err := tx.Statement.Parse(model); err != nil {
		tb.Fatal(err)
	}
	tx.Statement.ReflectValue = reflect.ValueOf(model).Elem()
	return tx
}

func hooks(p *Plugin, tx *gorm.DB) {
	p.beforeUpdate(tx)
	p.verifyChange(tx)
	p.judge.beforeCommit(tx)
	p.after(tx)
}

// What the plugin costs a statement that it has nothing to do with: at most 20 ns, and nothing allocated.
func BenchmarkHooksOfUnguardedUpdate(b *testing.B) {
	db := withoutDatabase(b, true)
	p, err := pluginOf(db)
	if err != nil {
		b.Fatal(err)
	}
	tx := inCallbacks(b, db, &unguardedItem{ID: 1})
	b.ReportAllocs()
	for b.Loop() {
		hooks(p, tx)
	}
}

func TestUnguardedModelCostsNoAllocation(t *testing.T) {
	db := withoutDatabase(t, true)
	p, err := pluginOf(db)
	if err != nil {
		t.Fatal(err)
	}
	tx := inCallbacks(t, db, &unguardedItem{ID: 1})
	hooks(p, tx)
	if n := testing.AllocsPerRun(100, func() { hooks(p, tx) }); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}

// The same update by hand, on a model without guards, against the guarded one.
func BenchmarkConditionalUpdate(b *testing.B) {
	b.Run("by hand without plugin", func(b *testing.B) { byHand(b, withoutDatabase(b, false)) })
	b.Run("by hand", func(b *testing.B) { byHand(b, withoutDatabase(b, true)) })
	b.Run("Sub", func(b *testing.B) { guardedUpdate(b, withoutDatabase(b, true)) })
}

func byHand(b *testing.B, db *gorm.DB) {
	b.ReportAllocs()
	for b.Loop() {
		res := db.Model(&unguardedItem{ID: 1}).Where("stock >= ?", 1).Update("stock", gorm.Expr("stock - ?", 1))
		if res.Error != nil || res.RowsAffected != 1 {
			b.Fatal(res.Error, res.RowsAffected)
		}
	}
}

func guardedUpdate(b *testing.B, db *gorm.DB) {
	b.ReportAllocs()
	for b.Loop() {
		res := db.Model(&stocked{ID: 1}).Update("stock", Sub(1))
		if res.Error != nil || res.RowsAffected != 1 {
			b.Fatal(res.Error, res.RowsAffected)
		}
	}
}
