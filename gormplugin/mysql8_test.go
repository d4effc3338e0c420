//go:build mysql8

package gormplugin

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	gosql "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// What MySQL 8 does in another way than MariaDB. These tests need a server that does not come with them: `make test-mysql`
// runs them, with all others of the package, and `make test` says by name that it has not.

func mysql8(t *testing.T) database {
	t.Helper()
	if os.Getenv(mysqlServer) == "" {
		t.Fatalf("set %s to a MySQL 8 server, such as root:secret@tcp(127.0.0.1:3306)/", mysqlServer)
	}
	d := newDatabase(t, dialectMySQL)
	var version string
	if err := d.bare(t, gorm.Config{}).Raw("SELECT VERSION()").Scan(&version).Error; err != nil || !strings.HasPrefix(version, "8.") {
		t.Fatalf("the server is %q, %v: want MySQL 8", version, err)
	}
	return d
}

// answered reports whether err holds an answer of the server with that number.
func answered(err error, number uint16) bool {
	var e *gosql.MySQLError
	return errors.As(err, &e) && e.Number == number
}

// A violated CHECK is error 3819 there, 4025 on MariaDB; both name the constraint.
func TestMySQL8_CheckIsNotEnoughOrWhatWithCheckSays(t *testing.T) {
	type checkedItem struct {
		ID    int64
		Stock int64 `guard:"stock" gorm:"not null;check:chk_mysql8_stock,stock >= 0"`
		Age   int64 `gorm:"check:chk_mysql8_age,age < 200"`
	}
	errTooOld := errors.New("too old")
	db := mysql8(t).open(t, gorm.Config{}, []any{&checkedItem{}}, WithCheck("chk_mysql8_age", errTooOld), WithRawSQL(Ignore))
	if err := db.Create(&checkedItem{ID: 1, Stock: 1}).Error; err != nil {
		t.Fatal(err)
	}
	if err := db.Exec("UPDATE checked_items SET stock = -1").Error; !errors.Is(err, ErrInsufficient) || !answered(err, 3819) {
		t.Errorf("%v, want ErrInsufficient from error 3819", err)
	}
	if err := db.Model(&checkedItem{ID: 1}).Update("age", 300).Error; !errors.Is(err, errTooOld) {
		t.Errorf("%v, want the error of WithCheck", err)
	}
}

// A duplicate names the index as table.index there, MariaDB as index alone; WithUnique takes both.
func TestMySQL8_DuplicateNamesTableAndIndex(t *testing.T) {
	type seat struct {
		ID  int64
		Row int64 `gorm:"uniqueIndex:uk_mysql8_seat"`
		No  int64 `gorm:"uniqueIndex:uk_mysql8_seat"`
	}
	d := mysql8(t)
	for _, name := range []string{"uk_mysql8_seat", "seats.uk_mysql8_seat"} {
		db := d.open(t, gorm.Config{}, []any{&seat{}}, WithUnique(name, errTaken))
		if err := db.Where("1 = 1").Delete(&seat{}).Error; err != nil {
			t.Fatal(err)
		}
		if err := db.Create(&seat{Row: 7, No: 1}).Error; err != nil {
			t.Fatal(err)
		}
		err := db.Create(&seat{Row: 7, No: 1}).Error
		var e *Error
		if !errors.Is(err, errTaken) || !errors.As(err, &e) || e.Index() != "uk_mysql8_seat" {
			t.Errorf("%s: %v, want the mapped error and the index's name", name, err)
		}
	}
}

