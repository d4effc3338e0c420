package landing

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// newLane is a worker in the test's hands, which can stop anywhere, as one that is killed does.
func (s *shop) newLane(name string) *lane {
	return newLane(s.lander.engine, s.counter.Streams()[0], name)
}

func (s *shop) takeAll(l *lane) []*message {
	s.Helper()
	ms, err := l.take(s.Context(), mostBatch)
	if err != nil {
		s.Fatal(err)
	}
	return ms
}

// F080, F082, F083, F084 and the failure points 5 to 9 and 12: a worker dies at each step between reading and acknowledging. Its
// entries come to another one after a while, land once, are acknowledged, and nothing is left in its name. What SQL
// refused is given back once.
func TestWorkerDiesAtEachStep(t *testing.T) {
	steps := map[string]func(s *shop, l *lane, ms []*message){
		"read, before anything else": func(s *shop, l *lane, ms []*message) {},
		"inserted, before COMMIT": func(s *shop, l *lane, ms []*message) {
			died := errors.New("died")
			err := s.db.Transaction(func(tx *gorm.DB) error {
				if err := l.e.landIn(tx, ms, make([]fate, len(ms)), make([]bool, len(ms))); err != nil {
					s.Fatal(err)
				}
				return died
			})
			if !errors.Is(err, died) {
				s.Fatal(err)
			}
		},
		"committed, before Redis is told": func(s *shop, l *lane, ms []*message) {
			if _, err := l.e.transact(s.Context(), ms); err != nil {
				s.Fatal(err)
			}
		},
		"released, before the acknowledgement": func(s *shop, l *lane, ms []*message) {
			fates, err := l.e.transact(s.Context(), ms)
			if err != nil {
				s.Fatal(err)
			}
			for i, m := range ms {
				if err := l.e.end(s.Context(), &m.entry, fates[i]); err != nil {
					s.Fatal(err)
				}
			}
		},
	}
	onEach(t, func(t *testing.T, dialect string) {
		for name, die := range steps {
			t.Run(name, func(t *testing.T) {
				s := newShop(t, dialect, withHold())
				if err := s.db.Create(&seckillOrder{OrderNo: "live", RequestID: "live", UserID: 3, ItemID: 1001, ActivityID: 1, Nth: 1, Units: 1}).Error; err != nil {
					t.Fatal(err)
				}
				one, two, refused := s.buy(1), s.buy(2), s.buy(3)
				dead := s.newLane("dead")
				ms := s.takeAll(dead)
				if len(ms) != 3 {
					t.Fatalf("read %d entries", len(ms))
				}
				die(s, dead, ms)
				s.work()
				s.wantRow(one, 0, "")
				s.wantRow(two, 0, "")
				s.wantRow(refused, 2, "limit_reached")
				s.want(8, 8, 0)
				if n := len(s.deadLetters()); n != 0 {
					t.Errorf("%d dead letters", n)
				}
			})
		}
	})
}

