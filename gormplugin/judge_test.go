package gormplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

// F105: each unique index has its own error, with gorm's TranslateError on and off; gorm's sentinel and the driver's error
// are found behind it either way.
func TestEachIndexHasItsErrorWhetherTranslatedOrNot(t *testing.T) {
	for _, translate := range []bool{false, true} {
		t.Run(fmt.Sprint("translate ", translate), func(t *testing.T) {
			onEach(t, func(t *testing.T, d database) {
				db := d.shop(t, gorm.Config{TranslateError: translate})
				if err := db.Create(&shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}).Error; err != nil {
					t.Fatal(err)
				}
				for want, row := range map[error]shopOrder{
					ErrAlreadyApplied: {RequestID: "r1", OrderNo: "n2", UserID: 8, ItemID: 1001},
					errTaken:          {RequestID: "r2", OrderNo: "n1", UserID: 8, ItemID: 1001},
					errBought:         {RequestID: "r2", OrderNo: "n2", UserID: 7, ItemID: 1001},
				} {
					err := db.Create(&row).Error
					if !errors.Is(err, want) || !errors.Is(err, gorm.ErrDuplicatedKey) || !hasDriversError(err) {
						t.Errorf("got %v, want %v, gorm's and the driver's error", err, want)
					}
					for _, other := range []error{ErrAlreadyApplied, errTaken, errBought} {
						if !errors.Is(want, other) && errors.Is(err, other) {
							t.Errorf("%v is %v too", err, other)
						}
					}
					if Refused(err) == errors.Is(want, ErrAlreadyApplied) {
						t.Errorf("Refused(%v) = %v: what a request has done already must not be given back", err, Refused(err))
					}
				}
			})
		})
	}
}

func hasDriversError(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	var lite interface{ Code() int }
	return errors.As(err, &pg) || errors.As(err, &my) || errors.As(err, &lite)
}

// A model without guards gets gorm's sentinel and the driver's error where TranslateError was on, as gorm promises, for
// what the plugin has no error for too.
func TestTranslationStaysForEveryModel(t *testing.T) {
	type parent struct{ ID int64 }
	type child struct {
		ID       int64
		ParentID int64
		Parent   parent
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{TranslateError: true}, []any{&parent{}, &child{}})
		if d.name == dialectSQLite {
			db.Exec("PRAGMA foreign_keys = ON")
		}
		err := db.Create(&child{ParentID: 5}).Error
		if !errors.Is(err, gorm.ErrForeignKeyViolated) || !hasDriversError(err) {
			t.Errorf("got %v; want gorm's error and the driver's", err)
		}
	})
}

// D46, X17: only live orders count: after a close the same user may order again, two live orders never.
func TestPartialIndexOnLiveOrders(t *testing.T) {
	type liveOrder struct {
		ID        int64
		RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_live_request"`
		UserID    int64  `gorm:"uniqueIndex:uk_live,where:status <> 2"`
		ItemID    int64  `gorm:"uniqueIndex:uk_live,where:status <> 2"`
		Status    int
	}
	type liveOrderMySQL struct {
		ID        int64
		RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_live_request"`
		UserID    int64  `gorm:"uniqueIndex:uk_live"`
		ItemID    int64  `gorm:"uniqueIndex:uk_live"`
		Status    int
		Live      *int `gorm:"->;type:int GENERATED ALWAYS AS (CASE WHEN status <> 2 THEN 1 END) STORED;uniqueIndex:uk_live"`
	}
	onEach(t, func(t *testing.T, d database) {
		var db *gorm.DB
		insert := func(request string) error {
			_, err := InsertOnce(db, &liveOrder{RequestID: request, UserID: 7, ItemID: 1001})
			return err
		}
		table := any(&liveOrder{})
		if d.name == dialectMySQL {
			table = &liveOrderMySQL{}
			insert = func(request string) error {
				_, err := InsertOnce(db, &liveOrderMySQL{RequestID: request, UserID: 7, ItemID: 1001})
				return err
			}
		}
		db = d.open(t, gorm.Config{}, []any{table}, WithUnique("uk_live", errBought))
		if err := insert("r1"); err != nil {
			t.Fatal(err)
		}
		if err := insert("r2"); !errors.Is(err, errBought) {
			t.Errorf("a second live order: %v, want the mapped error", err)
		}
		if err := db.Model(table).Where("request_id = ?", "r1").Update("status", 2).Error; err != nil {
			t.Fatal(err)
		}
		if err := insert("r3"); err != nil {
			t.Errorf("an order after the close: %v", err)
		}
		if err := insert("r4"); !errors.Is(err, errBought) {
			t.Errorf("a second live order after the close: %v, want the mapped error", err)
		}
	})
}

