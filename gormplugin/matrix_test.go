package gormplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// cellItem has what a call can go wrong with.
type cellItem struct {
	ID        int64
	SKU       string `gorm:"size:40;uniqueIndex:uk_cell_sku"`
	Title     string
	Stock     int64 `guard:"stock,max=100" gorm:"not null;default:0"`
	Fence     int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
	DeletedAt gorm.DeletedAt
}

// call is one way to a guarded table: what gorm is asked, what comes of it, and the stock afterwards.
type call struct {
	name  string
	do    func(tx *gorm.DB, id int64) error
	want  error
	stock int64 // from 10; -1 for a row that is gone
}

func calls() []call {
	ctx := context.Background()
	item := func(id int64) *cellItem { return &cellItem{ID: id} }
	where := func(tx *gorm.DB, id int64) *gorm.DB { return tx.Model(&cellItem{}).Where("id = ?", id) }
	sku := 0
	fresh := func() string { sku++; return fmt.Sprint("new-", sku) }
	return []call{
		{"Update", func(tx *gorm.DB, id int64) error { return tx.Model(item(id)).Update("stock", Sub(3)).Error }, nil, 7},
		{"Update by WHERE", func(tx *gorm.DB, id int64) error { return where(tx, id).Update("stock", Sub(3)).Error }, nil, 7},
		{"Update, sold out", func(tx *gorm.DB, id int64) error { return tx.Model(item(id)).Update("stock", Sub(11)).Error }, ErrInsufficient, 10},
		{"Update, too full", func(tx *gorm.DB, id int64) error { return tx.Model(item(id)).Update("stock", Add(91)).Error }, ErrInsufficient, 10},
		{"Update, no row", func(tx *gorm.DB, id int64) error { return tx.Model(item(id+1000000)).Update("stock", Sub(1)).Error }, ErrNotFound, 10},
		{"Update, literal", func(tx *gorm.DB, id int64) error { return tx.Model(item(id)).Update("stock", 3).Error }, ErrUnguardedWrite, 10},
		{"Update, subquery", func(tx *gorm.DB, id int64) error {
			return tx.Model(item(id)).Update("stock", tx.Session(&gorm.Session{NewDB: true}).Model(&cellItem{}).Select("MAX(stock)")).Error
		}, ErrUnguardedWrite, 10},
		{"Update, title", func(tx *gorm.DB, id int64) error { return tx.Model(item(id)).Update("title", "x").Error }, nil, 10},
		{"UpdateColumn", func(tx *gorm.DB, id int64) error { return tx.Model(item(id)).UpdateColumn("stock", Add(3)).Error }, nil, 13},
		{"UpdateColumns", func(tx *gorm.DB, id int64) error {
			return tx.Model(item(id)).UpdateColumns(map[string]any{"stock": gorm.Expr("stock - ?", 3), "title": "x"}).Error
		}, nil, 7},
		{"Updates(map)", func(tx *gorm.DB, id int64) error {
			return tx.Model(item(id)).Updates(map[string]any{"Stock": Sub(3), "title": "x"}).Error
		}, nil, 7},
		{"FirstOrCreate, Assign", func(tx *gorm.DB, id int64) error {
			return tx.Where("id = ?", id).Assign(map[string]any{"stock": Sub(3)}).FirstOrCreate(&cellItem{}).Error
		}, nil, 7},
		{"FirstOrCreate, new", func(tx *gorm.DB, id int64) error {
			return tx.Where(cellItem{SKU: fresh()}).FirstOrCreate(&cellItem{}).Error
		}, nil, 10},
		{"Updates(struct)", func(tx *gorm.DB, id int64) error {
			return tx.Model(item(id)).Updates(cellItem{Stock: 3, Title: "x"}).Error
		}, ErrUnguardedWrite, 10},
		{"Updates(struct) without", func(tx *gorm.DB, id int64) error { return tx.Model(item(id)).Updates(cellItem{Title: "x"}).Error }, nil, 10},
		{"Updates(struct), Select", func(tx *gorm.DB, id int64) error {
			return tx.Model(item(id)).Select("Title", "Stock").Updates(cellItem{Title: "x"}).Error
		}, ErrUnguardedWrite, 10},
		{"Updates(struct), Omit", func(tx *gorm.DB, id int64) error {
			return tx.Model(item(id)).Omit("stock").Updates(cellItem{Stock: 3, Title: "x"}).Error
		}, nil, 10},
		{"Updates, AllowAbsolute", func(tx *gorm.DB, id int64) error {
			return tx.Clauses(AllowAbsolute("stock")).Model(item(id)).Updates(cellItem{Title: "x"}).Error
		}, nil, 0},
		{"Save", func(tx *gorm.DB, id int64) error { return tx.Save(&cellItem{ID: id, SKU: fresh(), Stock: 3}).Error }, ErrUnguardedWrite, 10},
		{"Save, Omit", func(tx *gorm.DB, id int64) error {
			return tx.Omit("Stock").Save(&cellItem{ID: id, SKU: fresh(), Stock: 3}).Error
		}, nil, 10},
		{"Save, no row", func(tx *gorm.DB, id int64) error {
			return tx.Omit("Stock").Save(&cellItem{ID: id + 1000000, SKU: fresh()}).Error
		}, ErrNotFound, 10},
		{"Save, no key", func(tx *gorm.DB, id int64) error { return tx.Save(&cellItem{SKU: fresh(), Stock: 3}).Error }, nil, 10},
		{"Save(slice)", func(tx *gorm.DB, id int64) error { return tx.Save(&[]cellItem{{ID: id, SKU: fresh(), Stock: 3}}).Error }, ErrUnguardedWrite, 10},
		{"Create", func(tx *gorm.DB, id int64) error { return tx.Create(&cellItem{SKU: fresh(), Stock: 3}).Error }, nil, 10},
		{"Create, above max", func(tx *gorm.DB, id int64) error { return tx.Create(&cellItem{SKU: fresh(), Stock: 101}).Error }, ErrInsufficient, 10},
		{"Create, duplicate", func(tx *gorm.DB, id int64) error { return tx.Create(&cellItem{SKU: fmt.Sprint("row-", id)}).Error }, errCellTaken, 10},
		{"CreateInBatches", func(tx *gorm.DB, id int64) error {
			return tx.CreateInBatches([]cellItem{{SKU: fresh()}, {SKU: fresh()}, {SKU: fresh()}}, 2).Error
		}, nil, 10},
		{"Create, OnConflict Add", func(tx *gorm.DB, id int64) error {
			up := clause.OnConflict{Columns: []clause.Column{{Name: "sku"}}, DoUpdates: clause.Set{{Column: clause.Column{Name: "title"}, Value: "x"}}}
			return tx.Clauses(up).Create(&cellItem{SKU: fmt.Sprint("row-", id), Stock: 3}).Error
		}, nil, 10},
		{"Create, OnConflict", func(tx *gorm.DB, id int64) error {
			return tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&cellItem{ID: id, SKU: fresh(), Stock: 3}).Error
		}, ErrUnguardedWrite, 10},
		{"Table", func(tx *gorm.DB, id int64) error {
			return tx.Table("cell_items").Where("id = ?", id).Updates(map[string]any{"stock": Sub(3)}).Error
		}, nil, 7},
		{"Table, literal", func(tx *gorm.DB, id int64) error {
			return tx.Table("cell_items AS c").Where("c.id = ?", id).Updates(map[string]any{"stock": 3}).Error
		}, ErrUnguardedWrite, 10},
		{"G Update", func(tx *gorm.DB, id int64) error {
			_, err := gorm.G[cellItem](tx).Where("id = ?", id).Update(ctx, "stock", Sub(3))
			return err
		}, nil, 7},
		{"G Updates", func(tx *gorm.DB, id int64) error {
			_, err := gorm.G[cellItem](tx).Where("id = ?", id).Updates(ctx, cellItem{Stock: 3})
			return err
		}, ErrUnguardedWrite, 10},
		{"G Set", func(tx *gorm.DB, id int64) error {
			_, err := gorm.G[cellItem](tx).Where("id = ?", id).Set(Sub(3).On("stock")).Update(ctx)
			return err
		}, nil, 7},
		{"G Set, sold out", func(tx *gorm.DB, id int64) error {
			_, err := gorm.G[cellItem](tx).Where("id = ?", id).Set(Sub(11).On("stock")).Update(ctx)
			return err
		}, ErrInsufficient, 10},
		{"gen", func(tx *gorm.DB, id int64) error {
			expr := clause.Expr{SQL: "?-?", Vars: []any{clause.Column{Table: "cell_items", Name: "stock"}, 3}}
			return where(tx, id).Clauses(clause.Set{{Column: clause.Column{Name: "stock"}, Value: expr}}).Updates(map[string]any{}).Error
		}, nil, 7},
		{"Delete, soft", func(tx *gorm.DB, id int64) error { return tx.Delete(item(id)).Error }, nil, -1},
		{"Delete, hard", func(tx *gorm.DB, id int64) error { return tx.Unscoped().Delete(item(id)).Error }, nil, -1},
		{"Exec", func(tx *gorm.DB, id int64) error {
			return tx.Exec("UPDATE cell_items SET stock = 3 WHERE id = ?", id).Error
		}, ErrUnguardedWrite, 10},
		{"Raw, Scan", func(tx *gorm.DB, id int64) error {
			var n int64
			return tx.Raw("UPDATE cell_items SET stock = 3 WHERE id = ?", id).Scan(&n).Error
		}, ErrUnguardedWrite, 10},
		{"Raw, Rows", func(tx *gorm.DB, id int64) error {
			rows, err := tx.Raw("DELETE FROM cell_items WHERE id = ?", id).Rows()
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			return rows.Err()
		}, ErrUnguardedWrite, 10},
		{"Find, Count, Pluck", func(tx *gorm.DB, id int64) error {
			var n int64
			var stocks []int64
			return errors.Join(where(tx, id).Find(&cellItem{}).Error, where(tx, id).Count(&n).Error, where(tx, id).Pluck("stock", &stocks).Error)
		}, nil, 10},
		{"First, no row", func(tx *gorm.DB, id int64) error { return tx.First(&cellItem{}, id+1000000).Error }, gorm.ErrRecordNotFound, 10},
		{"Take", func(tx *gorm.DB, id int64) error {
			left, err := Take(tx, item(id), 3)
			if err == nil && left != 7 {
				return fmt.Errorf("left %d", left)
			}
			return err
		}, nil, 7},
	}
}

