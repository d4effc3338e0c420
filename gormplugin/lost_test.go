package gormplugin

import (
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// proxied is a database behind a proxy that can break the connection.
type proxied struct {
	database
	proxy  *faultproxy.Proxy
	direct database
}

func newProxied(t *testing.T, name string) proxied {
	t.Helper()
	if name == dialectPostgres {
		d := testserver.Postgres(t)
		p := faultproxy.Postgres(t, d.Addr)
		return proxied{database{name, d.Via(p.Addr())}, p, database{name, d.DSN}}
	}
	d := testserver.MariaDB(t)
	p := faultproxy.MariaDB(t, d.Addr)
	return proxied{database{name, d.Via(p.Addr())}, p, database{name, d.DSN}}
}

func onEachServer(t *testing.T, test func(t *testing.T, d proxied)) {
	t.Helper()
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newProxied(t, name))
		})
	}
}

func (d database) stock(t *testing.T) int64 {
	t.Helper()
	var item shopItem
	if err := d.bare(t, gorm.Config{}).First(&item, 1001).Error; err != nil {
		t.Fatal(err)
	}
	return item.Stock
}

// A lost reply is "unknown" exactly where the work may have been committed: at COMMIT, and at a statement without a
// transaction. Inside a transaction nothing was committed, for certain. None of these may be given back but the last.
func TestLostReply(t *testing.T) {
	takeOne := func(db *gorm.DB) error { return db.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error }
	explicit := func(db *gorm.DB) error { return db.Transaction(takeOne) }
	tests := map[string]struct {
		config gorm.Config
		fault  faultproxy.Match
		do     func(db *gorm.DB) error
		want   error
		left   int64
	}{
		"COMMIT of gorm's own transaction": {gorm.Config{}, faultproxy.Named("COMMIT"), takeOne, ErrUnknownOutcome, 99},
		"UPDATE in gorm's own transaction": {gorm.Config{}, faultproxy.Named("UPDATE"), takeOne, ErrUnavailable, 100},
		"UPDATE in the caller's":           {gorm.Config{}, faultproxy.Named("UPDATE"), explicit, ErrUnavailable, 100},
		"UPDATE without a transaction":     {gorm.Config{SkipDefaultTransaction: true}, faultproxy.Named("UPDATE"), takeOne, ErrUnknownOutcome, 99},
		"prepared UPDATE": {
			gorm.Config{SkipDefaultTransaction: true, PrepareStmt: true},
			faultproxy.Named("UPDATE"), takeOne,
			ErrUnknownOutcome, 99,
		},
		"raw UPDATE": {gorm.Config{}, faultproxy.Named("UPDATE"), func(db *gorm.DB) error {
			return db.Exec("UPDATE shop_items SET stock = stock - 1 WHERE id = 1001 AND stock >= 1").Error
		}, ErrUnknownOutcome, 99},
		"SELECT": {
			gorm.Config{},
			faultproxy.Named("SELECT"), func(db *gorm.DB) error { return db.First(&shopItem{}, 1001).Error },
			ErrUnavailable, 100,
		},
		"SELECT that writes": {gorm.Config{}, faultproxy.Named("UPDATE"), func(db *gorm.DB) error {
			if db.Name() == dialectMySQL { // has no RETURNING on UPDATE
				return db.Raw("UPDATE shop_items SET stock = stock - 1 WHERE id = 1001").Scan(new(int64)).Error
			}
			return db.Raw("UPDATE shop_items SET stock = stock - 1 WHERE id = 1001 RETURNING stock").Scan(new(int64)).Error
		}, ErrUnknownOutcome, 99},
	}
	onEachServer(t, func(t *testing.T, d proxied) {
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := newProxied(t, d.name)
				d.direct.shop(t, gorm.Config{})
				db := d.bare(t, tt.config)
				if err := db.Use(New(WithRawSQL(Ignore))); err != nil {
					t.Fatal(err)
				}
				rule := d.proxy.On(tt.fault, faultproxy.LoseReply())
				err := tt.do(db)
				rule.Wait(t)
				for _, sentinel := range []error{ErrUnknownOutcome, ErrUnavailable, ErrVersionConflict, ErrConflict} {
					if errors.Is(err, sentinel) != errors.Is(sentinel, tt.want) {
						t.Errorf("got %v; is %v: %v", err, sentinel, errors.Is(err, sentinel))
					}
				}
				if Refused(err) {
					t.Errorf("%v counts as a refusal", err)
				}
				if got := d.direct.stock(t); got != tt.left {
					t.Errorf("stock %d, want %d", got, tt.left)
				}
			})
		}
	})
}