// FOR UPDATE NOWAIT meets error 3572 there, 1205 on MariaDB: a conflict, and the transaction lives on with the first only.
func TestMySQL8_NowaitIsAConflictThatLeavesTheTransaction(t *testing.T) {
	db := mysql8(t).open(t, gorm.Config{}, []any{&stocked{}})
	item := newItem(t, db, 5, 10)
	err := db.Transaction(func(holder *gorm.DB) error {
		if err := holder.Model(&stocked{ID: item.ID}).Update("stock", Sub(1)).Error; err != nil {
			return err
		}
		return db.Transaction(func(tx *gorm.DB) error {
			lock := clause.Locking{Strength: "UPDATE", Options: "NOWAIT"}
			if err := tx.Clauses(lock).Take(&stocked{}, item.ID).Error; !errors.Is(err, ErrConflict) || !answered(err, 3572) {
				t.Errorf("%v, want ErrConflict from error 3572", err)
			}
			return tx.Create(&stocked{Title: "cup", Stock: 1, Capacity: 1}).Error
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// An unsigned column below zero is error 1690 to plain SQL; the guard's own condition subtracts nothing, so it is asked
// with numbers instead.
func TestMySQL8_UnsignedColumnIsRefusedWithNumbers(t *testing.T) {
	type bin struct {
		ID    int64
		Units uint64 `guard:"stock" gorm:"not null"`
	}
	db := mysql8(t).open(t, gorm.Config{}, []any{&bin{}}, WithRawSQL(Ignore))
	if err := db.Create(&bin{ID: 1, Units: 2}).Error; err != nil {
		t.Fatal(err)
	}
	if err := db.Exec("UPDATE bins SET units = units - 3").Error; !errors.Is(err, ErrInsufficient) || !answered(err, 1690) {
		t.Errorf("%v, want ErrInsufficient from error 1690", err)
	}
	var e *Error
	if err := db.Model(&bin{ID: 1}).Update("units", Sub(3)).Error; !errors.As(err, &e) || e.Reason() != "below_min" || e.Available() != "2" {
		t.Errorf("%v, want below_min with 2 available", err)
	}
	if left, err := Take(db, &bin{ID: 1}, 2); err != nil || left != 0 {
		t.Errorf("left %d, %v: want 0 from LAST_INSERT_ID", left, err)
	}
}

// information_schema keeps CHECK constraints by schema and name there, by table on MariaDB, and a functional index has
// parts that are no columns. VerifySchema reads both.
func TestMySQL8_VerifySchemaReadsChecksAndFunctionalIndexes(t *testing.T) {
	d := mysql8(t)
	d.dsn += "&clientFoundRows=true"
	db := d.open(t, gorm.Config{}, []any{&soundItem{}, &soundOrder{}}, WithUnique("uk_sound_user_item", errBought))
	p, err := pluginOf(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Exec("CREATE UNIQUE INDEX uk_lower_code ON sound_orders ((LOWER(code)))").Error; err != nil {
		t.Fatal(err)
	}
	if err := p.VerifySchema(t.Context(), db); err != nil {
		t.Errorf("%v, want no fault", err)
	}
	if err := db.Exec("DROP INDEX uk_sound_user_item ON sound_orders").Error; err != nil {
		t.Fatal(err)
	}
	if err := p.VerifySchema(t.Context(), db); err == nil || !strings.Contains(err.Error(), "uk_sound_user_item") {
		t.Errorf("%v, want the missing index by name", err)
	}
}

// After a deadlock the server has rolled the transaction back, and would run the next statement by itself: the plugin ends
// the transaction, so nothing of a half cart is ever committed. Retry takes the whole of it again.
func TestMySQL8_DeadlockedTransactionCommitsNothing(t *testing.T) {
	db := mysql8(t).open(t, gorm.Config{}, []any{&stocked{}})
	first, second := newItem(t, db, 10, 10), newItem(t, db, 10, 10)
	met := make(chan struct{}, 2)
	both := make(chan struct{})
	go func() {
		<-met
		<-met
		close(both)
	}()
	buy := func(a, b int64) error {
		waited := false
		return Retry(context.Background(), db, func(tx *gorm.DB) error {
			if err := tx.Model(&stocked{ID: a}).Update("stock", Sub(1)).Error; err != nil {
				return err
			}
			if !waited {
				waited = true
				met <- struct{}{}
				<-both
			}
			return tx.Model(&stocked{ID: b}).Update("stock", Sub(1)).Error
		})
	}
	done := make(chan error, 1)
	go func() { done <- buy(first.ID, second.ID) }()
	if err := errors.Join(buy(second.ID, first.ID), <-done); err != nil {
		t.Error(err)
	}
	if a, b := stockOf(t, db, first.ID), stockOf(t, db, second.ID); a != 8 || b != 8 {
		t.Errorf("stock %d and %d, want 8 and 8: two carts, each whole", a, b)
	}
}