// F083: a consumer that has died is removed from the group, but only when none of its entries is left.
func TestDeadConsumerGoesWhenItHasNothingLeft(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	s.lander.pace.claimAfter = 20 * time.Millisecond
	s.buy(1)
	s.takeAll(s.newLane("dead"))
	stream := s.counter.Streams()[0]
	consumers := func() []string {
		infos, err := s.rdb.XInfoConsumers(t.Context(), stream, group).Result()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range infos {
			names = append(names, c.Name)
		}
		return names
	}
	if names := consumers(); !slices.Contains(names, "dead") {
		t.Fatalf("consumers: %v", names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.lander.Worker().Run(ctx) }()
	testserver.Eventually(t, 10*time.Second, func() bool { return s.backlog() == 0 && !slices.Contains(consumers(), "dead") }, "the dead consumer stays")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if names := consumers(); len(names) != 0 {
		t.Errorf("a worker that has ended leaves %v", names)
	}
}

// An order that workers die of, one after the other, goes to the dead letters; those that were in the same batch land.
func TestOrderThatKillsWorkers(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	s.lander.pace.claimAfter = time.Millisecond
	s.buy(1)
	s.buy(2)
	dies := func(m *message) bool { return m.entry.User == "1" }
	for n := range 20 {
		l := s.newLane("worker " + string(rune('a'+n)))
		var mine []*message
		testserver.Eventually(t, 10*time.Second, func() bool {
			l.claimAt = time.Time{}
			mine = append(mine, s.takeAll(l)...)
			return len(mine) > 0 || s.backlog() == 0
		}, "nothing is handed out")
		for _, m := range mine {
			if !m.claimed {
				break // the batch in which the first one dies
			}
			if dies(m) {
				tries, err := l.tried(t.Context(), 0, m)
				if err != nil {
					t.Fatal(err)
				}
				if tries[0] < mostTries {
					if _, err := l.tried(t.Context(), 1, m); err != nil { // as suspect does, and then it dies
						t.Fatal(err)
					}
					break
				}
			}
			l.suspect(t.Context(), t.Context(), m)
		}
		if s.backlog() == 0 {
			break
		}
	}
	if letters := s.deadLetters(); len(letters) != 1 || letters[0].Entry.User != "1" || letters[0].Tries != mostTries {
		t.Errorf("dead letters: %+v", letters)
	}
	s.want(9, 8, 0)
}

// A connection that stays open and never answers does not hold the worker or the sweeper for ever: the transaction ends
// after a while, and is tried again on another one.
func TestConnectionThatNeverAnswers(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{"inserting": "INSERT", "at the end": "COMMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testserver.Postgres(t)
			proxy := faultproxy.Postgres(t, d.Addr)
			s := newShopAt(t, onPostgres, d.Via(proxy.Addr()), withHold())
			s.lander.pace.transact = time.Second
			s.buy(1)
			rule := proxy.On(faultproxy.Named(statement), faultproxy.HangRequest())
			s.work()
			rule.Wait(t)
			s.want(9, 9, 0)
			if statement == "COMMIT" { // the sweeper sends no INSERT
				s.due()
				rule = proxy.On(faultproxy.Named(statement), faultproxy.HangRequest())
				testserver.Eventually(t, time.Minute, func() bool {
					n, err := s.lander.Sweeper().Sweep(t.Context())
					return n == 1 && err == nil
				}, "the hold is swept after the connection that hangs")
				rule.Wait(t)
				s.want(10, 10, 0)
			}
		})
	}
}

// A COMMIT whose reply is lost: the rows tell whether the orders have landed, and they land once. The handler's rows too.
func TestLostCommitReply(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]faultproxy.Action{"executed": faultproxy.LoseReply(), "not executed": faultproxy.LoseRequest()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testserver.Postgres(t)
			proxy := faultproxy.Postgres(t, d.Addr)
			s := newShopAt(t, onPostgres, d.Via(proxy.Addr()), withHold(), WithHandler(func(tx *gorm.DB, landed []*seckillOrder) error {
				for _, row := range landed {
					if err := tx.Create(&orderEvent{OrderNo: row.OrderNo}).Error; err != nil {
						return err
					}
				}
				return nil
			}))
			for user := int64(1); user <= 5; user++ {
				s.buy(user)
			}
			rule := proxy.On(faultproxy.Named("COMMIT"), action)
			s.work()
			rule.Wait(t)
			var events int64
			if err := s.db.Model(&orderEvent{}).Count(&events).Error; err != nil || events != 5 {
				t.Errorf("%d events, %v; want 5", events, err)
			}
			if rows := s.rows(); len(rows) != 5 {
				t.Errorf("%d rows, want 5", len(rows))
			}
			s.want(5, 5, 0)
		})
	}
}

