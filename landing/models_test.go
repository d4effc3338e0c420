package landing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/stock"
)

// audited is an order model with what services like to have in theirs.
type audited struct {
	ID          string `gorm:"primaryKey;size:80"`
	OrderNo     string `gorm:"size:64;uniqueIndex:uk_audited_no"`
	RequestID   string `guard:"request" gorm:"size:64;uniqueIndex:uk_audited_request"`
	UserID      int64
	ItemID      int64
	Units       int64 `gorm:"not null;default:1"`
	Status      int16 `gorm:"not null;default:0"`
	CloseReason *string
	Version     int64 `guard:"version" gorm:"not null;default:0"`
	UpdatedAt   time.Time
	DeletedAt   gorm.DeletedAt
}

func (a *audited) BeforeCreate(*gorm.DB) error {
	a.ID = "id of " + a.OrderNo
	return nil
}

func (a *audited) BeforeSave(*gorm.DB) error {
	if a.OrderNo == "" {
		return errors.New("an order without a number")
	}
	return nil
}

// An order model with a version, soft delete, times and hooks lands, is paid, closed and swept like any other. Hooks that fill
// columns of a new row run; units that the function leaves out are those of the order, so that what comes back is what was taken.
func TestOrderModelWithEverything(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		if err := s.db.AutoMigrate(&audited{}); err != nil {
			t.Fatal(err)
		}
		l, err := New[audited, itemStock](s.counter, s.db, func(e stock.Entry) audited {
			return audited{UserID: 1, ItemID: rowOf(e).ItemID}
		})
		if err != nil {
			t.Fatal(err)
		}
		fast(l.engine)
		s.lander.engine = l.engine
		s.sell(3, 100, stock.Limit{})
		order := func(user int64) string { return s.order(stock.Order{Item: 3, User: user, Units: 3}) }
		paid, closed, deleted, swept := order(1), order(2), order(3), order(4)
		s.work()
		s.wantOf(3, 88, 88, 0)
		long := time.Now().Add(-time.Hour)
		if err := s.db.Model(&audited{}).Where("1 = 1").UpdateColumn("updated_at", long).Error; err != nil {
			t.Fatal(err)
		}
		if err := s.db.Delete(&audited{ID: "id of " + deleted}).Error; err != nil {
			t.Fatal(err)
		}
		if err := l.Pay(t.Context(), paid); err != nil {
			t.Error(err)
		}
		if err := l.Close(t.Context(), closed, stock.Operator); err != nil {
			t.Error(err)
		}
		s.wantOf(3, 91, 91, 0)
		s.due()
		s.sweep()
		s.wantOf(3, 97, 97, 0)
		for no, want := range map[string]int16{paid: 1, closed: 2, deleted: 2, swept: 2} {
			var row audited
			if err := s.db.Unscoped().First(&row, "order_no = ?", no).Error; err != nil {
				t.Fatal(err)
			}
			if row.Status != want || row.ID != "id of "+no || row.Units != 3 || row.Version < 3 || row.UpdatedAt.Before(long.Add(time.Minute)) {
				t.Errorf("want status %d, got %+v", want, row)
			}
		}
	})
}

// The units of an item whose row is deleted softly go back to that row.
func TestUnitsGoBackToADeletedItem(t *testing.T) {
	t.Parallel()
	type kept struct {
		ItemID    int64 `gorm:"primaryKey;autoIncrement:false"`
		Stock     int64 `guard:"stock,min=0"`
		UpdatedAt time.Time
		DeletedAt gorm.DeletedAt
	}
	s := newShop(t, onSQLite, withHold())
	if err := s.db.AutoMigrate(&kept{}); err != nil {
		t.Fatal(err)
	}
	l, err := New[seckillOrder, kept](s.counter, s.db, rowOf)
	if err != nil {
		t.Fatal(err)
	}
	fast(l.engine)
	s.lander.engine = l.engine
	if err := s.db.Create(&kept{ItemID: 1001, Stock: 10}).Error; err != nil {
		t.Fatal(err)
	}
	first, second := s.buy(1), s.buy(2)
	s.work()
	if err := s.db.Delete(&kept{ItemID: 1001}).Error; err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context(), first, stock.Operator); err != nil {
		t.Error(err)
	}
	s.due()
	s.sweep()
	var row kept
	if err := s.db.Unscoped().First(&row).Error; err != nil || row.Stock != 10 {
		t.Errorf("the item has %d units, %v; want 10", row.Stock, err)
	}
	s.wantRow(second, 2, "unpaid")
	// Gone for good, it has nowhere to put them: the order closes, and the log says so.
	third := s.order(stock.Order{RequestID: "third", Item: 1001, User: 3, Units: 1})
	if err := s.db.Unscoped().Model(&row).Update("deleted_at", nil).Error; err != nil {
		t.Fatal(err)
	}
	s.work()
	if err := s.db.Unscoped().Delete(&row).Error; err != nil {
		t.Fatal(err)
	}
	l.tel.log = s.lander.cfg.logger
	if err := l.Close(t.Context(), third, stock.Operator); err != nil {
		t.Error(err)
	}
	s.wantRow(third, 2, "operator")
}

