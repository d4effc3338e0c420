package landing

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// D12, D79: an order that nobody pays for is closed at its deadline: its unit comes back once, in SQL and in Redis, and the
// same user can buy again in both. Before the deadline nothing is closed.
func TestUnpaidOrderIsClosedAtItsDeadline(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		no := s.buy(1)
		s.work()
		s.sweep()
		s.wantRow(no, 0, "")
		s.due()
		s.sweep()
		s.wantRow(no, 2, "unpaid")
		s.want(10, 10, 0)
		s.due()
		s.sweep()
		s.want(10, 10, 0)
		again := s.order(stock.Order{RequestID: "again", Item: 1001, User: 1, Units: 1})
		s.work()
		s.wantRow(again, 0, "")
		s.want(9, 9, 0)
	})
}

// 3.5, failure points 11 and 13: what a crash left between SQL and Redis is finished as the row says. A paid order is confirmed
// though its deadline has passed; a closed one is given back for the row's reason, and one that SQL lacked stays withheld.
func TestSweeperFinishesWhatACrashLeft(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		paid, closed, lacking := s.buy(1), s.buy(2), s.buy(3)
		s.work()
		for no, set := range map[string]map[string]any{
			paid: {"status": 1}, closed: {"status": 2, "close_reason": "operator"}, lacking: {"status": 2, "close_reason": "insufficient"},
		} {
			if err := s.db.Model(&seckillOrder{}).Where("order_no = ?", no).Updates(set).Error; err != nil {
				t.Fatal(err)
			}
		}
		s.due()
		s.sweep()
		s.want(7, 8, 1) // SQL's own column was the crashed caller's business, in one transaction with the status
		s.due()
		s.sweep()
		s.want(7, 8, 1)
		if _, err := s.counter.Release(t.Context(), paid, stock.Operator); !errors.Is(err, stock.ErrAlreadyConfirmed) {
			t.Errorf("the paid order answers %v", err)
		}
	})
}

// F078: the process dies right behind the script, and no worker lands the order: at the deadline it is kept as closed and its
// unit comes back. A late landing finds the row and does nothing.
func TestOrderThatNeverLandedIsClosed(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		no := s.buy(1)
		s.due()
		s.sweep()
		s.wantRow(no, 2, "unpaid")
		s.want(10, 10, 0)
		if !strings.Contains(s.log.String(), "a worker") {
			t.Errorf("nobody is told: %s", s.log)
		}
		s.work()
		s.wantRow(no, 2, "unpaid")
		s.want(10, 10, 0)
		if err := s.lander.Pay(t.Context(), no); !errors.Is(err, ErrClosed) {
			t.Errorf("a late payment answers %v", err)
		}
	})
}

// Any number of sweepers, and workers that land the same orders at the same time: each unit comes back once.
func TestManySweepersAndALateWorker(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		const orders = 60
		s.sell(3, orders, stock.Limit{Units: 1})
		for user := int64(1); user <= orders; user++ {
			s.order(stock.Order{Item: 3, User: user, Units: 1})
		}
		s.due()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() { _ = s.lander.Sweeper().Run(ctx) })
		}
		running.Go(func() { _ = s.lander.Worker().Run(ctx) })
		deadlines := s.prefix + "stock:deadlines"
		testserver.Eventually(t, time.Minute, func() bool {
			open, err := s.rdb.ZCard(ctx, deadlines).Result()
			return err == nil && open == 0 && s.backlog() == 0
		}, "holds are left: "+s.log.String())
		cancel()
		running.Wait()
		s.wantOf(3, orders, orders, 0)
		for _, row := range s.rows() {
			if row.Status != 2 {
				t.Errorf("a live row: %+v", row)
			}
		}
	})
}

// SQL away: the holds stay for the next round, and nothing is given back.
func TestSweeperWaitsForSQL(t *testing.T) {
	t.Parallel()
	d := testserver.Postgres(t)
	proxy := faultproxy.Postgres(t, d.Addr)
	s := newShopAt(t, onPostgres, d.Via(proxy.Addr()), withHold())
	no := s.buy(1)
	s.work()
	s.due()
	proxy.Refuse()
	proxy.CutAll()
	if n, err := s.lander.Sweeper().Sweep(t.Context()); n != 0 || !errors.Is(err, gormplugin.ErrUnavailable) {
		t.Errorf("swept %d, %v", n, err)
	}
	proxy.Heal(t)
	s.wantRow(no, 0, "")
	// The reply to the COMMIT is lost: nobody knows, so nothing is given back; the next round reads the row.
	rule := proxy.On(faultproxy.Named("COMMIT"), faultproxy.LoseReply())
	if n, err := s.lander.Sweeper().Sweep(t.Context()); n != 0 || !errors.Is(err, gormplugin.ErrUnknownOutcome) {
		t.Errorf("swept %d, %v", n, err)
	}
	rule.Wait(t)
	s.want(10, 9, 0)
	s.sweep()
	s.wantRow(no, 2, "unpaid")
	s.want(10, 10, 0)
}

