package landing

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// keepLocked opens a transaction that keeps items' rows locked, as a worker that hangs does, until unlock is called. On SQLite it
// is all of the database.
func (s *shop) keepLocked(items ...int64) (unlock func()) {
	s.Helper()
	tx := s.db.Begin()
	query := "SELECT stock FROM item_stock WHERE item_id IN ?"
	if s.dialect != onSQLite {
		query += " FOR UPDATE"
	}
	var found []int64
	if err := tx.Raw(query, items).Scan(&found).Error; err != nil || len(found) != len(items) {
		s.Fatalf("%d rows, %v", len(found), err)
	}
	return func() {
		s.Helper()
		if err := tx.Rollback().Error; err != nil {
			s.Fatal(err)
		}
	}
}

func (s *shop) wantNobodyBlamed() {
	s.Helper()
	if letters := s.deadLetters(); len(letters) != 0 {
		s.Errorf("an order is blamed: %+v", letters)
	}
	for _, p := range s.pending() {
		if p.RetryCount > 1 {
			s.Errorf("a try is counted: %+v", p)
		}
	}
}

// A row that somebody keeps locked stops the orders of its item and of no other one: those beside it in the batch land, those
// behind it are read and land. Its own land when it is free, and nobody is blamed. Two workers do not blame each other either.
func TestLockedRowStopsItsOwnItemOnly(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		dsn := newDatabase(t, dialect)
		switch dialect {
		case onSQLite:
			dsn = strings.Replace(dsn, "busy_timeout(10000)", "busy_timeout(1000)", 1)
		case onMariaDB: // the server waits on for a client that has gone, and keeps its rows that long
			dsn += "&innodb_lock_wait_timeout=3"
		}
		s := newShopAt(t, dialect, dsn, withHold())
		s.lander.pace.transact = 2 * time.Second
		s.lander.pace.claimAfter = 2 * time.Second
		s.sell(7, 10, stock.Limit{Units: 1})
		var locked, others []string
		for user := int64(1); user <= 3; user++ {
			locked = append(locked, s.buy(user))
			others = append(others, s.order(stock.Order{Item: 7, User: user, Units: 1}))
		}
		unlock := s.keepLocked(1001)
		s.start(s.lander)
		s.start(s.lander)
		landed := func(orders ...string) func() bool {
			return func() bool {
				for _, no := range orders {
					if s.row(no).ID == 0 {
						return false
					}
				}
				return true
			}
		}
		if dialect != onSQLite {
			testserver.Eventually(t, time.Minute, landed(others...), "another item's orders wait for the locked row: "+s.log.String())
			locked = append(locked, s.buy(4))
			behind := s.order(stock.Order{Item: 7, User: 4, Units: 1})
			testserver.Eventually(t, time.Minute, landed(behind), "the lane does not read on: "+s.log.String())
		} else {
			testserver.Eventually(t, time.Minute, func() bool { return strings.Contains(s.log.String(), "stays locked") }, "nobody is told")
		}
		s.wantNobodyBlamed()
		for _, no := range locked {
			if s.row(no).ID != 0 {
				t.Error("an order has landed through the lock")
			}
		}
		unlock()
		testserver.Eventually(t, time.Minute, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
		s.wantNobodyBlamed()
		s.want(10-int64(len(locked)), 10-int64(len(locked)), 0)
	})
}

