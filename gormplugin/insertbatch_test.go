package gormplugin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A batch in which everything happens: rows that go in, a request that was done before, a request twice, and rows that
// another index refuses, once against what is stored and once against the batch itself.
func TestInsertBatchTellsRowsApart(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		for name, config := range map[string]gorm.Config{"plain": {}, "translated and prepared": {TranslateError: true, PrepareStmt: true}} {
			db := newDatabase(t, d.name).shop(t, config)
			done := shopOrder{RequestID: "done", OrderNo: "n0", UserID: 1, ItemID: 1001, Note: "the first result"}
			if err := db.Create(&done).Error; err != nil {
				t.Fatal(err)
			}
			rows := []*shopOrder{
				{RequestID: "r1", OrderNo: "n1", UserID: 2, ItemID: 1001},
				{RequestID: "done", OrderNo: "n0", UserID: 1, ItemID: 1001, Note: "again"},
				{RequestID: "r2", OrderNo: "n2", UserID: 1, ItemID: 1001}, // user 1 has one
				{RequestID: "r3", OrderNo: "n3", UserID: 3, ItemID: 1001},
				{RequestID: "r3", OrderNo: "n3", UserID: 3, ItemID: 1001, Note: "twice in the batch"},
				{RequestID: "r4", OrderNo: "n3", UserID: 4, ItemID: 1001}, // the number of r3
				{RequestID: "r5", OrderNo: "n5", UserID: 5, ItemID: 1001},
			}
			refused := *rows[2]
			err := db.Transaction(func(tx *gorm.DB) error {
				each, err := InsertBatch(tx, rows)
				if err != nil {
					return err
				}
				for i, want := range []error{nil, ErrAlreadyApplied, errBought, nil, ErrAlreadyApplied, errTaken, nil} {
					if !errors.Is(each[i], want) {
						t.Errorf("%s: row %d: %v, want %v", name, i, each[i], want)
					}
					var e *Error
					if want != nil && (!errors.As(each[i], &e) || e.Line() != i) {
						t.Errorf("%s: row %d: line %d", name, i, e.Line())
					}
				}
				return tx.Model(&shopItem{ID: 1001}).Update("stock", Sub(3)).Error
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if *rows[1] != done || rows[4].ID != rows[3].ID || rows[4].Note != "" {
				t.Errorf("%s: rows of requests done before are %+v, %+v; want the stored ones", name, rows[1], rows[4])
			}
			if *rows[2] != refused {
				t.Errorf("%s: a refused row is %+v, want it as it was", name, rows[2])
			}
			var stored []shopOrder
			if err := db.Order("request_id").Find(&stored).Error; err != nil || len(stored) != 4 {
				t.Fatalf("%s: %d rows, %v; want 4", name, len(stored), err)
			}
			for n, i := range map[int]int{1: 0, 2: 3, 3: 6} {
				if stored[n] != *rows[i] {
					t.Errorf("%s: stored %+v, in memory %+v", name, stored[n], *rows[i])
				}
			}
		}
	})
}

// Two requests whose ids differ by a blank are two where the database says so, and each row is told what became of itself.
func TestInsertBatchTellsBlanksApart(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := newDatabase(t, d.name).shop(t, gorm.Config{})
		for range 2 {
			rows := []*shopOrder{
				{RequestID: "x", OrderNo: "n1", UserID: 1, ItemID: 1001},
				{RequestID: "x ", OrderNo: "n2", UserID: 2, ItemID: 1001},
			}
			each, err := InsertBatch(db, rows)
			if err != nil {
				t.Fatal(err)
			}
			for i, err := range each {
				var stored []shopOrder
				if err := db.Where("order_no = ?", rows[i].OrderNo).Find(&stored).Error; err != nil || len(stored) != 1 || stored[0].ID != rows[i].ID {
					t.Errorf("row %d: in memory %+v, stored %+v, %v", i, rows[i], stored, err)
				}
				if number := fmt.Sprint("n", i+1); err == nil && rows[i].OrderNo != number || d.name != dialectMySQL && rows[i].OrderNo != number {
					t.Errorf("row %d: %v, and in memory %+v", i, err, rows[i])
				}
			}
		}
	})
}

// All rows of a batch that is free of duplicates go in one statement, and get their ids.
func TestInsertBatchIsOneStatement(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		counter := &countingLogger{Interface: logger.Discard}
		db := d.open(t, gorm.Config{SkipDefaultTransaction: true, Logger: counter}, []any{&shopOrder{}}, WithRawSQL(Refuse))
		rows := make([]shopOrder, 300)
		for i := range rows {
			rows[i] = shopOrder{RequestID: fmt.Sprint("r", i), OrderNo: fmt.Sprint("n", i), UserID: int64(i), ItemID: 1001}
		}
		counter.sent = 0
		each, err := InsertBatch(db, &rows)
		if err != nil || errors.Join(each...) != nil {
			t.Fatal(err, each)
		}
		if counter.sent != 1 {
			t.Errorf("%d statements, want 1", counter.sent)
		}
		ids := map[int64]bool{}
		for _, row := range rows {
			ids[row.ID] = row.ID > 0
		}
		if len(ids) != 300 || ids[0] {
			t.Errorf("%d different ids for 300 rows", len(ids))
		}
		var stored shopOrder
		if err := db.Where("request_id = ?", "r17").First(&stored).Error; err != nil || stored != rows[17] {
			t.Errorf("stored %+v, in memory %+v, %v", stored, rows[17], err)
		}
	})
}

// countingLogger counts the statements that gorm sends, without the dry runs.
type countingLogger struct {
	logger.Interface
	sent int
}

func (c *countingLogger) Trace(_ context.Context, _ time.Time, fc func() (string, int64), err error) {
	if _, rows := fc(); rows > 0 || err != nil {
		c.sent++
	}
}

// More rows than one statement takes.
func TestInsertBatchOfManyRows(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.shop(t, gorm.Config{})
		rows := make([]shopOrder, 2500)
		for i := range rows {
			rows[i] = shopOrder{RequestID: fmt.Sprint("r", i), OrderNo: fmt.Sprint("n", i), UserID: int64(i), ItemID: 1001}
		}
		each, err := InsertBatch(db, rows)
		if err != nil || len(each) != 2500 || errors.Join(each...) != nil {
			t.Fatal(err, len(each))
		}
		var stored int64
		if db.Model(&shopOrder{}).Count(&stored); stored != 2500 || rows[2499].ID == 0 {
			t.Errorf("%d rows stored, last id %d", stored, rows[2499].ID)
		}
	})
}

func TestInsertBatchRefusesWhatItCannotDo(t *testing.T) {
	db := newDatabase(t, dialectSQLite).shop(t, gorm.Config{})
	for name, rows := range map[string]any{
		"no slice":         &shopOrder{RequestID: "r"},
		"no request":       []shopItem{{ID: 1}},
		"an id is missing": []shopOrder{{RequestID: "r1"}, {}},
		"a row is nil":     []*shopOrder{{RequestID: "r1"}, nil},
		"nil":              nil,
	} {
		t.Run(name, func(t *testing.T) {
			each, err := InsertBatch(db, rows)
			if each != nil || !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, %v; want ErrInvalid", each, err)
			}
		})
	}
	if each, err := InsertBatch(db, []shopOrder{}); len(each) != 0 || err != nil {
		t.Errorf("an empty batch: %v, %v", each, err)
	}
	var stored int64
	if db.Model(&shopOrder{}).Count(&stored); stored != 0 {
		t.Errorf("%d rows stored, want none", stored)
	}
}
