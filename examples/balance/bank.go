package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
	"github.com/holdfast-go/holdfast/gormplugin"
	"github.com/holdfast-go/holdfast/lock"
	holdfast "github.com/holdfast-go/holdfast/middleware"
)

// Account is a balance. Its fence is that of the locks on account:…, so that only the latest holder can write.
type Account struct {
	ID    int64 `gorm:"primaryKey;autoIncrement:false"`
	Cents int64 `guard:"stock,min=0" gorm:"not null;check:ck_cents,cents >= 0"`
	Fence int64 `guard:"fence,lock=account" gorm:"not null;default:0"`
}

// Transfer is what a client asked for; one row a request.
type Transfer struct {
	ID        int64  `json:"id"`
	RequestID string `guard:"request" gorm:"size:43;not null;uniqueIndex:uk_request_id" json:"-"`
	From      int64  `gorm:"column:from_account;not null" json:"from"`
	To        int64  `gorm:"column:to_account;not null" json:"to"`
	Cents     int64  `gorm:"not null;check:ck_transfer_cents,cents > 0" json:"cents"`
}

// Entry is one movement in the ledger, negative for what was sent. Each transfer has two, and no operation has two rows.
type Entry struct {
	ID          int64
	OperationID string `gorm:"size:47;not null;uniqueIndex:uk_operation"`
	AccountID   int64  `gorm:"not null;index"`
	Cents       int64  `gorm:"not null"`
}

var (
	errLimit = errors.New("this account has sent what it may send")
	errSame  = errors.New("a transfer needs two accounts and a positive amount")
)

type bank struct {
	*stores.Stores
	http.Handler
	limit  int64
	locker *lock.Locker
	guard  *holdfast.Guard
}

var quiet = slog.New(slog.DiscardHandler)

func open(ctx context.Context, c stores.Config, limit int64) (_ *bank, err error) {
	plugin := gormplugin.New(gormplugin.WithModels(&Account{}, &Transfer{}, &Entry{}), gormplugin.WithLogger(quiet))
	opened, err := stores.Open(ctx, c, "balance", []gorm.Plugin{plugin}, &Account{}, &Transfer{}, &Entry{})
	if err != nil {
		return nil, err
	}
	b := &bank{Stores: opened, limit: limit}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.locker, err = b.newLocker(); err != nil {
		return nil, err
	}
	b.guard, err = holdfast.New(b.Redis, holdfast.Prefix(b.Prefix), holdfast.WithLocker(b.locker), holdfast.WithLogger(quiet))
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	r.With(
		b.guard.Dedup("all"), // this example has no users: a service writes {userID}
		b.guard.Lock("account:{body.from|int}", holdfast.Also("account:{body.to|int}"), holdfast.Wait(30*time.Second)),
	).Post("/transfers", b.post)
	b.Handler = r
	return b, b.guard.Validate(r)
}

func (b *bank) newLocker() (*lock.Locker, error) {
	return lock.New(b.Redis, lock.Prefix(b.Prefix), lock.WithLogger(quiet))
}

// Close ends what open began.
func (b *bank) Close() error {
	var errs []error
	if b.guard != nil {
		errs = append(errs, b.guard.Close(context.Background()))
	}
	if b.locker != nil {
		errs = append(errs, b.locker.Close(context.Background()))
	}
	return errors.Join(append(errs, b.Stores.Close())...)
}

func (b *bank) openAccounts(ctx context.Context, n int, cents int64) error {
	for id := range n {
		if err := b.DB.WithContext(ctx).Create(&Account{ID: int64(id) + 1, Cents: cents}).Error; err != nil {
			return err
		}
	}
	return nil
}

func (b *bank) post(w http.ResponseWriter, r *http.Request) {
	var t Transfer
	if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
		http.Error(w, "the body is JSON with from, to and cents", http.StatusBadRequest)
		return
	}
	switch err := b.transfer(r.Context(), &t); {
	case errors.Is(err, errSame):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, errLimit):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		holdfast.WriteProblem(w, r, err) // not enough: 409; written by a later holder: 409; SQL away: 503
	default:
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(&t) // the client may have gone
	}
}

// transfer needs the locks of both accounts: it reads what was sent, judges, and writes, which no single statement can do.
// What it writes is guarded all the same, since a lock can be lost: by the balance's bound, the fence and the request's row.
func (b *bank) transfer(ctx context.Context, t *Transfer) error {
	if t.From == t.To || t.Cents < 1 {
		return errSame
	}
	return gormplugin.Retry(ctx, b.DB, func(tx *gorm.DB) error {
		first, err := gormplugin.InsertOnce(tx, t) // a repeat gets the first transfer back
		if err != nil || !first {
			return err
		}
		var sent int64
		err = tx.Model(&Entry{}).Where("account_id = ? AND cents < 0", t.From).Select("COALESCE(-SUM(cents), 0)").Scan(&sent).Error
		if err != nil {
			return err
		}
		if sent+t.Cents > b.limit {
			return errLimit
		}
		entries := []Entry{
			{OperationID: t.RequestID + "/out", AccountID: t.From, Cents: -t.Cents},
			{OperationID: t.RequestID + "/in", AccountID: t.To, Cents: t.Cents},
		}
		if err := tx.Create(&entries).Error; err != nil {
			return err
		}
		out := func() error { return tx.Model(&Account{ID: t.From}).Update("cents", gormplugin.Sub(t.Cents)).Error }
		in := func() error { return tx.Model(&Account{ID: t.To}).Update("cents", gormplugin.Add(t.Cents)).Error }
		if t.From > t.To { // rows in one order for everybody: without the lock, too, opposite transfers do not deadlock
			out, in = in, out
		}
		if err := out(); err != nil {
			return err
		}
		return in()
	})
}
