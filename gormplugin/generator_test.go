package gormplugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"gorm.io/gorm"
)

// drawn is an item that random buyers draw from.
type drawn struct {
	ID    int64
	Stock int64 `guard:"stock,max=20" gorm:"not null"`
	Fence int64 `guard:"fence,lock=stock" gorm:"not null;default:0"`
	Title string
}

// receipt proves one request's effect.
type receipt struct {
	ID        int64
	RequestID string `guard:"request" gorm:"size:43;uniqueIndex:uk_receipt_request"`
	ItemID    int64
	Units     int64
}

const (
	drawnItems = 3
	drawnStart = 10
	drawnMax   = 20
)

// moves is a world of buyers who do random things at once. write changes an item's stock by n.
type moves struct {
	db    *gorm.DB
	write func(tx *gorm.DB, id, n int64) error
	fence atomic.Int64
	mu    sync.Mutex
	wrong []string
	seen  [drawnItems + 1]int64 // highest fence read
}

func (m *moves) complain(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// step does one random thing.
func (m *moves) step(r *rand.Rand) {
	id := 1 + r.Int64N(drawnItems)
	n := 1 + r.Int64N(4)
	if r.IntN(3) == 0 {
		n = -n
	}
	ctx := context.Background()
	switch r.IntN(5) {
	case 0: // a holder, maybe an old one
		ctx = ContextWithFence(ctx, fmt.Sprint("stock:", id), max(1, m.fence.Add(1)-r.Int64N(3)))
	case 1: // a buyer with a lock of their own
		ctx = ContextWithFence(ctx, "user:7", 1)
	}
	db := m.db.WithContext(ctx)
	request := fmt.Sprint("r", r.IntN(60))
	stop := errors.New("stop")
	err := Retry(ctx, db, func(tx *gorm.DB) error {
		row := receipt{RequestID: request, ItemID: id, Units: n}
		first, err := InsertOnce(tx, &row)
		if err != nil || !first {
			return err
		}
		if err := m.write(tx, id, n); err != nil {
			return err
		}
		if r.IntN(6) == 0 {
			return stop // changed their mind
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrInsufficient) && !errors.Is(err, ErrStaleFence) && !errors.Is(err, ErrConflict) && !errors.Is(err, stop) {
		m.complain("%v", err)
	}
	m.look()
}

// look reads every item once: bounds hold and fences do not fall, at any moment.
func (m *moves) look() {
	m.mu.Lock()
	before := m.seen
	m.mu.Unlock()
	var rows []drawn
	if err := m.db.Find(&rows).Error; err != nil {
		m.complain("%v", err)
		return
	}
	for _, row := range rows {
		if row.Stock < 0 || row.Stock > drawnMax {
			m.complain("item %d holds %d", row.ID, row.Stock)
		}
		if row.Fence < before[row.ID] {
			m.complain("item %d: fence %d after %d", row.ID, row.Fence, before[row.ID])
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range rows {
		m.seen[row.ID] = max(m.seen[row.ID], row.Fence)
	}
}

// run lets workers loose and returns what went wrong.
func (m *moves) run(t *testing.T, seed uint64, workers, steps int) []string {
	t.Helper()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for range steps {
				m.step(r)
			}
		})
	}
	wg.Wait()
	var receipts []receipt
	var rows []drawn
	if err := errors.Join(m.db.Find(&receipts).Error, m.db.Find(&rows).Error); err != nil {
		t.Fatal(err)
	}
	left := map[int64]int64{}
	requests := map[string]bool{}
	for _, r := range receipts {
		left[r.ItemID] -= r.Units
		if requests[r.RequestID] {
			m.complain("request %s has two rows", r.RequestID)
		}
		requests[r.RequestID] = true
	}
	for _, row := range rows {
		if want := drawnStart + left[row.ID]; row.Stock != want {
			m.complain("item %d holds %d, its receipts say %d", row.ID, row.Stock, want)
		}
	}
	return m.wrong
}

func newMoves(t *testing.T, d database, write func(tx *gorm.DB, id, n int64) error, opts ...Option) *moves {
	t.Helper()
	db := d.open(t, gorm.Config{}, []any{&drawn{}, &receipt{}}, append(opts, WithLogger(discardLog))...)
	for id := range int64(drawnItems) {
		if err := db.Create(&drawn{ID: id + 1, Stock: drawnStart}).Error; err != nil {
			t.Fatal(err)
		}
	}
	return &moves{db: db, write: write}
}

// Whatever many buyers do at once: 0 <= stock <= max, what is left and what was sold add up, fences never fall, and a
// request has one row.
func TestInvariantsUnderRandomMoves(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		m := newMoves(t, d, func(tx *gorm.DB, id, n int64) error {
			switch {
			case n < 0:
				return tx.Model(&drawn{ID: id}).Update("stock", Add(-n)).Error
			case n%2 == 0:
				return TakeAll(tx, Line{&drawn{ID: id}, n})
			default:
				_, err := Take(tx, &drawn{ID: id}, n)
				return err
			}
		})
		for _, wrong := range m.run(t, seed, 4, 40) {
			t.Error(wrong)
		}
	})
}

// The same moves without the guard must break the invariants, or the test above shows nothing.
func TestMovesWithoutTheGuardBreakTheInvariants(t *testing.T) {
	m := newMoves(t, newDatabase(t, dialectSQLite), func(tx *gorm.DB, id, n int64) error {
		return tx.Model(&drawn{ID: id}).Update("stock", gorm.Expr("stock - ?", n)).Error // n may be negative
	}, WithShadow())
	if wrong := m.run(t, 1, 4, 40); len(wrong) == 0 {
		t.Error("moves without a guard broke nothing")
	}
}
