package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/gormplugin"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

// activity is the one sale that this example runs.
const activity = 1

// shop sells items, in each of the ways that the load table compares.
type shop struct {
	*stores.Stores
	guard   *holdfast.Guard
	counter *stock.Counter
	think   time.Duration // how long the unguarded way thinks between reading and writing
}

func newShop(s *stores.Stores) (*shop, error) {
	guard, err := holdfast.New(s.Redis, holdfast.WithValue("userID", currentUser), holdfast.Prefix(s.Prefix))
	if err != nil {
		return nil, err
	}
	counter, err := stock.New(s.Redis, stock.Prefix(s.Prefix))
	if err != nil {
		return nil, err
	}
	return &shop{Stores: s, guard: guard, counter: counter}, nil
}

// currentUser stands in for authentication: a real service takes the user from its session or token.
func currentUser(r *http.Request) (string, error) {
	if user := r.Header.Get("X-User"); user != "" {
		return user, nil
	}
	return "", errNobody{}
}

type errNobody struct{}

func (errNobody) Error() string   { return "who are you? Send X-User: 42" }
func (errNobody) HTTPStatus() int { return http.StatusUnauthorized }

// open puts units of an item on sale, in SQL and in Redis.
func (s *shop) open(ctx context.Context, item, units int64) error {
	err := s.DB.WithContext(ctx).Create(&ItemStock{ItemID: item, Stock: units}).Error
	if err != nil {
		return fmt.Errorf("item %d in SQL: %w", item, err)
	}
	now := time.Now()
	_, err = s.counter.Warm(ctx, stock.Sale{
		Item: item, Activity: activity, Units: units,
		Starts: now.Add(-time.Minute), Ends: now.Add(time.Hour),
		Limit: stock.Limit{Units: 1},
	})
	if err != nil {
		return fmt.Errorf("item %d in Redis: %w", item, err)
	}
	return nil
}

// purchase is who wants what.
type purchase struct{ user, item int64 }

func read(r *http.Request) (p purchase, err error) {
	if p.user, err = strconv.ParseInt(r.Header.Get("X-User"), 10, 64); err != nil {
		return p, errNobody{}
	}
	p.item, err = strconv.ParseInt(chi.URLParam(r, "itemID"), 10, 64)
	return p, err
}

// buyer turns a way of buying into a handler. A way returns the number of the order.
func buyer(buy func(ctx context.Context, p purchase) (orderNo string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := read(r)
		if err != nil {
			http.Error(w, "X-User and the item in the path are numbers", http.StatusBadRequest)
			return
		}
		no, err := buy(r.Context(), p)
		switch {
		case errors.Is(err, errSoldOut), errors.Is(err, errAlreadyBought) && !gormplugin.Refused(err):
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			holdfast.WriteProblem(w, r, err)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{"order": no, "user": p.user, "item": p.item}) // the client may have gone
		}
	}
}

// stockOf answers what is left, from both layers.
func (s *shop) stockOf(w http.ResponseWriter, r *http.Request) {
	item, err := strconv.ParseInt(chi.URLParam(r, "itemID"), 10, 64)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	var row ItemStock
	err = s.DB.WithContext(r.Context()).Take(&row, item).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		http.NotFound(w, r)
		return
	}
	var left int64
	if err == nil {
		left, err = s.counter.Remaining(r.Context(), item)
	}
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]int64{"item": item, "redis": left, "sql": row.Stock}) // the client may have gone
}
