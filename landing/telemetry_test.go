package landing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/stock"
)

// D60: a batch is one CONSUMER span of a constant name, linked to the deduct of each of its orders, which another process and
// another trace have made; it tells what became of them, and metrics count the same. No id of a request shows anywhere.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	s := newShop(t, onSQLite, withHold(stock.WithTracerProvider(tracers)), WithTracerProvider(tracers),
		WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		WithHandler(func(tx *gorm.DB, landed []*seckillOrder) error {
			if landed[0].UserID == 3 {
				return errors.New("no")
			}
			return nil
		}))
	for user := int64(1); user <= 2; user++ {
		s.buy(user)
	}
	s.deliver(s.entries()[0])
	s.work()
	s.buy(3)
	s.work()

	var deducts []trace.SpanID
	var batches []sdktrace.ReadOnlySpan
	sent := 0
	for _, span := range spans.Ended() {
		switch {
		case span.Name() == telemetry.SpanStockDeduct:
			deducts = append(deducts, span.SpanContext().SpanID())
		case strings.HasPrefix(span.Name(), "process "):
			batches = append(batches, span)
		case span.Name() == "send "+s.prefix+"stock:orders:dead":
			sent++
		}
	}
	if len(deducts) != 3 || len(batches) == 0 || sent != 1 {
		t.Fatalf("%d deducts, %d batches, %d dead letters sent", len(deducts), len(batches), sent)
	}
	first := batches[0]
	if first.Name() != "process "+s.prefix+"stock:orders" || first.SpanKind() != trace.SpanKindConsumer || len(first.Links()) != 3 {
		t.Errorf("span %q, kind %v, %d links", first.Name(), first.SpanKind(), len(first.Links()))
	}
	for _, link := range first.Links() {
		if !slices.Contains(deducts, link.SpanContext.SpanID()) {
			t.Errorf("a link to %v, which is no deduct", link.SpanContext.SpanID())
		}
	}
	want := map[attribute.Key]string{
		telemetry.MessagingSystem: "redis", telemetry.MessagingGroup: "landing", telemetry.MessagingBatchCount: "3",
		telemetry.MessagingOperationType: "process", telemetry.MessagingDestination: s.prefix + "stock:orders",
		telemetry.LandingOutcome: `["landed 2","duplicate 1"]`,
	}
	for _, kv := range first.Attributes() {
		if text, ok := want[kv.Key]; ok && kv.Value.Emit() == text {
			delete(want, kv.Key)
		}
	}
	if len(want) > 0 {
		t.Errorf("attributes that are missing: %v; there are %v", want, first.Attributes())
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	names := map[string]bool{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			names[m.Name] = true
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == telemetry.MetricLandingOrders {
				for _, p := range sum.DataPoints {
					outcome, _ := p.Attributes.Value(telemetry.LandingOutcome)
					got[outcome.AsString()] = p.Value
				}
			}
		}
	}
	if got[outcomeLanded] != 2 || got[outcomeDuplicate] != 1 || got[outcomeDeadLetter] != 1 || got[outcomeRetried] != mostTries-1 {
		t.Errorf("orders by outcome: %v", got)
	}
	for _, name := range []string{
		telemetry.MetricLandingLag, telemetry.MetricLandingPending, telemetry.MetricLandingOrders, telemetry.MetricMessagesConsumed,
		telemetry.MetricMessagesSent, telemetry.MetricProcessDuration,
	} {
		if !names[name] {
			t.Errorf("no metric %s", name)
		}
	}
	if log := s.log.String(); strings.Contains(log, "request-3") || !strings.Contains(log, telemetry.Hash("request-3-1001")) {
		t.Errorf("the log shows a request id, or not its hash: %s", log)
	}
}
