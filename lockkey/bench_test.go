package lockkey

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
)

var sink string

// BenchmarkAppendKeys compares a template with one param with the fmt.Sprintf that a handler would write with the param
// already in hand. Target: at most 0.8 of its time, one allocation. The ratio is taken from the fastest of many short
// rounds in turn, which another load on the machine hardly changes.
func BenchmarkAppendKeys(b *testing.B) {
	r := routed(b, "/items/{itemID}", "/items/1001")
	t := parse(b, "stock:{itemID}")
	id := chi.URLParam(r, "itemID")
	var dst []string
	template := func() { dst, _ = t.AppendKeys(dst[:0], r) }
	sprintf := func() { sink = fmt.Sprintf("stock:%s", id) }
	b.Run("template", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			template()
		}
	})
	b.Run("Sprintf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sprintf()
		}
	})
	b.Run("ratio", func(b *testing.B) {
		const never = time.Hour
		ours, theirs := never, never
		for b.Loop() {
			ours = min(ours, round(template))
			theirs = min(theirs, round(sprintf))
		}
		b.ReportMetric(float64(ours)/float64(theirs), "x-Sprintf")
	})
}

// round returns how long 200 calls take.
func round(f func()) time.Duration {
	start := time.Now()
	for range 200 {
		f()
	}
	return time.Since(start)
}

// BenchmarkBody compares a template over a body with the json.Unmarshal of the same members, the body being buffered.
func BenchmarkBody(b *testing.B) {
	const body = `{"order": {"id": 12345, "note": "please ring twice"}, "items": [{"sku": "A-1", "qty": 2}, {"sku": "B-2", "qty": 1}],
		"address": {"street": "High Street 1", "city": "Springfield", "tags": [1, 2, 3]}}`
	b.Run("template", func(b *testing.B) {
		t := parse(b, "sku:{body.items.#.sku}")
		r := post(body)
		if _, err := BufferBody(r, maxBody); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := t.Keys(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Unmarshal", func(b *testing.B) {
		data := []byte(body)
		b.ReportAllocs()
		for b.Loop() {
			var order struct {
				Items []struct {
					SKU string `json:"sku"`
				} `json:"items"`
			}
			if err := json.Unmarshal(data, &order); err != nil {
				b.Fatal(err)
			}
		}
	})
}
