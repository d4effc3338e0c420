package gormplugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// Two holders of one lock, of which the first does not know that it has lost it: what it writes comes too late.
func ExampleContextWithFence() {
	type Price struct {
		ID    int64
		Cents int64
		Fence int64 `guard:"fence,lock=price" gorm:"not null"`
	}
	dir, err := os.MkdirTemp("", "price")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "price.db")), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		panic(err)
	}
	if pool, err := db.DB(); err == nil {
		defer pool.Close()
	}
	if err := db.AutoMigrate(&Price{}); err != nil {
		panic(err)
	}
	if err := db.Use(gormplugin.New()); err != nil {
		panic(err)
	}
	db.Create(&Price{ID: 1, Cents: 900})

	first := gormplugin.ContextWithFence(context.Background(), "price:1", 33)
	second := gormplugin.ContextWithFence(context.Background(), "price:1", 34)

	err = db.WithContext(second).Model(&Price{ID: 1}).Update("cents", 950).Error
	fmt.Println("second:", err)
	err = db.WithContext(first).Model(&Price{ID: 1}).Update("cents", 100).Error
	fmt.Println("first, woken up:", errors.Is(err, gormplugin.ErrStaleFence))

	var price Price
	db.First(&price, 1)
	fmt.Println(price.Cents)
	// Output:
	// second: <nil>
	// first, woken up: true
	// 950
}

// At start-up, or in CI: what the guard relies on is in the database, and not in the model alone.
func ExamplePlugin_VerifySchema() {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		panic(err)
	}
	if pool, err := db.DB(); err == nil {
		defer pool.Close()
	}
	db.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY, request_id VARCHAR(43) NOT NULL, user_id INT, item_id INT)")
	db.Exec("CREATE UNIQUE INDEX uk_request_id ON orders (request_id)")

	plugin := gormplugin.New(
		gormplugin.WithModels(&Order{}),
		gormplugin.WithUnique("uk_user_item", ErrAlreadyBought),
		gormplugin.WithLogger(slog.New(slog.DiscardHandler)), // for advice
	)
	if err := db.Use(plugin); err != nil {
		panic(err)
	}
	err = plugin.VerifySchema(context.Background(), db)
	fmt.Println(errors.Is(err, gormplugin.ErrInvalid))

	db.Exec("CREATE UNIQUE INDEX uk_user_item ON orders (user_id, item_id)")
	fmt.Println(plugin.VerifySchema(context.Background(), db))
	// Output:
	// true
	// <nil>
}
