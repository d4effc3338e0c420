package gormplugin

import (
	"testing"
	"time"

	"gorm.io/gorm"
)

// itemStock is the table of a sale as a service migrates it.
type itemStock struct {
	ItemID     int64     `gorm:"primaryKey;autoIncrement:false"`
	Stock      int64     `guard:"stock,min=0" gorm:"not null;check:ck_item_stock,stock >= 0"`
	Version    int64     `guard:"version" gorm:"not null;default:0"`
	Fence      int64     `guard:"fence,lock=stock" gorm:"not null;default:0"`
	UpdateTime time.Time `gorm:"autoUpdateTime"`
}

// D45: the table of stock is migrated on each database, twice without effect, and a deduction moves the time of the last
// update, although PostgreSQL and SQLite have no clause for that.
func TestUpdateTimeMoves(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&itemStock{}})
		if err := db.AutoMigrate(&itemStock{}); err != nil {
			t.Fatalf("a second migration: %v", err)
		}
		long := time.Now().Add(-time.Hour).Truncate(time.Second)
		if err := db.Create(&itemStock{ItemID: 1, Stock: 2, UpdateTime: long}).Error; err != nil {
			t.Fatal(err)
		}
		if err := db.Model(&itemStock{ItemID: 1}).Clauses(AnyVersion()).Update("stock", Sub(1)).Error; err != nil {
			t.Fatal(err)
		}
		var row itemStock
		if err := db.Take(&row, 1).Error; err != nil {
			t.Fatal(err)
		}
		if row.Stock != 1 || !row.UpdateTime.After(long.Add(time.Minute)) {
			t.Errorf("after the deduction the row is %+v; want 1 left and a time after %v", row, long)
		}
		if err := db.Model(&itemStock{ItemID: 1}).Clauses(AnyVersion()).Update("stock", Sub(2)).Error; err == nil {
			t.Error("2 of 1 were deducted")
		}
	})
}
