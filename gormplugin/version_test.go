package gormplugin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"
)

type versioned struct {
	ID        int64
	Title     string
	Stock     int64 `guard:"stock" gorm:"not null"`
	Version   int64 `guard:"version" gorm:"not null;default:1"`
	UpdatedAt time.Time
}

func newVersioned(t *testing.T, db *gorm.DB) versioned {
	t.Helper()
	row := versioned{Title: "mug", Stock: 10}
	if err := db.Create(&row).Error; err != nil {
		t.Fatal(err)
	}
	if row.Version != 1 {
		t.Fatalf("a new row has version %d in memory, want 1", row.Version)
	}
	return row
}

// D15: a stale version is 0 rows and a typed error; the winner's struct follows the row.
func TestVersionConflict(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&versioned{}})
		mine := newVersioned(t, db)
		theirs := mine
		if err := db.Model(&mine).Update("title", "mine").Error; err != nil {
			t.Fatal(err)
		}
		if mine.Version != 2 {
			t.Errorf("version in memory is %d after the write, want 2", mine.Version)
		}
		before := theirs
		err := db.Model(&theirs).Updates(map[string]any{"title": "theirs"}).Error
		var e *Error
		if !errors.Is(err, ErrVersionConflict) || !errors.As(err, &e) || e.Reason() != "version" || e.Ours() != "1" || e.Stored() != "2" {
			t.Fatalf("stale write: %v", err)
		}
		if theirs != before {
			t.Errorf("after the refusal the model is %+v, want it as it was: %+v", theirs, before)
		}
		// A whole row: Save must neither overwrite nor insert.
		err = db.Omit("Stock").Save(&theirs).Error
		if !errors.Is(err, ErrVersionConflict) {
			t.Errorf("stale Save: %v, want ErrVersionConflict", err)
		}
		if err := db.Omit("Stock").Save(&mine).Error; err != nil || mine.Version != 3 {
			t.Errorf("Save with the current version: %v, version %d", err, mine.Version)
		}
		var n int64
		db.Model(&versioned{}).Count(&n)
		if n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}

// F108: a version that was not loaded is no version: the write is refused, not let through unchecked.
func TestVersionNotLoadedIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&versioned{}})
		row := newVersioned(t, db)
		err := db.Model(&versioned{ID: row.ID}).Update("title", "x").Error
		var e *Error
		if !errors.Is(err, ErrUnguardedWrite) || !errors.As(err, &e) || e.Reason() != "no_version" {
			t.Fatalf("got %v, want ErrUnguardedWrite no_version", err)
		}
		if err := db.Model(&versioned{ID: row.ID}).Clauses(AnyVersion()).Update("title", "any").Error; err != nil {
			t.Errorf("AnyVersion: %v", err)
		}
		if err := db.Model(&versioned{ID: row.ID}).Clauses(AtVersion(2)).Update("title", "two").Error; err != nil {
			t.Errorf("AtVersion(2): %v", err)
		}
		if err := db.Model(&versioned{ID: row.ID}).Clauses(AtVersion(2)).Update("title", "stale").Error; !errors.Is(err, ErrVersionConflict) {
			t.Errorf("AtVersion(2) of 3: %v", err)
		}
		if err := db.Model(&versioned{ID: row.ID}).Clauses(AtVersion(0)).Update("title", "zero").Error; !errors.Is(err, ErrInvalid) {
			t.Errorf("AtVersion(0): %v", err)
		}
		// What commutes needs no version, and raises it.
		if err := db.Model(&versioned{ID: row.ID}).Update("stock", Sub(1)).Error; err != nil {
			t.Errorf("Sub without a version: %v", err)
		}
		var got versioned
		if err := db.Take(&got, row.ID).Error; err != nil || got.Version != 4 || got.Title != "two" || got.Stock != 9 {
			t.Errorf("row %+v, %v", got, err)
		}
	})
}

// F109: memory follows the database, so after a rollback the same struct can be written again.
func TestVersionInMemoryAfterRollback(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&versioned{}})
		row := newVersioned(t, db)
		stop := errors.New("stop")
		err := db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Model(&row).Update("title", "x").Error; err != nil {
				return err
			}
			err := tx.Model(&row).Update("title", "y").Error
			var e *Error
			if !errors.Is(err, ErrVersionConflict) || !errors.As(err, &e) || !strings.Contains(e.Error(), "written earlier in this transaction") {
				t.Errorf("second write in one transaction: %v", err)
			}
			return stop
		})
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if row.Version != 1 {
			t.Errorf("version in memory %d after the rollback, want 1", row.Version)
		}
		if err := db.Model(&row).Update("title", "x").Error; err != nil {
			t.Errorf("the same struct again: %v", err)
		}
	})
}

