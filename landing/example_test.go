package landing_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	"github.com/holdfast-go/holdfast/stock"
)

// Item is what SQL knows of an item.
type Item struct {
	ID    int64
	Stock int64 `guard:"stock,min=0" gorm:"not null;check:ck_stock,stock >= 0"`
}

// Order is a row of the service's own table. A closed order is left out of the index that lets a user buy once.
type Order struct {
	ID             int64
	OrderNo        string  `gorm:"size:64;not null;uniqueIndex:uk_order_no"`
	RequestID      string  `guard:"request" gorm:"size:64;not null;uniqueIndex:uk_request_id"`
	UserID, ItemID int64   `gorm:"not null;uniqueIndex:uk_user_item,where:status <> 2"`
	Units          int64   `gorm:"not null;default:1"`
	Status         int16   `gorm:"not null;default:0"` // 0 unpaid, 1 paid, 2 closed
	CloseReason    *string `gorm:"size:32"`
}

// Event is a row of the service's outbox.
type Event struct {
	ID      int64
	OrderNo string
}

var errAlreadyBought = errors.New("you have one already")

// orderOf makes the row of an accepted order. Request id, order number and state are filled in.
func orderOf(e stock.Entry) Order {
	user, _ := strconv.ParseInt(e.User, 10, 64)
	item, _ := strconv.ParseInt(e.Item, 10, 64)
	return Order{UserID: user, ItemID: item, Units: e.Units}
}

