package main

// Item is what SQL knows of an item: the units that are for sale, and nobody's yet.
type Item struct {
	ID    int64
	Stock int64 `guard:"stock,min=0" gorm:"not null;check:ck_stock,stock >= 0"`
}

// Order is one order. The index over user and activity says once more what the limit in Redis says: one live order a user over
// all items of the activity. Closed orders are left out of it, so that a closed order frees its user.
type Order struct {
	ID          int64
	OrderNo     string  `gorm:"size:64;not null;uniqueIndex:uk_order_no"`
	RequestID   string  `guard:"request" gorm:"size:64;not null;uniqueIndex:uk_request_id"`
	UserID      int64   `gorm:"not null;uniqueIndex:uk_user_activity,where:status <> 2"`
	ActivityID  string  `gorm:"size:32;not null;uniqueIndex:uk_user_activity"`
	ItemID      int64   `gorm:"not null;index:idx_item"`
	Units       int64   `gorm:"not null;default:1"`
	Status      int16   `gorm:"not null;default:0"` // 0 unpaid, 1 paid, 2 closed
	CloseReason *string `gorm:"size:32"`
}

// Payment is what a request has paid, or what goes back to the customer. One row a request.
type Payment struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:64;not null;uniqueIndex:uk_payment_request"`
	OrderNo   string `gorm:"size:64;not null;index:idx_payment_order"`
	Refunded  bool   `gorm:"not null"`
}

const closed = 2

var statusNames = map[int16]string{0: "unpaid", 1: "paid", closed: "closed"}
