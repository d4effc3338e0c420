package gormplugin

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"
)

// verbsSent is a connection pool that keeps the first word of each statement about items.
type verbsSent struct {
	gorm.ConnPool
	verbs []string
}

// countSent puts a verbsSent in front of the pool.
func countSent(db *gorm.DB) *verbsSent {
	v := &verbsSent{ConnPool: db.ConnPool}
	db.ConnPool, db.Statement.ConnPool = v, v
	return v
}

func (v *verbsSent) note(query string) {
	if strings.Contains(query, "items") {
		v.verbs = append(v.verbs, strings.Fields(query)[0])
	}
}

func (v *verbsSent) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	v.note(query)
	return v.ConnPool.ExecContext(ctx, query, args...)
}

func (v *verbsSent) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	v.note(query)
	return v.ConnPool.QueryContext(ctx, query, args...)
}

// sent returns the verbs since the last call.
func (v *verbsSent) sent() []string {
	verbs := v.verbs
	v.verbs = nil
	return verbs
}

// stopClock stops the clock of db's plugin, which the test then sets: what is remembered is remembered for a second of it.
func stopClock(db *gorm.DB) (clock *time.Duration) {
	clock = new(time.Duration)
	db.Plugins[pluginName].(*Plugin).age = func() time.Duration { return *clock }
	return clock
}

// A row that was sold out the last time is read before it is written: one round trip says no, with the numbers of now.
func TestSoldOutRowIsRefusedInOneRoundTrip(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{SkipDefaultTransaction: true}, []any{&stocked{}}, WithRawSQL(Ignore))
		item, other := newItem(t, db, 1, 10), newItem(t, db, 1, 10)
		clock := stopClock(db)
		pool := countSent(db)
		take := func(tx *gorm.DB, id, n int64) error {
			return tx.Model(&stocked{ID: id}).Update("stock", Sub(n)).Error
		}
		refused := func(what string, err error, available string, want ...string) {
			t.Helper()
			var e *Error
			if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != "below_min" || e.Available() != available || e.Requested() != "2" || e.Limit() != "0" {
				t.Errorf("%s: %#v, want below_min of %s", what, err, available)
			}
			if got := pool.sent(); !slices.Equal(got, want) {
				t.Errorf("%s: sent %v, want %v", what, got, want)
			}
		}
		written := func(what string, err error, want ...string) {
			t.Helper()
			if got := pool.sent(); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, sent %v, want %v", what, err, got, want)
			}
		}
		refused("first", take(db, item.ID, 2), "1", "UPDATE", "SELECT")
		refused("again", take(db, item.ID, 2), "1", "SELECT")
		*clock += soldOutFor - 1
		refused("just before a second has gone", take(db, item.ID, 2), "1", "SELECT")
		*clock++ // what a read says extends nothing: it may be a replica's
		refused("after a second", take(db, item.ID, 2), "1", "UPDATE", "SELECT")
		refused("and again", take(db, item.ID, 2), "1", "SELECT")
		written("less", take(db, item.ID, 1), "UPDATE")
		refused("with other numbers", take(db, item.ID, 2), "0", "SELECT")
		written("another row", take(db, other.ID, 1), "UPDATE")

		// What is remembered is no answer: new stock sells at once.
		written("filled", db.Exec("UPDATE items SET stock = 5 WHERE id = ?", item.ID).Error, "UPDATE")
		written("new stock", take(db, item.ID, 2), "SELECT", "UPDATE")
		written("and goes on as ever", take(db, item.ID, 2), "UPDATE")
		if left := stockOf(t, db, item.ID); left != 1 {
			t.Errorf("stock %d, want 1", left)
		}
	})
}

