package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

const activity = "spring"

var errAlreadyBought = errors.New("you have one already")

// shop is what a process of the service has.
type shop struct {
	db     *gorm.DB
	rdb    redis.UniversalClient
	prefix string
	payFor time.Duration // that the customer is told
	sales  []stock.Sale

	stock  *stock.Counter
	lander *landing.Lander[Order, Item]
	guard  *holdfast.Guard
}

// connect is called by every process: the one that takes orders, the one that lands them, the nightly job. So all of them
// have the same keys, the same holds, the same indexes.
func (s *shop) connect(ctx context.Context) error {
	plugin := gormplugin.New(
		gormplugin.WithModels(&Item{}, &Order{}, &Payment{}),
		gormplugin.WithUnique("uk_user_activity", errAlreadyBought),
	)
	if err := s.db.Use(plugin); err != nil {
		return err
	}
	if err := plugin.VerifySchema(ctx, s.db); err != nil { // the database is as the models say
		return err
	}
	var err error
	hold := s.payFor + time.Second // a payment of the last moment is still in time; in production, a minute
	s.stock, err = stock.New(s.rdb, stock.Prefix(s.prefix), stock.WithHold(hold), stock.WithStream())
	if err != nil {
		return err
	}
	s.lander, err = landing.New[Order, Item](s.stock, s.db, orderOf)
	if err != nil {
		return err
	}
	s.guard, err = holdfast.New(s.rdb, holdfast.Prefix(s.prefix), holdfast.WithValue("userID", currentUser))
	return err
}

// orderOf makes the row of an accepted order. Its number, its request id and its state are filled in.
func orderOf(e stock.Entry) Order {
	number := func(id string) int64 {
		n, _ := strconv.ParseInt(id, 10, 64) // this shop has put in numbers only
		return n
	}
	return Order{UserID: number(e.User), ItemID: number(e.Item), ActivityID: e.Activity, Units: e.Units}
}

// open puts an item on sale, or makes sure that it is. Any process may call it at any time.
func (s *shop) open(ctx context.Context, sale stock.Sale) error {
	_, err := s.stock.Remaining(ctx, sale.Item)
	switch {
	case errors.Is(err, stock.ErrNotWarmed): // the first time, or Redis has come back empty: for sale is what SQL has left
		var item Item
		err = s.db.WithContext(ctx).Take(&item, sale.Item).Error
		sale.Units = item.Stock
	case err == nil: // on sale already: the same number as ever adds nothing
		var known stock.Status
		known, err = s.stock.Status(ctx, sale.Item)
		sale.Units = known.Warmed
	}
	if err != nil {
		return err
	}
	_, err = s.stock.Warm(ctx, sale)
	if errors.Is(err, stock.ErrEnded) {
		return nil // nothing is sold any more; what was sold is still landed, paid for and closed
	}
	return err
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