var discardLog = slog.New(slog.DiscardHandler)

var errCellTaken = errors.New("SKU is taken")

// Every way to a guarded table, on every database, under every setting of gorm that changes how a statement runs, in every
// kind of transaction.
func TestMatrix(t *testing.T) {
	databases := map[string]string{"sqlite": dialectSQLite, "postgres": dialectPostgres, "mariadb": dialectMySQL, "mariadb found rows": dialectMySQL}
	for name, dialect := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, dialect)
			if strings.HasSuffix(name, "found rows") {
				d.dsn += "&clientFoundRows=true"
			}
			if err := d.bare(t, gorm.Config{}).AutoMigrate(&cellItem{}); err != nil {
				t.Fatal(err)
			}
			next := int64(0)
			for bits := range 8 {
				config := gorm.Config{TranslateError: bits&1 > 0, PrepareStmt: bits&2 > 0, SkipDefaultTransaction: bits&4 > 0}
				db := d.bare(t, config)
				if err := db.Use(New(WithModels(&cellItem{}), WithUnique("uk_cell_sku", errCellTaken), WithRawSQL(Refuse), WithLogger(discardLog))); err != nil {
					t.Fatal(err)
				}
				for kind, in := range kindsOfTransaction() {
					t.Run(fmt.Sprintf("translate=%t prepare=%t skip=%t %s", config.TranslateError, config.PrepareStmt, config.SkipDefaultTransaction, kind), func(t *testing.T) {
						for _, c := range calls() {
							next++
							runCell(t, db, in, c, next)
						}
					})
				}
			}
		})
	}
}

