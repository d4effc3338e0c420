package otherplugins

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/plugin/optimisticlock"
	"gorm.io/plugin/soft_delete"

	"github.com/holdfast-go/holdfast/gormplugin"
)

var errTaken = errors.New("SKU is taken")

// Shelf is what the models of the matrix have in common. gorm embeds exported structs only.
type Shelf struct {
	ID    int64
	SKU   string `gorm:"size:100;uniqueIndex:sku"`
	Title string
	Stock int64 `guard:"stock,max=100" gorm:"not null;default:0"`
	Fence int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
}

type plainShelf struct {
	Shelf
	DeletedAt gorm.DeletedAt
}

type versionedShelf struct {
	Shelf
	Version   optimisticlock.Version
	DeletedAt gorm.DeletedAt
}

type softShelf struct {
	Shelf
	DeletedAt soft_delete.DeletedAt `gorm:"not null;default:0"`
}

// loadedShelf has everything at once.
type loadedShelf struct {
	Shelf
	Version   optimisticlock.Version
	DeletedAt soft_delete.DeletedAt `gorm:"softDelete:milli;not null;default:0"`
}

func (plainShelf) TableName() string     { return "shelves" }
func (versionedShelf) TableName() string { return "shelves" }
func (softShelf) TableName() string      { return "shelves" }
func (loadedShelf) TableName() string    { return "shelves" }

// kind makes models of one type.
type kind interface {
	model() any // of the type, empty
	of(s Shelf) any
	slice(s ...Shelf) any
	generic(tx *gorm.DB, id int64, do genericCall) error
}

// genericCall is one of gorm.G's ways to write.
type genericCall int

const (
	genericUpdate genericCall = iota
	genericUpdates
	genericSet
)

// kindOf is the kind of models that wrap makes.
type kindOf[T any] struct{ wrap func(Shelf) T }

func (kindOf[T]) model() any { return new(T) }

func (k kindOf[T]) of(s Shelf) any {
	row := k.wrap(s)
	return &row
}

func (k kindOf[T]) slice(all ...Shelf) any {
	rows := make([]T, 0, len(all))
	for _, s := range all {
		rows = append(rows, k.wrap(s))
	}
	return &rows
}

func (k kindOf[T]) generic(tx *gorm.DB, id int64, do genericCall) error {
	ctx := context.Background()
	one := gorm.G[T](tx).Where("id = ?", id)
	var err error
	switch do {
	case genericUpdate:
		_, err = one.Update(ctx, "stock", gormplugin.Sub(3))
	case genericUpdates:
		_, err = one.Updates(ctx, k.wrap(Shelf{Stock: 3}))
	case genericSet:
		_, err = one.Set(gormplugin.Sub(3).On("stock")).Update(ctx)
	}
	return err
}

// call is one way to a guarded table: what gorm is asked, what comes of it, and the stock afterwards.
type call struct {
	name  string
	do    func(tx *gorm.DB, k kind, id int64) error
	want  error
	stock int64 // from 10; -1 for a row that is gone
}

