package landing_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// The models that the documentation shows are what VerifySchema asks for.
func TestModelsOfTheDocsFitTheirTables(t *testing.T) {
	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if pool, err := db.DB(); err == nil {
		t.Cleanup(func() { _ = pool.Close() })
	}
	plugin := gormplugin.New(
		gormplugin.WithModels(&Item{}, &Order{}), gormplugin.WithUnique("uk_user_item", errAlreadyBought), gormplugin.WithLogger(quiet()),
	)
	if err := db.AutoMigrate(&Item{}, &Order{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Use(plugin); err != nil {
		t.Fatal(err)
	}
	if err := plugin.VerifySchema(context.Background(), db); err != nil {
		t.Error(err)
	}
}
