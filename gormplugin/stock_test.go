package gormplugin

import (
	"context"
	"errors"
	"math"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// stocked is a table with everything a sale needs.
type stocked struct {
	ID       int64
	Title    string
	Stock    int64 `guard:"stock,max=capacity" gorm:"not null"`
	Capacity int64 `gorm:"not null"`
}

func (stocked) TableName() string { return "items" }

// bystander has the columns and none of the guards.
type bystander struct{ ID, Stock int64 }

func newItem(t *testing.T, db *gorm.DB, stock, capacity int64) stocked {
	t.Helper()
	row := stocked{Title: "mug", Stock: stock, Capacity: capacity}
	if err := db.Create(&row).Error; err != nil {
		t.Fatal(err)
	}
	return row
}

func stockOf(t *testing.T, db *gorm.DB, id int64) int64 {
	t.Helper()
	var row stocked
	if err := db.Take(&row, id).Error; err != nil {
		t.Fatal(err)
	}
	return row.Stock
}

// D13: the update carries `stock >= n`, and 0 rows is an error that says why.
func TestSubTakesWhatIsThereAndNoMore(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)

		res := db.Model(&item).Update("stock", Sub(2))
		if res.Error != nil || res.RowsAffected != 1 {
			t.Fatalf("Sub(2) of 3: %v, %d rows", res.Error, res.RowsAffected)
		}
		err := db.Model(&item).Update("stock", Sub(2)).Error
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) {
			t.Fatalf("Sub(2) of 1: %v, want ErrInsufficient", err)
		}
		if e.Reason() != "below_min" || e.Available() != "1" || e.Requested() != "2" || e.Limit() != "0" || e.Table() != "items" || e.Column() != "stock" {
			t.Errorf("got %s available %s requested %s limit %s of %s.%s", e.Reason(), e.Available(), e.Requested(), e.Limit(), e.Table(), e.Column())
		}
		if !Refused(err) {
			t.Error("a refusal is not Refused")
		}
		if err := db.Model(&stocked{ID: 999}).Update("stock", Sub(1)).Error; !errors.Is(err, ErrNotFound) || !errors.Is(err, gorm.ErrRecordNotFound) {
			t.Errorf("no such row: %v, want ErrNotFound", err)
		}
		// F111: the last unit can be had, and the row shows 0.
		if err := db.Model(&item).Update("stock", Sub(1)).Error; err != nil {
			t.Fatal(err)
		}
		if got := stockOf(t, db, item.ID); got != 0 {
			t.Errorf("stock %d, want 0", got)
		}
	})
}

// Units that are put back where there is no row are not put back: that is an error, with a max and without.
func TestAddNeedsARow(t *testing.T) {
	type unbounded struct {
		ID    int64
		Stock int64 `guard:"stock,min=0"`
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}, &unbounded{}})
		for _, model := range []any{&stocked{ID: 999}, &unbounded{ID: 999}} {
			if err := db.Model(model).Update("stock", Add(1)).Error; !errors.Is(err, ErrNotFound) {
				t.Errorf("%T: %v, want ErrNotFound", model, err)
			}
			if err := db.Model(model).Clauses(Expect(0)).Update("stock", Add(1)).Error; err != nil {
				t.Errorf("%T, and none is expected: %v", model, err)
			}
		}
	})
}

func TestAddStopsAtItsMax(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 8, 10)
		if err := db.Model(&item).Update("stock", Add(2)).Error; err != nil {
			t.Fatal(err)
		}
		err := db.Model(&item).Update("stock", Add(1)).Error
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != "above_max" || e.Available() != "10" || e.Limit() != "10" {
			t.Fatalf("Add(1) to 10 of 10: %v", err)
		}
	})
}

