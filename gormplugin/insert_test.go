package gormplugin

import (
	"context"
	"errors"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type purchase struct {
	ID        int64
	RequestID string `guard:"request,attempt=attempt" gorm:"size:43;uniqueIndex:uk_purchase_request"`
	Attempt   int    `gorm:"not null;default:0"`
	Units     int64  `guard:"stock,min=1,max=9" gorm:"not null"`
	Version   int64  `guard:"version" gorm:"not null"`
	Fence     *int64 `guard:"fence,lock=stock"`
}

func TestInsertSetsThePluginsColumns(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&purchase{}})
		ctx := ContextWithRequest(context.Background(), "request-1", 2)
		ctx = ContextWithFence(ctx, "stock:7", 11)
		load := func(id string) (row purchase) {
			t.Helper()
			if err := db.Take(&row, "request_id = ?", id).Error; err != nil {
				t.Fatal(err)
			}
			return row
		}
		row := purchase{Units: 2, Version: 77, Fence: ptr(int64(99))}
		if err := db.WithContext(ctx).Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		if row.RequestID != "request-1" || row.Attempt != 2 || row.Version != 1 || row.Fence == nil || *row.Fence != 11 {
			t.Errorf("in memory: %+v", row)
		}
		if got := load("request-1"); got.Attempt != 2 || got.Version != 1 || *got.Fence != 11 {
			t.Errorf("in the database: %+v", got)
		}
		// A row's own id goes before the context's, and the context's attempt says nothing about it.
		if err := db.WithContext(ctx).Create(&purchase{RequestID: "own", Units: 1}).Error; err != nil {
			t.Fatal(err)
		}
		if got := load("own"); got.Attempt != 0 {
			t.Errorf("own id with attempt %d", got.Attempt)
		}
		// A map, as the generic Set makes one.
		ctx = ContextWithRequest(context.Background(), "request-2", 1)
		if err := db.WithContext(ctx).Model(&purchase{}).Create(map[string]any{"units": 3}).Error; err != nil {
			t.Fatal(err)
		}
		if got := load("request-2"); got.Version != 1 || got.Attempt != 1 || got.Units != 3 {
			t.Errorf("by map: %+v", got)
		}
		if err := db.Create(&[]purchase{{RequestID: "a", Units: 1}, {RequestID: "b", Units: 1}}).Error; err != nil {
			t.Errorf("a slice with ids: %v", err)
		}
		for name, write := range map[string]func(*gorm.DB) error{
			"no id":             func(tx *gorm.DB) error { return tx.Create(&purchase{Units: 1}).Error },
			"slice without ids": func(tx *gorm.DB) error { return tx.WithContext(ctx).Create(&[]purchase{{Units: 1}, {Units: 1}}).Error },
		} {
			if err := write(db); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		err := db.WithContext(ctx).Create(&purchase{Units: 1}).Error
		if !errors.Is(err, ErrAlreadyApplied) || !errors.Is(err, gorm.ErrDuplicatedKey) {
			t.Errorf("the request's row again: %v", err)
		}
		for value, reason := range map[int64]string{0: "below_min", 10: "above_max"} {
			err := db.WithContext(ctx).Create(&purchase{RequestID: "x", Units: value}).Error
			var e *Error
			if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Reason() != reason {
				t.Errorf("start value %d: %v, want %s", value, err, reason)
			}
		}
		if err := db.Model(&purchase{}).Create(map[string]any{"request_id": "y", "units": Sub(1)}).Error; !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("Sub in an INSERT: %v", err)
		}
	})
}

// What failed leaves the model as the caller set it.
func TestModelIsPutBackAfterAFailedInsert(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&purchase{}})
		if err := db.Create(&purchase{RequestID: "r", Units: 1}).Error; err != nil {
			t.Fatal(err)
		}
		row := purchase{RequestID: "r", Units: 2, Version: 5}
		before := row
		if err := db.Create(&row).Error; !errors.Is(err, ErrAlreadyApplied) || row != before {
			t.Errorf("%v, model %+v, want %+v", err, row, before)
		}
	})
}

