package holdfast_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/internal/testserver"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

// These tests run the purchase as a user would build it: a chi router over real HTTP, a real Redis, a real PostgreSQL;
// once decided by the script alone, once under a lock.

func TestMain(m *testing.M) { testserver.Main(m) }

type saleItem struct {
	ID    int64
	Stock int64 `guard:"stock" gorm:"not null;check:ck_stock,stock >= 0"`
	Fence int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
}

type saleOrder struct {
	ID             int64
	RequestID      string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id"`
	UserID, ItemID int64  `gorm:"not null;uniqueIndex:uk_user_item"`
}

// sale is one shop with one item on sale.
type sale struct {
	t       *testing.T
	rdb     redis.UniversalClient
	db      *gorm.DB
	counter *stock.Counter
	prefix  string
	server  *httptest.Server
	units   int64
	inside  atomic.Pointer[func(r *http.Request)] // called in the handler of the locked way, under the lock
}

const saleItemID = 1001

// quiet: what these tests break on purpose would fill the log.
var quiet = slog.New(slog.DiscardHandler)

// ways are the two ways of buying: their paths under which they are mounted.
var ways = []string{"script", "lock"}

func newSale(t *testing.T, rdb redis.UniversalClient, prefix string, units int64) *sale {
	t.Helper()
	s := &sale{t: t, rdb: rdb, db: openPostgres(t, testserver.Postgres(t).DSN), prefix: prefix, units: units}
	if err := s.db.AutoMigrate(&saleItem{}, &saleOrder{}); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Use(gormplugin.New(gormplugin.WithModels(&saleItem{}, &saleOrder{}), gormplugin.WithUnique("uk_user_item", ErrAlreadyBought))); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.counter, err = stock.New(rdb, stock.Prefix(prefix)); err != nil {
		t.Fatal(err)
	}
	s.mount()
	if err := s.db.Create(&saleItem{ID: saleItemID, Stock: units}).Error; err != nil {
		t.Fatal(err)
	}
	s.warm(units)
	return s
}

// mount is one instance of the service: a guard, a router, a server.
func (s *sale) mount() {
	s.t.Helper()
	guard, err := holdfast.New(s.rdb, holdfast.Prefix(s.prefix), holdfast.WithValue("userID", currentUser), holdfast.WithLogger(quiet))
	if err != nil {
		s.t.Fatal(err)
	}
	r := chi.NewRouter()
	r.Use(recoverer)
	r.With(guard.Dedup("{userID}")).Post("/script/items/{itemID}/orders", s.buyByScript)
	r.With(guard.Dedup("{userID}"), guard.Lock("stock:{itemID|int}", holdfast.Wait(30*time.Second))).
		Post("/lock/items/{itemID}/orders", s.buyUnderLock)
	s.server = httptest.NewServer(r)
	s.server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 500
	s.t.Cleanup(func() {
		s.server.Close()
		if err := guard.Close(context.Background()); err != nil {
			s.t.Errorf("close the guard: %v", err)
		}
	})
}

// recoverer is chi's without the stack in the log.
func recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func openPostgres(t *testing.T, dsn string) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxOpenConns(20)
	pool.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = pool.Close() })
	return db
}

func (s *sale) warm(units int64) {
	s.t.Helper()
	_, err := s.counter.Warm(s.t.Context(), stock.Sale{Item: saleItemID, Units: units, Ends: time.Now().Add(time.Hour), Limit: stock.Limit{Units: 1}})
	if err != nil {
		s.t.Fatalf("warm up: %v", err)
	}
}

// buyByScript: one script decides, SQL has the last word.
func (s *sale) buyByScript(w http.ResponseWriter, r *http.Request) {
	order := saleOrder{UserID: userID(r), ItemID: itemID(r)}
	bought := stock.Order{Item: order.ItemID, User: order.UserID, Units: 1}
	res, err := s.counter.Deduct(r.Context(), bought)
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	err = s.land(r.Context(), &order)
	if gormplugin.Refused(err) {
		_, releaseErr := s.counter.Release(r.Context(), res.Order, stock.Failed, stock.Of(bought))
		err = errors.Join(err, releaseErr)
	}
	s.answer(w, r, order, err)
}

// buyUnderLock: read, judge, write, with the item locked; the counter in Redis is not asked.
func (s *sale) buyUnderLock(w http.ResponseWriter, r *http.Request) {
	if inside := s.inside.Load(); inside != nil {
		(*inside)(r)
	}
	var item saleItem
	if err := s.db.WithContext(r.Context()).Take(&item, itemID(r)).Error; err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	order := saleOrder{UserID: userID(r), ItemID: item.ID}
	s.answer(w, r, order, s.land(r.Context(), &order))
}

func (s *sale) land(ctx context.Context, order *saleOrder) error {
	return gormplugin.Retry(ctx, s.db, func(tx *gorm.DB) error {
		first, err := gormplugin.InsertOnce(tx, order)
		if err != nil || !first {
			return err
		}
		return tx.Model(&saleItem{ID: order.ItemID}).Update("stock", gormplugin.Sub(1)).Error
	})
}

func (s *sale) answer(w http.ResponseWriter, r *http.Request, order saleOrder, err error) {
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(order)
}

// reply is what a client sees.
type reply struct {
	status   int
	body     string
	code     string // of a problem
	replayed bool
	header   http.Header
}