// X29, F103: after a duplicate in a plain transaction the next statement gets the same typed error again, never 25P02, and
// so does COMMIT's caller; where the database lets the transaction live it just works.
func TestStatementAfterDuplicateNeverSees25P02(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		row := shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		tx := db.Begin()
		defer tx.Rollback()
		first := tx.Create(&shopOrder{RequestID: "r2", OrderNo: "n2", UserID: 7, ItemID: 1001}).Error
		if !errors.Is(first, errBought) {
			t.Fatalf("the duplicate: %v", first)
		}
		for what, err := range map[string]error{
			"guarded update": tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error,
			"plain update":   tx.Model(&row).Update("note", "x").Error,
			"query":          tx.First(&shopOrder{}).Error,
			"raw":            tx.Exec("SELECT 1").Error,
			"raw query":      tx.Raw("SELECT 1").Scan(new(int)).Error,
		} {
			if d.name != dialectPostgres {
				if err != nil {
					t.Errorf("%s: %v, want the transaction to live", what, err)
				}
				continue
			}
			var pg *pgconn.PgError
			if !errors.Is(err, errBought) || errors.As(err, &pg) && pg.Code == "25P02" {
				t.Errorf("%s: %v, want the first error again", what, err)
			}
		}
	})
}

// F104: the mapping survives the transaction wrapper, nested ones included, after which the outer one goes on.
func TestMappingSurvivesTheTransactionWrapper(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{TranslateError: true})
		if err := db.Create(&shopOrder{RequestID: "r1", OrderNo: "n1", UserID: 7, ItemID: 1001}).Error; err != nil {
			t.Fatal(err)
		}
		again := func(tx *gorm.DB) error {
			return tx.Create(&shopOrder{RequestID: "r2", OrderNo: "n2", UserID: 7, ItemID: 1001}).Error
		}
		if err := db.Transaction(again); !errors.Is(err, errBought) {
			t.Errorf("wrapped: %v", err)
		}
		err := db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Transaction(again); !errors.Is(err, errBought) {
				t.Errorf("nested: %v", err)
			}
			return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
		})
		if err != nil {
			t.Errorf("after the nested one: %v", err)
		}
	})
}

// CHECK is the floor under whatever does not come through the guard: its violation is "not enough", or what WithCheck says.
func TestCheckIsNotEnough(t *testing.T) {
	errFloor := errors.New("below the floor")
	type checked struct {
		ID    int64
		Stock int64 `guard:"stock" gorm:"check:chk_checked_stock,stock >= 0"`
		Held  int64 `guard:"stock" gorm:"check:held >= 0"`
		Age   int64 `gorm:"check:chk_checked_age,age < 200"`
		Size  int64 `gorm:"check:chk_checked_size,size < 200"`
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&checked{}}, WithRawSQL(Ignore), WithCheck("chk_checked_age", errFloor))
		if err := db.Create(&checked{ID: 1, Stock: 1, Held: 1}).Error; err != nil {
			t.Fatal(err)
		}
		tests := map[string]struct {
			column string
			err    error
			want   []error
		}{
			"named":   {"stock", db.Exec("UPDATE checkeds SET stock = -1").Error, []error{ErrInsufficient}},
			"unnamed": {"held", db.Exec("UPDATE checkeds SET held = -1").Error, []error{ErrInsufficient}},
			"mapped":  {"", db.Model(&checked{ID: 1}).Update("age", 300).Error, []error{errFloor}},
		}
		for name, tt := range tests {
			var e *Error
			if !errors.As(tt.err, &e) || e.Reason() != "check" || e.Column() != tt.column {
				t.Errorf("%s: %v (%+v)", name, tt.err, e)
			}
			for _, want := range tt.want {
				if !errors.Is(tt.err, want) || !hasDriversError(tt.err) {
					t.Errorf("%s: %v, want %v and the driver's error", name, tt.err, want)
				}
			}
		}
		if err := db.Model(&checked{ID: 1}).Update("size", 300).Error; isOurs(err) || !hasDriversError(err) {
			t.Errorf("a check about something else: %v, want the driver's error", err)
		}
	})
}