// The row that is a request's effect keeps the id it was born with.
func TestRequestIsNeverWrittenAgain(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&purchase{}})
		row := purchase{RequestID: "r", Units: 2}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		for name, values := range map[string]any{
			"request": map[string]any{"request_id": "s"}, "attempt": map[string]any{"attempt": 7}, "version": map[string]any{"version": 7}, "fence": map[string]any{"fence": 7},
		} {
			if err := db.Model(&row).Updates(values).Error; !errors.Is(err, ErrUnguardedWrite) {
				t.Errorf("%s named: %v, want ErrUnguardedWrite", name, err)
			}
		}
		whole := row
		whole.RequestID, whole.Attempt, whole.Fence = "forged", 9, ptr(int64(9))
		if err := db.Omit("Units").Save(&whole).Error; err != nil {
			t.Fatal(err)
		}
		if whole.RequestID != "forged" || whole.Version != 2 {
			t.Errorf("in memory %+v: what the caller set stays, the version follows", whole)
		}
		var got purchase
		if err := db.Take(&got, row.ID).Error; err != nil || got.RequestID != "r" || got.Attempt != 0 || got.Fence != nil || got.Version != 2 {
			t.Errorf("row %+v, %v", got, err)
		}
	})
}

type balance struct {
	ID      int64
	Amount  int64  `guard:"stock" gorm:"not null"`
	Last    string `guard:"request,last,attempt=tries" gorm:"size:43"`
	Tries   int
	Comment string
}

// A shared row remembers its last request, and an older attempt of the same request writes nothing.
func TestOlderAttemptOfTheLastRequest(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&balance{}})
		row := balance{Amount: 10}
		if err := db.Create(&row).Error; err != nil {
			t.Fatal(err)
		}
		as := func(id string, attempt int) error {
			tx := db.WithContext(ContextWithRequest(context.Background(), id, attempt))
			return tx.Model(&balance{ID: row.ID}).Update("amount", Sub(1)).Error
		}
		if err := errors.Join(as("a", 2), as("a", 2), as("a", 3)); err != nil {
			t.Fatal(err)
		}
		err := as("a", 2)
		var e *Error
		if !errors.Is(err, ErrStaleFence) || !errors.As(err, &e) || e.Reason() != "attempt" || e.Ours() != "2" || e.Stored() != "3" {
			t.Errorf("attempt 2 behind 3: %v", err)
		}
		if err := as("b", 1); err != nil {
			t.Errorf("another request: %v", err)
		}
		rows := []balance{{Amount: 1}, {Amount: 2}}
		if err := db.WithContext(ContextWithRequest(context.Background(), "several", 1)).Create(&rows).Error; err != nil || rows[1].Last != "several" {
			t.Errorf("several shared rows of one request: %v, %+v", err, rows)
		}
		if err := db.Model(&row).Update("comment", "no request").Error; err != nil {
			t.Errorf("without a request: %v", err)
		}
		var got balance
		if err := db.Take(&got, row.ID).Error; err != nil || got.Amount != 6 || got.Last != "b" || got.Tries != 1 {
			t.Errorf("row %+v, %v", got, err)
		}
	})
}

type shelf struct {
	ID      int64
	SKU     string `gorm:"size:20;uniqueIndex:uk_shelf_sku"`
	Title   string
	Stock   int64 `guard:"stock" gorm:"not null;default:0"`
	Version int64 `guard:"version" gorm:"not null"`
	Fence   int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
}