// C21c: nothing that was accepted is lost while PostgreSQL is down, and no order is blamed for it.
func TestDatabaseRestartsInTheMiddle(t *testing.T) {
	t.Parallel()
	srv := testserver.NewPostgres(t)
	s := newShopAt(t, onPostgres, srv.Database(t).DSN, withHold())
	const buyers = 200
	s.sell(5, buyers, stock.Limit{Units: 1})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- s.lander.Worker().Run(ctx) }()
	}
	for user := int64(1); user <= buyers; user++ {
		s.order(stock.Order{Item: 5, User: user, Units: 1})
		switch user {
		case buyers / 3:
			srv.Kill(t)
		case 2 * buyers / 3:
			srv.Restart(t)
		}
	}
	testserver.Eventually(t, time.Minute, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if rows := s.rows(); len(rows) != buyers {
		t.Errorf("%d rows, want %d", len(rows), buyers)
	}
	s.wantOf(5, 0, 0, 0)
	if n := len(s.deadLetters()); n != 0 {
		t.Errorf("%d dead letters: an order is blamed for the database", n)
	}
}

// F084 and lost replies of Redis: each script of the worker, unanswered once, or each of the three times that it is sent. Whatever was handed
// out in a reply that was lost is handed out again, an order that was acknowledged or buried unheard is not so twice.
func TestLostRepliesOfRedis(t *testing.T) {
	t.Parallel()
	for _, script := range []struct {
		name  string
		times int
	}{{"take", 1}, {"take", 3}, {"tried", 3}, {"bury", 3}, {"done", 3}, {"leave", 3}} {
		for what, action := range map[string]faultproxy.Action{"executed": faultproxy.LoseReply(), "not executed": faultproxy.LoseRequest()} {
			t.Run(fmt.Sprint(script.name, " ", script.times, ", ", what), func(t *testing.T) {
				t.Parallel()
				srv := testserver.Redis(t)
				proxy := faultproxy.Redis(t, srv.Addr())
				s := &shop{T: t, srv: srv, dialect: onSQLite, log: &buffer{}, prefix: srv.Prefix(t)}
				s.rdb = srv.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), time.Minute })
				s.open(withHold(), []Option{WithHandler(func(tx *gorm.DB, landed []*seckillOrder) error {
					if landed[0].UserID == 2 {
						return errors.New("no")
					}
					return nil
				})})
				s.lander.pace.claimAfter = time.Minute // nobody could wait for that
				s.buy(1)
				s.work()
				s.buy(2)
				s.buy(3)
				rule := proxy.On(faultproxy.Named("EVALSHA").Containing(sha(t, script.name)).Times(script.times), action)
				s.work()
				rule.Wait(t)
				s.buy(4)
				s.work()
				if rows := s.rows(); len(rows) != 3 {
					t.Errorf("%d rows, want 3", len(rows))
				}
				if letters := s.deadLetters(); len(letters) != 1 || letters[0].Entry.User != "2" {
					t.Errorf("dead letters: %+v", letters)
				}
				s.want(7, 6, 0)
			})
		}
	}
}

// sha is the name that Redis knows a script by.
func sha(t *testing.T, name string) string {
	t.Helper()
	var src []byte
	for _, part := range []string{"common", name} {
		text, err := sources.ReadFile("lua/" + part + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		src = append(src, text...)
	}
	sum := sha1.Sum(src)
	return hex.EncodeToString(sum[:])
}

// Redis away between the commit and the release: the entry stays, and the order is given back once when Redis is there again.
func TestRedisAwayAfterTheCommit(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	proxy := faultproxy.Redis(t, srv.Addr())
	s := &shop{T: t, srv: srv, dialect: onSQLite, log: &buffer{}, prefix: srv.Prefix(t)}
	s.rdb = srv.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), time.Minute })
	s.open(withHold(), nil)
	if err := s.db.Create(&seckillOrder{OrderNo: "live", RequestID: "live", UserID: 1, ItemID: 1001, ActivityID: 1, Nth: 1, Units: 1}).Error; err != nil {
		t.Fatal(err)
	}
	no := s.buy(1)
	l := s.newLane("worker")
	ms := s.takeAll(l)
	fates, err := s.lander.transact(t.Context(), ms)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Refuse()
	proxy.CutAll()
	ctx, span := s.lander.tel.begin(t.Context(), l.stream, ms)
	l.settle(ctx, span, ms, fates)
	span.end(ctx)
	if len(l.later) != 1 {
		t.Errorf("%d entries to be tried again, want 1", len(l.later))
	}
	proxy.Heal(t)
	s.want(10, 9, 0)
	testserver.Eventually(t, 10*time.Second, func() bool {
		l.again(t.Context(), t.Context())
		return s.backlog() == 0
	}, "the entry stays")
	s.wantRow(no, 2, "limit_reached")
	s.want(10, 10, 0)
}

