package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/lock"
)

// during sets what the handler of the locked way does first; the lock is held then.
func (s *sale) during(f func(r *http.Request)) { s.inside.Store(&f) }

// A client that leaves while its handler works must not leave the lock behind: release does not run on its context.
func TestClientDisconnectsInTheHandler(t *testing.T) {
	s := sharedSale(t, 10)
	ctx, leave := context.WithCancel(t.Context())
	entered, left := make(chan struct{}), make(chan struct{})
	s.during(func(r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})
	done := make(chan error, 1)
	go func() {
		_, err := s.buy(ctx, "lock", 1, "a")
		done <- err
	}()
	<-entered
	if keys := s.lockKeys(); len(keys) != 1 {
		t.Fatalf("in the handler the locks are %v, want one", keys)
	}
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client got %v, want its own cancellation", err)
	}
	<-left
	testserver.Eventually(t, time.Second, func() bool { return len(s.lockKeys()) == 0 }, "the lock to be free, long before its TTL")
	s.inside.Store(nil)
	if r := s.mustBuy("lock", 2, "b"); r.status != http.StatusCreated {
		t.Errorf("the next buyer got %d %s", r.status, r.body)
	}
}

// A handler that panics leaves the lock free and the request id unused: the retry runs.
func TestHandlerPanics(t *testing.T) {
	s := sharedSale(t, 10)
	s.during(func(*http.Request) { panic("boom") })
	if r := s.mustBuy("lock", 1, "a"); r.status != http.StatusInternalServerError {
		t.Fatalf("got %d %s, want 500", r.status, r.body)
	}
	if keys := s.lockKeys(); len(keys) != 0 {
		t.Errorf("locks left behind: %v", keys)
	}
	s.inside.Store(nil)
	if r := s.mustBuy("lock", 1, "a"); r.status != http.StatusCreated || r.replayed {
		t.Errorf("the retry got %d %s (replayed %v), want a first 201", r.status, r.body, r.replayed)
	}
	s.check(1)
}

// C12, D71: the key is deleted behind the first holder's back and another one takes the lock and writes. The first
// holder still believes in its lock; its write is refused by the fence in SQL.
func TestStolenLockIsRefusedByTheFence(t *testing.T) {
	s := sharedSale(t, 10)
	first := make(chan struct{})
	resume := make(chan struct{})
	var calls atomic.Int32
	s.during(func(*http.Request) {
		if calls.Add(1) == 1 {
			close(first)
			<-resume
		}
	})
	got := make(chan reply, 1)
	go func() { got <- s.mustBuy("lock", 1, "a") }()
	<-first
	if err := s.rdb.Del(t.Context(), s.prefix+"lock:stock:1001").Err(); err != nil {
		t.Fatal(err)
	}
	// Another process: a Locker of its own, so that no queue in memory knows of the first holder.
	second := otherProcess(t, s)
	if r := second.mustBuy("lock", 2, "b"); r.status != http.StatusCreated {
		t.Fatalf("the second holder got %d %s", r.status, r.body)
	}
	close(resume)
	r := <-got
	if r.code != "stale_fence" && r.code != "lost" {
		t.Errorf("the first holder got %d %s, want a refusal for its old fence", r.status, r.body)
	}
	s.check(1)
}