func TestUpsert(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&shelf{}})
		onSKU := func(set ...clause.Assignment) clause.OnConflict {
			return clause.OnConflict{Columns: []clause.Column{{Name: "sku"}}, DoUpdates: set}
		}
		load := func() (row shelf) {
			t.Helper()
			if err := db.Take(&row, "sku = ?", "mug").Error; err != nil {
				t.Fatal(err)
			}
			return row
		}
		upsert := func(tx *gorm.DB, set ...clause.Assignment) error {
			return tx.Clauses(onSKU(set...)).Create(&shelf{SKU: "mug", Title: "Mug", Stock: 5}).Error
		}
		if err := upsert(db, Add(5).On("stock")); err != nil {
			t.Fatalf("new: %v", err)
		}
		if err := upsert(db, Add(5).On("stock")); err != nil {
			t.Fatalf("Add on a row that is there: %v", err)
		}
		if row := load(); row.Stock != 10 || row.Version != 2 {
			t.Errorf("row %+v, want stock 10, version 2", row)
		}
		for name, err := range map[string]error{
			"excluded":                  upsert(db, clause.AssignmentColumns([]string{"stock"})...),
			"literal":                   upsert(db, clause.Assignment{Column: clause.Column{Name: "stock"}, Value: 1}),
			"Sub":                       upsert(db, Sub(1).On("stock")),
			"title, version not loaded": upsert(db, clause.AssignmentColumns([]string{"title"})...),
			"whole row":                 db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&shelf{ID: 1, SKU: "mug", Stock: 1}).Error,
			"save slice":                db.Save(&[]shelf{{ID: 1, SKU: "mug", Stock: 1}}).Error,
		} {
			if !errors.Is(err, ErrUnguardedWrite) {
				t.Errorf("%s: %v, want ErrUnguardedWrite", name, err)
			}
		}
		if row := load(); row.Stock != 10 {
			t.Errorf("stock %d, want 10", row.Stock)
		}
		if err := upsert(db.Clauses(AnyVersion()), clause.AssignmentColumns([]string{"title"})...); err != nil {
			t.Errorf("title with AnyVersion: %v", err)
		}
		fence := func(n int64) *gorm.DB { return db.WithContext(ContextWithFence(context.Background(), "stock:1", n)) }
		if d.name == dialectMySQL {
			if err := upsert(fence(5), Add(1).On("stock")); !errors.Is(err, ErrUnguardedWrite) {
				t.Errorf("a fence number cannot be checked by ON DUPLICATE KEY UPDATE: %v", err)
			}
			return
		}
		if err := upsert(fence(5), Add(1).On("stock")); err != nil {
			t.Errorf("holder 5: %v", err)
		}
		err := upsert(fence(4), Add(1).On("stock"))
		var e *Error
		if !errors.Is(err, ErrStaleFence) || !errors.As(err, &e) || e.Ours() != "4" || e.Stored() != "5" {
			t.Errorf("holder 4: %v", err)
		}
		if err := upsert(db.Clauses(AnyVersion()), clause.AssignmentColumns([]string{"title", "version"})...); !errors.Is(err, ErrUnguardedWrite) {
			t.Errorf("version named: %v", err)
		}
		err = upsert(db.Clauses(AnyVersion(), AllowAbsolute("stock")), clause.Assignment{Column: clause.Column{Name: "stock"}, Value: -1})
		if !errors.Is(err, ErrInsufficient) {
			t.Errorf("a literal below min: %v", err)
		}
		// Rows that were loaded bring their versions, and rows that moved on are not overwritten.
		rows := []shelf{load(), {SKU: "cup"}}
		if err := db.Create(&rows[1]).Error; err != nil {
			t.Fatal(err)
		}
		rows[0].Title, rows[1].Title = "A", "B"
		if err := db.Omit("Stock").Save(&rows).Error; err != nil {
			t.Fatalf("Save of a slice without stock: %v", err)
		}
		if row := load(); row.Title != "A" || row.Stock != 11 || row.Version != rows[0].Version {
			t.Errorf("row %+v, in memory %+v", row, rows[0])
		}
		rows[0].Version--
		rows[1].Title = "C"
		if err := db.Omit("Stock").Save(&rows).Error; !errors.Is(err, ErrInsufficient) {
			t.Errorf("one stale row of two: %v, want ErrInsufficient partial", err)
		}
		var n int64
		if db.Model(&shelf{}).Where("title = ?", "C").Count(&n); n != 0 {
			t.Error("the other row was written all the same")
		}
	})
}

// ON DUPLICATE KEY UPDATE updates the row of any key that collides, another user's too.
func TestMySQLUpsertOverTwoKeysIsRefused(t *testing.T) {
	db := newDatabase(t, dialectMySQL).open(t, gorm.Config{}, []any{&shelf{}})
	if err := db.Create(&shelf{SKU: "mug"}).Error; err != nil {
		t.Fatal(err)
	}
	update := clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"title"})}
	err := db.Clauses(update, AnyVersion()).Create(&shelf{ID: 7, SKU: "mug", Title: "taken over"}).Error
	if !errors.Is(err, ErrUnguardedWrite) {
		t.Errorf("two keys at stake: %v, want ErrUnguardedWrite", err)
	}
	if err := db.Clauses(update, AnyVersion()).Create(&shelf{SKU: "mug", Title: "meant"}).Error; err != nil {
		t.Errorf("one key at stake: %v", err)
	}
}