func TestSliceChecksEachVersion(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&versioned{}})
		rows := []versioned{newVersioned(t, db), newVersioned(t, db), newVersioned(t, db)}
		if err := db.Model(&rows[1]).Update("title", "x").Error; err != nil {
			t.Fatal(err)
		}
		if err := db.Model(&rows).Update("title", "all").Error; err != nil {
			t.Fatalf("rows with the versions they have: %v", err)
		}
		if rows[0].Version != 2 || rows[1].Version != 3 || rows[2].Version != 2 {
			t.Errorf("versions %d %d %d", rows[0].Version, rows[1].Version, rows[2].Version)
		}
		stale := rows
		stale[2].Version = 1
		err := db.Model(&stale).Update("title", "stale").Error
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != "partial" || len(e.Keys()) != 1 || e.Available() != "2" || e.Requested() != "3" {
			t.Fatalf("one stale row of three: %v, keys %v", err, e.Keys())
		}
		var n int64
		if db.Model(&versioned{}).Where("title = ?", "stale").Count(&n); n != 0 {
			t.Errorf("%d rows were written all the same", n)
		}
		if err := db.Session(&gorm.Session{SkipDefaultTransaction: true}).Model(&rows).Update("title", "y").Error; !errors.Is(err, ErrInvalid) {
			t.Errorf("a slice outside a transaction: %v, want ErrInvalid", err)
		}
	})
}

// F101, X31: of two who move a row from the same state, one wins.
func TestFrom(t *testing.T) {
	type paper struct {
		ID     int64
		Status *int
	}
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&paper{}})
		row := paper{}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		if err := db.Model(&row).Clauses(From("status", nil)).Update("status", 1).Error; err != nil {
			t.Fatalf("from NULL: %v", err)
		}
		if err := db.Model(&paper{ID: row.ID}).Clauses(From("Status", 1)).Update("status", 2).Error; err != nil {
			t.Fatalf("from 1: %v", err)
		}
		err := db.Model(&paper{ID: row.ID}).Clauses(From("status", 1)).Update("status", 3).Error
		var e *Error
		if !errors.Is(err, ErrVersionConflict) || !errors.As(err, &e) || e.Reason() != "state" || e.Ours() != "1" || e.Stored() != "2" || e.Column() != "status" {
			t.Fatalf("from 1, which is 2: %v", err)
		}
		for name, err := range map[string]error{ // gorm leaves out what is zero, and sends nothing
			"state": db.Model(&paper{ID: row.ID}).Clauses(From("status", 1)).Updates(paper{}).Error,
			"rows":  db.Model(&paper{ID: 404}).Clauses(Expect(1)).Updates(map[string]any{}).Error,
			"generic": func() error {
				_, err := gorm.G[paper](db, From("status", 1)).Where("id = ?", row.ID).Updates(t.Context(), paper{})
				return err
			}(),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s, asked of an update that sets nothing: %v, want ErrInvalid", name, err)
			}
		}
		if err := db.Clauses(From("status", 1)).Delete(&paper{ID: row.ID}).Error; !errors.Is(err, ErrVersionConflict) {
			t.Errorf("delete from 1, which is 2: %v", err)
		}
		if err := db.Clauses(From("status", 2)).Delete(&paper{ID: row.ID}).Error; err != nil {
			t.Errorf("delete from 2: %v", err)
		}
		if err := db.Model(&paper{ID: row.ID}).Clauses(From("status", 2)).Update("status", 3).Error; !errors.Is(err, ErrNotFound) {
			t.Errorf("gone: %v", err)
		}
		if _, err := gorm.G[paper](db, From("status", 2)).Where("id = ?", row.ID).Update(context.Background(), "status", 3); !errors.Is(err, ErrNotFound) {
			t.Errorf("generic, gone: %v", err)
		}
	})
}

// D15: above 30 % conflicts the conditional update is the better way, and a warning says so.
func TestManyConflictsAreWarnedOnce(t *testing.T) {
	var out bytes.Buffer
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&versioned{}}, WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
	row := newVersioned(t, db)
	for i := range 300 {
		version := int64(1000)
		if i%2 == 0 {
			version = int64(1 + i/2)
		}
		_ = db.Model(&versioned{ID: row.ID}).Clauses(AtVersion(version)).Update("title", "x").Error
	}
	if n := strings.Count(out.String(), "version conflicts"); n != 1 {
		t.Errorf("%d warnings in a minute, want 1:\n%s", n, out.String())
	}
}
