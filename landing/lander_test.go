package landing

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

// Models that cannot be worked on.
type (
	stateless struct {
		ID        int64
		OrderNo   string `gorm:"uniqueIndex"`
		RequestID string `guard:"request" gorm:"size:43;uniqueIndex"`
	}
	requestless struct {
		ID      int64
		OrderNo string
		Status  int
	}
	numberless struct {
		ID        int64
		RequestID string `guard:"request" gorm:"size:43;uniqueIndex"`
		Status    int
	}
	worded struct {
		ID        int64
		No        string `gorm:"uniqueIndex"`
		RequestID string `guard:"request" gorm:"size:43;uniqueIndex"`
		State     string
		Why       string
	}
	unmarked struct{ ID, Stock int64 }
	twoKeys  struct {
		Shop, ID int64 `gorm:"primaryKey"`
		Stock    int64 `guard:"stock"`
	}
)

// A model or an option that New cannot work with is refused at start-up, with everything that is wrong at once and what to
// write instead. A model without a state is refused: a refused order is kept as a closed row, else a late copy would land it.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	bare, err := gorm.Open(s.db.Dialector, &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	quota, err := stock.NewQuota(s.rdb, stock.Prefix(s.prefix))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := bare.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	for name, tt := range map[string]struct {
		make func() error
		want []string
	}{
		"no state": {func() error {
			_, err := New[stateless, itemStock](s.counter, s.db, func(stock.Entry) stateless { return stateless{} })
			return err
		}, []string{`no column "status"`, "kept as a closed row", "WithStatus"}},
		"no request column": {func() error {
			_, err := New[requestless, itemStock](s.counter, s.db, func(stock.Entry) requestless { return requestless{} })
			return err
		}, []string{`guard:"request"`}},
		"no order number": {func() error {
			_, err := New[numberless, itemStock](s.counter, s.db, func(stock.Entry) numberless { return numberless{} })
			return err
		}, []string{`no column "order_no"`, "WithColumns"}},
		"no stock column": {func() error {
			_, err := New[seckillOrder, unmarked](s.counter, s.db, rowOf)
			return err
		}, []string{"0 stock columns", `guard:"stock,min=0"`}},
		"a key of two columns": {func() error {
			_, err := New[seckillOrder, twoKeys](s.counter, s.db, rowOf)
			return err
		}, []string{"primary key of 2 columns"}},
		"pointers": {func() error {
			_, err := New[*seckillOrder, itemStock](s.counter, s.db, func(stock.Entry) *seckillOrder { return nil })
			return err
		}, []string{"no struct"}},
		"no plugin": {func() error {
			_, err := New[seckillOrder, itemStock](s.counter, bare, rowOf)
			return err
		}, []string{"no plugin"}},
		"a quota": {func() error {
			_, err := New[seckillOrder, itemStock](quota, s.db, rowOf)
			return err
		}, []string{"quota"}},
		"nothing": {func() error {
			_, err := New[seckillOrder, itemStock](nil, nil, nil)
			return err
		}, []string{"New wants"}},
		"options, all at once": {func() error {
			_, err := New[seckillOrder, itemStock](s.counter, s.db, rowOf, WithDeadline(0), WithThreshold(-1), nil,
				WithStatus(Status{Paid: 1}), WithHandler[seckillOrder](nil), WithColumns(Columns{User: "nobody"}))
			return err
		}, []string{"WithDeadline(0s)", "WithThreshold(-1)", "WithStatus", "WithHandler(nil)", `no column "nobody"`}},
		"a handler of another model": {func() error {
			_, err := New[seckillOrder, itemStock](s.counter, s.db, rowOf, WithHandler(func(*gorm.DB, []*itemStock) error { return nil }))
			return err
		}, []string{"WithHandler", "seckillOrder"}},
		"states that are one": {func() error {
			_, err := New[seckillOrder, itemStock](s.counter, s.db, rowOf, WithStatus(Status{Unpaid: 1, Paid: 1, Closed: 2}))
			return err
		}, []string{"not different"}},
		"words without states": {func() error {
			_, err := New[worded, itemStock](s.counter, s.db, func(stock.Entry) worded { return worded{} },
				WithStatus(Status{Column: "state"}), WithColumns(Columns{Order: "no"}))
			return err
		}, []string{"cannot hold the state", "WithStatus"}},
		"states of another type": {func() error {
			_, err := New[seckillOrder, itemStock](s.counter, s.db, rowOf, WithStatus(Status{Unpaid: "new", Paid: "paid", Closed: "closed"}))
			return err
		}, []string{"cannot hold the state"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.make()
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("got %v, want invalid", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

// Names and values of one's own: states in words, an order number and a reason under other names, no units.
func TestOwnNames(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		if err := s.db.AutoMigrate(&worded{}); err != nil {
			t.Fatal(err)
		}
		l, err := New[worded, itemStock](s.counter, s.db, func(stock.Entry) worded { return worded{State: "open"} },
			WithStatus(Status{Column: "state", Reason: "why", Unpaid: "open", Paid: "paid", Closed: "closed"}),
			WithColumns(Columns{Order: "no"}))
		if err != nil {
			t.Fatal(err)
		}
		fast(l.engine)
		paid, unpaid := s.buy(1), s.buy(2)
		s.lander.engine = l.engine
		s.work()
		if err := l.Pay(t.Context(), paid); err != nil {
			t.Error(err)
		}
		if err := l.Close(t.Context(), unpaid, stock.Operator); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WithColumns") {
			t.Errorf("closing without an item column: %v", err)
		}
		s.due()
		s.sweep()
		for no, want := range map[string]worded{paid: {State: "paid"}, unpaid: {State: "closed", Why: "unpaid"}} {
			var got worded
			if err := s.db.First(&got, "no = ?", no).Error; err != nil || got.State != want.State || got.Why != want.Why {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		}
		s.want(9, 9, 0)

		s.sell(30, 10, stock.Limit{})
		s.order(stock.Order{Item: 30, User: 1, Units: 2}) // and the model has no column for units
		s.work()
		if letters := s.deadLetters(); len(letters) != 1 || !strings.Contains(letters[0].Error, "units") {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// Errors say what to do: only what may succeed later without anybody's doing is worth another try.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err   error
		typ   string
		again bool
	}{
		{fail(ErrNotLanded, ""), "not_landed", true},
		{fail(ErrUnavailable, ""), "unavailable", true},
		{fail(ErrAlreadyPaid, ""), "already_confirmed", false},
		{fail(ErrClosed, ""), "already_released", false},
		{fail(ErrNotFound, ""), "not_found", false},
		{fail(ErrInvalid, "why"), "misuse", false},
	} {
		var e *Error
		if !errors.As(tt.err, &e) || e.ErrorType() != tt.typ || e.Retryable() != tt.again || (e.RetryAfter() == time.Second) != tt.again {
			t.Errorf("%v: type %s, retryable %v after %v", e, e.ErrorType(), e.Retryable(), e.RetryAfter())
		}
		if !strings.HasPrefix(tt.err.Error(), "landing: ") {
			t.Errorf("text %q", tt.err)
		}
	}
}

// A function that panics over one order, or makes a row that its column cannot hold, fails for that order alone.
func TestRowsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	l, err := New[seckillOrder, itemStock](s.counter, s.db, func(e stock.Entry) seckillOrder {
		row := rowOf(e)
		switch e.User {
		case "1":
			panic("a bug")
		case "2":
			row.Status = 2
		}
		return row
	}, WithLogger(s.lander.cfg.logger))
	if err != nil {
		t.Fatal(err)
	}
	fast(l.engine)
	for user := int64(1); user <= 3; user++ {
		s.buy(user)
	}
	if _, err := s.counter.Warm(t.Context(), stock.Sale{Item: "no number", Activity: 1, Units: 5, Ends: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	s.order(stock.Order{Item: "no number", User: 4, Units: 1})
	s.workWith(l)
	if rows := s.rows(); len(rows) != 1 || rows[0].UserID != 3 {
		t.Errorf("rows %+v", rows)
	}
	var types []string
	for _, letter := range s.deadLetters() {
		types = append(types, letter.Entry.User+" "+letter.ErrorType)
	}
	slices.Sort(types)
	if want := []string{"1 misuse", "2 misuse", "4 misuse"}; !slices.Equal(types, want) {
		t.Errorf("dead letters %v, want %v", types, want)
	}
}