// Redis away after the commit: the next round releases, once.
func TestSweeperWaitsForRedis(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withHold())
	no := s.buy(1)
	s.work()
	s.due()
	holds, err := s.counter.Expired(t.Context(), 10)
	if err != nil || len(holds) != 1 {
		t.Fatalf("%d holds, %v", len(holds), err)
	}
	for range 2 { // the round that dies after its commit, and another at the same time
		if fates, faults := s.lander.Sweeper().decide(t.Context(), holds); faults[0] != nil || fates[0].release != stock.Unpaid {
			t.Fatalf("%+v, %v", fates[0], faults[0])
		}
	}
	s.want(10, 9, 0)
	s.sweep()
	s.wantRow(no, 2, "unpaid")
	s.want(10, 10, 0)
}

// There is nothing to sweep without holds and segments, and Run says so at once.
func TestSweeperNeedsHolds(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	if err := s.lander.Sweeper().Run(t.Context()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WithHold") {
		t.Errorf("got %v", err)
	}
	if _, err := s.lander.Sweeper().Sweep(t.Context()); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// One worker, one sweeper, on a cluster: each partition has a stream of its own, an item in segments is landed from several, and
// lines of one order are rows of their own.
func TestPartitionsOnACluster(t *testing.T) {
	t.Parallel()
	srv := testserver.Cluster(t)
	s := &shop{T: t, dialect: onPostgres, log: &buffer{}, prefix: srv.Prefix(t)}
	s.rdb = srv.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout = time.Minute })
	s.open([]stock.Option{stock.WithStream(), stock.WithHold(time.Hour), stock.WithPartitions(16)}, nil)
	if err := s.db.Create(&itemStock{ItemID: 20, Stock: 40}).Error; err != nil {
		t.Fatal(err)
	}
	if _, err := s.counter.Warm(t.Context(), stock.Sale{Item: 20, Activity: 1, Units: 40, Segments: 4, Ends: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for user := int64(1); user <= 9; user++ {
		s.order(stock.Order{Item: 20, User: user, Units: 2})
		s.buy(user + 100)
	}
	cart := s.order(stock.Order{RequestID: "cart", User: 50, Lines: []stock.Line{{Item: 1001, Units: 1}, {Item: 20, Units: 1}}})
	s.work()
	s.wantRow(cart+"/1", 0, "")
	s.wantRow(cart+"/2", 0, "")
	s.wantOf(1001, 0, 0, 0)
	s.wantOf(20, 21, 21, 0)
	if err := s.lander.Pay(t.Context(), cart+"/1"); err != nil {
		t.Error(err)
	}
	if err := s.lander.Close(t.Context(), cart+"/2", stock.Operator); err != nil {
		t.Error(err)
	}
	s.wantOf(20, 22, 22, 0)
	s.due()
	s.sweep()
	s.wantRow(cart+"/1", 1, "")
	s.wantOf(1001, 9, 9, 0)
	s.wantOf(20, 40, 40, 0)
	if eternal := srv.Eternal(t, s.prefix); len(eternal) > 0 {
		t.Errorf("keys without a TTL: %v", eternal)
	}
}

// A hold that Redis cannot end, since somebody has broken its item's counter, is not counted as ended, does not stop those
// behind it, and is left alone for a while.
func TestHoldThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withHold())
	s.sell(3, 5, stock.Limit{Units: 1})
	stuck := s.buy(1)
	other := s.order(stock.Order{Item: 3, User: 1, Units: 1})
	s.work()
	if err := s.rdb.Set(t.Context(), s.prefix+"stock:item:1001", "-3", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	s.due()
	var typed *stock.Error
	if n, err := s.lander.Sweeper().Sweep(t.Context()); n != 1 || !errors.As(err, &typed) || typed.ErrorType() != "corrupt" {
		t.Errorf("swept %d, %v; want one, and the other's fault", n, err)
	}
	s.wantRow(other, 2, "unpaid")
	s.wantOf(3, 5, 5, 0)
	s.sweep() // without an error: it does not look at the broken one
	if err := s.rdb.Set(t.Context(), s.prefix+"stock:item:1001", "9", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	s.due()
	s.sweep()
	s.wantRow(stuck, 2, "unpaid")
	s.want(10, 10, 0)
}

// Holds that cannot be ended, more than one round looks at, do not keep those behind them from being ended.
func TestHoldsBehindThoseThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withHold())
	const stuck, behind = mostSwept + 10, 5
	s.sell(3, stuck, stock.Limit{})
	s.sell(4, behind, stock.Limit{})
	for user := int64(1); user <= stuck; user++ {
		s.order(stock.Order{Item: 3, User: user, Units: 1})
	}
	s.due()
	s.work()
	for user := int64(1); user <= behind; user++ {
		s.order(stock.Order{Item: 4, User: user, Units: 1})
	}
	s.work()
	counter := s.prefix + "stock:item:3"
	if err := s.rdb.Set(t.Context(), counter, "broken", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	for _, due := range s.rdb.ZRangeWithScores(t.Context(), s.prefix+"stock:deadlines", 0, -1).Val() {
		if due.Score > 1 { // behind the others
			s.rdb.ZAdd(t.Context(), s.prefix+"stock:deadlines", redis.Z{Score: 2, Member: due.Member})
		}
	}
	for round, want := range []int{0, behind, 0} {
		n, err := s.lander.Sweeper().Sweep(t.Context())
		if n != want || (err == nil) != (round == 2) || err != nil && !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("round %d: swept %d, %v; want %d", round, n, err, want)
		}
	}
	s.wantOf(4, behind, behind, 0)
	if err := s.rdb.Set(t.Context(), counter, "0", time.Hour).Err(); err != nil { // somebody has mended it
		t.Fatal(err)
	}
	s.due()
	s.sweep()
	s.wantOf(3, stuck, stuck, 0)
}