// D06, X09: an amount is 1 or more, up to 2^53-1, in any integer type.
func TestAmountsOutOfRangeNeverReachTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		for name, value := range map[string]any{
			"zero": Sub(0), "negative": Sub(-1), "2^53": Sub(int64(1) << 53), "huge": Add(uint64(math.MaxUint64)), "least": Add(math.MinInt64),
			"zero value": Delta{}, "negative placeholder": gorm.Expr("stock - ?", -1), "float": gorm.Expr("stock - ?", 1.0),
			"nil": gorm.Expr("stock - ?", nil), "fraction": gorm.Expr("stock - ?", "0.5"), "2^53 text": gorm.Expr("stock - 9007199254740992"),
		} {
			err := db.Model(&item).Update("stock", value).Error
			var e *Error
			if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) || e.ErrorType() != "invalid" {
				t.Errorf("%s: %v, want ErrInvalid of type invalid", name, err)
			}
		}
		if got := stockOf(t, db, item.ID); got != 3 {
			t.Errorf("stock %d, want 3", got)
		}
		// More than the column's own type can hold is merely more than there is.
		if err := db.Model(&item).Update("stock", Sub(int64(maxAmount))).Error; !errors.Is(err, ErrInsufficient) {
			t.Errorf("Sub(2^53-1): %v, want ErrInsufficient", err)
		}
	})
}