func calls() []call {
	item := func(k kind, id int64) any { return k.of(Shelf{ID: id}) }
	where := func(tx *gorm.DB, k kind, id int64) *gorm.DB { return tx.Model(k.model()).Where("id = ?", id) }
	update := func(value any) func(tx *gorm.DB, k kind, id int64) error {
		return func(tx *gorm.DB, k kind, id int64) error { return tx.Model(item(k, id)).Update("stock", value).Error }
	}
	sub, add := gormplugin.Sub[int], gormplugin.Add[int]
	const absent = 1_000_000
	return []call{
		{"Update", update(sub(3)), nil, 7},
		{"Update by WHERE", func(tx *gorm.DB, k kind, id int64) error { return where(tx, k, id).Update("stock", sub(3)).Error }, nil, 7},
		{"Update, either WHERE", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(k.model()).Where("id = ?", id).Or("id = ?", id+absent).Update("stock", sub(11)).Error
		}, gormplugin.ErrInsufficient, 10},
		{"Update, sold out", update(sub(11)), gormplugin.ErrInsufficient, 10},
		{"Update, sold out again", update(sub(11)), gormplugin.ErrInsufficient, 10},
		{"Update, too full", update(add(91)), gormplugin.ErrInsufficient, 10},
		{"Update, no row", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id+absent)).Update("stock", sub(1)).Error
		}, gormplugin.ErrNotFound, 10},
		{"Update, literal", update(3), gormplugin.ErrUnguardedWrite, 10},
		{"Update, subquery", func(tx *gorm.DB, k kind, id int64) error {
			most := tx.Session(&gorm.Session{NewDB: true}).Model(k.model()).Select("MAX(stock)")
			return tx.Model(item(k, id)).Update("stock", most).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Update, title", func(tx *gorm.DB, k kind, id int64) error { return tx.Model(item(k, id)).Update("title", "x").Error }, nil, 10},
		{"UpdateColumn", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id)).UpdateColumn("stock", add(3)).Error
		}, nil, 13},
		{"UpdateColumns", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id)).UpdateColumns(map[string]any{"stock": gorm.Expr("stock - ?", 3), "title": "x"}).Error
		}, nil, 7},
		{"Updates(map)", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id)).Updates(map[string]any{"Stock": sub(3), "title": "x"}).Error
		}, nil, 7},
		{"FirstOrCreate, Assign", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Where("id = ?", id).Assign(map[string]any{"stock": sub(3)}).FirstOrCreate(k.model()).Error
		}, nil, 7},
		{"FirstOrCreate, new", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Where("sku = ?", "new").Attrs(k.of(Shelf{SKU: "new"})).FirstOrCreate(k.model()).Error
		}, nil, 10},
		{"Updates(struct)", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id)).Updates(k.of(Shelf{Stock: 3, Title: "x"})).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Updates(struct) without", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id)).Updates(k.of(Shelf{Title: "x"})).Error
		}, nil, 10},
		{"Updates(struct), Select", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id)).Select("Title", "Stock").Updates(k.of(Shelf{Title: "x"})).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Updates(struct), Omit", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Model(item(k, id)).Omit("stock").Updates(k.of(Shelf{Stock: 3, Title: "x"})).Error
		}, nil, 10},
		{"Updates, AllowAbsolute", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Clauses(gormplugin.AllowAbsolute("stock")).Model(item(k, id)).Updates(map[string]any{"stock": 0, "title": "x"}).Error
		}, nil, 0},
		{"Save", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Save(k.of(Shelf{ID: id, SKU: "new", Stock: 3})).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Save, Omit", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Omit("Stock").Save(k.of(Shelf{ID: id, SKU: "new", Stock: 3})).Error
		}, nil, 10},
		{"Save, no row", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Omit("Stock").Save(k.of(Shelf{ID: id + absent, SKU: "new"})).Error
		}, gormplugin.ErrNotFound, 10},
		{"Save, no key", func(tx *gorm.DB, k kind, _ int64) error { return tx.Save(k.of(Shelf{SKU: "new", Stock: 3})).Error }, nil, 10},
		{"Save(slice)", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Save(k.slice(Shelf{ID: id, SKU: "new", Stock: 3})).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Create", func(tx *gorm.DB, k kind, _ int64) error { return tx.Create(k.of(Shelf{SKU: "new", Stock: 3})).Error }, nil, 10},
		{"Create, above max", func(tx *gorm.DB, k kind, _ int64) error {
			return tx.Create(k.of(Shelf{SKU: "new", Stock: 101})).Error
		}, gormplugin.ErrInsufficient, 10},
		{"Create, duplicate", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Create(k.of(Shelf{SKU: fmt.Sprint("row-", id)})).Error
		}, errTaken, 10},
		{"CreateInBatches", func(tx *gorm.DB, k kind, _ int64) error {
			return tx.CreateInBatches(k.slice(Shelf{SKU: "a"}, Shelf{SKU: "b"}, Shelf{SKU: "c"}), 2).Error
		}, nil, 10},
		{"Create, OnConflict title", func(tx *gorm.DB, k kind, id int64) error {
			up := clause.OnConflict{Columns: []clause.Column{{Name: "sku"}}, DoUpdates: clause.Set{{Column: clause.Column{Name: "title"}, Value: "x"}}}
			return tx.Clauses(up).Create(k.of(Shelf{SKU: fmt.Sprint("row-", id), Stock: 3})).Error
		}, nil, 10},
		{"Create, OnConflict", func(tx *gorm.DB, k kind, id int64) error {
			return tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(k.of(Shelf{ID: id, SKU: "new", Stock: 3})).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Table", func(tx *gorm.DB, _ kind, id int64) error {
			return tx.Table("shelves").Where("id = ?", id).Updates(map[string]any{"stock": sub(3)}).Error
		}, nil, 7},
		{"Table, literal", func(tx *gorm.DB, _ kind, id int64) error {
			return tx.Table("shelves AS s").Where("s.id = ?", id).Updates(map[string]any{"stock": 3}).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"G Update", func(tx *gorm.DB, k kind, id int64) error { return k.generic(tx, id, genericUpdate) }, nil, 7},
		{"G Updates", func(tx *gorm.DB, k kind, id int64) error { return k.generic(tx, id, genericUpdates) }, gormplugin.ErrUnguardedWrite, 10},
		{"G Set", func(tx *gorm.DB, k kind, id int64) error { return k.generic(tx, id, genericSet) }, nil, 7},
		{"gen", func(tx *gorm.DB, k kind, id int64) error {
			expr := clause.Expr{SQL: "?-?", Vars: []any{clause.Column{Table: "shelves", Name: "stock"}, 3}}
			return where(tx, k, id).Clauses(clause.Set{{Column: clause.Column{Name: "stock"}, Value: expr}}).Updates(map[string]any{}).Error
		}, nil, 7},
		{"Delete, soft", func(tx *gorm.DB, k kind, id int64) error { return tx.Delete(item(k, id)).Error }, nil, -1},
		{"Delete, hard", func(tx *gorm.DB, k kind, id int64) error { return tx.Unscoped().Delete(item(k, id)).Error }, nil, -1},
		{"Exec", func(tx *gorm.DB, _ kind, id int64) error {
			return tx.Exec("UPDATE shelves SET stock = 3 WHERE id = ?", id).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Raw, Scan", func(tx *gorm.DB, _ kind, id int64) error {
			var n int64
			return tx.Raw("UPDATE shelves SET stock = 3 WHERE id = ?", id).Scan(&n).Error
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Raw, Rows", func(tx *gorm.DB, _ kind, id int64) error {
			rows, err := tx.Raw("DELETE FROM shelves WHERE id = ?", id).Rows()
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			return rows.Err()
		}, gormplugin.ErrUnguardedWrite, 10},
		{"Find, Count, Pluck", func(tx *gorm.DB, k kind, id int64) error {
			var n int64
			var stocks []int64
			return errors.Join(where(tx, k, id).Find(k.model()).Error, where(tx, k, id).Count(&n).Error, where(tx, k, id).Pluck("stock", &stocks).Error)
		}, nil, 10},
		{"First, no row", func(tx *gorm.DB, k kind, id int64) error { return tx.First(k.model(), id+absent).Error }, gorm.ErrRecordNotFound, 10},
		{"Take", func(tx *gorm.DB, k kind, id int64) error {
			left, err := gormplugin.Take(tx, item(k, id), 3)
			if err == nil && left != 7 {
				return fmt.Errorf("left %d", left)
			}
			return err
		}, nil, 7},
	}
}
