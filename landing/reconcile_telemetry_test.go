package landing

import (
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/stock"
)

// A comparison and a plan have a span each, the differences are a gauge by class, which falls back to 0, and the time of the
// last success is one too. What was found is no error.
func TestReconcileTelemetry(t *testing.T) {
	t.Parallel()
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	b := newBooks(t, onPostgres, []stock.Option{stock.WithHold(time.Hour), stock.WithStream()}, WithTracerProvider(tp), WithMeterProvider(mp))
	b.do("INCR", b.prefix+"stock:item:1001")
	b.do("SET", b.prefix+"stock:item:77", 5)
	p := b.reviewed(b.compare())
	gauges := func() map[string]float64 { t.Helper(); return gaugesOf(t, reader) }
	before := gauges()
	if before["holdfast.reconcile.differences redis_above_sql"] != 1 || before["holdfast.reconcile.differences ghost_key"] != 1 ||
		before["holdfast.reconcile.differences withheld"] != 0 {
		t.Errorf("gauges: %v", before)
	}
	if at := time.Unix(int64(before["holdfast.reconcile.last_success"]), 0); time.Since(at) > time.Minute {
		t.Errorf("last success at %v", at)
	}
	b.apply(p)
	b.finds(b.compare())
	if after := gauges(); after["holdfast.reconcile.differences redis_above_sql"] != 0 || len(after) != len(before) {
		t.Errorf("gauges afterwards: %v", after)
	}
	var names []string
	for _, s := range spans.Ended() {
		if s.Name() == telemetry.SpanStockDeduct {
			continue
		}
		names = append(names, s.Name())
		if s.Status().Code != codes.Unset {
			t.Errorf("%s ended %v", s.Name(), s.Status())
		}
	}
	want := []string{telemetry.SpanReconcileCompare, telemetry.SpanReconcileApply, telemetry.SpanReconcileCompare}
	if !slices.Equal(names, want) {
		t.Fatalf("spans %v, want %v", names, want)
	}
	told := attribute.NewSet(spans.Ended()[0].Attributes()...)
	if v, _ := told.Value(telemetry.ReconcileDifferences); !slices.Equal(v.AsStringSlice(), []string{"redis_above_sql 1", "ghost_key 1"}) {
		t.Errorf("the comparison tells %v", v.AsStringSlice())
	}
}

// gaugesOf reads the gauges by name and, of differences, by class and by scope where that is not all.
func gaugesOf(t *testing.T, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, point := range data.DataPoints {
					class, _ := point.Attributes.Value(telemetry.ReconcileClass)
					name := m.Name + " " + class.AsString()
					if scope, _ := point.Attributes.Value(telemetry.ReconcileScope); scope.AsString() != "all" {
						name += " " + scope.AsString()
					}
					got[name] = float64(point.Value)
				}
			case metricdata.Gauge[float64]:
				for _, point := range data.DataPoints {
					got[m.Name] = point.Value
				}
			}
		}
	}
	return got
}

// Comparing with items and without are two halves of one job, and each has gauges of its own: an alarm that the one has raised
// stands until the same kind of comparison finds nothing. Neither reports on what it cannot see.
func TestEitherComparisonLeavesTheOthersGauges(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	b := newBooks(t, onSQLite, holdAndStream(), WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	want := func(want map[string]float64) {
		t.Helper()
		got := gaugesOf(t, reader)
		for name, n := range want {
			if value, there := got["holdfast.reconcile.differences "+name]; !there || value != n {
				t.Errorf("%s: %v (there: %t), want %v", name, value, there, n)
			}
		}
		for _, name := range []string{"ghost_key asked", "key_without_ttl asked", "unreadable asked"} {
			if value, there := got["holdfast.reconcile.differences "+name]; there {
				t.Errorf("%s: %v, of a comparison that cannot see it", name, value)
			}
		}
	}
	if err := b.db.Create(&itemStock{ItemID: 7, Stock: 5}).Error; err != nil {
		t.Fatal(err)
	}
	b.warm(7, 4, stock.Limit{})
	b.do("SET", b.prefix+"stock:item:77", 5)
	b.finds(b.compare(), GhostKey, RedisBelow)
	b.finds(b.compare(1001, 5), NotWarmed)
	want(map[string]float64{"ghost_key": 1, "redis_below_sql": 1, "not_warmed": 0, "not_warmed asked": 1, "redis_below_sql asked": 0})
	b.do("DEL", b.prefix+"stock:item:77")
	b.do("INCR", b.prefix+"stock:item:7")
	b.finds(b.compare())
	want(map[string]float64{"ghost_key": 0, "redis_below_sql": 0, "not_warmed asked": 1, "redis_below_sql asked": 0})
	b.finds(b.compare(1001))
	want(map[string]float64{"not_warmed asked": 0})
}