// More items are locked than the worker asks for in one go: the one that is not locked lands all the same.
func TestManyLockedRows(t *testing.T) {
	t.Parallel()
	s := newShop(t, onPostgres, withStream())
	s.lander.pace.transact = 2 * time.Second
	items := []int64{11, 12, 13, 14, 15}
	for _, item := range append(items, 16) {
		s.sell(item, 10, stock.Limit{Units: 1})
		s.order(stock.Order{Item: item, User: 1, Units: 1})
	}
	unlock := s.keepLocked(items...)
	s.start(s.lander)
	testserver.Eventually(t, time.Minute, func() bool { return s.backlog() == int64(len(items)) }, "the free item's order waits: "+s.log.String())
	unlock()
	testserver.Eventually(t, time.Minute, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
	s.wantNobodyBlamed()
	for _, item := range append(items, 16) {
		s.wantOf(item, 9, 9, 0)
	}
}

// A batch that is too much for one transaction, for the handler takes its time, lands in smaller ones.
func TestBatchThatTakesTooLongIsDivided(t *testing.T) {
	t.Parallel()
	s := newShop(t, onPostgres, withStream(), WithHandler(func(tx *gorm.DB, landed []*seckillOrder) error {
		timer := time.NewTimer(time.Duration(len(landed)) * 50 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-tx.Statement.Context.Done():
			return tx.Statement.Context.Err()
		}
	}))
	s.lander.pace.transact = 3 * time.Second
	const buyers = 90
	s.sell(5, buyers, stock.Limit{})
	for user := int64(1); user <= buyers; user++ {
		s.order(stock.Order{Item: 5, User: user, Units: 1})
	}
	s.work()
	s.wantNobodyBlamed()
	s.wantOf(5, 0, 0, 0)
}

// A database's own limit for locks, which is shorter than the worker's, is no fault of an order either.
func TestLockWaitOfTheDatabase(t *testing.T) {
	t.Parallel()
	for dialect, limit := range map[string]string{onPostgres: "&lock_timeout=100", onMariaDB: "&innodb_lock_wait_timeout=1"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, dialect, withStream())
			s.sell(7, 10, stock.Limit{Units: 1})
			l, err := New[seckillOrder, itemStock](s.counter, open(t, dialect, s.dsn+limit), rowOf, WithLogger(s.lander.cfg.logger))
			if err != nil {
				t.Fatal(err)
			}
			fast(l.engine)
			for user := int64(1); user <= 8; user++ {
				s.buy(user)
			}
			other := s.order(stock.Order{Item: 7, User: 1, Units: 1})
			unlock := s.keepLocked(1001)
			s.start(l)
			testserver.Eventually(t, 25*time.Second, func() bool { return s.row(other).ID != 0 }, "another item's order waits: "+s.log.String())
			unlock()
			testserver.Eventually(t, time.Minute, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
			s.wantNobodyBlamed()
			s.want(2, 2, 0)
		})
	}
}

// However many orders of a locked item wait, one of them asks whether it is free, and then all wait for the next time.
func TestLockedItemIsAskedForOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, onPostgres, withStream())
	const buyers = 2*mostBatch + 10
	s.sell(5, buyers, stock.Limit{})
	for user := int64(1); user <= buyers; user++ {
		s.order(stock.Order{Item: 5, User: user, Units: 1})
	}
	var made atomic.Int64
	counting := s.newLanderOf(func(e stock.Entry) seckillOrder {
		made.Add(1)
		return rowOf(e)
	})
	counting.pace.transact, counting.pace.retryFirst, counting.pace.claimAfter = 2*time.Second, time.Minute, time.Hour
	l := newLane(counting.engine, s.counter.Streams()[0], "one")
	l.locked["5"] = &lock{}
	unlock := s.keepLocked(5)
	for n := 0; n < buyers; {
		ms := s.takeAll(l)
		l.handle(t.Context(), t.Context(), ms)
		n += len(ms)
	}
	for range 5 {
		l.again(t.Context(), t.Context())
	}
	if n := made.Load(); n != 1 || len(l.later) != buyers {
		t.Errorf("asked %d times, and %d wait", n, len(l.later))
	}
	unlock()
	l.locked["5"].until = time.Time{}
	for _, m := range l.later {
		m.due = time.Time{}
	}
	for len(l.later) > 0 {
		l.again(t.Context(), t.Context())
	}
	s.wantOf(5, 0, 0, 0)
}