// D06, D07: what writes the column without its guard is refused, with hooks or without, in and out of transactions.
func TestUnguardedWritesAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		sub := db.Model(&stocked{}).Select("stock").Where("id = ?", item.ID)
		writes := map[string]func(*gorm.DB) error{
			"literal":       func(tx *gorm.DB) error { return tx.Model(&item).Update("stock", 1).Error },
			"go name":       func(tx *gorm.DB) error { return tx.Model(&item).Update("Stock", 1).Error },
			"upper case":    func(tx *gorm.DB) error { return tx.Model(&item).Update("STOCK", 1).Error },
			"qualified":     func(tx *gorm.DB) error { return tx.Model(&item).Update("items.stock", 1).Error },
			"UpdateColumn":  func(tx *gorm.DB) error { return tx.Model(&item).UpdateColumn("stock", 1).Error },
			"UpdateColumns": func(tx *gorm.DB) error { return tx.Model(&item).UpdateColumns(map[string]any{"stock": 1}).Error },
			"map": func(tx *gorm.DB) error {
				return tx.Model(&item).Updates(map[string]any{"title": "x", "stock": 1}).Error
			},
			"struct":       func(tx *gorm.DB) error { return tx.Model(&item).Updates(stocked{Title: "x", Stock: 1}).Error },
			"selected":     func(tx *gorm.DB) error { return tx.Model(&item).Select("stock").Updates(stocked{}).Error },
			"save":         func(tx *gorm.DB) error { return tx.Save(&stocked{ID: item.ID, Title: "x", Stock: 1}).Error },
			"nil":          func(tx *gorm.DB) error { return tx.Model(&item).Update("stock", nil).Error },
			"subquery":     func(tx *gorm.DB) error { return tx.Model(&item).Update("stock", sub).Error },
			"other column": func(tx *gorm.DB) error { return tx.Model(&item).Update("stock", gorm.Expr("capacity - ?", 1)).Error },
			"clamping": func(tx *gorm.DB) error {
				return tx.Model(&item).Update("stock", gorm.Expr("GREATEST(stock - ?, 0)", 1)).Error
			},
			"more behind": func(tx *gorm.DB) error { return tx.Model(&item).Update("stock", gorm.Expr("stock - ? - 1", 1)).Error },
			"product":     func(tx *gorm.DB) error { return tx.Model(&item).Update("stock", gorm.Expr("stock - 2 * ?", 1)).Error },
			"other table": func(tx *gorm.DB) error { return tx.Model(&item).Update("stock", gorm.Expr("other.stock - ?", 1)).Error },
			"by table": func(tx *gorm.DB) error {
				return tx.Table("items").Where("id = ?", item.ID).Updates(map[string]any{"stock": 1}).Error
			},
			"by alias": func(tx *gorm.DB) error {
				return tx.Table("items AS i").Where("i.id = ?", item.ID).Updates(map[string]any{"stock": 1}).Error
			},
			"skip hooks": func(tx *gorm.DB) error {
				return tx.Session(&gorm.Session{SkipHooks: true}).Model(&item).Update("stock", 1).Error
			},
			"global": func(tx *gorm.DB) error {
				return tx.Session(&gorm.Session{AllowGlobalUpdate: true}).Model(&stocked{}).Update("stock", 1).Error
			},
			"first or create": func(tx *gorm.DB) error {
				return tx.Where("id = ?", item.ID).Assign(map[string]any{"stock": 1}).FirstOrCreate(&stocked{}).Error
			},
			"twice": func(tx *gorm.DB) error {
				return tx.Model(&item).Updates(map[string]any{"stock": Sub(1), "items.stock": Sub(1)}).Error
			},
			"bound": func(tx *gorm.DB) error {
				return tx.Model(&item).Updates(map[string]any{"stock": Add(1), "capacity": 100}).Error
			},
			"column with SQL in its name": func(tx *gorm.DB) error {
				set := clause.Set{{Column: clause.Column{Name: "stock = 1, title", Raw: true}, Value: "x"}}
				return tx.Model(&item).Where("id = ?", item.ID).Clauses(set).Updates(map[string]any{}).Error
			},
			"table by clause": func(tx *gorm.DB) error {
				return tx.Model(&bystander{ID: item.ID}).Clauses(clause.Update{Table: clause.Table{Name: "items"}}).Update("stock", 1).Error
			},
			"insert by clause": func(tx *gorm.DB) error {
				return tx.Clauses(clause.Insert{Table: clause.Table{Name: "items"}}).Create(&bystander{ID: item.ID + 1, Stock: -1}).Error
			},
			"delete by clause": func(tx *gorm.DB) error {
				return tx.Clauses(clause.From{Tables: []clause.Table{{Name: "items"}}}).Where("id = ?", item.ID).Delete(&bystander{}).Error
			},
			"scope with a session": func(tx *gorm.DB) error {
				// gorm's default transaction does not survive such a scope
				tx = tx.Session(&gorm.Session{SkipDefaultTransaction: true})
				return tx.Model(&item).Scopes(func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{}) }).Update("stock", 1).Error
			},
			"unmarked column": func(tx *gorm.DB) error { return tx.Model(&item).Update("capacity", Sub(1)).Error },
			"generic": func(tx *gorm.DB) error {
				_, err := gorm.G[stocked](tx).Where("id = ?", item.ID).Update(context.Background(), "stock", 1)
				return err
			},
		}
		for name, write := range writes {
			t.Run(name, func(t *testing.T) {
				check := func(where string, err error) {
					if !errors.Is(err, ErrUnguardedWrite) {
						t.Errorf("%s: %v, want ErrUnguardedWrite", where, err)
					}
				}
				check("plain", write(db))
				check("transaction", db.Transaction(write))
				if got := stockOf(t, db, item.ID); got != 3 {
					t.Fatalf("stock %d, want 3", got)
				}
			})
		}
	})
}

// What is exactly the column plus or minus one number is as good as Sub and Add, whoever wrote it.
func TestPlainStepsAreGuarded(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		quoted := gorm.Expr("`items`.`stock` - ?", 3)
		if d.name == dialectPostgres {
			quoted = gorm.Expr(`"items"."stock" - ?`, 3)
		}
		for name, value := range map[string]any{
			"placeholder": gorm.Expr("stock - ?", 3), "number": gorm.Expr("stock-3"), "qualified": gorm.Expr("items.stock - ?", uint8(3)),
			"quoted": quoted, "spaces": gorm.Expr("  stock  -  ? ", 3), "pointer": gorm.Expr("stock - ?", ptr(3)), "text": gorm.Expr("stock - ?", "3"),
		} {
			item := newItem(t, db, 5, 10)
			if err := db.Model(&item).Update("stock", value).Error; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := db.Model(&item).Update("stock", value).Error; !errors.Is(err, ErrInsufficient) {
				t.Errorf("%s, 3 of 2: %v, want ErrInsufficient", name, err)
			}
			if got := stockOf(t, db, item.ID); got != 2 {
				t.Errorf("%s: stock %d, want 2", name, got)
			}
		}
	})
}

func ptr[T any](v T) *T { return &v }
