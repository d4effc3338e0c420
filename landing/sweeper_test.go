package landing

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
		if f, err := s.lander.Sweeper().decide(t.Context(), &holds[0]); err != nil || f.release != stock.Unpaid {
			t.Fatalf("%+v, %v", f, err)
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

// A hold that Redis cannot end, since somebody has broken its item's counter, is not counted as ended, and does not stop those
// behind it.
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
	if err := s.rdb.Set(t.Context(), s.prefix+"stock:item:1001", "9", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	s.sweep()
	s.wantRow(stuck, 2, "unpaid")
	s.want(10, 10, 0)
}
