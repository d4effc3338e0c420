package dedup_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/gormplugin"
)

type purchase struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id"`
	Item      string
}

// An order. The record in Redis answers repeats without asking the database; the row carries the request id under a unique
// index, so that there is one row even when Redis has forgotten everything.
func ExampleDedup_Do_order() {
	rdb, stop := embedded()
	defer stop()
	d, err := dedup.New(rdb)
	if err != nil {
		panic(err)
	}
	defer d.Close(context.Background())
	db, err := gorm.Open(sqlite.Open("file:/orders?vfs=memdb"))
	if err == nil {
		err = db.Use(gormplugin.New(gormplugin.WithModels(&purchase{}), gormplugin.WithLogger(slog.New(slog.DiscardHandler))))
	}
	if err == nil {
		err = db.AutoMigrate(&purchase{})
	}
	if err != nil {
		panic(err)
	}
	defer func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
	}()

	order := func(key, item string) (id string) {
		req := dedup.Request{Scope: "user-7", Name: "order", Key: key, Fingerprint: []byte(item)}
		answer, replayed, err := d.Do(context.Background(), req, func(ctx context.Context) ([]byte, error) {
			row := purchase{Item: item} // its request id comes from the context
			_, err := gormplugin.InsertOnce(db.WithContext(ctx), &row)
			return fmt.Appendf(nil, "order %d", row.ID), err
		})
		fmt.Printf("%s, replayed: %v, error: %v\n", answer, replayed, err)
		return req.ID()
	}
	order("a8f2", "cup")
	id := order("a8f2", "cup")                                              // from the record
	if err := rdb.Del(context.Background(), "idem:"+id).Err(); err != nil { // an eviction, or a failover
		panic(err)
	}
	order("a8f2", "cup") // from the row
	order("b771", "cup") // another order
	// Output:
	// order 1, replayed: false, error: <nil>
	// order 1, replayed: true, error: <nil>
	// order 1, replayed: false, error: <nil>
	// order 2, replayed: false, error: <nil>
}