// One read cannot speak for several rows: as long as one of them has enough, the statement goes out.
func TestSoldOutRowDoesNotSpeakForOthers(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{SkipDefaultTransaction: true}, []any{&stocked{}}, WithRawSQL(Ignore))
		newItem(t, db, 0, 10)
		second := newItem(t, db, 0, 10)
		take := func() error { return db.Model(&stocked{}).Where("title = ?", "mug").Update("stock", Sub(1)).Error }
		for range 3 {
			if err := take(); !errors.Is(err, ErrInsufficient) {
				t.Errorf("%v, want ErrInsufficient", err)
			}
		}
		if err := db.Model(&second).Update("stock", Add(1)).Error; err != nil {
			t.Fatal(err)
		}
		if err := take(); err != nil {
			t.Errorf("one of two rows has enough: %v", err)
		}
		if left := stockOf(t, db, second.ID); left != 0 {
			t.Errorf("stock %d, want 0", left)
		}
	})
}

// In a transaction an old snapshot is no answer: stock that came since is sold on every database that would have sold it.
func TestSoldOutRowIsNotReadFromAnOldSnapshot(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		if d.name == dialectSQLite {
			t.Log("SQLite has one writer, so nothing comes in between")
			return
		}
		db := d.open(t, gorm.Config{}, []any{&stocked{}}, WithRawSQL(Ignore))
		item := newItem(t, db, 0, 10)
		take := func(tx *gorm.DB) error { return tx.Model(&stocked{ID: item.ID}).Update("stock", Sub(1)).Error }
		for range 2 {
			if err := take(db); !errors.Is(err, ErrInsufficient) {
				t.Errorf("%v, want ErrInsufficient", err)
			}
		}
		err := db.Transaction(func(tx *gorm.DB) error {
			if left := stockOf(t, tx, item.ID); left != 0 { // makes the snapshot
				t.Errorf("stock %d, want 0", left)
			}
			if err := db.Model(&stocked{ID: item.ID}).Update("stock", Add(1)).Error; err != nil {
				return err
			}
			return take(tx)
		})
		if err != nil {
			t.Errorf("stock came before the statement: %v", err)
		}
	})
}

// A dry run asks the database nothing, sold out or not.
func TestSoldOutRowIsNotReadInADryRun(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{SkipDefaultTransaction: true}, []any{&stocked{}})
		item := newItem(t, db, 0, 10)
		if err := db.Model(&item).Update("stock", Sub(1)).Error; !errors.Is(err, ErrInsufficient) {
			t.Fatal(err)
		}
		pool := countSent(db)
		sql := db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Model(&item).Update("stock", Sub(1)) })
		if got := pool.sent(); len(got) > 0 || !strings.HasPrefix(sql, "UPDATE") {
			t.Errorf("sent %v for %s", got, sql)
		}
	})
}

// sentInTx is a verbsSent that is a transaction.
type sentInTx struct {
	*verbsSent
	gorm.TxCommitter
}

// In a transaction the row is read first on PostgreSQL alone: MySQL would lock it for reading, and two who then want to
// write it would deadlock; on SQLite a transaction that reads first may not write any more.
func TestSoldOutRowIsReadFirstInTransactionsOfPostgresOnly(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}}, WithRawSQL(Ignore))
		item := newItem(t, db, 1, 10)
		stopClock(db)
		want, sent := []string{"UPDATE", "SELECT"}, []string(nil)
		if d.name == dialectPostgres {
			want = []string{"SELECT"}
		}
		take := func(tx *gorm.DB) error {
			pool := &sentInTx{&verbsSent{ConnPool: tx.Statement.ConnPool}, tx.Statement.ConnPool.(gorm.TxCommitter)}
			tx.ConnPool, tx.Statement.ConnPool = pool, pool
			err := tx.Model(&stocked{ID: item.ID}).Update("stock", Sub(2)).Error
			if !errors.Is(err, ErrInsufficient) {
				t.Errorf("2 of 1: %v", err)
			}
			sent = pool.sent()
			return err
		}
		_ = db.Transaction(take) // refused: the next one knows
		if _ = db.Transaction(take); !slices.Equal(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
	})
}
