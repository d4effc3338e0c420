package gormplugin_test

import (
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

// open opens a new SQLite database with the plugin and the tables of the models, which the service creates elsewhere.
func open(models []any, opts ...gormplugin.Option) (db *gorm.DB, done func()) {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		panic(err)
	}
	db, err = gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		panic(err)
	}
	if err := errors.Join(db.AutoMigrate(models...), db.Use(gormplugin.New(append(opts, gormplugin.WithModels(models...))...))); err != nil {
		panic(err)
	}
	return db, func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
		_ = os.RemoveAll(dir)
	}
}

// Product is sold until it is gone, and its page is edited by people.
type Product struct {
	ID      int64
	Title   string
	Stock   int64 `guard:"stock" gorm:"not null"`
	Version int64 `guard:"version" gorm:"not null"`
}

// Two units, three buyers: the third one hears that there is not enough, and how much there is.
func ExampleSub() {
	db, done := open([]any{&Product{}})
	defer done()
	db.Create(&Product{ID: 1, Stock: 2})

	for range 3 {
		err := db.Model(&Product{ID: 1}).Update("stock", gormplugin.Sub(1)).Error
		fmt.Println(err, gormplugin.Refused(err))
	}
	// Output:
	// <nil> false
	// <nil> false
	// gormplugin: not enough left: products.stock (below_min) true
}

// Room has a capacity of its own in each row.
type Room struct {
	ID       int64
	Guests   int64 `guard:"stock,max=capacity" gorm:"not null"`
	Capacity int64 `gorm:"not null"`
}

