package gormplugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// meeting lets n goroutines wait for each other once; whoever comes again passes.
type meeting struct {
	sync.WaitGroup
	once []sync.Once
}

func newMeeting(n int) *meeting {
	m := &meeting{once: make([]sync.Once, n)}
	m.Add(n)
	return m
}

func (m *meeting) at(i int) { m.once[i].Do(m.Done); m.Wait() }

// X30, F097: carts [1, 2] and [2, 1] lock each other out (40P01, 1213). With Retry both succeed; without it the loser gets
// one typed error that is worth a repeat, and its transaction is over.
func TestDeadlock(t *testing.T) {
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, name)
			db := d.shop(t, gorm.Config{})
			if err := db.Create(&shopItem{ID: 1002, Stock: 100}).Error; err != nil {
				t.Fatal(err)
			}
			cross := func(run func(ctx context.Context, db *gorm.DB, fn func(*gorm.DB) error) error) [2]error {
				var errs [2]error
				both, wg := newMeeting(2), sync.WaitGroup{}
				for i := range 2 {
					wg.Go(func() {
						items := []int64{1001, 1002}
						errs[i] = run(t.Context(), db, func(tx *gorm.DB) error {
							if err := tx.Model(&shopItem{ID: items[i]}).Update("stock", Sub(1)).Error; err != nil {
								return err
							}
							both.at(i)
							return tx.Model(&shopItem{ID: items[1-i]}).Update("stock", Sub(1)).Error
						})
					})
				}
				wg.Wait()
				return errs
			}
			errs := cross(func(ctx context.Context, db *gorm.DB, fn func(*gorm.DB) error) error {
				return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
					err := fn(tx)
					if err != nil {
						if again := tx.Create(&shopOrder{RequestID: "late", OrderNo: "late"}).Error; !errors.Is(again, ErrConflict) {
							t.Errorf("the statement after a deadlock: %v, want the same error: it would commit by itself", again)
						}
					}
					return err
				})
			})
			lost := errors.Join(errs[:]...)
			var e *Error
			if !errors.As(lost, &e) || !errors.Is(lost, ErrConflict) || !e.Retryable() || e.Reason() != "deadlock" || Refused(lost) || !hasDriversError(lost) {
				t.Errorf("without Retry: %v, want ErrConflict", errs)
			}
			if errs := cross(Retry); errs[0] != nil || errs[1] != nil {
				t.Errorf("with Retry: %v, want success", errs)
			}
			var late int64
			if db.Model(&shopOrder{}).Count(&late); late != 0 {
				t.Error("a statement after the deadlock was committed by itself")
			}
			if got := d.stock(t); got != 97 {
				t.Errorf("stock %d, want 97: one transaction without Retry and two with it", got)
			}
		})
	}
}

// Swallowing a deadlock does not help: the COMMIT tells of it, and the whole is run again.
func TestSwallowedConflictIsNotCommitted(t *testing.T) {
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, name)
			db := d.shop(t, gorm.Config{})
			ran := 0
			err := Retry(t.Context(), db, func(tx *gorm.DB) error {
				ran++
				if err := tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error; err != nil {
					return err
				}
				if ran == 1 {
					provokeConflict(t, tx)
				}
				tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1))
				return nil
			})
			if err != nil || ran != 2 {
				t.Errorf("got %v after %d runs, want success after two", err, ran)
			}
			if got := d.stock(t); got != 98 {
				t.Errorf("stock %d, want 98", got)
			}
		})
	}
}

// provokeConflict makes the database end the transaction as a deadlock does.
func provokeConflict(t *testing.T, tx *gorm.DB) {
	t.Helper()
	raise := "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213"
	if tx.Name() == dialectPostgres {
		raise = "DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$"
	}
	if err := tx.Exec(raise).Error; !errors.Is(err, ErrConflict) {
		t.Fatalf("provoking a conflict: %v", err)
	}
}

// X30: two transactions read and then write the same row under REPEATABLE READ (40001; on MariaDB 1020).
func TestSerializationFailureIsRepeated(t *testing.T) {
	for name, setting := range map[string]string{
		dialectPostgres: "&default_transaction_isolation=repeatable+read",
		dialectMySQL:    "&innodb_snapshot_isolation=1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, name)
			d.shop(t, gorm.Config{})
			d.dsn += setting
			db := d.bare(t, gorm.Config{})
			if err := db.Use(New()); err != nil {
				t.Fatal(err)
			}
			both, wg := newMeeting(2), sync.WaitGroup{}
			var runs atomic.Int32
			for i := range 2 {
				wg.Go(func() {
					err := Retry(t.Context(), db, func(tx *gorm.DB) error {
						runs.Add(1)
						if err := tx.First(&shopItem{}, 1001).Error; err != nil {
							return err
						}
						both.at(i)
						return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
					})
					if err != nil {
						t.Errorf("got %v, want success", err)
					}
				})
			}
			wg.Wait()
			if got := d.stock(t); got != 98 || runs.Load() < 3 {
				t.Errorf("stock %d after %d runs, want 98 after a repeat", got, runs.Load())
			}
		})
	}
}

