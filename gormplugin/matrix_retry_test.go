package gormplugin

import (
	"errors"
	"fmt"
	"testing"

	"gorm.io/gorm"
)

// The work of a handler in every setting of gorm and of the databases: the first attempt, its repeat, another's duplicate,
// what is sold out, and a nested transaction that is refused while the outer one goes on.
func TestRequestsInEverySetting(t *testing.T) {
	variants := map[string]string{dialectPostgres: "", dialectMySQL: "", "mysql, found rows": "&clientFoundRows=true", dialectSQLite: ""}
	for variant, setting := range variants {
		for i := range 8 {
			config := gorm.Config{TranslateError: i&1 > 0, PrepareStmt: i&2 > 0, SkipDefaultTransaction: i&4 > 0}
			t.Run(fmt.Sprintf("%s, translate %v, prepare %v, skip transaction %v", variant, i&1 > 0, i&2 > 0, i&4 > 0), func(t *testing.T) {
				t.Parallel()
				name := variant
				if setting != "" {
					name = dialectMySQL
				}
				d := newDatabase(t, name)
				d.dsn += setting
				requests(t, d, d.shop(t, config))
			})
		}
	}
}

func requests(t *testing.T, d database, db *gorm.DB) {
	try := func(what string, row shopOrder, want error, rows int64) shopOrder {
		t.Helper()
		err := Retry(t.Context(), db, func(tx *gorm.DB) error { return buy(tx, &row) })
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		var stored int64
		if err := db.Model(&shopOrder{}).Count(&stored).Error; err != nil || stored != rows {
			t.Errorf("%s: %d rows, %v; want %d", what, stored, err, rows)
		}
		return row
	}
	first := try("first", shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}, nil, 1)
	if again := try("repeat", shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}, nil, 1); again != first {
		t.Errorf("the repeat has %+v, want %+v", again, first)
	}
	try("another request of the user", shopOrder{RequestID: "r2", OrderNo: "n2", UserID: 7, ItemID: 1001}, errBought, 1)
	try("another user's order number", shopOrder{RequestID: "r3", OrderNo: "n1", UserID: 8, ItemID: 1001}, errTaken, 1)
	try("an item that is not there", shopOrder{RequestID: "r4", OrderNo: "n4", UserID: 8, ItemID: 5}, ErrNotFound, 1)
	err := db.Transaction(func(tx *gorm.DB) error {
		nested := tx.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&shopOrder{RequestID: "r5", OrderNo: "n5", UserID: 9, ItemID: 1001}).Error; err != nil {
				return err
			}
			return tx.Create(&shopOrder{RequestID: "r1", OrderNo: "n6", UserID: 10, ItemID: 1001}).Error
		})
		if !errors.Is(nested, ErrAlreadyApplied) {
			t.Errorf("nested: %v, want ErrAlreadyApplied", nested)
		}
		return buy(tx, &shopOrder{RequestID: "r6", OrderNo: "n7", UserID: 11, ItemID: 1001})
	})
	if err != nil {
		t.Errorf("the outer transaction: %v", err)
	}
	var users []int64
	if err := db.Model(&shopOrder{}).Order("user_id").Pluck("user_id", &users).Error; err != nil || fmt.Sprint(users) != "[7 11]" {
		t.Errorf("orders of users %v, %v; want 7 and 11", users, err)
	}
	if got := d.stock(t); got != 98 {
		t.Errorf("stock %d, want 98", got)
	}
}
