package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/lock"
	holdfast "github.com/holdfast-go/holdfast/middleware"
)

// start returns a guard on an embedded Redis, and what ends both.
func start(opts ...holdfast.Option) (*holdfast.Guard, func()) {
	srv, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	opts = append(opts, holdfast.WithValue("userID", currentUser), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	guard, err := holdfast.New(rdb, opts...)
	if err != nil {
		panic(err)
	}
	return guard, func() {
		_ = guard.Close(context.Background())
		_ = rdb.Close()
		srv.Close()
	}
}

// currentUser stands for authentication.
func currentUser(*http.Request) (string, error) { return "42", nil }

// post sends one request and prints what a client sees of the answer.
func post(h http.Handler, path, key, body string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	replayed := ""
	if w.Header().Get("Idempotent-Replayed") == "true" {
		replayed = " (replayed)"
	}
	fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()), replayed)))
}

func Example() {
	guard, stop := start()
	defer stop()
	r := chi.NewRouter()
	n := 0
	r.With(guard.Dedup("{userID}"), guard.Lock("balance:{userID}")).Post("/withdrawals", func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "withdrawal %d", n)
	})
	if err := guard.Validate(r); err != nil {
		panic(err)
	}

	post(r, "/withdrawals", "a8f2", `{"amount": 90}`)
	post(r, "/withdrawals", "a8f2", `{"amount": 90}`) // the client has not seen the answer and tries again
	post(r, "/withdrawals", "c044", `{"amount": 90}`)
	// Output:
	// 201 withdrawal 1
	// 201 withdrawal 1 (replayed)
	// 201 withdrawal 2
}

func ExampleGuard_Lock() {
	guard, stop := start()
	defer stop()
	r := chi.NewRouter()
	var again http.Handler = r
	r.With(guard.Lock("stock:{itemID|int}", holdfast.Wait(0))).Post("/items/{itemID}/count", func(w http.ResponseWriter, r *http.Request) {
		lease, _ := lock.FromContext(r.Context())
		fmt.Println("holding", lease.Keys())
		if chi.URLParam(r, "itemID") == "7" {
			post(again, "/items/07/count", "", "") // another request for the same item meanwhile
		}
		io.WriteString(w, "counted")
	})

	post(r, "/items/7/count", "", "")
	// Output:
	// holding [stock:7]
	// 429 {"type":"urn:holdfast:problem:busy","title":"Busy","status":429,"detail":"Another request works on the same thing. Try again later.","code":"busy","retryable":true}
	// 200 counted
}

func ExampleGuard_Dedup() {
	guard, stop := start()
	defer stop()
	r := chi.NewRouter()
	r.With(guard.Dedup("{userID}")).Post("/orders", func(w http.ResponseWriter, r *http.Request) {
		switch run := dedup.FromContext(r.Context()); run.Attempt() {
		case 1:
			w.WriteHeader(http.StatusBadGateway) // the payment service did not answer
		default:
			fmt.Fprintf(w, "ordered by attempt %d", run.Attempt())
		}
	})

	post(r, "/orders", "", `{"item": 1}`)
	post(r, "/orders", "a8f2", `{"item": 1}`)
	post(r, "/orders", "a8f2", `{"item": 1}`) // a failure is not pinned: it runs again
	post(r, "/orders", "a8f2", `{"item": 1}`) // a success is
	post(r, "/orders", "a8f2", `{"item": 2}`) // one key, another request
	// Output:
	// 400 {"type":"urn:holdfast:problem:key_missing","title":"No idempotency key","status":400,"detail":"This route needs an idempotency key: header Idempotency-Key is absent.","code":"key_missing","retryable":false}
	// 502
	// 200 ordered by attempt 2
	// 200 ordered by attempt 2 (replayed)
	// 422 {"type":"urn:holdfast:problem:mismatch","title":"Idempotency key reused","status":422,"detail":"This idempotency key was used for another request.","code":"mismatch","retryable":false}
}

func ExampleGuard_RequestID() {
	guard, stop := start()
	defer stop()
	r := chi.NewRouter()
	r.With(guard.RequestID("{userID}")).Post("/items/{itemID}/orders", func(w http.ResponseWriter, r *http.Request) {
		// stock.Order and a column tagged guard:"request" are filled with this id.
		fmt.Fprintf(w, "the order's id has %d characters", len(dedup.FromContext(r.Context()).RequestID()))
	})

	post(r, "/items/7/orders", "a8f2", "")
	// Output:
	// 200 the order's id has 43 characters
}

func ExampleGuard_Apply() {
	guard, stop := start()
	defer stop()
	// A finished router, somewhere else in the service.
	r := chi.NewRouter()
	r.Route("/accounts/{accountID}", func(r chi.Router) {
		r.Post("/transfers", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "transferred") })
	})

	routes, err := holdfast.LoadAnnotations(strings.NewReader(`{
		"POST /accounts/{accountID}/transfers": {
			"lock":  {"keys": ["account:{accountID|int}", "account:{body.to|int}"], "wait": "2s", "on_unavailable": "refuse"},
			"dedup": {"scope": "{userID}", "ttl": "24h"}
		}}`))
	if err != nil {
		panic(err)
	}
	if err := guard.Apply(r, routes); err != nil {
		panic(err)
	}
	for _, route := range guard.Routes(r) {
		fmt.Println(route.Method, route.Pattern, strings.Join(route.Rules, " "))
	}
	post(r, "/accounts/1/transfers", "a8f2", `{"to": "2"}`)
	post(r, "/accounts/1/transfers", "a8f2", `{"to": "2"}`)
	// Output:
	// POST /accounts/{accountID}/transfers Dedup("{userID}") Lock("account:{accountID|int}", Also("account:{body.to|int}"))
	// 200 transferred
	// 200 transferred (replayed)
}

func ExampleGuard_Validate() {
	guard, stop := start()
	defer stop()
	r := chi.NewRouter()
	r.With(guard.Lock("stock:{itemID}"), guard.Dedup("{userID}")).Post("/items/{item}/orders", func(http.ResponseWriter, *http.Request) {})

	fmt.Println(guard.Validate(r))
	// Output:
	// middleware: the rules do not fit the router
	// POST /items/{item}/orders: Lock("stock:{itemID}"): {itemID} is no param of the route; write {item}, or register itemID with WithValue
	// POST /items/{item}/orders: Dedup("{userID}") is inside of Lock("stock:{itemID}"): a replay would wait for the lock; put Dedup outside
}

func ExampleWriteProblem() {
	r := chi.NewRouter()
	r.Post("/buy", func(w http.ResponseWriter, r *http.Request) {
		err := fmt.Errorf("charge card 4711: %w", lock.ErrLost) // from any package of holdfast
		holdfast.WriteProblem(w, r, err)
	})

	post(r, "/buy", "", "")
	// Output:
	// 503 {"type":"urn:holdfast:problem:lost","title":"Lock lost","status":503,"detail":"The lock was lost while the request was worked on. Try again with the same idempotency key.","code":"lost","retryable":true}
}

func ExampleWithErrorHandler() {
	guard, stop := start(holdfast.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
		p := holdfast.Describe(err)
		http.Error(w, "no: "+p.Code, p.Status)
	}))
	defer stop()
	r := chi.NewRouter()
	r.With(guard.Dedup("{userID}")).Post("/orders", func(http.ResponseWriter, *http.Request) {})

	post(r, "/orders", "", "")
	// Output:
	// 400 no: key_missing
}