// store is a Redis inside this process and a SQLite file, with ten units of item 1001 on sale.
func store() (shop *stock.Counter, db *gorm.DB, stop func()) {
	srv, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	dir, err := os.MkdirTemp("", "landing")
	if err != nil {
		log.Fatal(err)
	}
	db, err = gorm.Open(sqlite.Open(dir+"/shop.db?_pragma=busy_timeout(5000)&_txlock=immediate"), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		db.Use(gormplugin.New(gormplugin.WithUnique("uk_user_item", errAlreadyBought))),
		db.AutoMigrate(&Item{}, &Order{}, &Event{}),
		db.Create(&Item{ID: 1001, Stock: 10}).Error,
	)
	if err != nil {
		log.Fatal(err)
	}
	shop, err = stock.New(rdb, stock.WithStream(), stock.WithHold(30*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	_, err = shop.Warm(context.Background(), stock.Sale{Item: 1001, Units: 10, Ends: time.Now().Add(time.Hour), Limit: stock.Limit{Units: 1}})
	if err != nil {
		log.Fatal(err)
	}
	return shop, db, func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
		_ = rdb.Close()
		srv.Close()
		_ = os.RemoveAll(dir)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// landed waits until nothing is left in the stream, as a service never does.
func landed(shop *stock.Counter) {
	for {
		n, err := shop.Redis().XLen(context.Background(), shop.Streams()[0]).Result()
		if err != nil || n == 0 {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// An order is accepted by one script in Redis, lands in SQL a moment later, and is paid for. A second payment, and one for an
// order that was closed, hear so.
func Example() {
	shop, db, stop := store()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	l, err := landing.New[Order, Item](shop, db, orderOf)
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 2)
	go func() { ended <- l.Worker().Run(ctx) }()
	go func() { ended <- l.Sweeper().Run(ctx) }()

	first, err := shop.Deduct(ctx, stock.Order{RequestID: "from-the-client-1", Item: 1001, User: 42, Units: 1})
	fmt.Println("42 buys:", err)
	second, err := shop.Deduct(ctx, stock.Order{RequestID: "from-the-client-2", Item: 1001, User: 43, Units: 1})
	fmt.Println("43 buys:", err)
	landed(shop)

	fmt.Println("42 pays:", l.Pay(ctx, first.Order))
	fmt.Println("42 pays again:", l.Pay(ctx, first.Order))
	fmt.Println("43 changes their mind:", l.Close(ctx, second.Order, stock.Operator))
	fmt.Println("43 pays after all:", l.Pay(ctx, second.Order))

	var item Item
	db.First(&item, 1001)
	left, err := shop.Remaining(ctx, 1001)
	fmt.Println(item.Stock, "in SQL,", left, "in Redis", err)

	cancel()
	fmt.Println(<-ended, <-ended)
	// Output:
	// 42 buys: <nil>
	// 43 buys: <nil>
	// 42 pays: <nil>
	// 42 pays again: landing: order already paid
	// 43 changes their mind: <nil>
	// 43 pays after all: landing: order closed
	// 9 in SQL, 9 in Redis <nil>
	// <nil> <nil>
}

// The outbox is written in the transaction that lands the orders: one INSERT for a whole batch.
func ExampleWithHandler() {
	shop, db, stop := store()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	l, err := landing.New[Order, Item](shop, db, orderOf, landing.WithHandler(func(tx *gorm.DB, landed []*Order) error {
		events := make([]Event, len(landed))
		for i, order := range landed {
			events[i] = Event{OrderNo: order.OrderNo}
		}
		return tx.Create(&events).Error
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for user := range 3 {
		_, err := shop.Deduct(ctx, stock.Order{RequestID: fmt.Sprint("request-", user), Item: 1001, User: user, Units: 1})
		if err != nil {
			fmt.Println(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Worker().Run(ctx) }()
	landed(shop)
	cancel()
	fmt.Println(<-ended)

	var orders, events int64
	db.Model(&Order{}).Count(&orders)
	db.Model(&Event{}).Count(&events)
	fmt.Println(orders, "orders,", events, "events")
	// Output:
	// <nil>
	// 3 orders, 3 events
}

// A row of the payment is written with the move to paid, or not at all.
func ExampleLander_Pay() {
	shop, db, stop := store()
	defer stop()
	ctx := context.Background()

	l, err := landing.New[Order, Item](shop, db, orderOf)
	if err != nil {
		fmt.Println(err)
		return
	}
	orderNo := "not-there-yet"

	err = l.Pay(ctx, orderNo, func(tx *gorm.DB) error {
		return tx.Create(&Event{OrderNo: orderNo}).Error // the payment's own row, under a unique index
	})
	switch {
	case errors.Is(err, landing.ErrAlreadyPaid): // perhaps by an earlier try of this call: look whose payment it was
	case errors.Is(err, landing.ErrClosed): // refund, or sell anew
	case errors.Is(err, landing.ErrNotLanded): // try again later
		fmt.Println("later")
	}
	// Output: later
}

// An operator looks at what could not be landed, mends the cause, and replays it; what cannot be mended is given up.
func ExampleDeadLetters() {
	shop, db, stop := store()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	_, err := shop.Warm(ctx, stock.Sale{Item: 7, Units: 5, Ends: time.Now().Add(time.Hour)}) // and SQL does not know it
	if err != nil {
		fmt.Println(err)
	}
	for user := range 2 {
		_, err := shop.Deduct(ctx, stock.Order{RequestID: fmt.Sprint("request-", user), Item: 7, User: user, Units: 1})
		if err != nil {
			fmt.Println(err)
		}
	}
	l, err := landing.New[Order, Item](shop, db, orderOf, landing.WithLogger(quiet()))
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Worker().Run(ctx) }()
	landed(shop)

	dead := l.DeadLetters()
	letters, err := dead.List(ctx, 100)
	if err != nil {
		fmt.Println(err)
	}
	for _, letter := range letters {
		fmt.Println("user", letter.Entry.User, letter.ErrorType)
	}
	fmt.Println("given up:", dead.GiveUp(ctx, letters[0].ID)) // the unit goes back
	db.Create(&Item{ID: 7, Stock: 5})
	n, err := dead.ReplayAll(ctx)
	fmt.Println("replayed:", n, err)
	landed(shop)
	cancel()
	fmt.Println(<-ended)

	left, err := shop.Remaining(context.Background(), 7)
	fmt.Println(left, "left", err)
	// Output:
	// user 0 not_found
	// user 1 not_found
	// given up: <nil>
	// replayed: 1 <nil>
	// <nil>
	// 4 left <nil>
}
