package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/dedup"
	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/landing"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

const (
	activity = 9
	lockTTL  = time.Second
	hold     = time.Second // the shortest there is
)

// setup is what a shop is started with.
type setup struct {
	Redis, DSN, Prefix string
	Landing            bool          // orders land by the worker, with holds and a stream; else in the handler, with neither
	Hold               time.Duration // with Landing
	Lock               bool          // the route takes the item's lock too
	Segments           bool          // partitioned keyspace
	Conns              int           // to SQL
	Run                bool          // worker and sweeper run from the start
	DieAt              string        // kill -9 when the code comes here
}

// shop is the service, in a process of its own.
type shop struct {
	setup
	db      *gorm.DB
	guard   *holdfast.Guard
	counter *stock.Counter
	lander  *landing.Lander[seckillOrder, itemStock]
}

func openShop(s setup) (*shop, error) {
	sh := &shop{setup: s}
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis, ReadTimeout: time.Second, WriteTimeout: time.Second, DialTimeout: time.Second})
	var err error
	if sh.db, err = openSQL(s.DSN, s.Conns); err != nil {
		return nil, err
	}
	if sh.counter, err = openCounter(rdb, s, slog.Default()); err != nil {
		return nil, err
	}
	// The guard is given the Counter's client: both then share its batcher.
	if sh.guard, err = holdfast.New(sh.counter.Redis(), holdfast.Prefix(s.Prefix), holdfast.WithValue("userID", userOf)); err != nil {
		return nil, err
	}
	sh.lander, err = openLander(sh.counter, sh.db, slog.Default())
	return sh, err
}

// openCounter makes the Counter of a shop.
func openCounter(rdb redis.UniversalClient, s setup, l *slog.Logger) (*stock.Counter, error) {
	opts := []stock.Option{stock.Prefix(s.Prefix), stock.WithLogger(l)}
	if s.Landing {
		opts = append(opts, stock.WithHold(s.Hold), stock.WithStream(), stock.WithMaxBacklog(20000))
	}
	if s.Segments {
		opts = append(opts, stock.WithPartitions(segments))
	}
	return stock.New(rdb, opts...)
}

func openLander(c *stock.Counter, db *gorm.DB, l *slog.Logger) (*landing.Lander[seckillOrder, itemStock], error) {
	return landing.New[seckillOrder, itemStock](c, db, rowOf, landing.WithDeadline(time.Second), landing.WithThreshold(1<<20), landing.WithLogger(l))
}

const segments = 4

// userOf stands in for authentication.
func userOf(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }

func (s *shop) routes() http.Handler {
	r := chi.NewRouter()
	rules := []func(http.Handler) http.Handler{s.guard.Dedup("{userID}"), tellRequest}
	if s.Lock {
		rules = append(rules, s.guard.Lock("stock:{itemID|int}", holdfast.TTL(lockTTL), holdfast.Wait(5*time.Second)))
	}
	r.With(rules...).Post("/items/{itemID}/orders", s.buy)
	r.Post("/orders/{orderNo}/pay", s.end(func(ctx context.Context, no string) error { return s.lander.Pay(ctx, no) }))
	r.Post("/orders/{orderNo}/close", s.end(func(ctx context.Context, no string) error {
		return s.lander.Close(ctx, no, stock.Operator)
	}))
	r.Post("/work", func(http.ResponseWriter, *http.Request) { go s.work() })
	r.Post("/sweep", s.end(func(ctx context.Context, _ string) error {
		_, err := s.lander.Sweeper().Sweep(ctx)
		return err
	}))
	r.Post("/level", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, runtime.NumGoroutine()) })
	r.Post("/reconcile", s.end(func(ctx context.Context, _ string) error {
		for range 5 { // what is younger than the landing deadline is no difference yet
			found, err := reconcile(context.WithoutCancel(ctx), s.lander)
			if err != nil || len(found) > 0 {
				return err
			}
		}
		return nil
	}))
	return r
}

// reconcile compares, and applies a plan in which somebody has approved all that can be corrected. It returns what was found.
func reconcile(ctx context.Context, l *landing.Lander[seckillOrder, itemStock], items ...stock.ID) ([]landing.Difference, error) {
	r := l.Reconciler()
	report, err := r.Compare(ctx, items...)
	if err != nil {
		return nil, err
	}
	plan := r.Plan(report)
	plan.ReviewedBy = "crash"
	_, err = r.Apply(ctx, plan)
	return report.Differences, err
}

// work is a worker, as long as the process lives.
func (s *shop) work() {
	if err := s.lander.Worker().Run(context.Background()); err != nil {
		slog.Error("no worker", "err", err)
	}
}

// sweep is a sweeper, as long as the process lives.
func (s *shop) sweep() {
	if err := s.lander.Sweeper().Run(context.Background()); err != nil {
		slog.Error("no sweeper", "err", err)
	}
}

// tellRequest tells the client the id that its key stands for, so that the history has it.
func tellRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request", dedup.FromContext(r.Context()).RequestID())
		next.ServeHTTP(w, r)
	})
}

// bought is the body of a success.
type bought struct {
	Order  string `json:"order"`
	Before bool   `json:"before"` // done by an earlier try
}

// buy takes a unit, and lands the order here unless a worker does.
func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	item, err1 := strconv.ParseInt(chi.URLParam(r, "itemID"), 10, 64)
	user, err2 := strconv.ParseInt(r.Header.Get("X-User"), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		http.Error(w, "item and user are numbers", http.StatusBadRequest)
		return
	}
	wanted := stock.Order{Item: item, Activity: activity, User: user, Units: 1}
	res, err := s.counter.Deduct(r.Context(), wanted)
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	s.reach("deducted")
	w.Header().Set("X-Order", res.Order)
	if !s.Landing {
		res.Order, err = s.land(r.Context(), wanted, res)
	}
	if err != nil {
		holdfast.WriteProblem(w, r, err)
		return
	}
	s.reach("done")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(bought{res.Order, res.Replayed}) // the client may have gone
}

// land writes the order and takes its unit from the row, both or neither. It returns the order's number: that of an earlier
// order where the request had one, which Redis then has forgotten.
func (s *shop) land(ctx context.Context, wanted stock.Order, res stock.Result) (string, error) {
	item, user := wanted.Item.(int64), wanted.User.(int64)
	row := seckillOrder{OrderNo: res.Order, UserID: user, ItemID: item, ActivityID: activity, Nth: int16(res.Nth), Units: 1}
	err := gormplugin.Retry(ctx, s.db, func(tx *gorm.DB) error {
		first, err := gormplugin.InsertOnce(tx, &row)
		if err != nil || !first {
			return err
		}
		return tx.Model(&itemStock{ItemID: item}).Update("stock", gormplugin.Sub(1)).Error
	})
	why := stock.Failed
	switch {
	case err == nil && row.OrderNo != res.Order:
		why = stock.Duplicate
	case gormplugin.Refused(err): // nothing was written, for certain
	default:
		return row.OrderNo, err
	}
	if _, released := s.counter.Release(ctx, res.Order, why, stock.Of(wanted)); released != nil {
		err = errors.Join(err, released)
	}
	return row.OrderNo, err
}

// end makes a handler of what ends an order.
func (s *shop) end(fn func(ctx context.Context, orderNo string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := fn(r.Context(), chi.URLParam(r, "orderNo")); err != nil {
			slog.Info("refused", "path", r.URL.Path, "err", err)
			holdfast.WriteProblem(w, r, err)
		}
	}
}

// reach is a point in the shop's own code at which it may be told to die.
func (s *shop) reach(where string) {
	if s.DieAt == where {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal is here
	}
}