// A lock wait that times out (55P03, 1205, SQLite's busy) is a conflict too.
func TestLockWaitThatTimesOutIsAConflict(t *testing.T) {
	for name, setting := range map[string]string{
		dialectPostgres: "&lock_timeout=50",
		dialectMySQL:    "&innodb_lock_wait_timeout=1",
		dialectSQLite:   "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, name)
			db := d.shop(t, gorm.Config{})
			d.dsn = strings.Replace(d.dsn, "busy_timeout(5000)", "busy_timeout(20)", 1) + setting
			impatient := d.bare(t, gorm.Config{})
			if err := impatient.Use(New()); err != nil {
				t.Fatal(err)
			}
			holder := db.Begin()
			defer holder.Rollback()
			if err := holder.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error; err != nil {
				t.Fatal(err)
			}
			err := impatient.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrConflict) || e.Reason() != "lock_wait" || !hasDriversError(err) {
				t.Errorf("got %v, want ErrConflict lock_wait", err)
			}
		})
	}
}

// Five attempts, then one typed error with the last cause; models are as they were before, each time.
func TestRetryGivesUpAfterFiveAttempts(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		ran := 0
		order := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
		before := order
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			if ran++; order != before {
				t.Errorf("run %d starts with %+v, want %+v", ran, order, before)
			}
			if err := buy(tx, &order); err != nil {
				t.Errorf("run %d: %v", ran, err)
			}
			if order.ID == 0 {
				t.Errorf("run %d: the row got no id", ran)
			}
			return fmt.Errorf("from the bare connection: %w", conflictOf(d.name))
		})
		if ran != 5 || !errors.Is(err, ErrConflict) || !errors.Is(err, conflictOf(d.name)) || Refused(err) {
			t.Errorf("got %v after %d runs, want ErrConflict with its cause after 5", err, ran)
		}
		if order != before {
			t.Errorf("the order is %+v at the end, want it as it was", order)
		}
		if got := d.stock(t); got != 100 {
			t.Errorf("stock %d, want 100", got)
		}
	})
}

// conflictOf is a conflict that the plugin did not see, since it came past gorm.
func conflictOf(dialect string) error {
	switch dialect {
	case dialectPostgres:
		return errDeadlock
	case dialectMySQL:
		return my(1213, "40001", "Deadlock found when trying to get lock; try restarting transaction")
	}
	return errBusy
}

var (
	errDeadlock = &pgconn.PgError{Code: "40P01"}
	errBusy     = errors.New("database is locked")
)

// A refusal is an answer: it is not tried again.
func TestRetryDoesNotRepeatRefusals(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		ran := 0
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			ran++
			if _, err := InsertOnce(tx, &shopOrder{RequestID: "r1", OrderNo: "n1"}); err != nil {
				return err
			}
			return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(101)).Error
		})
		if ran != 1 || !errors.Is(err, ErrInsufficient) || !Refused(err) {
			t.Errorf("got %v after %d runs, want ErrInsufficient after one", err, ran)
		}
		var rows int64
		if db.Model(&shopOrder{}).Count(&rows); rows != 0 {
			t.Errorf("%d orders, want none: the refusal takes all back", rows)
		}
	})
}

// A panic rolls back and goes on, and so does the end of the goroutine.
func TestRetryRollsBackOnPanic(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		order := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
		before := order
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v, want the panic itself", got)
				}
			}()
			_ = Retry(t.Context(), db, func(tx *gorm.DB) error {
				if err := buy(tx, &order); err != nil {
					t.Error(err)
				}
				panic("boom")
			})
		}()
		if order != before {
			t.Errorf("the order is %+v, want it as it was", order)
		}
		if got := d.stock(t); got != 100 {
			t.Errorf("stock %d, want 100", got)
		}
		pool, err := db.DB()
		if err != nil {
			t.Fatal(err)
		}
		testserver.Eventually(t, 5*time.Second, func() bool { return pool.Stats().InUse == 0 }, "the connection to be given back")
	})
}

func TestRetryWantsNoTransaction(t *testing.T) {
	d := newDatabase(t, dialectSQLite)
	db := d.shop(t, gorm.Config{})
	never := func(*gorm.DB) error { t.Error("fn ran"); return nil }
	if err := Retry(t.Context(), d.bare(t, gorm.Config{}), never); !errors.Is(err, ErrInvalid) {
		t.Errorf("without the plugin: %v, want ErrInvalid", err)
	}
	err := db.Transaction(func(tx *gorm.DB) error { return Retry(t.Context(), tx, never) })
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("in a transaction: %v, want ErrInvalid", err)
	}
}