// A row that says of another item, or of other units than the order has, is refused: Close would put back what nobody took.
func TestRowOfAnotherOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withHold())
	for name, change := range map[string]func(*seckillOrder){
		"item": func(o *seckillOrder) { o.ItemID = 7 }, "units": func(o *seckillOrder) { o.Units = 2 },
		"request": func(o *seckillOrder) { o.RequestID = "other" }, "number": func(o *seckillOrder) { o.OrderNo = "other" },
	} {
		l, err := New[seckillOrder, itemStock](s.counter, s.db, func(e stock.Entry) seckillOrder {
			row := rowOf(e)
			change(&row)
			return row
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.row(s.db, &stock.Entry{Order: "o", RequestID: "r", Item: "1001", Units: 1}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Models whose columns would not keep what landing writes are refused at start-up.
func TestNewRefusesColumnsThatChangeValues(t *testing.T) {
	t.Parallel()
	type closedIsZero struct {
		ID, ItemID int64
		OrderNo    string `gorm:"size:64;uniqueIndex"`
		RequestID  string `guard:"request" gorm:"size:64;uniqueIndex"`
		Status     int    `gorm:"default:1"`
	}
	type uuidNumber struct {
		ID, ItemID int64
		OrderNo    string `gorm:"type:uuid;uniqueIndex"`
		RequestID  string `guard:"request" gorm:"size:64;uniqueIndex"`
		Status     int
	}
	type fenced struct {
		ID, ItemID int64
		OrderNo    string `gorm:"size:64;uniqueIndex"`
		RequestID  string `guard:"request" gorm:"size:64;uniqueIndex"`
		Status     int    `gorm:"default:0"`
		Fence      int64  `guard:"fence,lock=order,strict"`
	}
	s := newShop(t, onSQLite, withHold())
	states := WithStatus(Status{Unpaid: 1, Paid: 2, Closed: 0})
	for name, tt := range map[string]struct {
		make func() error
		want string
	}{
		"a default that closed rows would get": {func() error {
			_, err := New[closedIsZero, itemStock](s.counter, s.db, func(stock.Entry) closedIsZero { return closedIsZero{} }, states)
			return err
		}, "drop the default"},
		"an order number that is a UUID": {func() error {
			_, err := New[uuidNumber, itemStock](s.counter, s.db, func(stock.Entry) uuidNumber { return uuidNumber{} })
			return err
		}, "make it a text"},
		"a strict fence": {func() error {
			_, err := New[fenced, itemStock](s.counter, s.db, func(stock.Entry) fenced { return fenced{} })
			return err
		}, "strict fence"},
	} {
		if err := tt.make(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}

// Somebody keeps an item's row locked: the sweeper ends the holds of other items, and comes back to that one later.
func TestSweeperAndALockedRow(t *testing.T) {
	t.Parallel()
	s := newShop(t, onPostgres, withHold())
	s.sell(3, 5, stock.Limit{})
	stuck := s.buy(1)
	other := s.order(stock.Order{Item: 3, User: 1, Units: 1})
	s.work()
	s.due()
	s.lander.pace.transact = 6 * time.Second
	locking, cancel := context.WithCancel(t.Context())
	defer cancel()
	keeper := open(t, onPostgres, s.dsn).WithContext(locking).Begin()
	if err := keeper.Exec("UPDATE item_stock SET stock = stock WHERE item_id = 1001").Error; err != nil {
		t.Fatal(err)
	}
	if n, err := s.lander.Sweeper().Sweep(t.Context()); n != 1 || !isTooLong(err) {
		t.Errorf("swept %d, %v", n, err)
	}
	s.wantRow(other, 2, "unpaid")
	s.wantOf(3, 5, 5, 0)
	if n, err := s.lander.Sweeper().Sweep(t.Context()); n != 0 || err != nil { // it waits by itself
		t.Errorf("swept %d, %v", n, err)
	}
	if err := keeper.Rollback().Error; err != nil {
		t.Fatal(err)
	}
	s.wantRow(stuck, 0, "")
	s.due()
	s.sweep()
	s.wantRow(stuck, 2, "unpaid")
	s.want(10, 10, 0)
}
