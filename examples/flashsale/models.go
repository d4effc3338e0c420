package main

import "time"

// ItemStock is the truth about an item. Its guard tags are all that the plugin needs to know.
type ItemStock struct {
	ItemID     int64     `gorm:"primaryKey;autoIncrement:false"`
	Stock      int64     `guard:"stock,min=0" gorm:"not null;check:ck_stock,stock >= 0"`
	Version    int64     `guard:"version" gorm:"not null;default:0"`
	Fence      int64     `guard:"fence,lock=stock" gorm:"not null;default:0"`
	UpdateTime time.Time `gorm:"autoUpdateTime"`
}

// TableName is the table of the stock.
func (ItemStock) TableName() string { return "item_stock" }

// Order states.
const (
	unpaid = 0
	paid   = 1
	closed = 2
)

// SeckillOrder is one user's order. Its unique indexes say no when Redis has forgotten: one row a request, and one live
// order a user, item and activity. The latter is partial, so that a closed order frees its user.
type SeckillOrder struct {
	ID          int64
	OrderNo     string    `gorm:"size:64;not null;uniqueIndex:uk_order_no"`
	RequestID   string    `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id"`
	UserID      int64     `gorm:"not null;uniqueIndex:uk_user_item,where:status <> 2"`
	ItemID      int64     `gorm:"not null;uniqueIndex:uk_user_item;index:idx_item"`
	ActivityID  int64     `gorm:"not null;uniqueIndex:uk_user_item"`
	Nth         int16     `gorm:"not null;default:1;uniqueIndex:uk_user_item"`
	Units       int64     `gorm:"not null;check:ck_units,units > 0"`
	Status      int16     `gorm:"not null;default:0"`
	CloseReason *string   `gorm:"size:32"`
	CreateTime  time.Time `gorm:"autoCreateTime"`
}

// TableName is the table of the orders.
func (SeckillOrder) TableName() string { return "seckill_order" }

// plainStock and plainOrder are the tables of the row "none": without CHECK and unique index, since with them the
// schema would hide the bug.
type plainStock struct {
	ItemID int64 `gorm:"primaryKey;autoIncrement:false"`
	Stock  int64
}

type plainOrder struct {
	ID             int64
	UserID, ItemID int64 `gorm:"index:idx_plain"`
}

// Payment is what a request has paid, or what was sent back. One row a request.
type Payment struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_payment_request"`
	OrderNo   string `gorm:"size:64;not null;index"`
	Refunded  bool   `gorm:"not null"`
}