// A number that leaves its type is "not enough room", not a database failure.
func TestOutOfRangeIsInsufficient(t *testing.T) {
	type small struct {
		ID    int64
		Stock int16 `guard:"stock"`
	}
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, name).open(t, gorm.Config{}, []any{&small{}})
			if err := db.Create(&small{ID: 1, Stock: 32767}).Error; err != nil {
				t.Fatal(err)
			}
			err := db.Model(&small{ID: 1}).Update("stock", Add(1)).Error
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrInsufficient) || e.Reason() != "out_of_range" || !Refused(err) {
				t.Errorf("got %v, want ErrInsufficient out_of_range", err)
			}
		})
	}
}

// What a hook returns is the caller's: it stays as it is, though it may look like a broken connection.
type hookFails struct {
	ID    int64
	Stock int64 `guard:"stock"`
	err   error
	after bool
}

func (h *hookFails) BeforeUpdate(*gorm.DB) error {
	if h.after {
		return nil
	}
	return h.err
}

func (h *hookFails) AfterUpdate(*gorm.DB) error {
	if h.after {
		return h.err
	}
	return nil
}

func TestErrorOfAHookStaysTheHooks(t *testing.T) {
	hook := &url.Error{Op: "Post", URL: "http://payments", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}
	onEach(t, func(t *testing.T, d database) {
		for name, config := range map[string]gorm.Config{"own transaction": {}, "none": {SkipDefaultTransaction: true}} {
			db := newDatabase(t, d.name).open(t, config, []any{&hookFails{}})
			if err := db.Create(&hookFails{ID: 1, Stock: 5}).Error; err != nil {
				t.Fatal(err)
			}
			for _, after := range []bool{false, true} {
				err := db.Model(&hookFails{ID: 1, err: hook, after: after}).Update("stock", Sub(1)).Error
				if err != error(hook) { //nolint:errorlint // the value itself
					t.Errorf("%s, after %v: %v, want the hook's error itself", name, after, err)
				}
			}
		}
	})
}

// A context that is over is no conflict and no failure of the database: nothing was sent, and why it ended is found.
func TestContextThatIsOver(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		err := db.WithContext(cancelled()).Model(&shopItem{ID: 1001}).Update("stock", Sub(1)).Error
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("got %v, want ErrUnavailable with the context's error", err)
		}
	})
}

// cancelsAfter ends the statement's context between the statement and gorm's COMMIT.
type cancelsAfter struct {
	ID     int64
	Stock  int64 `guard:"stock"`
	cancel context.CancelFunc
}

func (c *cancelsAfter) AfterUpdate(*gorm.DB) error { c.cancel(); return nil }

// A context that ends between the statement and gorm's COMMIT: nothing was committed, and where that is certain it is said.
func TestContextThatEndsBeforeGormsCommit(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&cancelsAfter{}})
		if err := db.Create(&cancelsAfter{ID: 1, Stock: 5}).Error; err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := db.WithContext(ctx).Model(&cancelsAfter{ID: 1, cancel: cancel}).Update("stock", Sub(1)).Error
		if !errors.Is(err, ErrUnavailable) && (d.name != dialectPostgres || !errors.Is(err, ErrUnknownOutcome)) || Refused(err) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		var row cancelsAfter
		if err := db.First(&row, 1).Error; err != nil || row.Stock != 5 {
			t.Errorf("stock %d, %v; want 5", row.Stock, err)
		}
	})
}
