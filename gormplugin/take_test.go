package gormplugin

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
)

// kept has all that Take has to keep up.
type keptItem struct {
	ID        int64
	Stock     int64 `guard:"stock" gorm:"not null"`
	Version   int64 `guard:"version" gorm:"not null"`
	Fence     int64 `guard:"fence,lock=stock" gorm:"not null"`
	UpdatedAt time.Time
	MilliAt   int64 `gorm:"autoUpdateTime:milli"`
	hooks     int
}

func (k *keptItem) BeforeUpdate(*gorm.DB) error { k.hooks++; return nil }

func TestTakeReturnsWhatIsLeft(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&keptItem{}})
		item := keptItem{Stock: 5, UpdatedAt: time.Unix(1, 0)}
		if err := db.Create(&item).Error; err != nil {
			t.Fatal(err)
		}
		before := item
		left, err := Take(db.WithContext(ContextWithFence(context.Background(), "stock:1", 3)), &item, 3)
		if err != nil || left != 2 {
			t.Fatalf("Take 3 of 5: left %d, %v", left, err)
		}
		if before.Version++; item != before {
			t.Errorf("the model is %+v, want only its version raised: %+v", item, before)
		}
		var row keptItem
		if err := db.Take(&row, item.ID).Error; err != nil {
			t.Fatal(err)
		}
		if row.Stock != 2 || row.Version != 2 || row.Fence != 3 || row.UpdatedAt.Equal(time.Unix(1, 0)) || row.MilliAt == before.MilliAt {
			t.Errorf("row %+v", row)
		}
		if left, err := Take(db, &item, 3); !errors.Is(err, ErrInsufficient) || left != 0 {
			t.Errorf("Take 3 of 2: left %d, %v", left, err)
		}
		if left, err := Take(db, item, 2); err != nil || left != 0 { // by value too
			t.Errorf("the rest: left %d, %v", left, err)
		}
		if _, err := Take(db, &keptItem{ID: 99}, 1); !errors.Is(err, ErrNotFound) {
			t.Errorf("no such row: %v", err)
		}
		for name, model := range map[string]any{"no key": &keptItem{}, "no guard": &struct{ ID int64 }{1}, "no struct": 7} {
			if _, err := Take(db, model, 1); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		if _, err := Take(db, &item, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("0 units: %v", err)
		}
	})
}

func TestTakeAllIsAllOrNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&keptItem{}})
		ids := make([]int64, 3)
		for i := range ids {
			item := keptItem{Stock: 5}
			if err := db.Create(&item).Error; err != nil {
				t.Fatal(err)
			}
			ids[i] = item.ID
		}
		stocks := func() (got [3]int64) {
			for i, id := range ids {
				var row keptItem
				if err := db.Take(&row, id).Error; err != nil {
					t.Fatal(err)
				}
				got[i] = row.Stock
			}
			return got
		}
		take := func(lines ...Line) error {
			return db.Transaction(func(tx *gorm.DB) error { return TakeAll(tx, lines...) })
		}
		line := func(i int, n int64) Line { return Line{&keptItem{ID: ids[i]}, n} }

		if err := take(line(2, 1), line(0, 2), line(2, 1)); err != nil {
			t.Fatal(err)
		}
		if got := stocks(); got != [3]int64{3, 5, 3} {
			t.Fatalf("stocks %v", got)
		}
		err := take(line(2, 1), line(0, 1), line(1, 3), line(1, 3))
		var e *Error
		if !errors.Is(err, ErrInsufficient) || !errors.As(err, &e) || e.Line() != 2 || e.Requested() != "6" {
			t.Fatalf("6 of 5 in two lines: %v, line %d", err, e.Line())
		}
		if got := stocks(); got != [3]int64{3, 5, 3} {
			t.Errorf("stocks %v after the rollback", got)
		}
		if err := TakeAll(db, line(0, 1)); !errors.Is(err, ErrInvalid) {
			t.Errorf("outside a transaction: %v", err)
		}
		if err := take(make([]Line, 257)...); !errors.Is(err, ErrInvalid) {
			t.Errorf("257 lines: %v", err)
		}
		if err := take(); err != nil {
			t.Errorf("no lines: %v", err)
		}
		// To go on after a refusal, nest.
		err = db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Transaction(func(tx *gorm.DB) error { return TakeAll(tx, line(0, 1), line(1, 9)) }); !errors.Is(err, ErrInsufficient) {
				t.Errorf("nested: %v", err)
			}
			return TakeAll(tx, line(0, 1))
		})
		if got := stocks(); err != nil || got != [3]int64{2, 5, 3} {
			t.Errorf("stocks %v, %v", got, err)
		}
	})
}

