package landing

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// Rows that do not tell for which activity, or which variant, an order was cannot be compared with limits that count over them:
// what is lost could neither be found nor be written again. Comparing says so, and passes over nothing in silence.
func TestCompareNeedsTheColumnsThatTheSalesHave(t *testing.T) {
	t.Parallel()
	b := newBooks(t, onSQLite, holdAndStream())
	if err := b.db.AutoMigrate(&audited{}); err != nil {
		t.Fatal(err)
	}
	l, err := New[audited, itemStock](b.counter, b.db, func(e stock.Entry) audited { return audited{ItemID: rowOf(e).ItemID} })
	if err != nil {
		t.Fatal(err)
	}
	r := l.Reconciler()
	r.between = time.Millisecond
	refused := func(r *Reconciler, text string, items ...stock.ID) {
		t.Helper()
		if rep, err := r.Compare(t.Context(), items...); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("compared %+v, %v; want it refused for %s", rep, err, text)
		}
	}
	refused(r, "activities")
	refused(r, "activities", 1001)
	for item, over := range map[int64]stock.Scope{7: stock.ItemInActivity, 8: stock.Variant} {
		if err := b.db.Create(&itemStock{ItemID: item, Stock: 5}).Error; err != nil {
			t.Fatal(err)
		}
		sale := stock.Sale{Item: item, Units: 5, Limit: stock.Limit{Units: 1, Over: over}, Ends: time.Now().Add(time.Hour)}
		if _, err := b.counter.Warm(t.Context(), sale); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := r.Compare(t.Context(), 7) // has no activity
	if err != nil || !rep.Clean() {
		t.Errorf("an item without activities: %+v, %v", rep, err)
	}
	refused(r, "variants", 8)
	b.finds(b.compare(1001, 7)) // the other model has the column
	refused(b.r, "variants")
}
