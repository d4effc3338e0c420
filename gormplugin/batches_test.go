package gormplugin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"gorm.io/gorm"
)

type landedOrder struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_landed_request"`
}

// F098: two workers move 1000 orders in batches, over items that overlap and come in any order: rows are taken in one
// order for everybody, so no deadlock reaches the caller, no order is lost and none is landed twice.
func TestBatchesOfTwoWorkersDoNotDeadlock(t *testing.T) {
	const workers, batches, orders, items = 2, 50, 10, 12
	for _, name := range []string{dialectPostgres, dialectMySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, name).open(t, gorm.Config{}, []any{&keptItem{}, &landedOrder{}})
			for id := range int64(items) {
				if err := db.Create(&keptItem{ID: id + 1, Stock: 10_000}).Error; err != nil {
					t.Fatal(err)
				}
			}
			seed := rand.Uint64()
			land := func(worker, batch int, random *rand.Rand) error {
				var lines []Line
				rows := make([]landedOrder, orders)
				for i := range rows {
					rows[i].RequestID = fmt.Sprint(worker, "-", batch, "-", i)
					for _, id := range random.Perm(items)[:3] {
						lines = append(lines, Line{Model: &keptItem{ID: int64(id) + 1}, Units: 1})
					}
				}
				return Retry(t.Context(), db, func(tx *gorm.DB) error {
					each, err := InsertBatch(tx, rows)
					if err := errors.Join(append(each, err)...); err != nil {
						return err
					}
					return TakeAll(tx, lines...)
				})
			}
			var wg sync.WaitGroup
			for worker := range workers {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(worker)))
					for batch := range batches {
						if err := land(worker, batch, random); err != nil {
							t.Errorf("worker %d, batch %d, seed %d: %v", worker, batch, seed, err)
							return
						}
					}
				})
			}
			wg.Wait()
			var left, landed int64
			if err := db.Model(&keptItem{}).Select("SUM(stock)").Scan(&left).Error; err != nil {
				t.Fatal(err)
			}
			if err := db.Model(&landedOrder{}).Count(&landed).Error; err != nil {
				t.Fatal(err)
			}
			if landed != workers*batches*orders || left != items*10_000-3*landed {
				t.Errorf("%d orders landed, %d units left: want %d, %d", landed, left, workers*batches*orders, items*10_000-3*workers*batches*orders)
			}
		})
	}
}
