package otherplugins

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"
	"gorm.io/plugin/optimisticlock"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// inBothOrders runs a test with gormplugin before the other plugin and behind it.
func inBothOrders(t *testing.T, d database, other func() gorm.Plugin, test func(t *testing.T, db *gorm.DB)) {
	t.Helper()
	guard := func() gorm.Plugin {
		return gormplugin.New(gormplugin.WithModels(&plainShelf{}), gormplugin.WithLogger(quiet))
	}
	config := gorm.Config{SkipDefaultTransaction: true}
	t.Run("gormplugin first", func(t *testing.T) { test(t, closing(t, use(t, d.open(t, config), guard(), other()))) })
	t.Run("gormplugin last", func(t *testing.T) { test(t, closing(t, use(t, d.open(t, config), other(), guard()))) })
}

// Why a statement hit nothing is read where it was sent: a replica may not have the row, or an older one. The replica here
// does not even have the table.
func TestDBResolver_RefusalIsReadFromTheSource(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		replica := newDatabase(t, d.name)
		migrate(t, d.open(t, gorm.Config{}), &plainShelf{})
		inBothOrders(t, d, func() gorm.Plugin {
			return dbresolver.Register(dbresolver.Config{Sources: []gorm.Dialector{d.dialector()}, Replicas: []gorm.Dialector{replica.dialector()}})
		}, func(t *testing.T, db *gorm.DB) {
			row := plainShelf{Shelf: Shelf{SKU: t.Name(), Stock: 1}}
			if err := db.Create(&row).Error; err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second one reads before it writes
				var refusal *gormplugin.Error
				err := db.Model(&row).Update("stock", gormplugin.Sub(2)).Error
				if !errors.As(err, &refusal) || refusal.Reason() != "below_min" || refusal.Available() != "1" {
					t.Errorf("%v, want below_min with 1 available", err)
				}
			}
			if err := db.First(&plainShelf{}, row.ID).Error; err == nil || errors.Is(err, gorm.ErrRecordNotFound) {
				t.Errorf("a query gives %v: it did not go to the replica, so this test shows nothing", err)
			}
		})
	})
}

// A refusal is an answer, so it is no error of gorm's span; what the database fails at is one. Both have their outcome on
// gorm's own span, whichever plugin came first.
func TestOpenTelemetry_RefusalIsNoErrorOfTheSpan(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		migrate(t, d.open(t, gorm.Config{}), &plainShelf{})
		spans := tracetest.NewSpanRecorder()
		provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
		inBothOrders(t, d, func() gorm.Plugin { return tracer(provider) }, func(t *testing.T, db *gorm.DB) {
			row := plainShelf{Shelf: Shelf{SKU: t.Name(), Stock: 1}}
			if err := db.Create(&row).Error; err != nil {
				t.Fatal(err)
			}
			last := func(outcome string, status codes.Code) {
				t.Helper()
				ended := spans.Ended()
				span := ended[len(ended)-1]
				if span.Status().Code != status {
					t.Errorf("%s: status %v, want %v", outcome, span.Status(), status)
				}
				for _, a := range span.Attributes() {
					if a.Key == "holdfast.db.outcome" && a.Value.AsString() == outcome {
						return
					}
				}
				t.Errorf("no outcome %s in %v", outcome, span.Attributes())
			}
			if err := db.Model(&row).Update("stock", gormplugin.Sub(1)).Error; err != nil {
				t.Fatal(err)
			}
			last("applied", codes.Unset)
			for range 2 {
				if err := db.Model(&row).Update("stock", gormplugin.Sub(1)).Error; !errors.Is(err, gormplugin.ErrInsufficient) {
					t.Fatal(err)
				}
				last("insufficient", codes.Ok)
			}
			if err := db.Create(&plainShelf{Shelf: Shelf{SKU: t.Name()}}).Error; !errors.Is(err, gormplugin.ErrDuplicate) {
				t.Fatal(err)
			}
			last("duplicate", codes.Ok)
			if err := db.Model(&row).Update("stock", 5).Error; !errors.Is(err, gormplugin.ErrUnguardedWrite) {
				t.Fatal(err)
			}
			last("unguarded", codes.Error)
		})
	})
}

// A stale Save hits no row. gorm would then insert it, or overwrite the row that is there: here it is a conflict, and the
// row stays as the other writer left it.
func TestOptimisticlock_StaleSaveIsAConflict(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := use(t, d.open(t, gorm.Config{}), gormplugin.New(gormplugin.WithModels(&versionedShelf{}), gormplugin.WithLogger(quiet)))
		migrate(t, db, &versionedShelf{})
		row := versionedShelf{Shelf: Shelf{SKU: "a", Title: "mug", Stock: 10}}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		var mine, theirs versionedShelf
		if err := errors.Join(db.First(&mine, row.ID).Error, db.First(&theirs, row.ID).Error); err != nil {
			t.Fatal(err)
		}
		theirs.Title = "cup"
		if err := db.Omit("Stock").Save(&theirs).Error; err != nil {
			t.Fatal(err)
		}
		mine.Title = "jug"
		if err := db.Omit("Stock").Save(&mine).Error; !errors.Is(err, gormplugin.ErrVersionConflict) {
			t.Errorf("%v, want ErrVersionConflict", err)
		}
		// An update with a version of its own is checked by both: units and version.
		if err := db.Model(&mine).Update("stock", gormplugin.Sub(1)).Error; !errors.Is(err, gormplugin.ErrVersionConflict) {
			t.Errorf("%v, want ErrVersionConflict", err)
		}
		var rows []versionedShelf
		if err := db.Find(&rows).Error; err != nil || len(rows) != 1 {
			t.Fatal(err, rows)
		}
		if got := rows[0]; got.Title != "cup" || got.Stock != 10 || got.Version != (optimisticlock.Version{Int64: 2, Valid: true}) {
			t.Errorf("the row is %+v, want a cup, 10 of them, version 2", got)
		}
	})
}

// What soft_delete has marked as deleted is not there: no unit of it is sold, and nothing brings it back by accident.
func TestSoftDelete_DeletedRowSellsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := use(t, d.open(t, gorm.Config{}), gormplugin.New(gormplugin.WithModels(&softShelf{}), gormplugin.WithLogger(quiet)))
		migrate(t, db, &softShelf{})
		row := softShelf{Shelf: Shelf{SKU: "a", Stock: 10}}
		if err := errors.Join(db.Create(&row).Error, db.Delete(&softShelf{Shelf: Shelf{ID: row.ID}}).Error); err != nil {
			t.Fatal(err)
		}
		err := gormplugin.Retry(context.Background(), db, func(tx *gorm.DB) error {
			return tx.Model(&softShelf{Shelf: Shelf{ID: row.ID}}).Update("stock", gormplugin.Sub(1)).Error
		})
		if !errors.Is(err, gormplugin.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
		var stored softShelf
		if err := db.Unscoped().First(&stored, row.ID).Error; err != nil || stored.Stock != 10 || stored.DeletedAt == 0 {
			t.Errorf("%+v, %v: want 10, deleted", stored, err)
		}
	})
}
