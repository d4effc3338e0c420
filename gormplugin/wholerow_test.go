package gormplugin

import (
	"errors"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func TestOmitWritesTheRestOfARow(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		item.Title, item.Stock = "cup", 99
		if err := db.Omit("Stock").Save(&item).Error; err != nil {
			t.Fatal(err)
		}
		if item.Stock != 99 {
			t.Error("what the caller set must stay")
		}
		var row stocked
		if err := db.Take(&row, item.ID).Error; err != nil || row.Title != "cup" || row.Stock != 3 {
			t.Errorf("row %+v, %v", row, err)
		}
		// Writing the same again is a match, also where the database counts changed rows only.
		if res := db.Omit("Stock").Save(&item); res.Error != nil || res.RowsAffected != 1 {
			t.Errorf("the same again: %v, %d rows", res.Error, res.RowsAffected)
		}
		// Save inserts what it does not find. A guarded row is created by Create.
		err := db.Omit("Stock").Save(&stocked{ID: 77, Title: "ghost"}).Error
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("Save of a row that is not there: %v, want ErrNotFound", err)
		}
		var n int64
		if db.Model(&stocked{}).Count(&n); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}

func TestAllowAbsolute(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		free := func() *gorm.DB { return db.Clauses(AllowAbsolute("stock")) }
		if err := free().Model(&item).Update("stock", 8).Error; err != nil {
			t.Errorf("by map: %v", err)
		}
		// F111: the zero of a struct is written too, though gorm leaves it out.
		if err := free().Model(&stocked{ID: item.ID}).Updates(stocked{Title: "cup"}).Error; err != nil {
			t.Errorf("by struct: %v", err)
		}
		var row stocked
		if err := db.Take(&row, item.ID).Error; err != nil || row.Stock != 0 || row.Title != "cup" || row.Capacity != 10 {
			t.Errorf("row %+v, %v: want stock 0, title cup", row, err)
		}
		if err := free().Updates(&stocked{ID: item.ID}).Error; err != nil { // nothing but the zero
			t.Errorf("only the zero: %v", err)
		}
		err := free().Model(&item).Update("stock", -1).Error
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != "below_min" {
			t.Errorf("a literal below min: %v", err)
		}
		if err := db.Clauses(AllowAbsolute("title")).Model(&item).Update("stock", 1).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("another column was allowed: %v", err)
		}
		row.Stock = 5
		if err := db.Clauses(AllowAbsolute("Stock")).Save(&row).Error; err != nil {
			t.Errorf("Save: %v", err)
		}
		if got := stockOf(t, db, item.ID); got != 5 {
			t.Errorf("stock %d, want 5", got)
		}
	})
}

// A statement by a WHERE of one's own may hit some rows of many; whoever means a number says so.
func TestExpect(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		ids := []int64{newItem(t, db, 2, 9).ID, newItem(t, db, 0, 9).ID, newItem(t, db, 2, 9).ID}
		sub := func(tx *gorm.DB, n int64) error {
			return tx.Model(&stocked{}).Clauses(Expect(n)).Where("id IN ?", ids).Update("stock", Sub(1)).Error
		}
		err := sub(db, 3)
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != "partial" || e.Available() != "2" || e.Requested() != "3" || len(e.Keys()) != 1 || textOf(e.Keys()[0]) != textOf(ids[1]) {
			t.Fatalf("IN one row short: %v, keys %v", err, e.Keys())
		}
		// In a transaction of the caller's too nothing is left of it, whatever the caller does next.
		err = db.Transaction(func(tx *gorm.DB) error {
			if err := sub(tx, 3); !errors.Is(err, ErrInsufficient) {
				t.Errorf("in a transaction: %v", err)
			}
			return nil
		})
		if err != nil || stockOf(t, db, ids[0]) != 2 || stockOf(t, db, ids[2]) != 2 {
			t.Errorf("%v: a part was written", err)
		}
		if err := sub(db, 2); err != nil {
			t.Errorf("Expect(2): %v", err)
		}
		if err := sub(db, -1); !errors.Is(err, ErrInvalid) {
			t.Errorf("Expect(-1): %v", err)
		}
		if err := sub(db.Session(&gorm.Session{SkipDefaultTransaction: true}), 2); !errors.Is(err, ErrInvalid) {
			t.Errorf("outside a transaction: %v, want ErrInvalid", err)
		}
		if err := db.Model(&stocked{}).Clauses(Expect(0)).Where("id = ?", 99).Update("stock", Sub(1)).Error; err != nil {
			t.Errorf("Expect(0): %v", err)
		}
	})
}