// kindsOfTransaction are the kinds of transaction that a statement may run in.
func kindsOfTransaction() map[string]func(db *gorm.DB, do func(tx *gorm.DB) error) error {
	return map[string]func(db *gorm.DB, do func(tx *gorm.DB) error) error{
		"none":     func(db *gorm.DB, do func(tx *gorm.DB) error) error { return do(db) },
		"explicit": func(db *gorm.DB, do func(tx *gorm.DB) error) error { return db.Transaction(do) },
		"nested": func(db *gorm.DB, do func(tx *gorm.DB) error) error {
			return db.Transaction(func(tx *gorm.DB) error { return tx.Transaction(do) })
		},
		"retry": func(db *gorm.DB, do func(tx *gorm.DB) error) error { return Retry(context.Background(), db, do) },
	}
}

func runCell(t *testing.T, db *gorm.DB, in func(*gorm.DB, func(*gorm.DB) error) error, c call, id int64) {
	t.Helper()
	// The calls make SKUs of their own, the same in each cell; rows of cells before are out of the way.
	if err := db.Unscoped().Where("1 = 1").Delete(&cellItem{}).Error; err != nil {
		t.Fatal(err)
	}
	if err := db.Create(&cellItem{ID: id, SKU: fmt.Sprint("row-", id), Title: "mug", Stock: 10}).Error; err != nil {
		t.Fatal(err)
	}
	err := in(db, func(tx *gorm.DB) error { return c.do(tx, id) })
	if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
		t.Errorf("%s: %v, want %v", c.name, err, c.want)
	}
	var row cellItem
	found := db.Limit(1).Find(&row, id)
	switch {
	case found.Error != nil:
		t.Errorf("%s: %v", c.name, found.Error)
	case found.RowsAffected == 0 && c.stock != -1, found.RowsAffected == 1 && row.Stock != c.stock:
		t.Errorf("%s: %d rows, stock %d, want %d", c.name, found.RowsAffected, row.Stock, c.stock)
	}
}
