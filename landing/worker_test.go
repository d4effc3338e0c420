package landing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

func withStream(more ...stock.Option) []stock.Option {
	return append([]stock.Option{stock.WithStream()}, more...)
}

func withHold(more ...stock.Option) []stock.Option {
	return append([]stock.Option{stock.WithStream(), stock.WithHold(30 * time.Minute)}, more...)
}

// C21c, D60, D61, D62: the answer comes before the row, the row follows with everything the buyer was told, the units fall
// once an order in the same transaction, and nothing is left in the stream.
func TestOrdersLand(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withStream())
		var orders []string
		for user := int64(1); user <= 7; user++ {
			orders = append(orders, s.buy(user))
		}
		if rows := s.rows(); len(rows) != 0 {
			t.Fatalf("%d rows before the worker ran", len(rows))
		}
		s.work()
		for i, no := range orders {
			row := s.row(no)
			if row.UserID != int64(i+1) || row.ItemID != 1001 || row.ActivityID != 1 || row.Units != 1 || row.Nth != 1 || row.Status != 0 || row.RequestID != fmt.Sprintf("request-%d-1001", i+1) {
				t.Errorf("row %+v", row)
			}
		}
		s.want(3, 3, 0)
		if eternal := s.srv.Eternal(t, s.prefix); len(eternal) > 0 {
			t.Errorf("keys without a TTL: %v", eternal)
		}
	})
}

// Without WithStream there is no stream to land from, and Run says so at once.
func TestWorkerNeedsAStream(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, nil)
	if err := s.lander.Worker().Run(t.Context()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WithStream") {
		t.Errorf("got %v", err)
	}
}

// F081, F086: delivered three times in any order, the rows are those of one delivery; a copy that comes after the order was
// closed changes nothing.
func TestDeliveredThreeTimesAndAStaleCopyAfterTheClose(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		var first string
		for user := int64(1); user <= 4; user++ {
			if no := s.buy(user); user == 1 {
				first = no
			}
		}
		entries := s.entries()
		copies := append(append([]map[string]any{}, entries...), entries...)
		rand.Shuffle(len(copies), func(i, j int) { copies[i], copies[j] = copies[j], copies[i] })
		for _, e := range copies {
			s.deliver(e)
		}
		s.work()
		rows := s.rows()
		if len(rows) != 4 {
			t.Errorf("%d rows of 4 orders", len(rows))
		}
		s.want(6, 6, 0)
		for _, e := range entries { // landed before this time
			s.deliver(e)
		}
		s.work()
		if diff := cmp.Diff(rows, s.rows()); diff != "" {
			t.Errorf("a late copy changed rows: %s", diff)
		}

		if err := s.lander.Close(t.Context(), first, stock.Operator); err != nil {
			t.Fatal(err)
		}
		s.want(7, 7, 0)
		rows = s.rows()
		s.deliver(entries[0])
		s.work()
		if diff := cmp.Diff(rows, s.rows()); diff != "" {
			t.Errorf("a stale copy changed rows: %s", diff)
		}
		s.want(7, 7, 0)
	})
}

// What becomes of an order by the index that refuses it: the same request with the same order was landed before; with another
// order it is a duplicate and given back; a user's second order is kept as closed and given back, and the first one's
// marker stays; an index that nobody has named makes a dead letter, and so does an order number of another request. None disturbs the others of its batch.
func TestOutcomePerIndex(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		seat := "A1"
		taken := []seckillOrder{
			{OrderNo: "other", RequestID: "request-1-1001", UserID: 91, ItemID: 1001, ActivityID: 1, Nth: 1, Units: 1},
			{OrderNo: "second", RequestID: "elsewhere", UserID: 2, ItemID: 1001, ActivityID: 1, Nth: 1, Units: 1},
			{OrderNo: "seat", RequestID: "seat", UserID: 93, ItemID: 1001, ActivityID: 1, Nth: 1, Units: 1, Seat: &seat},
			{OrderNo: "given", RequestID: "another", UserID: 94, ItemID: 1001, ActivityID: 1, Nth: 1, Units: 1},
		}
		if err := s.db.Create(&taken).Error; err != nil {
			t.Fatal(err)
		}
		l, err := New[seckillOrder, itemStock](s.counter, s.db, func(e stock.Entry) seckillOrder {
			row := rowOf(e)
			if row.UserID == 3 {
				row.Seat = &seat
			}
			return row
		}, WithLogger(s.lander.cfg.logger))
		if err != nil {
			t.Fatal(err)
		}
		fast(l.engine)
		duplicate, second, seated, good := s.buy(1), s.buy(2), s.buy(3), s.buy(4)
		s.deliver(s.entries()[3])
		s.order(stock.Order{ID: "given", RequestID: "number", Item: 1001, User: 5, Units: 1})
		s.workWith(l)

		if row := s.row(duplicate); row.ID != 0 {
			t.Errorf("the duplicate has a row: %+v", row)
		}
		s.wantRow(second, 2, "limit_reached")
		s.wantRow(good, 0, "")
		if row := s.row(seated); row.ID != 0 {
			t.Errorf("the dead letter has a row: %+v", row)
		}
		letters := s.deadLetters()
		if len(letters) != 2 || letters[0].Entry.Order != seated || letters[0].ErrorType != "duplicate" || letters[1].Entry.Order != "given" {
			t.Errorf("dead letters: %+v", letters)
		}
		s.want(9, 7, 0) // one landed, two lie with the dead letters
		for _, refused := range []string{duplicate, second} {
			ended, err := s.counter.Release(t.Context(), refused, stock.Operator)
			if err != nil || ended.Outcome != stock.OutcomeAlreadyReleased {
				t.Errorf("a refused order is %+v, %v; want already released", ended, err)
			}
		}
		if n, err := s.rdb.Exists(t.Context(), s.prefix+"limit:user:4:item:1001:act:1").Result(); err != nil || n != 1 {
			t.Errorf("the marker of the order that landed: %d, %v", n, err)
		}
	})
}

