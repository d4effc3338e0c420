package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/lockkey"
	holdfast "github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/stock"
)

// Merchant is the truth about a quota, in cents.
type Merchant struct {
	ID     int64 `gorm:"primaryKey;autoIncrement:false"`
	Remain int64 `guard:"stock,min=0" gorm:"not null;check:ck_remain,remain >= 0"`
	Fence  int64 `guard:"fence,lock=quota" gorm:"not null;default:0"`
}

// Payment is what was spent; one row a request.
type Payment struct {
	ID         int64
	RequestID  string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id"`
	MerchantID int64  `gorm:"not null;index"`
	Door       string `gorm:"size:16;not null"`
	Cents      int64  `gorm:"not null;check:ck_cents,cents > 0"`
}

// merchants of this example. The first one has the API key "key-of-7", and so on.
var merchants = []int64{7, 8}

// doors are the ways in. Each names the merchant in its own way.
var doors = []struct {
	name, route string
	merchant    func(*http.Request) (int64, error)
}{
	{"web", "/merchants/{merchantID}/payments", byPath},
	{"app", "/app/payments", byBody},
	{"batch", "/batch/payments", byAPIKey},
}

type service struct {
	*stores.Stores
	http.Handler
	guard *holdfast.Guard
	quota *stock.Counter
	work  map[int64]*gauge
}

func open(ctx context.Context, c stores.Config, withLock bool) (_ *service, err error) {
	quiet := slog.New(slog.DiscardHandler)
	plugin := gormplugin.New(gormplugin.WithModels(&Merchant{}, &Payment{}), gormplugin.WithLogger(quiet))
	opened, err := stores.Open(ctx, c, "quota", []gorm.Plugin{plugin}, &Merchant{}, &Payment{})
	if err != nil {
		return nil, err
	}
	s := &service{Stores: opened, work: map[int64]*gauge{}}
	for _, m := range merchants {
		s.work[m] = new(gauge)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.guard, err = holdfast.New(s.Redis, holdfast.Prefix(s.Prefix), holdfast.WithValue("merchant", merchantOf), holdfast.WithLogger(quiet)); err != nil {
		return nil, err
	}
	if s.quota, err = stock.NewQuota(s.Redis, stock.Prefix(s.Prefix)); err != nil {
		return nil, err
	}
	s.Handler, err = s.routes(withLock)
	return s, err
}

// Close ends what open began.
func (s *service) Close() error {
	var err error
	if s.guard != nil {
		err = s.guard.Close(context.Background())
	}
	return errors.Join(err, s.Stores.Close())
}

// routes guards all doors by one annotation: whichever way a payment comes in, it waits for the same lock.
func (s *service) routes(withLock bool) (http.Handler, error) {
	r := chi.NewRouter()
	for _, d := range doors {
		r.With(knows(d.merchant)).Post(d.route, s.pay(d.name))
	}
	spend := holdfast.Annotation{
		Dedup: &holdfast.DedupRule{Scope: "{merchant}"},
		Lock:  &holdfast.LockRule{Keys: []string{"quota:{merchant}"}, Wait: holdfast.Duration(30 * time.Second)},
	}
	if !withLock {
		spend.Lock = nil
	}
	return r, s.guard.Apply(r, holdfast.Annotations{
		"POST /merchants/{merchantID}/payments": spend,
		"POST /app/payments":                    spend,
		"POST /batch/payments":                  spend,
	})
}

// grant gives a merchant a quota, in SQL and in Redis.
func (s *service) grant(ctx context.Context, merchant, cents int64, shards int) error {
	if err := s.DB.WithContext(ctx).Create(&Merchant{ID: merchant, Remain: cents}).Error; err != nil {
		return err
	}
	_, err := s.quota.Warm(ctx, stock.Sale{Item: merchant, Units: cents, Segments: shards, Ends: time.Now().Add(24 * time.Hour)})
	return err
}

// pay spends from the quota, under the merchant's lock: one script takes the cents in Redis, then SQL takes them for good.
func (s *service) pay(door string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, merchant := r.Context(), merchantIn(r)
		var asked struct{ Cents int64 }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, "the body is JSON with cents", http.StatusBadRequest)
			return
		}
		defer s.work[merchant].enter()()
		wanted := stock.Order{Item: merchant, Units: asked.Cents} // the request id comes from the context
		taken, err := s.quota.Deduct(ctx, wanted)
		if err != nil {
			holdfast.WriteProblem(w, r, err) // not enough: 409; Redis away: 503
			return
		}
		payment := Payment{MerchantID: merchant, Door: door, Cents: asked.Cents}
		err = gormplugin.Retry(ctx, s.DB, func(tx *gorm.DB) error {
			first, err := gormplugin.InsertOnce(tx, &payment)
			if err != nil || !first {
				return err
			}
			return tx.Model(&Merchant{ID: merchant}).Update("remain", gormplugin.Sub(asked.Cents)).Error
		})
		if gormplugin.Refused(err) { // nothing was written, for certain: give the cents back
			_, releaseErr := s.quota.Release(ctx, taken.Order, stock.Failed, stock.Of(wanted))
			err = errors.Join(err, releaseErr)
		}
		if err != nil {
			holdfast.WriteProblem(w, r, err)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payment.ID)
	}
}

// From here on, what the service has anyway: each door finds out which merchant it is, and puts it into the context.

type merchantKey struct{}

func knows(merchant func(*http.Request) (int64, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, err := merchant(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), merchantKey{}, id)))
		})
	}
}

func merchantIn(r *http.Request) int64 { return r.Context().Value(merchantKey{}).(int64) }

// merchantOf is {merchant} in the templates: the guard and the handler go by the same merchant.
func merchantOf(r *http.Request) (string, error) { return strconv.FormatInt(merchantIn(r), 10), nil }

var errNoMerchant = errors.New("which merchant?")

func known(id int64, err error) (int64, error) {
	for _, m := range merchants {
		if err == nil && id == m {
			return id, nil
		}
	}
	return 0, errNoMerchant
}

func byPath(r *http.Request) (int64, error) {
	return known(strconv.ParseInt(chi.URLParam(r, "merchantID"), 10, 64))
}

func byBody(r *http.Request) (int64, error) {
	body, err := lockkey.BufferBody(r, 1<<16) // the handler reads it again
	if err != nil {
		return 0, errNoMerchant
	}
	var who struct{ Merchant int64 }
	err = json.Unmarshal(body, &who)
	return known(who.Merchant, err)
}

func byAPIKey(r *http.Request) (int64, error) {
	for _, m := range merchants {
		if r.Header.Get("X-Api-Key") == fmt.Sprintf("key-of-%d", m) {
			return m, nil
		}
	}
	return 0, errNoMerchant
}
