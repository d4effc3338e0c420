package stock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/stock"
)

// client returns a client for a Redis inside this process.
func client() (rdb *redis.Client, stop func()) {
	srv, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: srv.Addr()})
	return rdb, func() {
		_ = rdb.Close()
		srv.Close()
	}
}

// Two users want the last unit; the winner's order is refused by SQL, so the unit is given back.
func Example() {
	rdb, stop := client()
	defer stop()
	ctx := context.Background()

	shop, err := stock.New(rdb, stock.Prefix("shop:"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = shop.Warm(ctx, stock.Sale{Item: 1001, Units: 1, Ends: time.Now().Add(time.Hour), Limit: stock.Limit{Units: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}

	first := stock.Order{Item: 1001, User: 42, Units: 1, RequestID: "from-the-client-1"}
	res, err := shop.Deduct(ctx, first)
	fmt.Println("user 42:", res.Left, "left,", err)

	_, err = shop.Deduct(ctx, stock.Order{Item: 1001, User: 43, Units: 1, RequestID: "from-the-client-2"})
	fmt.Println("user 43:", err, errors.Is(err, stock.ErrInsufficient))

	ended, err := shop.Release(ctx, res.Order, stock.Failed, stock.Of(first))
	fmt.Println(ended.Outcome, ended.Units, err)

	left, err := shop.Remaining(ctx, 1001)
	fmt.Println(left, "left,", err)
	// Output:
	// user 42: 0 left, <nil>
	// user 43: stock: not enough left true
	// released 1 <nil>
	// 1 left, <nil>
}

// A sale with payment: every order is a hold with a deadline, ended by whoever comes first.
func ExampleWithHold() {
	rdb, stop := client()
	defer stop()
	ctx := context.Background()

	shop, err := stock.New(rdb, stock.WithHold(30*time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := shop.Warm(ctx, stock.Sale{Item: "seat", Units: 10, Ends: time.Now().Add(time.Hour)}); err != nil {
		fmt.Println(err)
		return
	}
	res, err := shop.Deduct(ctx, stock.Order{Item: "seat", User: 42, Units: 2, RequestID: "r1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	paid, err := shop.Confirm(ctx, res.Order)
	fmt.Println(paid.Outcome, paid.Units, err)

	_, err = shop.Release(ctx, res.Order, stock.Unpaid) // the sweeper, a moment too late
	fmt.Println(err)
	// Output:
	// confirmed 2 <nil>
	// stock: already confirmed
}

// Several items in one order, all or nothing.
func ExampleCounter_Deduct_lines() {
	rdb, stop := client()
	defer stop()
	ctx := context.Background()

	shop, err := stock.New(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	for item, units := range map[string]int64{"cup": 5, "plate": 1} {
		if _, err := shop.Warm(ctx, stock.Sale{Item: item, Units: units, Ends: time.Now().Add(time.Hour)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, plates := range []int64{2, 1} {
		_, err := shop.Deduct(ctx, stock.Order{User: 42, RequestID: fmt.Sprint("r", plates), Lines: []stock.Line{
			{Item: "cup", Units: 2},
			{Item: "plate", Units: plates},
		}})
		cups, _ := shop.Remaining(ctx, "cup")
		fmt.Println(plates, "plates:", err, "-", cups, "cups left")
	}
	// Output:
	// 2 plates: stock: not enough left - 5 cups left
	// 1 plates: <nil> - 3 cups left
}

// A merchant's quota, in cents.
func ExampleNewQuota() {
	rdb, stop := client()
	defer stop()
	ctx := context.Background()

	quota, err := stock.NewQuota(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := quota.Warm(ctx, stock.Sale{Item: "merchant-7", Units: 1000, Ends: time.Now().Add(24 * time.Hour)}); err != nil {
		fmt.Println(err)
		return
	}
	for i, cents := range []int64{700, 400, 300} {
		res, err := quota.Deduct(ctx, stock.Order{Item: "merchant-7", Units: cents, RequestID: fmt.Sprint("payment-", i)})
		fmt.Println(cents, "->", res.Left, err)
	}
	// Output:
	// 700 -> 300 <nil>
	// 400 -> 0 stock: not enough left
	// 300 -> 0 <nil>
}

// Seats are not alike: each buyer gets one of the list.
func ExampleNewTokens() {
	rdb, stop := client()
	defer stop()
	ctx := context.Background()

	seats, err := stock.NewTokens(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	sale := stock.Batch{Item: "opera", Tokens: []string{"A1", "A2"}, Ends: time.Now().Add(time.Hour), PerUser: 1}
	for range 2 { // loading twice changes nothing
		if _, err := seats.Load(ctx, sale); err != nil {
			fmt.Println(err)
			return
		}
	}
	for user := range 3 {
		got, err := seats.Take(ctx, stock.Order{Item: "opera", User: user, RequestID: fmt.Sprint("r", user)})
		fmt.Printf("%q %v\n", got.Token, err)
	}
	// Output:
	// "A1" <nil>
	// "A2" <nil>
	// "" stock: not enough left
}