// The same with a first holder that cannot have noticed: a lease whose verdict is still "held".
func TestOldFenceIsRefusedWhileTheHolderBelievesInIt(t *testing.T) {
	s := sharedSale(t, 10)
	locker, err := lock.New(s.rdb, lock.Prefix(s.prefix), lock.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	lease, err := locker.Acquire(t.Context(), []string{"stock:1001"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := lease.Context(t.Context())
	if err := s.rdb.Del(t.Context(), s.prefix+"lock:stock:1001").Err(); err != nil {
		t.Fatal(err)
	}
	second := otherProcess(t, s)
	if r := second.mustBuy("lock", 2, "b"); r.status != http.StatusCreated {
		t.Fatalf("the second holder got %d %s", r.status, r.body)
	}
	if err := lease.Err(); err != nil {
		t.Fatalf("the first holder has noticed already: %v", err)
	}
	err = s.land(withRequest(ctx, "first"), &saleOrder{UserID: 1, ItemID: saleItemID})
	if typ := errorType(err); typ != "stale_fence" {
		t.Errorf("the first holder's write gave %v (%s), want stale_fence", err, typ)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release of a lock that is not ours any more gave %v, want ErrLost", err)
	}
	s.check(1)
}

// F057, D55: whichever Redis command of a purchase loses its reply, with go-redis as it comes, units fall once.
func TestLostReplyAtEveryRedisCommand(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		srv := testserver.Redis(t)
		proxy := faultproxy.Redis(t, srv.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		s := newSale(t, rdb, srv.Prefix(t), 100)
		s.mustBuy(way, 1, "connections")

		const user = 2
		proxy.Reset()
		s.mustBuy(way, user, "commands")
		scripts := proxy.Count(faultproxy.Named("EVALSHA"))
		if scripts < 3 {
			t.Fatalf("a purchase sent %d scripts, want at least begin, work, complete", scripts)
		}
		sold := int64(2)
		for n := range scripts {
			proxy.Heal(t)
			rule := proxy.On(faultproxy.Named("EVALSHA").Nth(n+1), faultproxy.LoseReply())
			user, key := int64(10+n), fmt.Sprint("lost-", n)
			r := s.mustBuy(way, user, key)
			for r.status == http.StatusServiceUnavailable {
				r = s.mustBuy(way, user, key) // what a client does: the same id again
			}
			if r.status != http.StatusCreated {
				t.Fatalf("reply %d lost: got %d %s", n+1, r.status, r.body)
			}
			if rule.Fired() != 1 {
				t.Fatalf("reply %d was not lost", n+1)
			}
			sold++
			s.check(sold)
			if left, err := s.counter.Remaining(t.Context(), saleItemID); way == "script" && (err != nil || left != s.units-sold) {
				t.Fatalf("reply %d lost: Redis has %d left (%v), want %d", n+1, left, err, s.units-sold)
			}
		}
	})
}

// crash runs buyers while Redis is killed in the middle and started again, and returns how many were told 503. Buyers
// send the same request again until they have an answer.
func (s *sale) crash(way string, srv *testserver.RedisServer, restart func(t testing.TB)) (unavailable, unwarmed int64) {
	s.t.Helper()
	const buyers = 150
	var sold, away, cold atomic.Int64
	killed := make(chan struct{})
	var once sync.Once
	deadline := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	for i := range buyers {
		wg.Go(func() {
			if i%3 == 0 {
				<-killed // a third of them comes after the crash
			}
			for time.Now().Before(deadline) {
				r, err := s.buy(s.t.Context(), way, int64(i+1), fmt.Sprint("key-", i))
				if err != nil {
					s.t.Errorf("buyer %d: %v", i, err)
					return
				}
				switch {
				case r.code == "not_warmed":
					cold.Add(1)
					return // refused for now: this buyer gives up
				case r.status == http.StatusServiceUnavailable, r.code == "in_flight", r.code == "busy":
					away.Add(1)
					if r.header.Get("Retry-After") == "" {
						s.t.Errorf("buyer %d: %s without Retry-After", i, r.code)
					}
				case r.status == http.StatusCreated:
					if sold.Add(1) == s.units/4 {
						once.Do(func() {
							srv.Kill(s.t)
							close(killed)
							s.mustBeUnavailable(way)
							restart(s.t)
						})
					}
					return
				case r.status == http.StatusConflict:
					return
				default:
					s.t.Errorf("buyer %d: %d %s", i, r.status, r.body)
					return
				}
			}
			s.t.Errorf("buyer %d had no answer within a minute", i)
		})
	}
	wg.Wait()
	return away.Load(), cold.Load()
}

func (s *sale) mustBeUnavailable(way string) {
	if r, err := s.buy(s.t.Context(), way, 9999, "while-away"); err != nil || r.status != http.StatusServiceUnavailable {
		s.t.Errorf("while Redis is away: %d %s %v, want 503", r.status, r.body, err)
	}
}

// Redis is killed in the middle of the sale and comes back with its data: 503 meanwhile, then the sale goes on to the
// last unit and not beyond.
func TestRedisKilledAndRestartedWithItsData(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		srv := testserver.NewRedis(t, testserver.AppendOnly(), testserver.RedisConfig("appendfsync", "always"))
		s := newSale(t, srv.Client(t), "", 60)
		unavailable, unwarmed := s.crash(way, srv, srv.Restart)
		if unavailable == 0 && unwarmed == 0 {
			t.Log("no buyer happened to ask while Redis was away, but for the one that was sent to")
		}
		if unwarmed != 0 {
			t.Errorf("%d buyers were told \"not warmed\" although the data is there", unwarmed)
		}
		s.check(60)
	})
}

// Redis is killed and comes back empty: the counter is gone, which is "not warmed" and never "sold out"; nothing is
// oversold, even when somebody warms the sale up with a number that is too high.
func TestRedisRestartedEmpty(t *testing.T) {
	srv := testserver.NewRedis(t)
	s := newSale(t, srv.Client(t), "", 60)
	_, unwarmed := s.crash("script", srv, srv.RestartEmpty)
	if unwarmed == 0 {
		t.Error("nobody was told \"not warmed\"")
	}
	b := s.books()
	if b.orders > s.units || b.stock != s.units-b.orders || b.users != b.orders {
		t.Fatalf("books %+v for %d units", b, s.units)
	}

	s.warm(s.units) // all of them once more: Redis now promises what SQL lacks
	replies := s.all("script", 100, func(i int) (int64, string) { return int64(1000 + i), fmt.Sprint("after-", i) })
	if sold := int64(count(replies, http.StatusCreated)); sold != s.units-b.orders {
		t.Errorf("%d sold after the restart, want the %d that SQL had left", sold, s.units-b.orders)
	}
	s.check(s.units)
}

// otherProcess is a second instance of the service on the same stores.
func otherProcess(t *testing.T, s *sale) *sale {
	t.Helper()
	o := &sale{t: t, rdb: s.rdb, db: s.db, prefix: s.prefix, units: s.units, counter: s.counter}
	o.mount()
	return o
}

func withRequest(ctx context.Context, id string) context.Context {
	return gormplugin.ContextWithRequest(ctx, id, 1)
}

func errorType(err error) string {
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return typed.ErrorType()
	}
	return ""
}
