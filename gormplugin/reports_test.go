package gormplugin

import (
	"context"
	"errors"
	"sync"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// atOnce runs fn n times at once and counts the errors of each kind.
func atOnce(t *testing.T, n int, want error, fn func(i int) error) (ok, refused int) {
	t.Helper()
	start := make(chan struct{})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		switch {
		case err == nil:
			ok++
		case errors.Is(err, want):
			refused++
		default:
			t.Errorf("got %v, want nil or %v", err, want)
		}
	}
	return ok, refused
}

// retried runs fn in a transaction, again when the database was busy with another.
func retried(db *gorm.DB, fn func(tx *gorm.DB) error) error {
	var err error
	for range 20 {
		if err = Retry(context.Background(), db, fn); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return err
}

// F088, F090 (opencart#4811, nopCommerce#4184): carts that fit alone and not together.
func TestOpencart4811_CartsThatDoNotFitTogether(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		for _, tt := range []struct{ stock, orders, sold, left int64 }{{3, 2, 1, 1}, {5, 20, 2, 1}} {
			item := newItem(t, db, tt.stock, 100)
			ok, refused := atOnce(t, int(tt.orders), ErrInsufficient, func(int) error {
				return retried(db, func(tx *gorm.DB) error { return tx.Model(&stocked{ID: item.ID}).Update("stock", Sub(2)).Error })
			})
			if int64(ok) != tt.sold || int64(ok+refused) != tt.orders || stockOf(t, db, item.ID) != tt.left {
				t.Errorf("%d orders of 2 on %d: %d sold, %d refused, %d left", tt.orders, tt.stock, ok, refused, stockOf(t, db, item.ID))
			}
		}
	})
}

// F089, F091, D04, D05, A11 (saleor#543, magento2#11488): everybody has read that there is enough before anybody writes.
func TestSaleor543_AllHaveReadBeforeAnyWrites(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		type sale struct{ ID int64 }
		db := d.open(t, gorm.Config{}, []any{&stocked{}, &sale{}})
		item := newItem(t, db, 1, 10)
		const buyers = 4
		var read sync.WaitGroup
		read.Add(buyers)
		ok, refused := atOnce(t, buyers, ErrInsufficient, func(int) error {
			var row stocked
			err := db.Take(&row, item.ID).Error
			read.Done()
			if err != nil || row.Stock < 1 {
				return errors.New("the reader saw nothing")
			}
			read.Wait()
			return retried(db, func(tx *gorm.DB) error {
				if err := tx.Create(&sale{}).Error; err != nil {
					return err
				}
				return tx.Model(&row).Update("stock", Sub(1)).Error
			})
		})
		var sales int64
		if db.Model(&sale{}).Count(&sales); ok != 1 || refused != buyers-1 || sales != 1 || stockOf(t, db, item.ID) != 0 {
			t.Errorf("%d sold, %d refused, %d sales, %d left", ok, refused, sales, stockOf(t, db, item.ID))
		}
	})
}

// F093, F094 (django-shop#888, mall#353): a transaction around read, judge, write does not help, so it is refused there too.
func TestDjangoShop888_ReadModifyWriteInATransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 1, 10)
		err := db.Transaction(func(tx *gorm.DB) error {
			var row stocked
			if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).Take(&row, item.ID).Error; err != nil {
				return err
			}
			return tx.Model(&row).Update("stock", row.Stock-1).Error
		})
		if !errors.Is(err, ErrUnguardedWrite) || stockOf(t, db, item.ID) != 1 {
			t.Errorf("got %v, stock %d", err, stockOf(t, db, item.ID))
		}
	})
}

// F095 (SimplCommerce#1111): 50 orders at once for one unit, without Redis.
func TestSimplCommerce1111_FiftyOrdersForOneUnit(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{SkipDefaultTransaction: true}, []any{&stocked{}})
		item := newItem(t, db, 1, 10)
		ok, refused := atOnce(t, 50, ErrInsufficient, func(int) error {
			return db.Model(&stocked{ID: item.ID}).Update("stock", Sub(1)).Error
		})
		if ok != 1 || refused != 49 || stockOf(t, db, item.ID) != 0 {
			t.Errorf("%d sold, %d refused, %d left", ok, refused, stockOf(t, db, item.ID))
		}
	})
}

// F092, F101, F102, X31 (Sylius#2776, WooCommerce#1252, PrestaShop#439): pay and close at once; one wins, and only the winner
// moves stock.
func TestPrestaShop439_PayAndCloseAtOnce(t *testing.T) {
	type bill struct {
		ID     int64
		Status int
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}, &bill{}})
		item := newItem(t, db, 0, 1000)
		closed := 0
		for range 30 {
			b := bill{}
			if err := db.Create(&b).Error; err != nil {
				t.Fatal(err)
			}
			ok, refused := atOnce(t, 2, ErrVersionConflict, func(i int) error {
				return retried(db, func(tx *gorm.DB) error {
					if i == 0 {
						return tx.Model(&bill{ID: b.ID}).Clauses(From("status", 0)).Update("status", 1).Error
					}
					if err := tx.Model(&bill{ID: b.ID}).Clauses(From("status", 0)).Update("status", 2).Error; err != nil {
						return err
					}
					return tx.Model(&stocked{ID: item.ID}).Update("stock", Add(1)).Error
				})
			})
			if ok != 1 || refused != 1 {
				t.Fatalf("%d won, %d lost", ok, refused)
			}
			if err := db.Take(&b, b.ID).Error; err != nil {
				t.Fatal(err)
			}
			if b.Status == 2 {
				closed++
			}
			// A late notice of payment does not turn what is decided.
			if err := db.Model(&bill{ID: b.ID}).Clauses(From("status", 0)).Update("status", 1).Error; !errors.Is(err, ErrVersionConflict) {
				t.Errorf("late: %v", err)
			}
		}
		if got := stockOf(t, db, item.ID); got != int64(closed) {
			t.Errorf("stock %d, closed %d", got, closed)
		}
	})
}

