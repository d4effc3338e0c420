package gormplugin_test

import (
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// The same request twice: the second time the row is filled with what is stored, so the handler can give the first answer
// again. The transaction goes on.
func ExampleInsertOnce() {
	db, done := openShop(1)
	defer done()

	for range 2 {
		order := Order{RequestID: "r1", UserID: 7, ItemID: 1001}
		err := db.Transaction(func(tx *gorm.DB) error {
			first, err := gormplugin.InsertOnce(tx, &order)
			fmt.Printf("inserted: %v, order %d, %v\n", first, order.ID, err)
			return err
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// inserted: true, order 1, <nil>
	// inserted: false, order 1, <nil>
}

// A consumer lands many orders in one statement: what was landed before, or is refused, costs only its own row.
func ExampleInsertBatch() {
	db, done := openShop(1)
	defer done()

	orders := []Order{
		{RequestID: "r1", UserID: 1, ItemID: 1001},
		{RequestID: "r2", UserID: 2, ItemID: 1001},
		{RequestID: "r1", UserID: 1, ItemID: 1001}, // delivered twice
		{RequestID: "r3", UserID: 2, ItemID: 1001}, // user 2 has an order
	}
	each, err := gormplugin.InsertBatch(db, orders)
	if err != nil {
		fmt.Println(err)
	}
	for i, err := range each {
		switch {
		case err == nil:
			fmt.Printf("%d: order %d\n", i, orders[i].ID)
		case errors.Is(err, gormplugin.ErrAlreadyApplied):
			fmt.Printf("%d: order %d, landed before\n", i, orders[i].ID)
		default:
			fmt.Printf("%d: %v\n", i, errors.Is(err, ErrAlreadyBought))
		}
	}
	// Output:
	// 0: order 1
	// 1: order 2
	// 2: order 1, landed before
	// 3: true
}

// A unique index has an error of the service's own, whichever database reports it and however.
func ExampleWithUnique() {
	db, done := openShop(1) // with gormplugin.WithUnique("uk_user_item", ErrAlreadyBought)
	defer done()

	db.Create(&Order{RequestID: "r1", UserID: 7, ItemID: 1001})
	err := db.Create(&Order{RequestID: "r2", UserID: 7, ItemID: 1001}).Error

	var refusal *gormplugin.Error
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Index(), errors.Is(err, ErrAlreadyBought), errors.Is(err, gorm.ErrDuplicatedKey))
	}
	// Output:
	// uk_user_item true true
}

// A refusal has its numbers: for the answer, not for the log.
func ExampleError() {
	db, done := openShop(2)
	defer done()

	err := db.Model(&Item{ID: 1001}).Update("stock", gormplugin.Sub(3)).Error

	var refusal *gormplugin.Error
	if errors.As(err, &refusal) {
		fmt.Println(refusal)
		fmt.Printf("%s of %s left, %s asked for\n", refusal.Available(), refusal.Column(), refusal.Requested())
	}
	// Output:
	// gormplugin: not enough left: items.stock (below_min)
	// 2 of stock left, 3 asked for
}