// F110: a server that cannot be reached is ErrUnavailable, and no reason to try again and again.
func TestServerThatIsAwayIsUnavailable(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New()); err != nil {
			t.Fatal(err)
		}
		d.proxy.Refuse()
		ran := 0
		for name, err := range map[string]error{
			"update": db.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error,
			"without transaction": db.Session(&gorm.Session{SkipDefaultTransaction: true}).
				Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error,
			"query": db.First(&shopItem{}, 1001).Error,
			"raw":   db.Exec("UPDATE shop_items SET stock = stock - 1").Error,
			"Retry": Retry(t.Context(), db, func(*gorm.DB) error { ran++; return nil }),
		} {
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrVersionConflict) || errors.Is(err, ErrUnknownOutcome) || Refused(err) {
				t.Errorf("%s: %v, want ErrUnavailable alone", name, err)
			}
		}
		if ran != 0 {
			t.Errorf("Retry ran its function %d times without a transaction", ran)
		}
		d.proxy.Heal(t)
		if err := db.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error; err != nil {
			t.Errorf("after the server came back: %v", err)
		}
	})
}

// The statements after one that lost its connection say the same again, and none of them runs by itself.
func TestStatementsAfterALostConnection(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New()); err != nil {
			t.Fatal(err)
		}
		tx := db.Begin()
		defer tx.Rollback()
		d.proxy.On(faultproxy.Named("UPDATE"), faultproxy.LoseReply())
		for range 3 {
			err := tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		}
		if got := d.direct.stock(t); got != 100 {
			t.Errorf("stock %d, want 100", got)
		}
	})
}

// The reply to COMMIT is lost after the work has landed: Retry runs the whole again, InsertOnce finds the row, and the
// effect is there once.
func TestRetryFindsWhatAnUnknownCommitDid(t *testing.T) {
	for name, action := range map[string]faultproxy.Action{"landed": faultproxy.LoseReply(), "did not land": faultproxy.LoseRequest()} {
		t.Run(name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, d proxied) {
				d.direct.shop(t, gorm.Config{})
				db := d.bare(t, gorm.Config{})
				if err := db.Use(New(shopOptions()...)); err != nil {
					t.Fatal(err)
				}
				d.proxy.On(faultproxy.Named("COMMIT"), action)
				order, ran := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}, 0
				err := Retry(t.Context(), db, func(tx *gorm.DB) error { ran++; return buy(tx, &order) })
				if err != nil || ran != 2 || order.ID == 0 {
					t.Errorf("got %v after %d runs, order %+v; want success after two", err, ran, order)
				}
				if got := d.direct.stock(t); got != 99 {
					t.Errorf("stock %d, want 99", got)
				}
			})
		})
	}
}

// Without an InsertOnce nobody can tell whether the work has landed: Retry says so, once.
func TestRetryDoesNotRepeatAnUnknownCommitBlindly(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New()); err != nil {
			t.Fatal(err)
		}
		rule := d.proxy.On(faultproxy.Named("COMMIT"), faultproxy.LoseReply())
		ran := 0
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			ran++
			return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
		})
		rule.Wait(t)
		if !errors.Is(err, ErrUnknownOutcome) || ran != 1 || Refused(err) {
			t.Errorf("got %v after %d runs, want ErrUnknownOutcome after one", err, ran)
		}
		if got := d.direct.stock(t); got != 99 {
			t.Errorf("stock %d, want 99", got)
		}
	})
}

