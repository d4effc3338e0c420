package gormplugin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

var (
	errBought = errors.New("already bought")
	errTaken  = errors.New("order number taken")
)

// shopOrder has the unique indexes of a flash sale: one row a request, one order number, one live order a user and item.
type shopOrder struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id"`
	OrderNo   string `gorm:"size:32;uniqueIndex:uk_order_no"`
	UserID    int64  `gorm:"uniqueIndex:uk_user_item"`
	ItemID    int64  `gorm:"uniqueIndex:uk_user_item"`
	Note      string
}

type shopItem struct {
	ID    int64
	Stock int64 `guard:"stock" gorm:"not null;check:chk_stock,stock >= 0"`
}

func shopOptions() []Option {
	return []Option{WithUnique("uk_user_item", errBought), WithUnique("uk_order_no", errTaken)}
}

func (d database) shop(t testing.TB, config gorm.Config) *gorm.DB {
	t.Helper()
	db := d.open(t, config, []any{&shopOrder{}, &shopItem{}}, shopOptions()...)
	if err := db.Create(&shopItem{ID: 1001, Stock: 100}).Error; err != nil {
		t.Fatal(err)
	}
	return db
}

// The same request twice: the second is told so and gets the stored row, although another unique index is violated too,
// and which of both a database reports depends on the order of its indexes.
func TestOwnRequestComesFirst(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		for name, config := range map[string]gorm.Config{
			"plain": {}, "translated": {TranslateError: true}, "prepared": {PrepareStmt: true}, "without transaction": {SkipDefaultTransaction: true},
		} {
			t.Run(name, func(t *testing.T) {
				d := newDatabase(t, d.name)
				db := d.shop(t, config)
				first := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001, Note: "first"}
				if inserted, err := InsertOnce(db, &first); !inserted || err != nil || first.ID == 0 {
					t.Fatalf("first: %v, %v, id %d", inserted, err, first.ID)
				}
				again := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001, Note: "again"}
				if inserted, err := InsertOnce(db, &again); inserted || err != nil || again != first {
					t.Errorf("again: %v, %v, row %+v; want the stored row", inserted, err, again)
				}
				err := db.Transaction(func(tx *gorm.DB) error {
					again := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
					if inserted, err := InsertOnce(tx, &again); inserted || err != nil || again != first {
						t.Errorf("in a transaction: %v, %v, row %+v", inserted, err, again)
					}
					return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
				})
				if err != nil {
					t.Errorf("the transaction after a duplicate: %v", err)
				}
				var rows int64
				if err := db.Model(&shopOrder{}).Count(&rows).Error; err != nil || rows != 1 {
					t.Errorf("%d rows, %v; want one", rows, err)
				}
			})
		}
	})
}

// D14, D46: another row with the same user and item, or the same order number, gives the error that this very index is
// mapped to; the transaction stays usable on PostgreSQL too, and the row in memory is as it was.
func TestDuplicateOfAnotherIndexGivesItsOwnError(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		if err := db.Create(&shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}).Error; err != nil {
			t.Fatal(err)
		}
		tests := map[string]struct {
			row   shopOrder
			index string
			want  error
		}{
			"user and item": {shopOrder{RequestID: "r2", OrderNo: "n2", UserID: 7, ItemID: 1001}, "uk_user_item", errBought},
			"order number":  {shopOrder{RequestID: "r3", OrderNo: "n1", UserID: 8, ItemID: 1001}, "uk_order_no", errTaken},
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				err := db.Transaction(func(tx *gorm.DB) error {
					row := tt.row
					inserted, err := InsertOnce(tx, &row)
					var e *Error
					if inserted || !errors.Is(err, tt.want) || !errors.Is(err, ErrDuplicate) || !errors.Is(err, gorm.ErrDuplicatedKey) || !Refused(err) {
						t.Errorf("got %v, %v; want the error of %s", inserted, err, tt.index)
					} else if errors.As(err, &e); e.Index() != tt.index || e.ErrorType() != "duplicate" {
						t.Errorf("index %q, type %q", e.Index(), e.ErrorType())
					}
					if row != tt.row {
						t.Errorf("row is %+v, want it as it was", row)
					}
					return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
				})
				if err != nil {
					t.Errorf("the transaction after the duplicate: %v", err)
				}
			})
		}
		var item shopItem
		if db.First(&item, 1001); item.Stock != 98 {
			t.Errorf("stock %d, want 98: both transactions were committed", item.Stock)
		}
	})
}

// The request id comes from the context where the row brings none; without any nothing is sent.
func TestInsertOnceTakesTheRequestFromTheContext(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		if _, err := InsertOnce(db, &shopOrder{OrderNo: "n1"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("without an id: %v, want ErrInvalid", err)
		}
		id := strings.Repeat("r", 43)
		db = db.WithContext(ContextWithRequest(t.Context(), id, 1))
		row := shopOrder{OrderNo: "n1", UserID: 7, ItemID: 1}
		if inserted, err := InsertOnce(db, &row); !inserted || err != nil || row.RequestID != id {
			t.Errorf("%v, %v, %+v", inserted, err, row)
		}
		again := shopOrder{OrderNo: "n1", UserID: 7, ItemID: 1}
		if inserted, err := InsertOnce(db, &again); inserted || err != nil || again != row {
			t.Errorf("again: %v, %v, %+v", inserted, err, again)
		}
	})
}

