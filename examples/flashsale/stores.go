package main

import (
	"context"
	"errors"
	"log/slog"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/gormplugin"
)

// errAlreadyBought is what the unique index of a user's order means to this shop.
var errAlreadyBought = errors.New("you already took part")

// openStores opens both layers with the plugin in use.
func openStores(ctx context.Context, c stores.Config, plugins ...gorm.Plugin) (*stores.Stores, error) {
	guarded := gormplugin.New(
		gormplugin.WithModels(&ItemStock{}, &SeckillOrder{}, &Payment{}),
		gormplugin.WithUnique("uk_user_item", errAlreadyBought),
		gormplugin.WithLogger(slog.New(slog.DiscardHandler)),
	)
	return stores.Open(ctx, c, "flashsale", append(plugins, guarded), &ItemStock{}, &SeckillOrder{}, &Payment{}, &plainStock{}, &plainOrder{})
}