// D63, X16: Redis has 4, SQL has 3, and four orders come: three live, the refused one is kept as closed and settled once even if
// it is delivered again; its unit is withheld and not sold again, the item is frozen, its user is free, and somebody is told.
func TestSQLHasTheLastWord(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withHold())
		if err := s.db.Create(&itemStock{ItemID: 7, Stock: 3}).Error; err != nil {
			t.Fatal(err)
		}
		s.warm(7, 4, stock.Limit{Units: 1})
		var orders []string
		for user := int64(1); user <= 4; user++ {
			orders = append(orders, s.order(stock.Order{Item: 7, User: user, Units: 1}))
		}
		entries := s.entries()
		s.work()
		live := 0
		for _, row := range s.rows() {
			if row.Status == 0 {
				live++
			}
		}
		if live != 3 {
			t.Errorf("%d live orders, want 3", live)
		}
		s.wantRow(orders[3], 2, "insufficient") // in the order of the stream
		s.wantOf(7, 0, 0, 1)
		for _, e := range entries {
			s.deliver(e)
		}
		s.work()
		s.wantOf(7, 0, 0, 1)
		_, err := s.counter.Deduct(t.Context(), stock.Order{RequestID: "fifth", Item: 7, Activity: 1, User: 5, Units: 1})
		if !errors.Is(err, stock.ErrPaused) {
			t.Errorf("a frozen item answers %v", err)
		}
		marker, err := s.rdb.Exists(t.Context(), s.prefix+"limit:user:4:item:7:act:1").Result()
		if err != nil || marker != 0 {
			t.Errorf("the refused user's marker is there: %d, %v", marker, err)
		}
		if n := strings.Count(s.log.String(), "SQL has less than Redis promised"); n != 1 {
			t.Errorf("%d alarms, want 1", n)
		}
	})
}

// A sale without payment: the rows land as paid, and the units are confirmed in Redis.
func TestRowsThatLandAsPaidAreConfirmed(t *testing.T) {
	t.Parallel()
	for name, counter := range map[string][]stock.Option{"hold": withHold(), "no hold": withStream()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, onPostgres, counter)
			l, err := New[seckillOrder, itemStock](s.counter, s.db, func(e stock.Entry) seckillOrder {
				row := rowOf(e)
				row.Status = 1
				return row
			})
			if err != nil {
				t.Fatal(err)
			}
			fast(l.engine)
			no := s.buy(1)
			s.workWith(l)
			s.wantRow(no, 1, "")
			_, err = s.counter.Release(t.Context(), no, stock.Operator,
				stock.Of(stock.Order{RequestID: "request-1-1001", Item: 1001, Activity: 1, User: 1, Units: 1}))
			if !errors.Is(err, stock.ErrAlreadyConfirmed) {
				t.Errorf("a release answers %v, want already confirmed", err)
			}
		})
	}
}

// Two workers, and a third that comes in the middle, land each order once.
func TestManyWorkers(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withStream())
		const buyers = 300
		s.sell(5, buyers, stock.Limit{Units: 1})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		for range 2 {
			go func() { ended <- s.lander.Worker().Run(ctx) }()
		}
		for user := int64(1); user <= buyers; user++ {
			s.order(stock.Order{Item: 5, User: user, Units: 1})
			if user == buyers/2 {
				go func() { ended <- s.lander.Worker().Run(ctx) }()
			}
		}
		testserver.Eventually(t, time.Minute, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
		cancel()
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if rows := s.rows(); len(rows) != buyers {
			t.Errorf("%d rows, want %d", len(rows), buyers)
		}
		s.wantOf(5, 0, 0, 0)
	})
}

// C21e: the queue is bounded: above its limit a deduct is refused before anything is taken.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream(stock.WithMaxBacklog(3)))
	for user := int64(1); user <= 3; user++ {
		s.buy(user)
	}
	_, err := s.counter.Deduct(t.Context(), stock.Order{RequestID: "r", Item: 1001, Activity: 1, User: 9, Units: 1})
	if !errors.Is(err, stock.ErrOverloaded) {
		t.Errorf("got %v, want overloaded", err)
	}
	s.want(10, 7, 0)
	s.work()
	s.buy(9)
	s.work()
	s.want(6, 6, 0)
}

// An order that takes long is in living hands: no other worker takes it, and none is counted as dead.
func TestOrderThatTakesLongIsKept(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withHold())
	began, goOn := make(chan struct{}), make(chan struct{})
	l := s.newLander(WithHandler(func(*gorm.DB, []*seckillOrder) error {
		close(began) // a second run would panic
		<-goOn
		return nil
	}))
	no := s.buy(1)
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() { _ = l.Worker().Run(ctx) })
	}
	<-began
	since := time.Now()
	testserver.Eventually(t, time.Minute, func() bool { return time.Since(since) > 4*l.pace.claimAfter }, "time")
	pending, err := s.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: s.counter.Streams()[0], Group: group, Start: "-", End: "+", Count: 10}).Result()
	if err != nil || len(pending) != 1 || pending[0].RetryCount != 1 {
		t.Errorf("pending %+v, %v; want one entry, tried once", pending, err)
	}
	close(goOn)
	testserver.Eventually(t, 30*time.Second, func() bool { return s.backlog() == 0 }, "the order has not landed")
	cancel()
	workers.Wait()
	s.wantRow(no, 0, "")
	s.want(9, 9, 0)
}