// A10: 100 in the account, two transfers of 90 at once: one succeeds, one ledger row, never negative.
func TestTwoTransfersOfNinetyFromAHundred(t *testing.T) {
	type purse struct {
		ID    int64
		Cents int64 `guard:"stock" gorm:"not null"`
	}
	type entry struct{ ID, From, To, Cents int64 }
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&purse{}, &entry{}})
		if err := db.Create(&[]purse{{ID: 1, Cents: 100}, {ID: 2}}).Error; err != nil {
			t.Fatal(err)
		}
		ok, refused := atOnce(t, 2, ErrInsufficient, func(int) error {
			return retried(db, func(tx *gorm.DB) error {
				if err := tx.Create(&entry{From: 1, To: 2, Cents: 90}).Error; err != nil {
					return err
				}
				if err := tx.Model(&purse{ID: 1}).Update("cents", Sub(90)).Error; err != nil {
					return err
				}
				return tx.Model(&purse{ID: 2}).Update("cents", Add(90)).Error
			})
		})
		var purses []purse
		var entries int64
		db.Order("id").Find(&purses)
		db.Model(&entry{}).Count(&entries)
		if ok != 1 || refused != 1 || purses[0].Cents != 10 || purses[1].Cents != 90 || entries != 1 {
			t.Errorf("%d done, %d refused, purses %+v, %d entries", ok, refused, purses, entries)
		}
	})
}

// noted is a model whose hook writes another row, to see what gorm's own transaction takes back.
type noted struct {
	ID    int64
	Stock int64 `guard:"stock" gorm:"not null"`
}

type note struct{ ID int64 }

func (n *noted) BeforeUpdate(tx *gorm.DB) error { return tx.Create(&note{}).Error }

// F107 (gorm#330): an update that hits nothing is an error, and takes the rest of its transaction with it.
func TestGorm330_UpdateOfNothingIsAnError(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&noted{}, &note{}})
		row := noted{Stock: 1}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := db.Model(&row).Update("stock", Sub(2)).Error
			if !errors.Is(err, ErrInsufficient) {
				t.Errorf("got %v", err)
			}
		}
		var notes int64
		if db.Model(&note{}).Count(&notes); notes != 0 {
			t.Errorf("%d notes of updates that were refused", notes)
		}
		if err := db.Model(&row).Update("stock", Sub(1)).Error; err != nil {
			t.Error(err)
		}
		if db.Model(&note{}).Count(&notes); notes != 1 {
			t.Errorf("%d notes, want that of the update that was done", notes)
		}
	})
}

// F106 (gorm#1222): the error is on the returned handle, and nobody has to count rows.
func TestGorm1222_ErrorIsOnTheReturnedHandle(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&stocked{}})
	item := newItem(t, db, 0, 10)
	tx := db.Begin()
	defer tx.Rollback()
	res := tx.Model(&item).Update("stock", Sub(1))
	if !errors.Is(res.Error, ErrInsufficient) || res.RowsAffected != 0 {
		t.Errorf("returned handle: %v, %d rows", res.Error, res.RowsAffected)
	}
	if tx.Error != nil || db.Error != nil {
		t.Errorf("the handles it was made from: %v, %v", tx.Error, db.Error)
	}
}

// INSERT OR REPLACE deletes the row that is in the way, and with it what was left of its stock.
func TestInsertOrReplaceIsRefused(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&stocked{}})
	item := newItem(t, db, 3, 10)
	err := db.Clauses(clause.Insert{Modifier: "OR REPLACE"}).Create(&stocked{ID: item.ID, Stock: 9, Capacity: 10}).Error
	if !errors.Is(err, ErrUnguardedWrite) || stockOf(t, db, item.ID) != 3 {
		t.Errorf("got %v, stock %d", err, stockOf(t, db, item.ID))
	}
	err = db.Clauses(clause.Update{Modifier: "OR REPLACE"}).Model(&item).Update("title", "x").Error
	if !errors.Is(err, ErrUnguardedWrite) {
		t.Errorf("UPDATE OR REPLACE: %v", err)
	}
}

// optimisticlock#29: children that are saved with their parent are checked too.
func TestOptimisticlock29_ChildrenAreChecked(t *testing.T) {
	for _, name := range []string{dialectSQLite, dialectPostgres} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, name).open(t, gorm.Config{}, []any{&warehouse{}, &bin{}})
			w := warehouse{Name: "w", Bins: []bin{{Label: "a"}}}
			if err := db.Create(&w).Error; err != nil {
				t.Fatal(err)
			}
			stale := w.Bins[0]
			if err := db.Model(&w.Bins[0]).Update("label", "b").Error; err != nil {
				t.Fatal(err)
			}
			stale.Label = "stale"
			err := db.Session(&gorm.Session{FullSaveAssociations: true}).Omit("Bins.Stock").Updates(&warehouse{ID: w.ID, Bins: []bin{stale}}).Error
			if !errors.Is(err, ErrVersionConflict) {
				t.Errorf("stale child: %v, want ErrVersionConflict", err)
			}
		})
	}
}
