package lockkey_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/lockkey"
)

func Example() {
	stock, err := lockkey.Parse("stock:{itemID|int}")
	if err != nil {
		panic(err)
	}

	router := chi.NewRouter()
	router.Post("/items/{itemID}/orders", func(_ http.ResponseWriter, r *http.Request) {
		keys, err := stock.Keys(r)
		fmt.Println(r.URL.EscapedPath(), keys, err)
	})
	for _, path := range []string{"/items/7/orders", "/items/07/orders", "/items/%37/orders"} {
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
	}
	// Output:
	// /items/7/orders [stock:7] <nil>
	// /items/07/orders [stock:7] <nil>
	// /items/%37/orders [stock:7] <nil>
}

func ExampleParse() {
	_, err := lockkey.Parse("stock:{shopID}-{itemID}")
	fmt.Println(err)

	var fault *lockkey.ParseError
	if errors.As(err, &fault) {
		fmt.Println(fault.Offset, fault.Instead)
	}
	// Output:
	// lockkey: template "stock:{shopID}-{itemID}" at byte 15: nothing separates it from {shopID}: different values would give one key; write {shopID}:{itemID}
	// 15 write {shopID}:{itemID}
}

func ExampleWithValue() {
	type user struct{ id string }
	users := map[string]user{"secret": {"42"}}
	currentUser := func(r *http.Request) (string, error) {
		u, ok := users[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		if !ok {
			return "", errors.New("nobody is logged in")
		}
		return u.id, nil
	}
	balance, err := lockkey.Parse("user_balance:{userID}", lockkey.WithValue("userID", currentUser))
	if err != nil {
		panic(err)
	}

	r := httptest.NewRequest(http.MethodPost, "/withdrawals", nil)
	r.Header.Set("Authorization", "Bearer secret")
	fmt.Println(balance.Keys(r))

	r.Header.Set("Authorization", "Bearer stale")
	_, err = balance.Keys(r)
	fmt.Println(err)
	fmt.Println(errors.Is(err, lockkey.ErrMisuse))
	// Output:
	// [user_balance:42] <nil>
	// lockkey: registered value userID failed (placeholder {userID}, template "user_balance:{userID}")
	// true
}

func ExampleTemplate_Keys() {
	cart, err := lockkey.Parse("sku:{body.items.#.sku}")
	if err != nil {
		panic(err)
	}

	r := httptest.NewRequest(http.MethodPost, "/carts", strings.NewReader(`{"items": [{"sku": "B-2"}, {"sku": "A-1"}, {"sku": "B-2"}]}`))
	fmt.Println(cart.Keys(r))

	body, _ := io.ReadAll(r.Body) // the handler's
	fmt.Println(string(body))
	// Output:
	// [sku:A-1 sku:B-2] <nil>
	// {"items": [{"sku": "B-2"}, {"sku": "A-1"}, {"sku": "B-2"}]}
}

func ExampleTemplate_AppendKeys() {
	from, _ := lockkey.Parse("account:{body.from}")
	to, _ := lockkey.Parse("account:{body.to}")

	r := httptest.NewRequest(http.MethodPost, "/transfers", strings.NewReader(`{"from": "DE02", "to": "AT61"}`))
	keys, err := from.AppendKeys(nil, r)
	if err == nil {
		keys, err = to.AppendKeys(keys, r)
	}
	fmt.Println(keys, err)
	// Output: [account:AT61 account:DE02] <nil>
}

func ExampleTemplate_Check() {
	stock, _ := lockkey.Parse("stock:{itemId}")
	fmt.Println(stock.Check(http.MethodPost, "/items/{itemID:[0-9]+}/orders"))

	stock, _ = lockkey.Parse("stock:{itemID}")
	fmt.Println(stock.Check(http.MethodPost, "/items/{itemID:[0-9]+}/orders"))
	fmt.Println(stock.Warnings("/items/{itemID:[0-9]+}/orders"))
	// Output:
	// lockkey: template "stock:{itemId}" on POST /items/{itemID:[0-9]+}/orders: {itemId} is no param of the route; write {itemID}, or register itemId with WithValue
	// <nil>
	// [{itemID} is a number that the route also takes with leading zeros, which makes it another key; write {itemID|int}]
}

func ExampleSingle() {
	key, err := lockkey.Parse("{header.Idempotency-Key|sf}", lockkey.Single())
	if err != nil {
		panic(err)
	}
	for _, sent := range []string{`"k-1"`, `k-1`, `"k-1`} {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("Idempotency-Key", sent)
		fmt.Println(key.Key(r))
	}
	_, err = key.Key(httptest.NewRequest(http.MethodPost, "/orders", nil))
	var failed *lockkey.KeyError
	fmt.Println(errors.As(err, &failed) && failed.Absent())
	// Output:
	// k-1 <nil>
	// k-1 <nil>
	//  lockkey: header Idempotency-Key has an open quote (placeholder {header.Idempotency-Key|sf}, template "{header.Idempotency-Key|sf}")
	// true
}

func ExampleScope() {
	_, err := lockkey.Parse("userID", lockkey.Scope())
	fmt.Println(err)

	all, err := lockkey.Parse("all", lockkey.Scope())
	fmt.Println(all, err)
	// Output:
	// lockkey: template "userID" at byte 0: a scope without a placeholder is one scope for everybody; write who is asking, like {userID}, or the word "all" to share on purpose
	// all <nil>
}

func ExampleBufferBody() {
	total, _ := lockkey.Parse("total:{body.id}")
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(total.Keys(r)) // reads nothing: the buffer is there
	})

	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"id": 7}`))
	body, err := lockkey.BufferBody(r, 1<<20)
	fmt.Println(len(body), err)
	handler.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// 9 <nil>
	// [total:7] <nil>
}
