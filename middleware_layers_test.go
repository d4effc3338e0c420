package holdfast_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/gormplugin"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

// These tests take the layers apart: what each one does alone, and where one ends and the next begins.

// route serves one more route of the sale, behind the given middlewares, as /extra/items/{itemID}/orders.
func (s *sale) route(handler http.HandlerFunc, mount func(g *holdfast.Guard, r chi.Router, h http.HandlerFunc), opts ...holdfast.Option) {
	s.t.Helper()
	opts = append([]holdfast.Option{holdfast.Prefix(s.prefix), holdfast.WithValue("userID", currentUser), holdfast.WithLogger(quiet)}, opts...)
	guard, err := holdfast.New(s.rdb, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	r := chi.NewRouter()
	mount(guard, r, handler)
	s.server.Config.Handler = r
	s.t.Cleanup(func() {
		if err := guard.Close(context.Background()); err != nil {
			s.t.Errorf("close the guard: %v", err)
		}
	})
}

const extraRoute = "/extra/items/{itemID}/orders"

func distinctUsers(i int) (int64, string) { return int64(i + 1), fmt.Sprint("key-", i) }

// intervals of time, by what happened in them.
type intervals struct {
	sync.Mutex
	of map[string][][2]time.Time
}

func (v *intervals) add(what string, start, end time.Time) {
	v.Lock()
	defer v.Unlock()
	v.of[what] = append(v.of[what], [2]time.Time{start, end})
}

// watchSQL notes when each statement of db, and each transaction's end, was under way.
func watchSQL(t *testing.T, db *gorm.DB, v *intervals) {
	t.Helper()
	start := func(tx *gorm.DB) { tx.InstanceSet("test:start", time.Now()) }
	end := func(tx *gorm.DB) {
		if began, ok := tx.InstanceGet("test:start"); ok {
			v.add("sql", began.(time.Time), time.Now())
		}
	}
	for _, err := range []error{
		db.Callback().Create().Before("*").Register("test:start_create", start), db.Callback().Create().After("*").Register("test:end_create", end),
		db.Callback().Query().Before("*").Register("test:start_query", start), db.Callback().Query().After("*").Register("test:end_query", end),
		db.Callback().Update().Before("*").Register("test:start_update", start), db.Callback().Update().After("*").Register("test:end_update", end),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A06: lock, check, deduct in SQL, create the order, commit, unlock: no statement lies outside the span in which the
// lock is held, and the holds of one key do not overlap.
func TestEveryStatementLiesInsideTheHold(t *testing.T) {
	s := sharedSale(t, 20)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	seen := &intervals{of: map[string][][2]time.Time{}}
	watchSQL(t, s.db, seen)
	s.route(s.buyUnderLock, func(g *holdfast.Guard, r chi.Router, h http.HandlerFunc) {
		r.With(g.Dedup("{userID}"), g.Lock("stock:{itemID|int}", holdfast.Wait(30*time.Second))).Post(extraRoute, h)
	}, holdfast.WithTracerProvider(provider))

	if sold := count(s.all("extra", 20, distinctUsers), http.StatusCreated); sold != 20 {
		t.Fatalf("%d sold, want 20", sold)
	}
	var holds [][2]time.Time
	for _, span := range spans.Ended() {
		if span.Name() == "holdfast.lock.hold" {
			holds = append(holds, [2]time.Time{span.StartTime(), span.EndTime()})
		}
	}
	if len(holds) != 20 || len(seen.of["sql"]) < 60 {
		t.Fatalf("%d holds and %d statements, want 20 and at least 60", len(holds), len(seen.of["sql"]))
	}
	for _, sql := range seen.of["sql"] {
		inside := 0
		for _, hold := range holds {
			if !sql[0].Before(hold[0]) && !sql[1].After(hold[1]) {
				inside++
			}
		}
		if inside == 0 {
			t.Errorf("a statement at %v lies outside every hold", sql)
		}
	}
}

// B01: who waits for the lock holds no connection to the database: with 200 requests on one item, one is in use at most.
func TestWaitersHoldNoConnection(t *testing.T) {
	s := sharedSale(t, 200)
	pool, err := s.db.DB()
	if err != nil {
		t.Fatal(err)
	}
	var most atomic.Int64
	s.during(func(*http.Request) {
		for used := int64(pool.Stats().InUse); ; {
			if seen := most.Load(); used <= seen || most.CompareAndSwap(seen, used) {
				return
			}
		}
	})
	if sold := count(s.all("lock", 200, distinctUsers), http.StatusCreated); sold != 200 {
		t.Errorf("%d sold, want 200", sold)
	}
	if used := most.Load(); used > 1 {
		t.Errorf("%d connections were in use while a holder entered; want 1 at most", used)
	}
	s.check(200)
}

// D03: overselling, one order a user and concurrency are three problems with three switches; each works with the other two off.
func TestThreeSwitchesWorkAlone(t *testing.T) {
	t.Run("the guarded column alone stops overselling", func(t *testing.T) {
		s := sharedSale(t, 10)
		s.route(func(w http.ResponseWriter, r *http.Request) {
			err := s.db.WithContext(r.Context()).Model(&saleItem{ID: itemID(r)}).Update("stock", gormplugin.Sub(1)).Error
			s.answer(w, r, saleOrder{}, err)
		}, func(_ *holdfast.Guard, r chi.Router, h http.HandlerFunc) { r.Post(extraRoute, h) })
		replies := s.all("extra", 50, distinctUsers)
		if sold, left := count(replies, http.StatusCreated), s.books().stock; sold != 10 || left != 0 {
			t.Errorf("%d sold and %d left, want 10 and 0", sold, left)
		}
	})
	t.Run("the unique index alone gives one order a user", func(t *testing.T) {
		s := sharedSale(t, 10)
		var id atomic.Int64
		s.route(func(w http.ResponseWriter, r *http.Request) {
			order := saleOrder{RequestID: fmt.Sprint("r-", id.Add(1)), UserID: userID(r), ItemID: itemID(r)}
			s.answer(w, r, order, s.db.WithContext(r.Context()).Create(&order).Error)
		}, func(_ *holdfast.Guard, r chi.Router, h http.HandlerFunc) { r.Post(extraRoute, h) })
		replies := s.all("extra", 50, func(i int) (int64, string) { return 7, fmt.Sprint("key-", i) })
		if got, orders := count(replies, http.StatusCreated), s.books().orders; got != 1 || orders != 1 {
			t.Errorf("%d created and %d orders, want 1 and 1", got, orders)
		}
	})
	t.Run("the lock alone keeps two handlers apart", func(t *testing.T) {
		s := sharedSale(t, 10)
		var inside, together atomic.Int64
		s.route(func(w http.ResponseWriter, r *http.Request) {
			if inside.Add(1) > 1 {
				together.Add(1)
			}
			defer inside.Add(-1)
			var n int
			s.answer(w, r, saleOrder{}, s.db.WithContext(r.Context()).Raw("SELECT 1").Scan(&n).Error)
		}, func(g *holdfast.Guard, r chi.Router, h http.HandlerFunc) {
			r.With(g.Lock("stock:{itemID|int}", holdfast.Wait(30*time.Second))).Post(extraRoute, h)
		})
		if done := count(s.all("extra", 50, distinctUsers), http.StatusCreated); done != 50 || together.Load() != 0 {
			t.Errorf("%d done and %d met another inside, want 50 and 0", done, together.Load())
		}
	})
}

// D19: the lock is one line of the annotation; without it the rest works on and both flows give the same counts, for
// atomicity comes from the conditional update.
func TestTheLockIsOneLineOfTheAnnotation(t *testing.T) {
	for name, rules := range map[string]string{
		"with":    `{"POST /extra/items/{itemID}/orders": {"dedup": {"scope": "{userID}"}, "lock": {"keys": ["stock:{itemID|int}"], "wait": "30s"}}}`,
		"without": `{"POST /extra/items/{itemID}/orders": {"dedup": {"scope": "{userID}"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := sharedSale(t, 20)
			s.route(s.buyByConditionalUpdate, func(g *holdfast.Guard, r chi.Router, h http.HandlerFunc) {
				r.Post(extraRoute, h)
				routes, err := holdfast.LoadAnnotations(strings.NewReader(rules))
				if err != nil {
					t.Fatal(err)
				}
				if err := g.Apply(r, routes); err != nil {
					t.Fatal(err)
				}
			})
			replies := s.all("extra", 60, distinctUsers)
			if sold, refused := count(replies, http.StatusCreated), count(replies, http.StatusConflict); sold != 20 || refused != 40 {
				t.Errorf("%d sold and %d refused, want 20 and 40", sold, refused)
			}
			s.check(20)
		})
	}
}

// buyByConditionalUpdate asks Redis for nothing: SQL decides alone.
func (s *sale) buyByConditionalUpdate(w http.ResponseWriter, r *http.Request) {
	order := saleOrder{UserID: userID(r), ItemID: itemID(r)}
	s.answer(w, r, order, s.land(r.Context(), &order))
}

// D82, first half, and F044: with every check of Redis off, SQL neither sells what is not there nor gives one user two orders.
func TestSQLHoldsWithoutRedis(t *testing.T) {
	s := sharedSale(t, 20)
	var id atomic.Int64
	s.route(func(w http.ResponseWriter, r *http.Request) { // no dedup, no counter: each attempt has a new id
		order := saleOrder{RequestID: fmt.Sprint("r-", id.Add(1)), UserID: userID(r), ItemID: itemID(r)}
		s.answer(w, r, order, s.land(r.Context(), &order))
	}, func(_ *holdfast.Guard, r chi.Router, h http.HandlerFunc) { r.Post(extraRoute, h) })

	one := s.all("extra", 200, func(i int) (int64, string) { return 7, fmt.Sprint("again-", i) })
	if got := count(one, http.StatusCreated); got != 1 {
		t.Errorf("one user ordered %d times, want 1", got)
	}
	s.check(1)
	replies := s.all("extra", 60, func(i int) (int64, string) { return int64(100 + i), fmt.Sprint("key-", i) })
	if sold := count(replies, http.StatusCreated); sold != 19 {
		t.Errorf("%d sold of the 19 left", sold)
	}
	s.check(20)
}

// D82, second half: with the guards of SQL off, Redis alone sells exactly what is there, once a user.
func TestRedisHoldsWithoutSQL(t *testing.T) {
	s := sharedSale(t, 20)
	s.route(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.counter.Deduct(r.Context(), stock.Order{Item: itemID(r), User: userID(r), Units: 1})
		s.answer(w, r, saleOrder{}, err)
	}, func(g *holdfast.Guard, r chi.Router, h http.HandlerFunc) {
		r.With(g.RequestID("{userID}")).Post(extraRoute, h)
	})
	one := s.all("extra", 200, func(i int) (int64, string) { return 7, fmt.Sprint("again-", i) })
	if got := count(one, http.StatusCreated); got != 1 {
		t.Errorf("one user bought %d times, want 1", got)
	}
	replies := s.all("extra", 60, func(i int) (int64, string) { return int64(100 + i), fmt.Sprint("key-", i) })
	if sold := count(replies, http.StatusCreated); sold != 19 {
		t.Errorf("%d sold of the 19 left", sold)
	}
	if left, err := s.counter.Remaining(t.Context(), saleItemID); err != nil || left != 0 {
		t.Errorf("%d left (%v), want 0", left, err)
	}
}

type listing struct {
	ID      int64
	Price   int64
	Version int64 `guard:"version" gorm:"not null;default:1"`
}

// F096: a version that moved on reaches the client as a problem with status 409 and no word of SQL.
func TestAVersionConflictIsAReadableProblem(t *testing.T) {
	s := sharedSale(t, 1)
	if err := s.db.AutoMigrate(&listing{}); err != nil {
		t.Fatal(err)
	}
	row := listing{Price: 10}
	if err := s.db.Create(&row).Error; err != nil {
		t.Fatal(err)
	}
	stale := row
	row.Price = 11
	if err := s.db.Save(&row).Error; err != nil {
		t.Fatal(err)
	}
	s.route(func(w http.ResponseWriter, r *http.Request) {
		stale.Price = 12
		s.answer(w, r, saleOrder{}, s.db.WithContext(r.Context()).Save(&stale).Error)
	}, func(_ *holdfast.Guard, r chi.Router, h http.HandlerFunc) { r.Post(extraRoute, h) })

	got := s.mustBuy("extra", 1, "key")
	if got.status != http.StatusConflict || got.code != "version_conflict" {
		t.Errorf("got %d %q, want 409 version_conflict", got.status, got.code)
	}
	for _, word := range []string{"UPDATE", "listing", "SQL", "version ="} {
		if strings.Contains(got.body, word) {
			t.Errorf("the problem says %q: %s", word, got.body)
		}
	}
}