// sqlState is an error of PostgreSQL as its driver shows it.
type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

// X30: serialization failures and deadlocks are tried again as a whole, a bounded number of times, then in smaller batches; no
// order is blamed for them.
func TestConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := newShop(t, onPostgres, withStream(), WithHandler(func(tx *gorm.DB, landed []*seckillOrder) error {
				calls.Add(1)
				if len(landed) > 2 { // as if larger batches met somebody each time
					return sqlState(code)
				}
				return nil
			}))
			for user := int64(1); user <= 8; user++ {
				s.buy(user)
			}
			s.work()
			if rows := s.rows(); len(rows) != 8 {
				t.Errorf("%d rows, want 8", len(rows))
			}
			if n := calls.Load(); n > 5+2*5+4 {
				t.Errorf("the handler ran %d times", n)
			}
			if n := len(s.deadLetters()); n != 0 {
				t.Errorf("%d dead letters", n)
			}
			s.want(2, 2, 0)
		})
	}
}

// While a table is missing every order fails for a reason that SQL alone knows: none is blamed, and all land when it is there.
func TestMissingTableBlamesNoOrder(t *testing.T) {
	onEach(t, func(t *testing.T, dialect string) {
		s := newShop(t, dialect, withStream())
		for user := int64(1); user <= 3; user++ {
			s.buy(user)
		}
		s.work()
		one := s.order(stock.Order{RequestID: "alone", Item: 1001, User: 4, Units: 1})
		if err := s.db.Migrator().RenameTable("item_stock", "gone"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.lander.Worker().Run(ctx) }()
		testserver.Eventually(t, 10*time.Second, func() bool { return strings.Count(s.log.String(), "cannot land orders, will try again") > 2 }, "nobody is told: "+s.log.String())
		if err := s.db.Migrator().RenameTable("gone", "item_stock"); err != nil {
			t.Fatal(err)
		}
		testserver.Eventually(t, 30*time.Second, func() bool { return s.backlog() == 0 }, "not landed: "+s.log.String())
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.want(6, 6, 0)
		s.wantRow(one, 0, "")
		if n := len(s.deadLetters()); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// A worker that ends while SQL is away leaves its orders to the next one at once, and none of them is blamed: not after any
// number of restarts in one outage.
func TestRestartsInOneOutageBlameNoOrder(t *testing.T) {
	t.Parallel()
	d := testserver.Postgres(t)
	proxy := faultproxy.Postgres(t, d.Addr)
	s := newShopAt(t, onPostgres, d.Via(proxy.Addr()), withStream())
	s.lander.pace.claimAfter = time.Minute // nobody could wait for that
	s.buy(1)
	s.buy(2)
	proxy.Refuse()
	proxy.CutAll()
	tries := func() int64 {
		p, err := s.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: s.counter.Streams()[0], Group: group, Start: "-", End: "+", Count: 1}).Result()
		if err != nil || len(p) == 0 {
			return 0
		}
		return p[0].RetryCount
	}
	for n := range 2 * mostTries {
		before := tries()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.lander.Worker().Run(ctx) }()
		testserver.Eventually(t, 10*time.Second, func() bool { return tries() > before || s.backlog() < 2 }, "nobody has the orders in hand")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run %d: %v", n, err)
		}
	}
	proxy.Heal(t)
	s.work()
	s.want(8, 8, 0)
	if n := len(s.deadLetters()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}