func (s *sale) buy(ctx context.Context, way string, user int64, key string) (reply, error) {
	url := fmt.Sprintf("%s/%s/items/%d/orders", s.server.URL, way, saleItemID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("X-User", fmt.Sprint(user))
	req.Header.Set("Idempotency-Key", key)
	res, err := s.server.Client().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{}, err
	}
	var problem struct{ Code string }
	if res.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(body, &problem); err != nil {
			return reply{}, fmt.Errorf("problem body %q: %w", body, err)
		}
	}
	return reply{res.StatusCode, string(body), problem.Code, res.Header.Get("Idempotent-Replayed") == "true", res.Header}, nil
}

func (s *sale) mustBuy(way string, user int64, key string) reply {
	s.t.Helper()
	got, err := s.buy(s.t.Context(), way, user, key)
	if err != nil {
		s.t.Fatalf("user %d, key %s: %v", user, key, err)
	}
	return got
}

// all sends n requests at once, released together, and returns the replies in order.
func (s *sale) all(way string, n int, who func(i int) (user int64, key string)) []reply {
	s.t.Helper()
	replies := make([]reply, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			user, key := who(i)
			for { // a slow machine may answer "try again": then the same request again, as a client does
				var err error
				if replies[i], err = s.buy(s.t.Context(), way, user, key); err != nil {
					s.t.Errorf("request %d: %v", i, err)
				}
				if status := replies[i].status; status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
					return
				}
			}
		})
	}
	close(start)
	wg.Wait()
	return replies
}

// books is what lies in SQL.
type books struct{ orders, users, stock int64 }

func (s *sale) books() books {
	s.t.Helper()
	var b books
	for _, err := range []error{
		s.db.Model(&saleOrder{}).Count(&b.orders).Error,
		s.db.Model(&saleOrder{}).Distinct("user_id").Count(&b.users).Error,
		s.db.Model(&saleItem{}).Where("id = ?", saleItemID).Select("stock").Scan(&b.stock).Error,
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return b
}

// check compares the books with the number of orders there must be.
func (s *sale) check(orders int64) {
	s.t.Helper()
	if got, want := s.books(), (books{orders, orders, s.units - orders}); got != want {
		s.t.Errorf("books %+v, want %+v", got, want)
	}
}

// lockKeys are the lock keys that are there.
func (s *sale) lockKeys() []string {
	s.t.Helper()
	keys, _, err := s.rdb.Scan(s.t.Context(), 0, s.prefix+"lock:*", 10_000).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return keys
}

func count(replies []reply, status int) (n int) {
	for _, r := range replies {
		if r.status == status {
			n++
		}
	}
	return n
}

func eachWay(t *testing.T, test func(t *testing.T, way string)) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) { test(t, way) })
	}
}

func sharedSale(t *testing.T, units int64) *sale {
	srv := testserver.Redis(t)
	return newSale(t, srv.Client(t), srv.Prefix(t), units)
}

// D01, D20: 500 buyers for 200 units are 200 orders, not one more and not one less.
func TestFiveHundredBuyersForTwoHundredUnits(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		s := sharedSale(t, 200)
		replies := s.all(way, 500, func(i int) (int64, string) { return int64(i + 1), fmt.Sprint("key-", i) })
		if sold, refused := count(replies, http.StatusCreated), count(replies, http.StatusConflict); sold != 200 || refused != 300 {
			t.Errorf("%d sold, %d told \"sold out\"; want 200 and 300", sold, refused)
		}
		s.check(200)
		if keys := s.lockKeys(); len(keys) != 0 {
			t.Errorf("locks left behind: %v", keys)
		}
		if way == "script" {
			if left, err := s.counter.Remaining(t.Context(), saleItemID); err != nil || left != 0 {
				t.Errorf("Redis has %d left (%v), want 0", left, err)
			}
		}
	})
}

// D02, D14, D68: one account that orders again and again, each time as a new request, gets one order.
func TestSameUserTwoHundredTimes(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		s := sharedSale(t, 200)
		replies := s.all(way, 200, func(i int) (int64, string) { return 42, fmt.Sprint("key-", i) })
		if sold, refused := count(replies, http.StatusCreated), count(replies, http.StatusConflict); sold != 1 || refused != 199 {
			t.Errorf("%d sold, %d refused; want 1 and 199", sold, refused)
		}
		s.check(1)
	})
}

// D09, D56, D58: one request sent fifty times at once is one order, and everybody gets that order.
func TestSameRequestFiftyTimesAtOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		s := sharedSale(t, 200)
		replies := s.all(way, 50, func(int) (int64, string) { return 42, "one-and-the-same" })
		replayed := 0
		for i, r := range replies {
			if r.status != http.StatusCreated || r.body != replies[0].body {
				t.Errorf("reply %d: %d %q, want 201 %q", i, r.status, r.body, replies[0].body)
			}
			if r.replayed {
				replayed++
			}
		}
		if replayed != 49 {
			t.Errorf("%d of 50 marked replayed, want 49", replayed)
		}
		s.check(1)
		if again := s.mustBuy(way, 42, "one-and-the-same"); !again.replayed || again.body != replies[0].body {
			t.Errorf("later again: %+v, want the same order, replayed", again)
		}
	})
}

// D57: a request without a key is refused where the route does not say that it is optional.
func TestKeyMissing(t *testing.T) {
	s := sharedSale(t, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+"/script/items/1001/orders", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User", "42")
	res, err := s.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte("key_missing")) {
		t.Errorf("got %d %s, want 400 key_missing", res.StatusCode, body)
	}
	s.check(0)
}
