//go:build !race

package lockkey

import (
	"net/http/httptest"
	"testing"
)

// What a key costs. A ceiling may only be lowered.
func TestAllocations(t *testing.T) {
	oneParam := routed(t, "/items/{itemID}", "/items/1001")
	escapedParam := routed(t, "/items/{itemID}", "/items/a%2Fb")
	headers := withHeader("X-Merchant", "77")
	headers.Header.Set("Idempotency-Key", `"k-1"`)
	withQuery := httptest.NewRequest("POST", "/?a=1&day=2026-01-31", nil)
	tests := map[string]struct {
		template string
		run      func(*Template) error
		ceiling  float64
	}{
		"AppendKeys, one param": {"stock:{itemID}", func(t *Template) error {
			var room [1]string
			_, err := t.AppendKeys(room[:0], oneParam)
			return err
		}, 1},
		"AppendKeys, one param, int": {"stock:{itemID|int}", func(t *Template) error {
			var room [1]string
			_, err := t.AppendKeys(room[:0], oneParam)
			return err
		}, 1},
		"Keys, one param": {"stock:{itemID}", func(t *Template) error {
			_, err := t.Keys(oneParam)
			return err
		}, 2},
		"Key, one param, percent-encoded": {"stock:{itemID}", func(t *Template) error {
			_, err := t.Key(escapedParam)
			return err
		}, 2},
		"Key, a value and a header": {"{userID}:{header.X-Merchant}", func(t *Template) error {
			_, err := t.Key(headers)
			return err
		}, 1},
		"Key, an idempotency key": {"{header.Idempotency-Key|sf}", func(t *Template) error {
			_, err := t.Key(headers)
			return err
		}, 1},
		"Key, a query parameter": {"quota:{query.day}", func(t *Template) error {
			_, err := t.Key(withQuery)
			return err
		}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			template := parse(t, tt.template, WithValue("userID", fixed("42")))
			if err := tt.run(template); err != nil {
				t.Fatal(err)
			}
			if got := testing.AllocsPerRun(200, func() { _ = tt.run(template) }); got > tt.ceiling {
				t.Errorf("%v allocations, want at most %v", got, tt.ceiling)
			}
		})
	}
}