// Many holds end in one transaction, which writes the row of each item once; each of them as its row says.
func TestHoldsAreSweptTogether(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		const each = 40 // users of each kind
		items := []int64{4, 3}
		kinds := []string{"unpaid", "paid", "closed", "never landed", "duplicate"}
		orders := map[string][]string{}
		for _, item := range items {
			s.sell(item, 1000, stock.Limit{})
		}
		for n, kind := range kinds {
			for i := range each {
				user := int64(1 + n*each + i)
				orders[kind] = append(orders[kind], s.order(stock.Order{Item: items[i%2], User: user, Units: 1 + int64(n)}))
			}
			switch kind {
			case "duplicate": // their requests have rows of other orders
				for i, no := range orders[kind] {
					row := seckillOrder{OrderNo: "other-" + no, RequestID: fmt.Sprintf("request-%v-%v", 1+n*each+i, items[i%2]), UserID: int64(10_000 + i), ItemID: 1001, ActivityID: 1, Nth: 1, Units: 1}
					if err := s.db.Create(&row).Error; err != nil {
						t.Fatal(err)
					}
				}
			case "never landed":
				if err := s.rdb.Del(t.Context(), s.counter.Streams()[0]).Err(); err != nil {
					t.Fatal(err)
				}
			default:
				s.work()
			}
		}
		for _, no := range orders["paid"] { // by a process that has died behind its COMMIT
			if err := s.db.Model(&seckillOrder{}).Where("order_no = ?", no).Update("status", 1).Error; err != nil {
				t.Fatal(err)
			}
		}
		for _, no := range orders["closed"] {
			if err := s.lander.Close(t.Context(), no, stock.Operator); err != nil {
				t.Fatal(err)
			}
		}
		var writes []any
		name := "test:items"
		if err := s.db.Callback().Update().After("gorm:update").Register(name, func(tx *gorm.DB) {
			if tx.Statement.Table == "item_stock" {
				writes = append(writes, reflect.Indirect(tx.Statement.ReflectValue).FieldByName("ItemID").Interface())
			}
		}); err != nil {
			t.Fatal(err)
		}
		s.due()
		if n, err := s.lander.Sweeper().Sweep(t.Context()); n != each*(len(kinds)-1) || err != nil { // the closed ones have ended
			t.Errorf("swept %d, %v", n, err)
		}
		if want := []any{int64(3), int64(4)}; !reflect.DeepEqual(writes, want) {
			t.Errorf("rows of items written: %v, want %v", writes, want)
		}
		if err := s.db.Callback().Update().Remove(name); err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[string]struct {
			status int16
			reason string
		}{"unpaid": {2, "unpaid"}, "paid": {1, ""}, "closed": {2, "operator"}, "never landed": {2, "unpaid"}} {
			for _, no := range orders[kind] {
				s.wantRow(no, want.status, want.reason)
			}
		}
		for _, item := range items {
			const paid = each / 2 * 2
			s.wantOf(item, 1000-paid, 1000-paid, 0)
		}
		s.sweep()
		if open := s.rdb.ZCard(t.Context(), s.prefix+"stock:deadlines").Val(); open != 0 {
			t.Errorf("%d holds are left", open)
		}
	})
}

// A payment that comes between the sweeper's look and its update wins: that order is confirmed, the others are closed.
func TestPaymentWhileManyAreSwept(t *testing.T) {
	t.Parallel()
	s := newShop(t, onPostgres, withHold())
	s.sell(3, 20, stock.Limit{})
	var orders []string
	for user := int64(1); user <= 20; user++ {
		orders = append(orders, s.order(stock.Order{Item: 3, User: user, Units: 1}))
	}
	s.work()
	var once sync.Once
	paying := open(t, onPostgres, s.dsn)
	if err := s.db.Callback().Update().Before("gorm:update").Register("test:pay", func(tx *gorm.DB) {
		once.Do(func() {
			if err := paying.Model(&seckillOrder{}).Where("order_no = ?", orders[7]).Update("status", 1).Error; err != nil {
				t.Error(err)
			}
		})
	}); err != nil {
		t.Fatal(err)
	}
	s.due()
	if n, err := s.lander.Sweeper().Sweep(t.Context()); n != 20 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	for i, no := range orders {
		if i == 7 {
			s.wantRow(no, 1, "")
		} else {
			s.wantRow(no, 2, "unpaid")
		}
	}
	s.wantOf(3, 19, 19, 0)
}
