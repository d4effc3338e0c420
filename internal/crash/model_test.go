package crash

import (
	"errors"
	"log/slog"
	"strconv"
	"time"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/stock"
)

// itemStock and seckillOrder are the tables of the shop.
type itemStock struct {
	ItemID  int64 `gorm:"primaryKey;autoIncrement:false"`
	Stock   int64 `guard:"stock,min=0" gorm:"not null;check:ck_stock,stock >= 0"`
	Version int64 `guard:"version" gorm:"not null;default:0"`
	Fence   int64 `gorm:"not null;default:0"`
}

func (itemStock) TableName() string { return "item_stock" }

type seckillOrder struct {
	ID          int64
	OrderNo     string  `gorm:"size:64;not null;uniqueIndex:uk_order_no"`
	RequestID   string  `guard:"request" gorm:"size:64;not null;uniqueIndex:uk_request_id"`
	UserID      int64   `gorm:"not null;uniqueIndex:uk_user_item,where:status <> 2"`
	ItemID      int64   `gorm:"not null;uniqueIndex:uk_user_item;index:idx_item"`
	ActivityID  int64   `gorm:"not null;uniqueIndex:uk_user_item"`
	Nth         int16   `gorm:"not null;default:1;uniqueIndex:uk_user_item"`
	Units       int64   `gorm:"not null;check:ck_units,units > 0"`
	Status      int16   `gorm:"not null;default:0"`
	CloseReason *string `gorm:"size:32"`
	CreateTime  time.Time
}

func (seckillOrder) TableName() string { return "seckill_order" }

const (
	unpaid = 0
	paid   = 1
	closed = 2
)

var errAlreadyBought = errors.New("the user has a live order")

// rowOf makes the row of an accepted order.
func rowOf(e stock.Entry) seckillOrder {
	number := func(id string) int64 { n, _ := strconv.ParseInt(id, 10, 64); return n }
	return seckillOrder{
		UserID: number(e.User), ItemID: number(e.Item), ActivityID: number(e.Activity), Nth: int16(e.Nth), Units: e.Units, CreateTime: e.At,
	}
}

// openSQL opens the database with the plugin.
func openSQL(dsn string, conns int) (*gorm.DB, error) {
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	err = db.Use(gormplugin.New(
		gormplugin.WithLogger(slog.New(slog.DiscardHandler)),
		gormplugin.WithModels(&itemStock{}, &seckillOrder{}),
		gormplugin.WithUnique("uk_user_item", errAlreadyBought),
	))
	return db, err
}
