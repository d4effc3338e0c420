package gormplugin

import (
	"errors"
	"testing"

	"gorm.io/gorm"
)

// narrow has the column types that go wrong at their ends.
type narrow struct {
	ID       int64
	Unsigned uint64 `guard:"stock,max=1000" gorm:"not null"`
	Small    int16  `guard:"stock,min=-5" gorm:"not null"`
	Free     int32  `guard:"stock,min=reserved" gorm:"not null"`
	Reserved int32  `gorm:"not null"`
	Maybe    *int64 `guard:"stock,max=room"`
	Room     *int64
}

func TestBoundsAtTheEndsOfTypes(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&narrow{}})
		row := narrow{Unsigned: 1, Small: 0, Free: 5, Reserved: 3}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		step := func(column string, value Delta) error {
			return db.Model(&narrow{ID: row.ID}).Update(column, value).Error
		}
		refused := func(what string, err error, reason, available, limit string) {
			t.Helper()
			var e *Error
			if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != reason || e.Available() != available || e.Limit() != limit {
				t.Errorf("%s: %v, want %s with %s of %s", what, err, reason, available, limit)
			}
		}
		// An UNSIGNED column never sees a difference below 0, which would be MySQL's error 1690.
		if err := step("unsigned", Sub(1)); err != nil {
			t.Error(err)
		}
		refused("unsigned below 0", step("unsigned", Sub(1)), "below_min", "0", "0")
		refused("unsigned above max", step("unsigned", Add(1001)), "above_max", "0", "1000")
		if err := step("small", Sub(5)); err != nil {
			t.Error(err)
		}
		refused("small below -5", step("small", Sub(1)), "below_min", "-5", "-5")
		// More than the column's type holds is more than there is, not an error of the driver's.
		refused("small by 2^53-1", step("small", Sub(int64(maxAmount))), "below_min", "-5", "-5")
		refused("free below reserved", step("free", Sub(3)), "below_min", "5", "3")
		if err := step("free", Sub(2)); err != nil {
			t.Error(err)
		}
		refused("NULL", step("maybe", Sub(1)), "null", "", "0")
		if err := db.Clauses(AllowAbsolute("maybe")).Model(&row).Update("maybe", 1).Error; err != nil {
			t.Error(err)
		}
		refused("NULL as max", step("maybe", Add(1)), "null", "1", "")
		// Without a max the type's own end is the bound.
		err := step("small", Add(1<<20))
		if d.name == dialectSQLite {
			if err != nil {
				t.Errorf("SQLite has no end: %v", err)
			}
		} else if !errors.Is(err, ErrInsufficient) {
			t.Errorf("beyond the type: %v, want ErrInsufficient out_of_range", err)
		}
	})
}

// Two columns of one row move in one statement, or not at all.
func TestTwoColumnsInOneStatement(t *testing.T) {
	type seat struct {
		ID   int64
		Free int64 `guard:"stock" gorm:"not null"`
		Held int64 `guard:"stock,max=2" gorm:"not null"`
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&seat{}})
		row := seat{Free: 9}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		hold := func() error {
			return db.Model(&seat{ID: row.ID}).Updates(map[string]any{"free": Sub(1), "held": Add(1)}).Error
		}
		if err := errors.Join(hold(), hold()); err != nil {
			t.Fatal(err)
		}
		err := hold()
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Column() != "held" || e.Reason() != "above_max" {
			t.Errorf("a third: %v", err)
		}
		if err := db.Take(&row, row.ID).Error; err != nil || row.Free != 7 || row.Held != 2 {
			t.Errorf("row %+v, %v", row, err)
		}
	})
}

// MySQL's plain reads see the snapshot of the transaction's first read; the diagnosis must not.
func TestDiagnosisSeesPastAnOldSnapshot(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		if d.name == dialectSQLite {
			return // a reader's transaction cannot write once somebody else has: that is a conflict
		}
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		err := db.Transaction(func(tx *gorm.DB) error {
			if got := stockOf(t, tx, item.ID); got != 3 {
				t.Errorf("read %d", got)
			}
			if err := db.Model(&stocked{ID: item.ID}).Update("stock", Sub(2)).Error; err != nil {
				t.Error(err)
			}
			return tx.Model(&stocked{ID: item.ID}).Update("stock", Sub(2)).Error
		})
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != "below_min" || e.Available() != "1" {
			t.Errorf("got %v, available %s, want below_min with 1", err, e.Available())
		}
	})
}

// The diagnosis asks the connection that the statement ran on, not one that a resolver picks for reads.
func TestDiagnosisDoesNotGoToAReplica(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&stocked{}})
	item := newItem(t, db, 0, 10)
	replica := func(db *gorm.DB) { _ = db.AddError(errors.New("a replica that lags")) }
	if err := db.Callback().Query().Before("gorm:query").Register("resolver", replica); err != nil {
		t.Fatal(err)
	}
	if err := db.Model(&item).Update("stock", Sub(1)).Error; !errors.Is(err, ErrInsufficient) {
		t.Errorf("got %v, want ErrInsufficient", err)
	}
}
