package gormplugin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

type fenced struct {
	ID    int64
	Title string
	Stock int64 `guard:"stock" gorm:"not null"`
	Fence int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
}

type strictlyFenced struct {
	ID    int64
	Title string
	Stock int64 `guard:"stock" gorm:"not null"`
	Fence int64 `guard:"fence,lock=stock,strict" gorm:"not null;default:0"`
}

// D71: SQL refuses a smaller number even from somebody who "holds" the lock, and accepts an equal one: a holder may write
// twice.
func TestFenceRefusesAnOlderHolder(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&fenced{}})
		item := fenced{Title: "mug", Stock: 10}
		if err := db.Create(&item).Error; err != nil {
			t.Fatal(err)
		}
		as := func(n int64) *gorm.DB { return db.WithContext(ContextWithFence(context.Background(), "stock:1", n)) }
		stored := func() (row fenced) {
			t.Helper()
			if err := db.Take(&row, item.ID).Error; err != nil {
				t.Fatal(err)
			}
			return row
		}
		if err := as(5).Model(&item).Update("title", "five").Error; err != nil {
			t.Fatalf("holder 5: %v", err)
		}
		for name, write := range map[string]func(tx *gorm.DB) error{
			"title": func(tx *gorm.DB) error { return tx.Model(&fenced{ID: item.ID}).Update("title", "four").Error },
			"stock": func(tx *gorm.DB) error { return tx.Model(&fenced{ID: item.ID}).Update("stock", Sub(1)).Error },
			"row": func(tx *gorm.DB) error {
				return tx.Omit("Stock").Save(&fenced{ID: item.ID, Title: "four", Fence: 99}).Error
			},
			"delete": func(tx *gorm.DB) error { return tx.Delete(&fenced{ID: item.ID}).Error },
		} {
			err := write(as(4))
			var e *Error
			if !errors.Is(err, ErrStaleFence) || !errors.As(err, &e) || e.Reason() != "fence" || e.Ours() != "4" || e.Stored() != "5" {
				t.Errorf("%s by holder 4: %v, want ErrStaleFence 4 behind 5", name, err)
			}
		}
		if row := stored(); row.Title != "five" || row.Stock != 10 || row.Fence != 5 {
			t.Fatalf("row is %+v, want what holder 5 wrote", row)
		}
		if err := as(5).Model(&item).Update("title", "again").Error; err != nil {
			t.Errorf("holder 5 again: %v", err)
		}
		// MySQL counts changed rows: writing the same once more changes nothing, and is no error.
		if res := as(5).Model(&item).Update("title", "again"); res.Error != nil || res.RowsAffected != 1 {
			t.Errorf("holder 5, the same again: %v, %d rows", res.Error, res.RowsAffected)
		}
		if err := as(7).Model(&item).Update("stock", Sub(1)).Error; err != nil {
			t.Errorf("holder 7: %v", err)
		}
		if row := stored(); row.Title != "again" || row.Stock != 9 || row.Fence != 7 {
			t.Errorf("row is %+v", row)
		}
		if err := as(7).Delete(&fenced{ID: item.ID}).Error; err != nil {
			t.Errorf("holder 7 deletes: %v", err)
		}
	})
}

// A lease on another key's namespace says nothing about this row: its number comes from another counter.
func TestNumbersOfOtherLocksAreIgnored(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&fenced{}})
	item := fenced{Stock: 200, Fence: 99}
	if err := db.Create(&item).Error; err != nil {
		t.Fatal(err)
	}
	for n := range int64(200) {
		ctx := ContextWithFence(context.Background(), "user:7", 200-n)
		if err := db.WithContext(ctx).Model(&fenced{ID: item.ID}).Update("stock", Sub(1)).Error; err != nil {
			t.Fatalf("buyer with number %d on a lock of their own: %v", 200-n, err)
		}
	}
	var row fenced
	if err := db.Take(&row, item.ID).Error; err != nil || row.Fence != 0 || row.Stock != 0 {
		t.Errorf("row %+v, %v: want fence and stock 0", row, err)
	}
	both := ContextWithFence(ContextWithFence(context.Background(), "stock:1", 4), "stock:2", 5)
	err := db.WithContext(both).Model(&item).Update("title", "x").Error
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("two leases in one namespace: %v, want ErrInvalid", err)
	}
}

func TestWriteWithoutALease(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&fenced{}, &strictlyFenced{}}, WithLogger(log))
	item, strict := fenced{Stock: 3}, strictlyFenced{Stock: 3}
	if err := errors.Join(db.Create(&item).Error, db.Create(&strict).Error); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the same place, so one line
		if err := db.Model(&item).Update("title", "x").Error; err != nil {
			t.Errorf("title without a lease: %v, want it written", err)
		}
	}
	if n := strings.Count(out.String(), "without a lease"); n != 1 || !strings.Contains(out.String(), "fence_test.go") {
		t.Errorf("want one warning with the place, got %d:\n%s", n, out.String())
	}
	err := db.Model(&strict).Update("title", "x").Error
	var e *Error
	if !errors.Is(err, ErrUnguardedWrite) || !errors.As(err, &e) || e.Reason() != "no_fence" {
		t.Errorf("title without a lease under strict: %v, want ErrUnguardedWrite no_fence", err)
	}
	if err := db.Model(&strict).Update("stock", Sub(1)).Error; err != nil {
		t.Errorf("Sub commutes and needs no number: %v", err)
	}
}

// C12, F100: a holder whose lease is over must not write any guarded row, whatever its lock was for.
func TestLeaseThatIsOverRefusesEveryGuardedStatement(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&fenced{}})
	item := fenced{Stock: 3}
	if err := db.Create(&item).Error; err != nil {
		t.Fatal(err)
	}
	lost := fault.New(fault.Lost, "lock: lost")
	ctx := reqctx.WithLease(context.Background(), &reqctx.Lease{Keys: []string{"user:7"}, Fence: 9, Verdict: func() error { return lost }})
	tx := db.WithContext(ctx)
	for name, err := range map[string]error{
		"create": tx.Create(&fenced{Stock: 1}).Error,
		"update": tx.Model(&item).Update("title", "x").Error,
		"sub":    tx.Model(&item).Update("stock", Sub(1)).Error,
		"delete": tx.Delete(&item).Error,
	} {
		var e *Error
		if !errors.Is(err, ErrStaleFence) || !errors.Is(err, lost) || !errors.As(err, &e) || e.ErrorType() != "lost" {
			t.Errorf("%s: %v, want ErrStaleFence with the lease's verdict", name, err)
		}
		if Refused(err) {
			t.Errorf("%s: the same request may still succeed, so it is not refused for good", name)
		}
	}
}
