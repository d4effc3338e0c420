package gormplugin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
)

type Item struct {
	ID    int64
	Stock int64 `guard:"stock" gorm:"not null"` // by Sub and Add only, never below 0
}

type Order struct {
	ID             int64
	RequestID      string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id"` // one row a request
	UserID, ItemID int64  `gorm:"not null;uniqueIndex:uk_user_item"`                          // one order a user
}

var ErrAlreadyBought = errors.New("already bought")

// openShop opens a database with one item in stock.
func openShop(stock int64) (db *gorm.DB, done func()) {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		panic(err)
	}
	db, err = gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)"), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		panic(err)
	}
	if err := db.AutoMigrate(&Item{}, &Order{}); err != nil {
		panic(err)
	}
	if err := db.Use(gormplugin.New(gormplugin.WithUnique("uk_user_item", ErrAlreadyBought))); err != nil {
		panic(err)
	}
	if err := db.Create(&Item{ID: 1001, Stock: stock}).Error; err != nil {
		panic(err)
	}
	return db, func() {
		pool, err := db.DB()
		if err != nil {
			panic(err)
		}
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

// buy is a handler's work: the order and the stock in one transaction, the order first, the hot row last.
func buy(ctx context.Context, db *gorm.DB, order *Order) error {
	return gormplugin.Retry(ctx, db, func(tx *gorm.DB) error {
		first, err := gormplugin.InsertOnce(tx, order) // a repeat gets the first order back
		if err != nil || !first {
			return err
		}
		return tx.Model(&Item{ID: order.ItemID}).Update("stock", gormplugin.Sub(1)).Error
	})
}

// Three buyers, and one request that comes twice: each has one effect or none, and the answer says which.
func ExampleRetry() {
	db, done := openShop(2)
	defer done()
	ctx := context.Background()

	for _, order := range []Order{
		{RequestID: "a", UserID: 1, ItemID: 1001},
		{RequestID: "a", UserID: 1, ItemID: 1001}, // the reply to the first was lost
		{RequestID: "b", UserID: 1, ItemID: 1001}, // another click
		{RequestID: "c", UserID: 2, ItemID: 1001},
		{RequestID: "d", UserID: 3, ItemID: 1001},
	} {
		err := buy(ctx, db, &order)
		switch {
		case err == nil:
			fmt.Printf("user %d: has the order of request %s\n", order.UserID, order.RequestID)
		case errors.Is(err, ErrAlreadyBought):
			fmt.Printf("user %d: %v, give back: %v\n", order.UserID, ErrAlreadyBought, gormplugin.Refused(err))
		case errors.Is(err, gormplugin.ErrInsufficient):
			fmt.Printf("user %d: sold out, give back: %v\n", order.UserID, gormplugin.Refused(err))
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// user 1: has the order of request a
	// user 1: has the order of request a
	// user 1: already bought, give back: true
	// user 2: has the order of request c
	// user 3: sold out, give back: true
}
