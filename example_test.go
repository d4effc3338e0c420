package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/glebarez/sqlite"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

type Item struct {
	ID    int64
	Stock int64 `guard:"stock" gorm:"not null"` // by Sub and Add only, never below 0
}

type Order struct {
	ID             int64
	RequestID      string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id"` // one row a request
	UserID, ItemID int64  `gorm:"not null;uniqueIndex:uk_user_item"`                          // one order a user
}

var ErrAlreadyBought = errors.New("already bought")

// Shop is what the handlers of the example share.
type Shop struct {
	db   *gorm.DB
	shop *stock.Counter
}

// Mount is the whole of what a service adds to what it has: two constructors, and one line a guarded route.
func (s Shop) Mount(r chi.Router, rdb redis.UniversalClient) (*holdfast.Guard, error) {
	guard, err := holdfast.New(rdb, holdfast.WithValue("userID", currentUser))
	if err != nil {
		return nil, err
	}
	err = s.db.Use(gormplugin.New(gormplugin.WithUnique("uk_user_item", ErrAlreadyBought)))
	if err != nil {
		return nil, err
	}
	r.With(guard.Dedup("{userID}")).Post("/items/{itemID}/orders", s.buy)                            // hot item: one script decides, no lock
	r.With(guard.Dedup("{userID}"), guard.Lock("balance:{userID}")).Post("/withdrawals", s.withdraw) // several steps: a lock
	return guard, nil
}

func (s Shop) buy(w http.ResponseWriter, r *http.Request) {
	order := Order{UserID: userID(r), ItemID: itemID(r)}
	bought := stock.Order{Item: order.ItemID, User: order.UserID, Units: 1}
	res, err := s.shop.Deduct(r.Context(), bought)
	if err != nil {
		holdfast.WriteProblem(w, r, err) // sold out, limit reached: 409; Redis away: 503
		return
	}
	err = gormplugin.Retry(r.Context(), s.db, func(tx *gorm.DB) error {
		first, err := gormplugin.InsertOnce(tx, &order) // a repeat gets the first order back
		if err != nil || !first {
			return err
		}
		return tx.Model(&Item{ID: order.ItemID}).Update("stock", gormplugin.Sub(1)).Error
	})
	if gormplugin.Refused(err) { // nothing was written, for certain: give the unit back
		_, releaseErr := s.shop.Release(r.Context(), res.Order, stock.Failed, stock.Of(bought))
		err = errors.Join(err, releaseErr)
	}
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(order)
}

func (s Shop) withdraw(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

func currentUser(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }

func userID(r *http.Request) int64 { return number(r.Header.Get("X-User")) }
func itemID(r *http.Request) int64 { return number(chi.URLParam(r, "itemID")) }

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// Two units, three buyers; the first of them sends the same request twice.
func Example() {
	embedded, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer embedded.Close()
	rdb := redis.NewClient(&redis.Options{Addr: embedded.Addr()})
	defer rdb.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)&_txlock=immediate"), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		log.Fatal(err)
	}
	if pool, err := db.DB(); err == nil {
		defer pool.Close()
	}
	if err := db.AutoMigrate(&Item{}, &Order{}); err != nil {
		log.Fatal(err)
	}
	shop, err := stock.New(rdb)
	if err != nil {
		log.Fatal(err)
	}

	r := chi.NewRouter()
	guard, err := Shop{db, shop}.Mount(r, rdb)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer guard.Close(ctx)
	db.Create(&Item{ID: 1001, Stock: 2})
	ends := time.Now().Add(time.Hour) // of a real sale: a date in a table, the same at every start
	if _, err := shop.Warm(ctx, stock.Sale{Item: 1001, Units: 2, Ends: ends, Limit: stock.Limit{Units: 1}}); err != nil {
		log.Fatal(err)
	}

	for _, buyer := range []struct{ user, key string }{{"1", "a"}, {"1", "a"}, {"1", "b"}, {"2", "c"}, {"3", "d"}} {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/items/1001/orders", strings.NewReader(""))
		req.Header.Set("X-User", buyer.user)
		req.Header.Set("Idempotency-Key", buyer.key)
		rec := httptest.NewRecorder()
		r.ServeHTTP(rec, req)
		var problem struct{ Code string }
		_ = json.Unmarshal(rec.Body.Bytes(), &problem)
		fmt.Printf("user %s key %s: %d %s replayed=%v\n", buyer.user, buyer.key, rec.Code, problem.Code, rec.Header().Get("Idempotent-Replayed") != "")
	}
	var item Item
	db.Take(&item, 1001)
	fmt.Println("left in SQL:", item.Stock)
	// Output:
	// user 1 key a: 201  replayed=false
	// user 1 key a: 201  replayed=true
	// user 1 key b: 409 limit_reached replayed=false
	// user 2 key c: 201  replayed=false
	// user 3 key d: 409 insufficient replayed=false
	// left in SQL: 0
}
