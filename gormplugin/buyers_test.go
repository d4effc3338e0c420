package gormplugin

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A11, F095: many buyers of the last unit, without Redis: one has it, the others are told that it is gone, and no order
// without its unit is left.
func TestLastUnitHasOneBuyer(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		if err := db.Model(&shopItem{ID: 1001}).Update("stock", Sub(99)).Error; err != nil {
			t.Fatal(err)
		}
		var bought, soldOut atomic.Int32
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				order := shopOrder{RequestID: fmt.Sprint("r", i), OrderNo: fmt.Sprint("n", i), UserID: int64(i), ItemID: 1001}
				err := Retry(t.Context(), db, func(tx *gorm.DB) error { return buy(tx, &order) })
				switch {
				case err == nil:
					bought.Add(1)
				case errors.Is(err, ErrInsufficient) && Refused(err):
					soldOut.Add(1)
				default:
					t.Errorf("buyer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		var orders int64
		db.Model(&shopOrder{}).Count(&orders)
		if bought.Load() != 1 || soldOut.Load() != 29 || orders != 1 || d.stock(t) != 0 {
			t.Errorf("%d bought, %d sold out, %d orders, stock %d", bought.Load(), soldOut.Load(), orders, d.stock(t))
		}
	})
}

// The same request many times at once: one inserts, all have the same row, the effect is there once.
func TestOneRequestManyTimesAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		ids := make([]int64, 20)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				order := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
				if err := Retry(t.Context(), db, func(tx *gorm.DB) error { return buy(tx, &order) }); err != nil {
					t.Errorf("attempt %d: %v", i, err)
				}
				ids[i] = order.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id == 0 || id != ids[0] {
				t.Fatalf("orders %v, want one", ids)
			}
		}
		if got := d.stock(t); got != 99 {
			t.Errorf("stock %d, want 99", got)
		}
	})
}

// The row of the request is there but not committed: the second attempt waits for it. When the first is rolled back, the
// second inserts.
func TestInsertOnceWaitsForAnUncommittedRow(t *testing.T) {
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, name).shop(t, gorm.Config{})
			for _, commit := range []bool{false, true} {
				request := fmt.Sprint("r", commit)
				first := db.Begin()
				t.Cleanup(func() { first.Rollback() })
				if _, err := InsertOnce(first, &shopOrder{RequestID: request, OrderNo: request, UserID: 7, ItemID: 1001}); err != nil {
					t.Fatal(err)
				}
				second := shopOrder{RequestID: request, OrderNo: request, UserID: 7, ItemID: 1001}
				inserted, result := false, make(chan error, 1)
				go func() {
					var err error
					inserted, err = InsertOnce(db, &second)
					result <- err
				}()
				waitForALock(t, db)
				if commit {
					first.Commit()
				} else {
					first.Rollback()
				}
				if err := <-result; err != nil || inserted == commit || second.ID == 0 {
					t.Errorf("commit %v: inserted %v, %v, %+v", commit, inserted, err, second)
				}
				if err := db.Delete(&second).Error; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// waitForALock waits until a statement of the test's database waits for another's lock.
func waitForALock(t *testing.T, db *gorm.DB) {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%shop_orders%'"
	if db.Name() == dialectMySQL {
		query = "SELECT count(*) FROM information_schema.processlist WHERE state = 'Update' AND info LIKE 'INSERT INTO `shop_orders`%'"
	}
	testserver.Eventually(t, 10*time.Second, func() bool {
		var waiting int
		return db.Raw(query).Scan(&waiting).Error == nil && waiting > 0
	}, "a statement to wait for the uncommitted row")
}

// A transaction whose snapshot is older than the row finds it all the same on MySQL and MariaDB, where REPEATABLE READ is
// the default; PostgreSQL answers with a conflict there, which Retry repeats.
func TestInsertOnceSeesPastAnOldSnapshot(t *testing.T) {
	t.Run(dialectMySQL, func(t *testing.T) {
		db := newDatabase(t, dialectMySQL).shop(t, gorm.Config{})
		tx := db.Begin()
		defer tx.Rollback()
		if err := tx.Find(&[]shopOrder{}).Error; err != nil { // takes the snapshot
			t.Fatal(err)
		}
		stored := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
		if err := db.Create(&stored).Error; err != nil {
			t.Fatal(err)
		}
		row := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
		if inserted, err := InsertOnce(tx, &row); inserted || err != nil || row != stored {
			t.Errorf("got %v, %v, %+v; want the stored row", inserted, err, row)
		}
	})
	t.Run(dialectPostgres, func(t *testing.T) {
		d := newDatabase(t, dialectPostgres)
		d.shop(t, gorm.Config{})
		d.dsn += "&default_transaction_isolation=repeatable+read"
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New(shopOptions()...)); err != nil {
			t.Fatal(err)
		}
		ran := 0
		stored := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
		row := stored
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			if ran++; ran == 1 {
				if err := tx.Find(&[]shopOrder{}).Error; err != nil { // takes the snapshot
					return err
				}
				if err := db.Create(&stored).Error; err != nil {
					return err
				}
			}
			_, err := InsertOnce(tx, &row)
			return err
		})
		if err != nil || ran != 2 || row != stored {
			t.Errorf("got %v after %d runs, %+v; want the stored row after two", err, ran, row)
		}
	})
}