// Whoever ends the transaction inside fn gets no promise about what was written.
func TestRetryOfATransactionThatFnHasEnded(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		for name, end := range map[string]func(tx *gorm.DB) *gorm.DB{"commit": (*gorm.DB).Commit, "rollback": (*gorm.DB).Rollback} {
			err := Retry(t.Context(), db, func(tx *gorm.DB) error { return end(tx).Error })
			if !errors.Is(err, ErrUnknownOutcome) || Refused(err) {
				t.Errorf("%s: %v, want ErrUnknownOutcome", name, err)
			}
		}
	})
}

// An error that came past the plugin has ended a PostgreSQL transaction: COMMIT finds that nothing can be written.
func TestRetryOfATransactionThatBrokeUnseen(t *testing.T) {
	db := newDatabase(t, dialectPostgres).shop(t, gorm.Config{})
	err := Retry(t.Context(), db, func(tx *gorm.DB) error {
		_, _ = tx.Statement.ConnPool.ExecContext(t.Context(), "SELECT 1/0")
		return nil
	})
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrUnavailable: nothing was written", err)
	}
}

// A COMMIT under a lease that is over is refused with the lease's verdict, and while Retry runs the lease knows of it.
func TestRetryRefusesToCommitUnderALeaseThatIsOver(t *testing.T) {
	errLost := errors.New("lost")
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		var over atomic.Bool
		lease := &reqctx.Lease{Keys: []string{"stock:1001"}, Fence: 1, Verdict: func() error {
			if over.Load() {
				return errLost
			}
			return nil
		}}
		ctx := reqctx.WithLease(t.Context(), lease)
		err := Retry(ctx, db, func(tx *gorm.DB) error {
			if !lease.OpenTx() {
				t.Error("the lease does not know of the open transaction")
			}
			err := tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
			over.Store(true)
			return err
		})
		var e *Error
		if !errors.Is(err, ErrStaleFence) || !errors.Is(err, errLost) || !errors.As(err, &e) || e.Reason() != "lease" {
			t.Errorf("got %v, want ErrStaleFence with the verdict", err)
		}
		if lease.OpenTx() {
			t.Error("the lease still knows of a transaction")
		}
		if got := d.stock(t); got != 100 {
			t.Errorf("stock %d, want 100", got)
		}
		if err := Retry(ctx, db, func(*gorm.DB) error { t.Error("fn ran"); return nil }); !errors.Is(err, errLost) {
			t.Errorf("under a lease that was over before: %v", err)
		}
	})
}

// A context that ends before COMMIT: nothing is written, for certain.
func TestRetryRefusesToCommitUnderAContextThatIsOver(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("client gone")
		err := Retry(ctx, db, func(tx *gorm.DB) error {
			err := tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
			cancel(gone)
			return err
		})
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, gone) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want ErrUnavailable with the context's cause", err)
		}
		if got := d.stock(t); got != 100 {
			t.Errorf("stock %d, want 100", got)
		}
	})
}

// A context that ends while Retry waits for its next attempt: the last conflict is found, and why the wait ended.
func TestRetryWaitsWithinItsContext(t *testing.T) {
	db := newDatabase(t, dialectSQLite).shop(t, gorm.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	err := Retry(ctx, db, func(*gorm.DB) error { defer cancel(); return errBusy })
	if !errors.Is(err, ErrConflict) || !errors.Is(err, errBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrConflict with both causes", err)
	}
}

// SQLite refuses a COMMIT while others read, and leaves the transaction open on a connection that database/sql would hand
// to the next one. Retry rolls it back, tries again, and the connection is as good as new.
func TestRetryOnSQLiteThatCannotCommit(t *testing.T) {
	d := database{dialectSQLite, t.TempDir() + "/test.db?_pragma=busy_timeout(1)&_pragma=journal_mode(DELETE)"}
	db := d.shop(t, gorm.Config{})
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxOpenConns(1)
	reader := d.bare(t, gorm.Config{}).Begin()
	if err := reader.First(&shopItem{}, 1001).Error; err != nil {
		t.Fatal(err)
	}
	ran := 0
	err = Retry(t.Context(), db, func(tx *gorm.DB) error {
		if ran++; ran == 3 {
			reader.Rollback()
		}
		return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
	})
	if err != nil || ran != 3 {
		t.Errorf("got %v after %d runs, want success after 3", err, ran)
	}
	if got := d.stock(t); got != 99 {
		t.Errorf("stock %d, want 99", got)
	}
}

// The waits are spread over their whole range, which grows and never passes its ends.
func TestBackoff(t *testing.T) {
	least := func(int64) int64 { return 0 }
	most := func(n int64) int64 { return n - 1 }
	for attempt, want := range []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond} {
		if attempt == 0 {
			continue
		}
		if got := backoff(attempt, least); got != 5*time.Millisecond {
			t.Errorf("after attempt %d: at least %v, want 5ms", attempt, got)
		}
		if got := backoff(attempt, most); got != want {
			t.Errorf("after attempt %d: at most %v, want %v", attempt, got, want)
		}
	}
}
