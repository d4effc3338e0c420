package landing

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

// 3.7: of a payment and a close one wins, and the loser hears which: the units go back once or not at all.
func TestPayAndCloseAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		const orders = 30
		s.sell(3, orders, stock.Limit{Units: 1})
		var numbers []string
		for user := int64(1); user <= orders; user++ {
			numbers = append(numbers, s.order(stock.Order{Item: 3, User: user, Units: 1}))
		}
		s.work()
		paid := int64(0)
		for _, no := range numbers {
			var both sync.WaitGroup
			var payErr, closeErr error
			both.Go(func() { payErr = s.lander.Pay(t.Context(), no) })
			both.Go(func() { closeErr = s.lander.Close(t.Context(), no, stock.Operator) })
			both.Wait()
			switch {
			case payErr == nil && errors.Is(closeErr, ErrAlreadyPaid):
				paid++
				s.wantRow(no, 1, "")
			case closeErr == nil && errors.Is(payErr, ErrClosed):
				s.wantRow(no, 2, "operator")
			default:
				t.Errorf("pay: %v, close: %v", payErr, closeErr)
			}
		}
		s.wantOf(3, orders-paid, orders-paid, 0)
	})
}

// A late payment hears what it is late for, with the type of the answer; called again, nothing changes. What is written with the
// payment is written once, and not without it.
func TestLatePayment(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		for name, counter := range map[string][]stock.Option{"hold": withHold(), "no hold": withStream()} {
			t.Run(name, func(t *testing.T) {
				s := newShop(t, dialect, counter)
				paid, closed, waiting := s.buy(1), s.buy(2), s.buy(3)
				wantType := func(err error, sentinel error, typ string) {
					t.Helper()
					var e *Error
					if !errors.Is(err, sentinel) || !errors.As(err, &e) || e.ErrorType() != typ {
						t.Errorf("got %v, want %v of type %s", err, sentinel, typ)
					}
				}
				wantType(s.lander.Pay(t.Context(), waiting), ErrNotLanded, "not_landed")
				wantType(s.lander.Close(t.Context(), waiting, stock.Operator), ErrNotLanded, "not_landed")
				s.work()
				record := func(tx *gorm.DB) error { return tx.Create(&orderEvent{OrderNo: paid}).Error }
				refuse := func(tx *gorm.DB) error { return errors.New("no") }
				if err := s.lander.Pay(t.Context(), paid, record, refuse); err == nil || err.Error() != "no" {
					t.Errorf("got %v", err)
				}
				s.wantRow(paid, 0, "")
				if err := s.lander.Pay(t.Context(), paid, record); err != nil {
					t.Error(err)
				}
				wantType(s.lander.Pay(t.Context(), paid, record), ErrAlreadyPaid, "already_confirmed")
				wantType(s.lander.Close(t.Context(), paid, stock.Operator), ErrAlreadyPaid, "already_confirmed")
				if err := s.lander.Close(t.Context(), closed, stock.Operator); err != nil {
					t.Error(err)
				}
				wantType(s.lander.Pay(t.Context(), closed, record), ErrClosed, "already_released")
				wantType(s.lander.Close(t.Context(), closed, stock.Operator), ErrClosed, "already_released")
				var events int64
				if err := s.db.Model(&orderEvent{}).Count(&events).Error; err != nil || events != 1 {
					t.Errorf("%d events, %v; want 1", events, err)
				}
				s.want(8, 8, 0)
				again := s.order(stock.Order{RequestID: "again", Item: 1001, User: 2, Units: 1}) // a closed order frees its user
				s.work()
				s.wantRow(again, 0, "")
				s.want(7, 7, 0)
			})
		}
	})
}

// A crash between the commit and the script is healed by the next try of the caller.
func TestPayIsRepeatedAfterACrash(t *testing.T) {
	t.Parallel()
	s := newShop(t, onPostgres, withHold())
	paid, closed := s.buy(1), s.buy(2)
	s.work()
	for no, set := range map[string]map[string]any{paid: {"status": 1}, closed: {"status": 2, "close_reason": "failed"}} {
		if err := s.db.Model(&seckillOrder{}).Where("order_no = ?", no).Updates(set).Error; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.lander.Pay(t.Context(), paid); !errors.Is(err, ErrAlreadyPaid) {
		t.Error(err)
	}
	if err := s.lander.Close(t.Context(), closed, stock.Operator); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for no, want := range map[string]string{paid: "confirmed", closed: "released"} {
		state, err := s.rdb.HGet(t.Context(), fmt.Sprintf("%sreq:%s", s.prefix, s.row(no).RequestID), "state").Result()
		if err != nil || state != want {
			t.Errorf("the request's state is %q, %v; want %q", state, err, want)
		}
	}
}

// A function of the payment that fails with this package's own words, say because the payment's index is mapped to them, does not
// confirm an order that is rolled back to unpaid.
func TestPaymentThatFailsWithOurWords(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withHold())
	no := s.buy(1)
	s.work()
	if err := s.lander.Pay(t.Context(), no, func(*gorm.DB) error { return ErrAlreadyPaid }); !errors.Is(err, ErrAlreadyPaid) {
		t.Errorf("Pay answers %v", err)
	}
	s.wantRow(no, 0, "")
	s.due()
	s.sweep()
	s.wantRow(no, 2, "unpaid")
	s.want(10, 10, 0)
}

// A reason that Redis would refuse, or that would not give the units back, is refused before SQL has closed anything.
func TestCloseNeedsAReason(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withHold())
	no := s.buy(1)
	s.work()
	for _, why := range []stock.Reason{"", "mistake", stock.Insufficient} {
		if err := s.lander.Close(t.Context(), no, why); !errors.Is(err, ErrInvalid) {
			t.Errorf("Close with %q answers %v", why, err)
		}
	}
	s.wantRow(no, 0, "")
	s.want(9, 9, 0)
}

// A column that does not keep the order's number as it is makes no row: a copy of the entry would find another order's, and give
// the units of a live order back.
func TestOrderNumberIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	type numbered struct {
		ID        int64
		OrderNo   int64
		RequestID string `guard:"request" gorm:"uniqueIndex"`
		Status    int16
	}
	s := newShop(t, onSQLite, withHold())
	l, err := New[numbered, itemStock](s.counter, s.db, func(stock.Entry) numbered { return numbered{} })
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[string]error{"7": nil, "007": ErrInvalid} {
		_, err := l.row(s.db, &stock.Entry{Order: number, RequestID: "r", Item: "1001", Units: 1})
		if !errors.Is(err, want) {
			t.Errorf("order %q: %v, want %v", number, err, want)
		}
	}
}

// Redis has forgotten the order: its unit comes back in SQL only, and the log says so.
func TestCloseOfAnOrderThatRedisHasForgotten(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	no := s.buy(1)
	s.work()
	if err := s.rdb.Del(t.Context(), s.prefix+"req:request-1-1001").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.lander.Close(t.Context(), no, stock.Operator); err != nil {
		t.Fatal(err)
	}
	s.wantRow(no, 2, "operator")
	s.want(10, 9, 0)
	if !strings.Contains(s.log.String(), "forgotten the order") {
		t.Errorf("nobody is told: %s", s.log)
	}
}