// A bound may be a column: nobody gets into a room that is full, and nobody leaves one that is empty.
func ExampleAdd() {
	db, done := open([]any{&Room{}})
	defer done()
	db.Create(&Room{ID: 1, Guests: 18, Capacity: 20})

	for _, guests := range []int{2, 1} {
		err := db.Model(&Room{ID: 1}).Update("guests", gormplugin.Add(guests)).Error
		var refusal *gormplugin.Error
		if errors.As(err, &refusal) {
			fmt.Printf("%s: %s of %s are taken\n", refusal.Reason(), refusal.Available(), refusal.Limit())
			continue
		}
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// above_max: 20 of 20 are taken
}

// A model of somebody else's, or none at all: the column is marked by name.
func ExampleWithColumn() {
	type Wallet struct{ ID, Cents int64 }
	db, done := open([]any{&Wallet{}}, gormplugin.WithColumn("wallets", "cents", "stock,min=-500"))
	defer done()
	db.Create(&Wallet{ID: 1, Cents: 100})

	fmt.Println(db.Model(&Wallet{ID: 1}).Update("cents", gormplugin.Sub(600)).Error)
	fmt.Println(db.Table("wallets").Where("id = ?", 1).Update("cents", 100).Error)
	// Output:
	// <nil>
	// gormplugin: write to a guarded column without its guard: wallets.cents (absolute): write Omit("cents"), Sub/Add, or AllowAbsolute("cents")
}

// What is left comes in the same round trip.
func ExampleTake() {
	db, done := open([]any{&Product{}})
	defer done()
	db.Create(&Product{ID: 1, Stock: 10})

	left, err := gormplugin.Take(db, &Product{ID: 1}, 3)
	fmt.Println(left, err)
	// Output:
	// 7 <nil>
}

// A cart is taken as a whole, in an order in which carts do not deadlock each other.
func ExampleTakeAll() {
	db, done := open([]any{&Product{}})
	defer done()
	db.Create(&[]Product{{ID: 1, Stock: 5}, {ID: 2, Stock: 1}})

	err := db.Transaction(func(tx *gorm.DB) error {
		return gormplugin.TakeAll(tx, gormplugin.Line{Model: &Product{ID: 2}, Units: 2}, gormplugin.Line{Model: &Product{ID: 1}, Units: 2})
	})
	var refusal *gormplugin.Error
	if errors.As(err, &refusal) {
		fmt.Printf("line %d: %s wanted, %s left\n", refusal.Line(), refusal.Requested(), refusal.Available())
	}
	var stock []int64
	db.Model(&Product{}).Order("id").Pluck("stock", &stock)
	fmt.Println(stock)
	// Output:
	// line 0: 2 wanted, 1 left
	// [5 1]
}

// The version of an If-Match header, so that nobody overwrites what they have not seen.
func ExampleAtVersion() {
	db, done := open([]any{&Product{}})
	defer done()
	db.Create(&Product{ID: 1, Title: "mug"})

	for _, title := range []string{"blue mug", "green mug"} { // both editors saw version 1
		err := db.Model(&Product{ID: 1}).Clauses(gormplugin.AtVersion(1)).Update("title", title).Error
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// gormplugin: the row has changed since it was read: products.version (version)
}

// Invoice is unpaid (0), paid (1) or closed (2).
type Invoice struct {
	ID     int64
	Status int
}

// The customer pays and the timer closes: one of them wins, the other one hears so.
func ExampleFrom() {
	db, done := open([]any{&Invoice{}})
	defer done()
	db.Create(&Invoice{ID: 1})

	pay := db.Model(&Invoice{ID: 1}).Clauses(gormplugin.From("status", 0)).Update("status", 1)
	closed := db.Model(&Invoice{ID: 1}).Clauses(gormplugin.From("status", 0)).Update("status", 2)
	fmt.Println(pay.Error)
	fmt.Println(closed.Error)
	// Output:
	// <nil>
	// gormplugin: the row has changed since it was read: invoices.status (state)
}

// The stock-taking sets a number, and says that it means to.
func ExampleAllowAbsolute() {
	db, done := open([]any{&Product{}})
	defer done()
	product := Product{ID: 1, Stock: 10}
	db.Create(&product)

	fmt.Println(db.Model(&product).Update("stock", 0).Error)
	fmt.Println(db.Clauses(gormplugin.AllowAbsolute("stock")).Model(&product).Update("stock", 0).Error)
	// Output:
	// gormplugin: write to a guarded column without its guard: products.stock (absolute): write Omit("Stock"), Sub/Add, or AllowAbsolute("stock")
	// <nil>
}

// The back office saves a whole row, but not the number that buyers change meanwhile.
func Example_omit() {
	db, done := open([]any{&Product{}})
	defer done()
	product := Product{ID: 1, Title: "mug", Stock: 10}
	db.Create(&product)
	db.Model(&Product{ID: 1}).Update("stock", gormplugin.Sub(4))

	db.Take(&product, 1)
	product.Title, product.Stock = "cup", 10 // a form that was opened before
	fmt.Println(errors.Is(db.Save(&product).Error, gormplugin.ErrUnguardedWrite))
	fmt.Println(db.Omit("Stock").Save(&product).Error)

	db.Take(&product, 1)
	fmt.Println(product.Title, product.Stock)
	// Output:
	// true
	// <nil>
	// cup 6
}

// All of the rows, or none of them.
func ExampleExpect() {
	db, done := open([]any{&Product{}})
	defer done()
	db.Create(&[]Product{{ID: 1, Stock: 1}, {ID: 2, Stock: 0}, {ID: 3, Stock: 1}})

	err := db.Model(&Product{}).Where("id IN ?", []int{1, 2, 3}).Clauses(gormplugin.Expect(3)).Update("stock", gormplugin.Sub(1)).Error
	var refusal *gormplugin.Error
	if errors.As(err, &refusal) {
		fmt.Printf("%s of %s rows, not %v\n", refusal.Available(), refusal.Requested(), refusal.Keys())
	}
	// Output:
	// 2 of 3 rows, not [2]
}

// An old code base runs as before, and finds out what would be refused.
func ExampleWithShadow() {
	noTime := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "at" {
			return slog.Attr{}
		}
		return a
	}}
	log := slog.New(slog.NewTextHandler(os.Stdout, noTime))
	db, done := open([]any{&Product{}}, gormplugin.WithShadow(), gormplugin.WithLogger(log))
	defer done()
	db.Create(&Product{ID: 1, Stock: 10})

	for stock := range 3 {
		db.Model(&Product{ID: 1}).Update("stock", stock) // one line for each place in the code
	}
	// Output:
	// level=WARN msg="gormplugin: shadow mode let pass what would have been refused" table=products column=stock error_type=unguarded reason=absolute
}