// A row that was rolled back to a savepoint proves nothing: a repeat would insert it again, and do the rest twice.
func TestRetryDoesNotRepeatByARowThatWasRolledBack(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New(shopOptions()...)); err != nil {
			t.Fatal(err)
		}
		rule := d.proxy.On(faultproxy.Named("COMMIT"), faultproxy.LoseReply())
		ran := 0
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			ran++
			if err := tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error; err != nil {
				return err
			}
			refused := errors.New("the order was refused, and the unit is kept")
			err := tx.Transaction(func(tx *gorm.DB) error {
				if _, err := InsertOnce(tx, &shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}); err != nil {
					return err
				}
				return refused
			})
			if !errors.Is(err, refused) {
				return err
			}
			return nil
		})
		rule.Wait(t)
		if !errors.Is(err, ErrUnknownOutcome) || ran != 1 {
			t.Errorf("got %v after %d runs, want ErrUnknownOutcome after one", err, ran)
		}
		if got := d.direct.stock(t); got != 99 {
			t.Errorf("stock %d, want 99", got)
		}
	})
}

// A row from before the savepoint is still there after it was rolled back to, so the whole is repeated by it.
func TestRetryRepeatsByARowFromBeforeASavepoint(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New(shopOptions()...)); err != nil {
			t.Fatal(err)
		}
		d.proxy.On(faultproxy.Named("COMMIT"), faultproxy.LoseReply())
		ran := 0
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			ran++
			if err := buy(tx, &shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}); err != nil {
				return err
			}
			err := tx.Transaction(func(tx *gorm.DB) error {
				return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1000)).Error
			})
			if !errors.Is(err, ErrInsufficient) {
				return err
			}
			return nil
		})
		if err != nil || ran != 2 {
			t.Errorf("got %v after %d runs, want success after two", err, ran)
		}
		if got := d.direct.stock(t); got != 99 {
			t.Errorf("stock %d, want 99", got)
		}
	})
}

// An unknown COMMIT stays unknown when the repeat cannot even begin: "nothing was written" would be a lie.
func TestUnknownCommitStaysUnknownWhenTheRepeatFails(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New(shopOptions()...)); err != nil {
			t.Fatal(err)
		}
		rule := d.proxy.On(faultproxy.Named("COMMIT"), faultproxy.LoseReply())
		ran := 0
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			if ran++; ran > 1 {
				return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1000)).Error // refused before InsertOnce
			}
			return buy(tx, &shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001})
		})
		rule.Wait(t)
		if !errors.Is(err, ErrUnknownOutcome) || Refused(err) || ran != 2 {
			t.Errorf("got %v after %d runs, want ErrUnknownOutcome after two", err, ran)
		}
	})
}

// The repeat that inserts its row has shown that the first attempt did not land: what it is told then is the answer.
func TestUnknownCommitIsKnownOnceTheRepeatInserts(t *testing.T) {
	onEachServer(t, func(t *testing.T, d proxied) {
		others := d.direct.shop(t, gorm.Config{})
		db := d.bare(t, gorm.Config{})
		if err := db.Use(New(shopOptions()...)); err != nil {
			t.Fatal(err)
		}
		d.proxy.On(faultproxy.Named("COMMIT"), faultproxy.LoseRequest())
		ran := 0
		err := Retry(t.Context(), db, func(tx *gorm.DB) error {
			if ran++; ran == 2 {
				if err := others.Model(&shopItem{ID: 1001}).Update("stock", Sub(100)).Error; err != nil {
					t.Error(err)
				}
			}
			return buy(tx, &shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001})
		})
		if !errors.Is(err, ErrInsufficient) || errors.Is(err, ErrUnknownOutcome) || !Refused(err) || ran != 2 {
			t.Errorf("got %v after %d runs, want a refusal after two", err, ran)
		}
	})
}

// buy is the shape to teach: proof first, hot row last, both in one transaction.
func buy(tx *gorm.DB, order *shopOrder) error {
	first, err := InsertOnce(tx, order)
	if err != nil || !first {
		return err
	}
	return tx.Model(&shopItem{ID: order.ItemID}).Update("stock", Sub(1)).Error
}
