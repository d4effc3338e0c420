package stock

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Every wrong option is named, with its remedy, at once; none is corrected in silence.
func TestWrongOptions(t *testing.T) {
	e := newMini(t, 0)
	many := make([]ID, mostItems+1)
	for i := range many {
		many[i] = i
	}
	for want, opt := range map[string]Option{
		"Prefix":                            Prefix("{x}"),
		"Prefix(":                           Prefix("a b"),
		"at most 64 bytes":                  Prefix(strings.Repeat("x", 65)),
		"WithPartitions(0)":                 WithPartitions(0),
		"WithPartitions(101)":               WithPartitions(101),
		"WithHold(999ms)":                   WithHold(999 * time.Millisecond),
		"WithHold(9000h0m0s)":               WithHold(9000 * time.Hour),
		"WithRetryWindow(9m59s)":            WithRetryWindow(10*time.Minute - time.Second),
		"WithMaxBacklog(0)":                 WithMaxBacklog(0),
		"WithMaxBacklog without WithStream": WithMaxBacklog(5),
		"WithSoldOutFilter(0s)":             WithSoldOutFilter(0),
		"WithSoldOutFilter(2m0s)":           WithSoldOutFilter(2 * time.Minute),
		"WithItemMetrics":                   WithItemMetrics(many...),
		"an item of WithItemMetrics":        WithItemMetrics(1.5),
	} {
		if _, err := New(e.rdb, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want an error with %q", err, want)
		}
	}
	_, err := New(nil, WithPartitions(0), WithHold(0))
	for _, want := range []string{"client is nil", "WithPartitions", "WithHold"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want all faults at once, %q among them", err, want)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	if _, err := New(ring); err == nil {
		t.Error("a Ring was accepted")
	}
	if _, err := New(e.rdb, nil, WithTracerProvider(nil), WithMeterProvider(nil), WithLogger(nil)); err != nil {
		t.Errorf("nil options and providers: %v", err)
	}
	if _, err := NewQuota(e.rdb, WithHold(0)); err == nil {
		t.Error("NewQuota accepts what New refuses")
	}
}