// The guard must not stand in for the WHERE that the caller forgot.
func TestGuardIsNoWhere(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}, &softly{}})
		a, b := newItem(t, db, 3, 10), newItem(t, db, 1, 10)
		if err := db.Model(&stocked{}).Update("stock", Sub(1)).Error; !errors.Is(err, gorm.ErrMissingWhereClause) {
			t.Errorf("got %v, want gorm's ErrMissingWhereClause", err)
		}
		if err := db.Model(&softly{}).Update("stock", Sub(1)).Error; !errors.Is(err, gorm.ErrMissingWhereClause) {
			t.Errorf("soft delete: got %v, want gorm's ErrMissingWhereClause", err)
		}
		err := db.Session(&gorm.Session{AllowGlobalUpdate: true}).Model(&stocked{}).Update("stock", Sub(2)).Error
		if err != nil || stockOf(t, db, a.ID) != 1 || stockOf(t, db, b.ID) != 1 {
			t.Errorf("a global update takes where there is enough: %v", err)
		}
	})
}

// Conditions that the guard did not write must not swallow its own.
func TestGuardHoldsBesideAnyCondition(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		for name, where := range map[string]func(tx *gorm.DB, id int64) *gorm.DB{
			"or":            func(tx *gorm.DB, id int64) *gorm.DB { return tx.Where("id = ?", id).Or("title = ?", "mug") },
			"lone or":       func(tx *gorm.DB, id int64) *gorm.DB { return tx.Or("id = ?", id) },
			"raw or":        func(tx *gorm.DB, id int64) *gorm.DB { return tx.Where("id = ? OR title = ?", id, "mug") },
			"or with tabs":  func(tx *gorm.DB, id int64) *gorm.DB { return tx.Where("id = ?\tOR\ttitle = ?", id, "mug") },
			"or with lines": func(tx *gorm.DB, id int64) *gorm.DB { return tx.Where("id = ?\nor\ntitle = ?", id, "mug") },
			"struct":        func(tx *gorm.DB, id int64) *gorm.DB { return tx.Where(&stocked{ID: id}) },
			"map":           func(tx *gorm.DB, id int64) *gorm.DB { return tx.Where(map[string]any{"id": id}) },
			"not":           func(tx *gorm.DB, id int64) *gorm.DB { return tx.Not("id = ?", id+1000) },
			"group": func(tx *gorm.DB, id int64) *gorm.DB {
				return tx.Where(tx.Session(&gorm.Session{NewDB: true}).Where("id = ?", id).Or("title = ?", "mug"))
			},
			"clause": func(tx *gorm.DB, id int64) *gorm.DB { return tx.Clauses(clause.Eq{Column: "id", Value: id}) },
			"named": func(tx *gorm.DB, id int64) *gorm.DB {
				return tx.Where("id = @id OR title = @t", map[string]any{"id": id, "t": "mug"})
			},
			"scope": func(tx *gorm.DB, id int64) *gorm.DB {
				return tx.Scopes(func(tx *gorm.DB) *gorm.DB { return tx.Where("id = ?", id) })
			},
			"subquery": func(tx *gorm.DB, id int64) *gorm.DB { return tx.Where("id IN (?)", []int64{id, id + 1000}) },
		} {
			item := newItem(t, db, 0, 10)
			if err := where(db.Model(&stocked{}), item.ID).Update("stock", Sub(1)).Error; !errors.Is(err, ErrInsufficient) {
				t.Errorf("%s: %v, want ErrInsufficient", name, err)
			}
			if got := stockOf(t, db, item.ID); got != 0 {
				t.Fatalf("%s: stock %d", name, got)
			}
		}
		// A comment cannot cut the guard off: the statement becomes one that no database accepts.
		item := newItem(t, db, 0, 10)
		if err := db.Model(&stocked{}).Where("id = ? -- ", item.ID).Update("stock", Sub(1)).Error; err == nil {
			t.Error("a comment cut the guard off")
		}
	})
}

