package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

// activity is the one sale that this example runs.
const activity = 1

// shop sells items from a counter. The one that is served has a hold; the load table has several, of different kinds.
type shop struct {
	*stores.Stores
	guard    *holdfast.Guard
	counter  *stock.Counter
	lander   *landing.Lander[SeckillOrder, ItemStock]
	segments int
	limit    stock.Limit
	late     latePolicy

	conflicts atomic.Int64 // writes by version that came too late
}

// newShop makes a shop whose keys begin with the prefix of the run and name.
func newShop(s *stores.Stores, name string, opts ...stock.Option) (*shop, error) {
	prefix := s.Prefix + name
	guard, err := holdfast.New(s.Redis, holdfast.WithValue("userID", currentUser), holdfast.Prefix(prefix))
	if err != nil {
		return nil, err
	}
	counter, err := stock.New(s.Redis, append(opts, stock.Prefix(prefix))...)
	if err != nil {
		return nil, errors.Join(err, guard.Close(context.Background()))
	}
	lander, err := landing.New[SeckillOrder, ItemStock](counter, s.DB, orderOf, landing.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, errors.Join(err, guard.Close(context.Background()))
	}
	return &shop{Stores: s, guard: guard, counter: counter, lander: lander, limit: stock.Limit{Units: 1}}, nil
}

// orderOf makes the row of an order that was accepted in Redis. Its number and its request id are filled in.
func orderOf(e stock.Entry) SeckillOrder {
	number := func(id string) int64 {
		n, _ := strconv.ParseInt(id, 10, 64) // this shop has put in numbers only
		return n
	}
	return SeckillOrder{
		UserID: number(e.User), ItemID: number(e.Item), ActivityID: number(e.Activity), Nth: int16(e.Nth), Units: e.Units, CreateTime: e.At,
	}
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
	if err := s.openInSQL(ctx, item, units); err != nil {
		return err
	}
	now := time.Now()
	_, err := s.counter.Warm(ctx, stock.Sale{
		Item: item, Activity: activity, Units: units, Segments: s.segments,
		Starts: now.Add(-time.Minute), Ends: now.Add(time.Hour),
		Limit: s.limit,
	})
	if err != nil {
		return fmt.Errorf("item %d in Redis: %w", item, err)
	}
	return nil
}

func (s *shop) openInSQL(ctx context.Context, item, units int64) error {
	if err := s.DB.WithContext(ctx).Create(&ItemStock{ItemID: item, Stock: units}).Error; err != nil {
		return fmt.Errorf("item %d in SQL: %w", item, err)
	}
	return nil
}

// left is what the counter in Redis has left.
func (s *shop) left(ctx context.Context, item int64) (int64, error) {
	return s.counter.Remaining(ctx, item)
}

// purchase is who wants what, and how many units.
type purchase struct{ user, item, units int64 }

// read reads a purchase; ?units=2 asks for more than one.
func read(r *http.Request) (p purchase, err error) {
	p.units = 1
	if q := r.URL.Query().Get("units"); q != "" {
		if p.units, err = strconv.ParseInt(q, 10, 64); err != nil {
			return p, err
		}
	}
	if p.user, err = strconv.ParseInt(r.Header.Get("X-User"), 10, 64); err != nil {
		return p, errNobody{}
	}
	p.item, err = strconv.ParseInt(chi.URLParam(r, "itemID"), 10, 64)
	return p, err
}

// buyer turns a way of buying into a handler, which answers a success with the status. A way returns the number of the
// order.
func buyer(status int, buy func(ctx context.Context, p purchase) (orderNo string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := read(r)
		if err != nil {
			http.Error(w, "X-User, the item in the path and units are numbers", http.StatusBadRequest)
			return
		}
		no, err := buy(r.Context(), p)
		switch {
		case errors.Is(err, errSoldOut), errors.Is(err, errAlreadyBought) && !gormplugin.Refused(err):
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			holdfast.WriteProblem(w, r, err)
		default:
			answer(w, status, map[string]any{"order": no, "user": p.user, "item": p.item, "request": dedup.FromContext(r.Context()).RequestID()})
		}
	}
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
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
		left, err = s.left(r.Context(), item)
	}
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"item": item, "redis": left, "sql": row.Stock})
}
