package landing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/stock"
)

// newProxiedShop is a shop on SQLite whose Redis answers through a proxy.
func newProxiedShop(t *testing.T, opts ...Option) (*shop, *faultproxy.Proxy) {
	t.Helper()
	srv := testserver.Redis(t)
	proxy := faultproxy.Redis(t, srv.Addr())
	s := &shop{T: t, srv: srv, dialect: onSQLite, log: &buffer{}, prefix: srv.Prefix(t)}
	s.rdb = srv.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), time.Minute })
	s.open(withHold(), opts)
	of := s.lander.scripts
	if err := s.lander.rdb.Preload(of.take, of.tried, of.bury, of.leave); err != nil { // else a reply that is lost says only that it is not loaded
		t.Fatal(err)
	}
	return s, proxy
}

// pending is what the consumer group says of the entries that are not finished.
func (s *shop) pending() []redis.XPendingExt {
	s.Helper()
	p, err := s.rdb.XPendingExt(s.Context(), &redis.XPendingExtArgs{Stream: s.counter.Streams()[0], Group: group, Start: "-", End: "+", Count: 10_000}).Result()
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// A try is counted only when an order was tried: a worker that hears nothing of what it reads has tried nothing, however often it
// asks. It hands over healthy orders, and they land.
func TestLostRepliesBlameNoOrder(t *testing.T) {
	t.Parallel()
	s, proxy := newProxiedShop(t)
	for user := int64(1); user <= 3; user++ {
		s.buy(user)
	}
	l := s.newLane("unlucky")
	for range 4 {
		rule := proxy.On(faultproxy.Named("EVALSHA").Containing(sha(t, "take")).Times(3), faultproxy.LoseReply())
		if ms, err := l.take(t.Context(), mostBatch); err == nil {
			t.Fatalf("heard of %d orders", len(ms))
		}
		rule.Wait(t)
	}
	pending := s.pending()
	if len(pending) != 3 {
		t.Fatalf("pending: %+v", pending)
	}
	for _, p := range pending {
		if p.RetryCount != 1 {
			t.Errorf("read by a consumer that did nothing, and tried %d times", p.RetryCount)
		}
	}
	l.leave(t.Context())
	s.work()
	if letters := s.deadLetters(); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
	s.want(7, 7, 0)
}

// A try is counted once, though the script that counts it is sent three times.
func TestTryIsCountedOnce(t *testing.T) {
	t.Parallel()
	s, proxy := newProxiedShop(t)
	s.buy(1)
	l := s.newLane("one")
	ms := s.takeAll(l)
	rule := proxy.On(faultproxy.Named("EVALSHA").Containing(sha(t, "tried")).Times(2), faultproxy.LoseReply())
	tries, err := l.tried(t.Context(), 1, ms...)
	rule.Wait(t)
	if err != nil || tries[0] != 2 {
		t.Errorf("tries %v, %v; want 2, the one under way with them", tries, err)
	}
}

// Whatever lost replies have left with a consumer it finds again, page by page, and without anybody's help.
func TestLostRepliesOfManyOrders(t *testing.T) {
	t.Parallel()
	s, proxy := newProxiedShop(t)
	s.lander.pace.claimAfter = time.Minute // nobody could wait for that
	const buyers = 3*mostBatch + 7
	s.sell(5, buyers, stock.Limit{})
	for user := int64(1); user <= buyers; user++ {
		s.order(stock.Order{Item: 5, User: user, Units: 1})
	}
	rule := proxy.On(faultproxy.Named("EVALSHA").Containing(sha(t, "take")).Times(3), faultproxy.LoseReply())
	s.work()
	rule.Wait(t)
	s.wantOf(5, 0, 0, 0)
	if n := len(s.rows()); n != buyers {
		t.Errorf("%d rows, want %d", n, buyers)
	}
}

// What waits for its next try is in living hands: no other worker takes it, counts a try, or buries it.
func TestOrderThatWaitsIsKept(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	s := newShop(t, onSQLite, withHold(), WithHandler(func(*gorm.DB, []*seckillOrder) error {
		calls.Add(1)
		return errors.New("no")
	}))
	s.lander.pace.claimAfter = 50 * time.Millisecond
	l := s.newLane("waits")
	s.buy(1)
	ms := s.takeAll(l)
	l.land(t.Context(), t.Context(), ms)
	for _, m := range l.later {
		m.due = time.Now().Add(time.Hour)
	}
	stop := l.keep(t.Context())
	other := s.newLane("other")
	since := time.Now()
	testserver.Eventually(t, time.Minute, func() bool {
		other.claimAt = time.Time{}
		if ms := s.takeAll(other); len(ms) > 0 {
			t.Fatalf("another worker has taken it: %+v", ms[0])
		}
		return time.Since(since) > 10*s.lander.pace.claimAfter
	}, "time")
	stop()
	if p := s.pending(); len(p) != 1 || p[0].RetryCount != 2 || p[0].Consumer != "waits" || calls.Load() != 1 {
		t.Errorf("pending %+v after %d tries; want one try made and one to come", p, calls.Load())
	}
}

// A worker that leaves hands over all that it has, in calls of a thousand, and takes the try under way back of each.
func TestWorkerLeavesManyOrders(t *testing.T) {
	t.Parallel()
	s := newShop(t, onSQLite, withStream())
	const buyers = 2100
	s.sell(5, buyers, stock.Limit{})
	for user := int64(1); user <= buyers; user++ {
		s.order(stock.Order{Item: 5, User: user, Units: 1})
	}
	l := s.newLane("leaves")
	for n := 0; n < buyers; {
		n += len(s.takeAll(l))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.leave(ctx)
	pending := s.pending()
	if len(pending) != buyers {
		t.Fatalf("%d entries, want %d", len(pending), buyers)
	}
	for _, p := range pending {
		if p.RetryCount != 0 || p.Idle < s.lander.pace.claimAfter {
			t.Fatalf("left behind: %s", fmt.Sprintf("%+v", p))
		}
	}
}
