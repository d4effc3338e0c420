package gormplugin

import (
	"bytes"
	"context"
	"errors"
	"log"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// between runs fn after an update was sent and before it is looked into.
func between(t *testing.T, db *gorm.DB, fn func(db *gorm.DB)) {
	t.Helper()
	err := db.Callback().Update().After("gorm:update").Before("holdfast:verify").Register("between", func(tx *gorm.DB) {
		if tx.Error == nil && tx.RowsAffected == 0 {
			fn(tx)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The row moved on between the statement and its diagnosis: not done, and worth another try.
func TestRowThatFitsByNowIsRaced(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{SkipDefaultTransaction: true}, []any{&softly{}}, WithRawSQL(Ignore))
		row := softly{Stock: 0}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		fill := "UPDATE softlies SET stock = 5, version = 1"
		between(t, db, func(tx *gorm.DB) {
			if _, err := tx.Statement.ConnPool.ExecContext(context.Background(), fill); err != nil {
				t.Error(err)
			}
		})
		check := func(what string, err, sentinel error) {
			t.Helper()
			var e *Error
			if !errors.Is(err, sentinel) || !errors.As(err, &e) || e.Reason() != "raced" || !e.Retryable() || !Refused(err) {
				t.Errorf("%s: %v, want %v, raced: not done, and worth a retry", what, err, sentinel)
			}
		}
		check("stock", db.Model(&softly{ID: row.ID}).Update("stock", Sub(1)).Error, ErrInsufficient)
		fill = "UPDATE softlies SET version = 9"
		check("version", db.Model(&softly{ID: row.ID}).Clauses(AtVersion(9)).Update("deleted_at", nil).Error, ErrVersionConflict)
	})
}

// A row that cannot be read afterwards: the error of the first check, and why nothing more is known.
func TestRowThatCannotBeReadIsUnknown(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{SkipDefaultTransaction: true}, []any{&stocked{}})
		item := newItem(t, db, 0, 10)
		ctx, cancel := context.WithCancel(context.Background())
		between(t, db, func(*gorm.DB) { cancel() })
		err := db.WithContext(ctx).Model(&item).Update("stock", Sub(1)).Error
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Reason() != "unknown" || e.Available() != "" {
			t.Errorf("got %v, want ErrInsufficient unknown with the context's error", err)
		}
	})
}

// What answers first when several checks fail: a newer holder, then the version, then the stock.
func TestOrderOfAnswers(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&softly{}})
		row := softly{Stock: 0}
		as := func(n int64) *gorm.DB { return db.WithContext(ContextWithFence(context.Background(), "stock:1", n)) }
		if err := as(5).Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		try := func(fence, version int64) error {
			return as(fence).Model(&softly{ID: row.ID}).Clauses(AtVersion(version)).Update("stock", Sub(1)).Error
		}
		for _, tt := range []struct {
			fence, version int64
			want           error
		}{{4, 9, ErrStaleFence}, {5, 9, ErrVersionConflict}, {5, 1, ErrInsufficient}} {
			if err := try(tt.fence, tt.version); !errors.Is(err, tt.want) {
				t.Errorf("fence %d, version %d: %v, want %v", tt.fence, tt.version, err, tt.want)
			}
		}
	})
}

// A logger that is to hide values hides those of the SELECT that finds out why a statement hit nothing, too.
func TestLogOfWhyHidesValues(t *testing.T) {
	var out bytes.Buffer
	config := logger.Config{LogLevel: logger.Info, ParameterizedQueries: true}
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{Logger: logger.New(log.New(&out, "", 0), config)}, []any{&stocked{}})
	item := newItem(t, db, 1, 10)
	out.Reset()
	if err := db.Model(&item).Where("title = ?", "mug").Update("stock", Sub(2)).Error; !errors.Is(err, ErrInsufficient) {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "SELECT 1") || strings.Contains(text, "mug") {
		t.Errorf("the log has a value, or no SELECT:\n%s", text)
	}
}
