package lockkey

import (
	"fmt"
	"testing"

	"github.com/go-chi/chi/v5"
)

var sink string

// BenchmarkAppendKeys compares a template with one param with the fmt.Sprintf that a handler would write with the param
// already in hand. Target: at most 0.8 of its time, one allocation.
func BenchmarkAppendKeys(b *testing.B) {
	r := routed(b, "/items/{itemID}", "/items/1001")
	b.Run("template", func(b *testing.B) {
		t := parse(b, "stock:{itemID}")
		var dst []string
		b.ReportAllocs()
		for b.Loop() {
			dst, _ = t.AppendKeys(dst[:0], r)
		}
		sink = dst[0]
	})
	b.Run("Sprintf", func(b *testing.B) {
		id := chi.URLParam(r, "itemID")
		b.ReportAllocs()
		for b.Loop() {
			sink = fmt.Sprintf("stock:%s", id)
		}
	})
}