// F097, F099, X30: carts in any order do not deadlock.
func TestCartsInAnyOrderDoNotDeadlock(t *testing.T) {
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, name).open(t, gorm.Config{}, []any{&keptItem{}})
			a, b := keptItem{Stock: 1000}, keptItem{Stock: 1000}
			if err := errors.Join(db.Create(&a).Error, db.Create(&b).Error); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for w := range 4 {
				lines := []Line{{&keptItem{ID: a.ID}, 1}, {&keptItem{ID: b.ID}, 1}}
				if w%2 == 1 {
					lines[0], lines[1] = lines[1], lines[0]
				}
				wg.Go(func() {
					for range 100 {
						if err := db.Transaction(func(tx *gorm.DB) error { return TakeAll(tx, lines...) }); err != nil {
							t.Errorf("cart: %v", err)
							return
						}
					}
				})
			}
			wg.Wait()
			var rows []keptItem
			if err := db.Find(&rows).Error; err != nil || rows[0].Stock != 600 || rows[1].Stock != 600 {
				t.Errorf("stocks %+v, %v", rows, err)
			}
		})
	}
}

func TestKeysAreOrderedAsWhatTheyAre(t *testing.T) {
	for _, tt := range []struct{ less, more any }{
		{int64(9), int64(10)}, {uint8(2), int64(10)}, {"10", "9"}, {"a", "b"}, {int64(-1), int64(1)},
	} {
		if compareKeys(tt.less, tt.more) >= 0 || compareKeys(tt.more, tt.less) <= 0 || compareKeys(tt.less, tt.less) != 0 {
			t.Errorf("%v and %v are not in order", tt.less, tt.more)
		}
	}
}

// A handle that leaves the column out takes nothing, and must not say that it took.
func TestSubThatIsLeftOutIsNoSuccess(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t, gorm.Config{}, []any{&stocked{}})
		item := newItem(t, db, 5, 10)
		for name, err := range map[string]error{
			"omit":    db.Omit("Stock").Model(&item).Update("stock", Sub(1)).Error,
			"select":  db.Select("title").Model(&item).Updates(map[string]any{"title": "cup", "stock": Sub(1)}).Error,
			"columns": db.Select("title").Model(&item).UpdateColumns(map[string]any{"stock": Sub(1)}).Error,
			"pointer": db.Omit("stock").Model(&item).Updates(&map[string]any{"stock": Sub(1)}).Error,
			"Take":    func() error { _, err := Take(db.Omit("stock"), &item, 1); return err }(),
			"TakeAll": db.Transaction(func(tx *gorm.DB) error {
				return TakeAll(tx.Select("title"), Line{&item, 1})
			}),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		if left, err := Take(db.Session(&gorm.Session{DryRun: true}), &item, 1); left != 0 || err != nil {
			t.Errorf("a dry run: %d, %v", left, err)
		}
		var now stocked
		if err := db.Take(&now, item.ID).Error; err != nil || now.Stock != 5 || now.Title != "mug" {
			t.Errorf("%+v, %v; want it untouched", now, err)
		}
	})
}

// elsewhere has its table in a schema, and no marks.
type elsewhere struct{ ID int64 }

func (elsewhere) TableName() string { return "main.elsewhere" }

func TestTakeOfAModelWithoutMarks(t *testing.T) {
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, nil)
	for _, model := range []any{elsewhere{ID: 1}, &bystander{ID: 1}} {
		if _, err := Take(db, model, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("%T: %v, want ErrInvalid", model, err)
		}
	}
}