// A chain that is used again carries neither our conditions nor our columns.
func TestReusedChain(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		tx := db.Model(&stocked{}).Where("id = ?", item.ID)
		if err := tx.Update("stock", Sub(3)).Error; err != nil {
			t.Fatal(err)
		}
		if res := tx.Update("title", "cup"); res.Error != nil || res.RowsAffected != 1 {
			t.Errorf("second use: %v, %d rows: the first one's condition is still there", res.Error, res.RowsAffected)
		}
		session := db.Model(&stocked{}).Where("id = ?", item.ID).Session(&gorm.Session{})
		if err := errors.Join(session.Update("stock", Add(2)).Error, session.Update("stock", Sub(1)).Error); err != nil {
			t.Error(err)
		}
		if got := stockOf(t, db, item.ID); got != 1 {
			t.Errorf("stock %d, want 1", got)
		}
	})
}

type softly struct {
	ID        int64
	Stock     int64 `guard:"stock" gorm:"not null"`
	Version   int64 `guard:"version" gorm:"not null"`
	Fence     int64 `guard:"fence,lock=stock" gorm:"not null"`
	DeletedAt gorm.DeletedAt
}

func TestDeletesCarryVersionAndFence(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&softly{}})
		for name, del := range map[string]*gorm.DB{"soft": db, "hard": db.Unscoped().Session(&gorm.Session{})} {
			row := softly{Stock: 1}
			if err := db.Create(&row).Error; err != nil {
				t.Fatal(err)
			}
			if err := db.Model(&softly{ID: row.ID}).Update("stock", Sub(1)).Error; err != nil {
				t.Fatal(err)
			}
			err := del.Delete(&row).Error
			if !errors.Is(err, ErrVersionConflict) {
				t.Errorf("%s delete of a row that moved on: %v, want ErrVersionConflict", name, err)
			}
			if row.DeletedAt.Valid {
				t.Errorf("%s: the model says deleted", name)
			}
			row.Version = 2
			if err := del.Delete(&row).Error; err != nil {
				t.Errorf("%s delete: %v", name, err)
			}
			if err := db.Take(&softly{}, row.ID).Error; !errors.Is(err, gorm.ErrRecordNotFound) {
				t.Errorf("%s: the row is still there: %v", name, err)
			}
			rows := []softly{{Stock: 1}, {Stock: 1}}
			if err := db.Create(&rows).Error; err != nil {
				t.Fatal(err)
			}
			rows[1].Version = 9
			if err := del.Delete(&rows).Error; !errors.Is(err, ErrInsufficient) {
				t.Errorf("%s delete of two rows, one stale: %v", name, err)
			}
			rows[1].Version = 1
			if err := del.Delete(&rows).Error; err != nil {
				t.Errorf("%s delete of two rows: %v", name, err)
			}
			rows = []softly{{Stock: 1}, {Stock: 1}}
			if err := db.Create(&rows).Error; err != nil {
				t.Fatal(err)
			}
			if err := del.Delete(&[]softly{{ID: rows[0].ID}, {ID: rows[1].ID}, {ID: 999}}).Error; err != nil {
				t.Errorf("%s delete of rows that were not loaded: %v", name, err)
			}
			// Without a version in the model there is nothing to check.
			if err := del.Delete(&softly{ID: 999}).Error; err != nil {
				t.Errorf("%s delete of nothing: %v", name, err)
			}
		}
	})
}

