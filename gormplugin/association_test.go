package gormplugin

import (
	"errors"
	"testing"

	"gorm.io/gorm"
)

// warehouse is a parent without guards, bin a child with a guarded column and a unique key.
type warehouse struct {
	ID    int64
	Name  string
	Bins  []bin `gorm:"foreignKey:WarehouseID"`
	Cover *bin  `gorm:"foreignKey:CoverID"`
}

type bin struct {
	ID          int64
	WarehouseID *int64
	CoverID     *int64
	Label       string `gorm:"size:20;uniqueIndex:uk_bin_label"`
	Stock       int64  `guard:"stock" gorm:"not null;default:0"`
	Version     int64  `guard:"version" gorm:"not null;default:0"`
}

// gorm saves children with DO NOTHING, or with DO UPDATE of the foreign key on whatever key collides. A child that collides
// with somebody else's row would be lost in silence, or take it over.
func TestDuplicateChildIsNotLost(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&warehouse{}, &bin{}}, WithUnique("uk_bin_label", errLabelTaken))
		first := warehouse{Name: "first", Bins: []bin{{Label: "a", Stock: 5}, {Label: "b"}}}
		if err := db.Create(&first).Error; err != nil {
			t.Fatalf("children without collision: %v", err)
		}
		second := warehouse{Name: "second", Bins: []bin{{Label: "c"}, {Label: "a", Stock: 1}}}
		if err := db.Create(&second).Error; !errors.Is(err, errLabelTaken) || !errors.Is(err, ErrDuplicate) {
			t.Errorf("child with a label that is taken: %v, want the mapped error", err)
		}
		var n int64
		if db.Model(&warehouse{}).Count(&n); n != 1 {
			t.Errorf("%d warehouses, want 1: the parent goes with the child", n)
		}
		var a bin
		if err := db.Take(&a, "label = ?", "a").Error; err != nil || a.WarehouseID == nil || *a.WarehouseID != first.ID || a.Stock != 5 {
			t.Errorf("the other's child is %+v, %v", a, err)
		}
	})
}

var errLabelTaken = errors.New("label is taken")

func TestAssociationsOfGuardedChildren(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&warehouse{}, &bin{}})
		w := warehouse{Name: "w", Bins: []bin{{Label: "a", Stock: 5}}}
		other := bin{Label: "b", Stock: 7}
		if err := errors.Join(db.Create(&w).Error, db.Create(&other).Error); err != nil {
			t.Fatal(err)
		}
		load := func(label string) (row bin) {
			t.Helper()
			if err := db.Take(&row, "label = ?", label).Error; err != nil {
				t.Fatal(err)
			}
			return row
		}
		if err := db.Model(&w).Association("Bins").Append(&other); err != nil {
			t.Fatalf("append of a row that is there: %v", err)
		}
		if row := load("b"); row.WarehouseID == nil || *row.WarehouseID != w.ID || row.Stock != 7 || row.Version != 2 {
			t.Errorf("appended: %+v, want the foreign key, stock untouched", row)
		}
		// gorm saves all children of the parent again, so the new one goes to a parent that holds no others.
		if err := db.Model(&warehouse{ID: w.ID}).Association("Bins").Append(&bin{Label: "c", Stock: 1}); err != nil {
			t.Fatalf("append of a new row: %v", err)
		}
		err := db.Session(&gorm.Session{FullSaveAssociations: true}).Updates(&warehouse{ID: w.ID, Name: "x", Bins: []bin{{ID: other.ID, Label: "b", Stock: 99, Version: 2}}}).Error
		if !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("full save with stock: %v, want ErrUnguardedWrite", err)
		}
		err = db.Session(&gorm.Session{FullSaveAssociations: true}).Omit("Bins.Stock").Updates(&warehouse{ID: w.ID, Name: "x", Bins: []bin{{ID: other.ID, Label: "b2", Stock: 99, Version: 2}}}).Error
		if d.name == dialectMySQL {
			if !errors.Is(err, ErrUnguardedWrite) {
				t.Errorf("full save on MySQL cannot check the version: %v", err)
			}
		} else if err != nil {
			t.Errorf("full save without stock: %v", err)
		} else if row := load("b2"); err != nil || row.Stock != 7 || row.Version != 3 {
			t.Errorf("full save without stock: %v, row %+v", err, row)
		}
	})
}

func TestAssociationDeleteNeedsNoStock(t *testing.T) {
	type rack struct {
		ID     int64
		RoomID *int64
		Stock  int64 `guard:"stock" gorm:"not null"`
	}
	type room struct {
		ID    int64
		Racks []rack
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&room{}, &rack{}})
		r := room{Racks: []rack{{Stock: 1}, {Stock: 2}, {Stock: 3}}}
		if err := db.Create(&r).Error; err != nil {
			t.Fatal(err)
		}
		racks := r.Racks
		if err := db.Model(&r).Association("Racks").Delete(&racks[0]); err != nil {
			t.Errorf("delete: %v", err)
		}
		if err := db.Model(&r).Association("Racks").Replace(&racks[2]); err != nil {
			t.Errorf("replace: %v", err)
		}
		if n := db.Model(&r).Association("Racks").Count(); n != 1 {
			t.Errorf("%d racks left, want 1", n)
		}
		if err := db.Model(&r).Association("Racks").Clear(); err != nil {
			t.Errorf("clear: %v", err)
		}
		var sum int64
		if db.Model(&rack{}).Select("SUM(stock)").Scan(&sum); sum != 6 {
			t.Errorf("stocks add up to %d, want 6", sum)
		}
	})
}

// A mix of new and old children cannot be told from a collision by ON DUPLICATE KEY UPDATE.
func TestMixedChildrenOnMySQLAreRefused(t *testing.T) {
	db := newDatabase(t, dialectMySQL).open(t, gorm.Config{}, []any{&warehouse{}, &bin{}})
	old := bin{Label: "old"}
	if err := db.Create(&old).Error; err != nil {
		t.Fatal(err)
	}
	if err := db.Create(&warehouse{Name: "w", Bins: []bin{old, {Label: "new"}}}).Error; !errors.Is(err, ErrUnguardedWrite) {
		t.Errorf("got %v, want ErrUnguardedWrite", err)
	}
}