// A hook's work after the insert, and children, belong to the row: when it was passed over they must not happen.
type hookedOrder struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_hooked_request"`
	Lines     []hookedLine
	before    *int
	after     *int
}

type hookedLine struct {
	ID            int64
	HookedOrderID int64
	Units         int
}

func (o *hookedOrder) BeforeCreate(*gorm.DB) error { *o.before++; return nil }
func (o *hookedOrder) AfterCreate(*gorm.DB) error  { *o.after++; return nil }

func TestPassedOverRowHasNoAfterHookAndNoChildren(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&hookedOrder{}, &hookedLine{}})
		var before, after int
		insert := func() hookedOrder {
			row := hookedOrder{RequestID: "r1", Lines: []hookedLine{{Units: 1}, {Units: 2}}, before: &before, after: &after}
			if _, err := InsertOnce(db, &row); err != nil {
				t.Fatal(err)
			}
			return row
		}
		first, second := insert(), insert()
		var lines int64
		if err := db.Model(&hookedLine{}).Count(&lines).Error; err != nil || lines != 2 {
			t.Errorf("%d lines, %v; want those of the first alone", lines, err)
		}
		if after != 1 || first.ID == 0 || second.ID != first.ID {
			t.Errorf("after hooks %d, ids %d and %d", after, first.ID, second.ID)
		}
	})
}

// A request whose row was deleted softly has had its effect: the unique index counts the row, and so does InsertOnce.
func TestSoftlyDeletedRowOfTheRequestCounts(t *testing.T) {
	type softOrder struct {
		ID        string `gorm:"primaryKey;size:36"`
		RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_soft_request"`
		DeletedAt gorm.DeletedAt
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&softOrder{}})
		first := softOrder{ID: "a", RequestID: "r1"}
		if inserted, err := InsertOnce(db, &first); !inserted || err != nil {
			t.Fatal(inserted, err)
		}
		if err := db.Delete(&first).Error; err != nil {
			t.Fatal(err)
		}
		again := softOrder{ID: "b", RequestID: "r1"}
		if inserted, err := InsertOnce(db, &again); inserted || err != nil || again.ID != "a" || !again.DeletedAt.Valid {
			t.Errorf("got %v, %v, %+v; want the deleted row", inserted, err, again)
		}
	})
}

// A table that is named for the one statement, as with a table for each month.
func TestInsertOnceIntoANamedTable(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		type order struct {
			ID        int64
			RequestID string `guard:"request" gorm:"size:43;unique"`
		}
		db := d.open(t, gorm.Config{}, []any{&order{}})
		if err := db.Table("orders_may").AutoMigrate(&order{}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false} {
			row := order{RequestID: "r1"}
			if inserted, err := InsertOnce(db.Table("orders_may"), &row); inserted != want || err != nil || row.ID == 0 {
				t.Errorf("attempt %d: %v, %v, %+v", i, inserted, err, row)
			}
		}
		for table, want := range map[string]int64{"orders": 0, "orders_may": 1} {
			var rows int64
			if err := db.Table(table).Count(&rows).Error; err != nil || rows != want {
				t.Errorf("%s has %d rows, %v; want %d", table, rows, err, want)
			}
		}
	})
}

func TestInsertOnceRefusesWhatItCannotDo(t *testing.T) {
	db := newDatabase(t, dialectSQLite).shop(t, gorm.Config{})
	bare := newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
	for name, try := range map[string]func() (bool, error){
		"no plugin":  func() (bool, error) { return InsertOnce(bare, &shopOrder{RequestID: "r"}) },
		"by value":   func() (bool, error) { return InsertOnce(db, shopOrder{RequestID: "r"}) },
		"nil":        func() (bool, error) { return InsertOnce(db, (*shopOrder)(nil)) },
		"slice":      func() (bool, error) { return InsertOnce(db, &[]shopOrder{{RequestID: "r"}}) },
		"no request": func() (bool, error) { return InsertOnce(db, &shopItem{ID: 5}) },
		"on conflict": func() (bool, error) {
			return InsertOnce(db.Clauses(clause.OnConflict{UpdateAll: true}), &shopOrder{RequestID: "r"})
		},
		"context is over": func() (bool, error) { return InsertOnce(db.WithContext(cancelled()), &shopOrder{RequestID: "r"}) },
	} {
		t.Run(name, func(t *testing.T) {
			inserted, err := try()
			if inserted || !isOurs(err) {
				t.Errorf("got %v, %v; want an error of this package", inserted, err)
			}
		})
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("client gone"))
	return ctx
}