type Stamped struct {
	At  *time.Time `gorm:"autoUpdateTime"`
	Who *string
}

type embedding struct {
	ID      int64
	Title   string
	Stock   int64 `guard:"stock" gorm:"not null"`
	Version int64 `guard:"version" gorm:"not null"`
	*Stamped
	Price *int64
}

// After a refusal, an error or a failed commit the model is as it was, pointers and embedded structs included.
func TestModelIsPutBack(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&embedding{}})
		old := time.Unix(1, 0).UTC()
		row := embedding{Title: "a", Stock: 1, Price: ptr(int64(5)), Stamped: &Stamped{At: ptr(old), Who: ptr("me")}}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		*row.At = old
		values := map[string]any{"title": "b", "price": 6, "who": "you", "stock": Sub(5)}
		if err := db.Model(&row).Updates(values).Error; !errors.Is(err, ErrInsufficient) {
			t.Fatal(err)
		}
		if row.Title != "a" || *row.Price != 5 || *row.Who != "me" || !row.At.Equal(old) || row.Version != 1 {
			t.Errorf("model %+v price %d who %s at %v", row, *row.Price, *row.Who, row.At)
		}
		values["stock"] = Sub(1)
		if err := db.Model(&row).Updates(values).Error; err != nil || row.Title != "b" || *row.Price != 6 || row.Version != 2 {
			t.Errorf("after a success: %v, %+v", err, row)
		}
	})
}

// A model by value, and RETURNING, which gorm panics on without help.
func TestModelByValue(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		tx := db.Model(stocked{ID: item.ID})
		if d.name != dialectMySQL {
			tx = tx.Clauses(clause.Returning{})
		}
		if err := tx.Update("stock", Sub(1)).Error; err != nil {
			t.Fatal(err)
		}
		if got := stockOf(t, db, item.ID); got != 2 {
			t.Errorf("stock %d, want 2", got)
		}
	})
}

func TestSmallerStructAndTableWithoutModel(t *testing.T) {
	type title struct{ Title string }
	type both struct {
		Title string
		Stock int64
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 3, 10)
		if err := db.Model(&item).Updates(title{"cup"}).Error; err != nil {
			t.Errorf("a smaller struct: %v", err)
		}
		if err := db.Model(&item).Updates(both{"cup", 9}).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("a smaller struct with stock: %v", err)
		}
		if err := db.Table("items").Where("id = ?", item.ID).Updates(both{"cup", 9}).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("a table and a smaller struct with stock: %v", err)
		}
		if err := db.Table("items").Where("id = ?", item.ID).Updates(map[string]any{"stock": Sub(1)}).Error; err != nil {
			t.Errorf("a table and Sub: %v", err)
		}
		if err := db.Table("items AS i").Where("i.id = ?", item.ID).Updates(map[string]any{"stock": Sub(9)}).Error; !errors.Is(err, ErrInsufficient) {
			t.Errorf("an alias and Sub: %v", err)
		}
		if err := db.Table("?", clause.Table{Name: "items"}).Where("id = ?", item.ID).Updates(map[string]any{"stock": 9}).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("a name in a variable: %v", err)
		}
		if err := db.Table("? AS i", clause.Table{Name: "items"}).Where("i.id = ?", item.ID).Updates(map[string]any{"stock": Sub(9)}).Error; !errors.Is(err, ErrInsufficient) {
			t.Errorf("a name in a variable, with an alias: %v", err)
		}
		if err := db.Table("?, other", clause.Table{Name: "items"}).Where("id = ?", item.ID).Updates(map[string]any{"stock": Sub(1)}).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("a name in a variable, and another: %v", err)
		}
		if err := db.Table("items, other").Where("id = ?", item.ID).Updates(map[string]any{"stock": Sub(1)}).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("two tables: %v", err)
		}
	})
}
