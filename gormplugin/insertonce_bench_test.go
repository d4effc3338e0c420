package gormplugin

import (
	"errors"
	"testing"

	"gorm.io/gorm"
)

// A request that comes again, in a transaction with its answer read: InsertOnce against what one does without it, that is to
// let the duplicate end the transaction and read the row afterwards.
func BenchmarkDuplicateOfARequest(b *testing.B) {
	for _, name := range []string{dialectPostgres, dialectMySQL, dialectSQLite} {
		b.Run(name, func(b *testing.B) {
			d := newDatabase(b, name)
			db := d.shop(b, gorm.Config{})
			if err := db.Create(&shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}).Error; err != nil {
				b.Fatal(err)
			}
			plain := d.bare(b, gorm.Config{TranslateError: true})
			b.Run("InsertOnce", func(b *testing.B) {
				for b.Loop() {
					err := db.Transaction(func(tx *gorm.DB) error {
						_, err := InsertOnce(tx, &shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001})
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("abort", func(b *testing.B) {
				for b.Loop() {
					err := plain.Transaction(func(tx *gorm.DB) error {
						return tx.Create(&shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}).Error
					})
					if !errors.Is(err, gorm.ErrDuplicatedKey) {
						b.Fatal(err)
					}
					err = plain.Transaction(func(tx *gorm.DB) error {
						return tx.Where("request_id = ?", "r1").First(&shopOrder{}).Error
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
