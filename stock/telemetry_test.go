package stock

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// recorder is what a counter shows of itself.
type recorder struct {
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	logs   bytes.Buffer
	opts   []Option
	tracer *sdktrace.TracerProvider
}

func record() *recorder {
	r := &recorder{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	r.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	r.opts = []Option{
		WithTracerProvider(r.tracer),
		WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))),
		WithLogger(slog.New(slog.NewJSONHandler(&r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	}
	return r
}

func (r *recorder) last(t *testing.T) sdktrace.ReadOnlySpan {
	t.Helper()
	spans := r.spans.Ended()
	if len(spans) == 0 {
		t.Fatal("no span")
	}
	return spans[len(spans)-1]
}

func attr(span sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, kv := range span.Attributes() {
		if kv.Key == key {
			return kv.Value.Emit()
		}
	}
	return ""
}

func (r *recorder) metrics(t *testing.T) map[string]metricdata.Aggregation {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	all := map[string]metricdata.Aggregation{}
	for _, scope := range rm.ScopeMetrics {
		if scope.Scope.Name != scopeName {
			t.Errorf("scope %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			all[m.Name] = m.Data
		}
	}
	return all
}

// Each outcome is one value in span, metric and log; an answer is never red and never above debug, a fault is both.
func TestOutcomesInTelemetry(t *testing.T) {
	r := record()
	e := newMini(t, 0)
	c := e.counter(append(r.opts, WithHold(time.Minute))...)
	rule := &reqctx.Rule{Name: "buy", Method: "POST", Route: "/items/{itemID}/orders"}
	ctx := reqctx.WithRule(t.Context(), rule)
	deduct := func(o Order) func() { return func() { _, _ = c.Deduct(ctx, o) } }
	e.warm(c, Sale{Units: 2, Limit: Limit{Units: 1}})
	first, second := e.order(1), e.order(2)
	for _, tt := range []struct {
		want string
		do   func()
	}{
		{"deducted", deduct(first)},
		{"replayed", deduct(first)},
		{"limit_reached", deduct(e.order(1))},
		{"mismatch", func() { o := first; o.Units = 2; _, _ = c.Deduct(ctx, o) }},
		{"deducted", deduct(second)},
		{"insufficient", deduct(e.order(3))},
		{"not_warmed", deduct(Order{Item: 9, User: 1, Units: 1, RequestID: "x"})},
		{"invalid", deduct(Order{Item: 9, User: 1, RequestID: "x"})},
		{"misuse", deduct(Order{Item: 9, User: 1, Units: 1})},
		{"paused", func() { _ = c.Pause(ctx, 1001); deduct(e.order(4))(); _ = c.Resume(ctx, 1001) }},
		{"corrupt", func() { e.set("stock:item:1001", "x"); deduct(e.order(4))(); e.set("stock:item:1001", "0") }},
		{"unavailable", func() { e.mini.SetError("LOADING"); deduct(e.order(4))(); e.mini.SetError("") }},
	} {
		r.logs.Reset()
		tt.do()
		span := r.last(t)
		if span.Name() != telemetry.SpanStockDeduct || attr(span, telemetry.StockOutcome) != tt.want {
			t.Errorf("%s: span %s with outcome %q", tt.want, span.Name(), attr(span, telemetry.StockOutcome))
		}
		red := fault.Type(tt.want).Failure()
		if (span.Status().Code == codes.Error) != red || (attr(span, telemetry.ErrorType) == tt.want) != red {
			t.Errorf("%s: status %v, error.type %q", tt.want, span.Status(), attr(span, telemetry.ErrorType))
		}
		if attr(span, telemetry.RuleName) != "buy" || attr(span, telemetry.StockStrategy) != "counter" {
			t.Errorf("%s: attributes %v", tt.want, span.Attributes())
		}
		level := map[string]string{"corrupt": "ERROR", "unavailable": "WARN"}[tt.want]
		if level == "" {
			level = "DEBUG"
		}
		if !logged(t, r.logs.String(), level, "stock: deduct", tt.want) {
			t.Errorf("%s: logs %s, want one at %s", tt.want, r.logs.String(), level)
		}
	}

	durations := r.metrics(t)[telemetry.MetricStockDeductDuration].(metricdata.Histogram[float64])
	var total uint64
	for _, p := range durations.DataPoints {
		total += p.Count
		outcome, _ := p.Attributes.Value(telemetry.StockOutcome)
		name, _ := p.Attributes.Value(telemetry.RuleName)
		_, failed := p.Attributes.Value(telemetry.ErrorType)
		if name.AsString() != "buy" || failed != fault.Type(outcome.AsString()).Failure() || !slices.Equal(p.Bounds, telemetry.WaitBuckets()) {
			t.Errorf("series %v with bounds %v", p.Attributes.ToSlice(), p.Bounds)
		}
	}
	if total != 12 {
		t.Errorf("%d deducts were counted, want 12", total)
	}
}

func logged(t *testing.T, text, level, msg, outcome string) bool {
	t.Helper()
	for line := range strings.Lines(text) {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if got["level"] == level && got["msg"] == msg && got["outcome"] == outcome {
			return true
		}
	}
	return false
}

// Units are counted once, by what became of them.
func TestUnitsAreCountedOnce(t *testing.T) {
	r := record()
	e := newMini(t, 0)
	c := e.counter(append(r.opts, WithHold(time.Minute))...)
	e.warm(c, Sale{Units: 100})
	for i, why := range []Reason{"", Unpaid, Failed} {
		o := e.order(i)
		o.Units = 2
		res := e.deduct(c, o)
		e.deduct(c, o)
		for range 2 {
			if why == "" {
				_, _ = c.Confirm(t.Context(), res.Order)
			} else {
				_, _ = c.Release(t.Context(), res.Order, why)
			}
		}
	}
	if _, err := c.Adjust(t.Context(), 1001, -7, "op", "me"); err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, p := range r.metrics(t)[telemetry.MetricStockUnits].(metricdata.Sum[int64]).DataPoints {
		movement, _ := p.Attributes.Value(telemetry.StockMovement)
		sums[movement.AsString()] = p.Value
	}
	want := map[string]int64{"deducted": 6, "confirmed": 2, "swept": 2, "released": 2, "adjusted": 7}
	if fmt.Sprint(sums) != fmt.Sprint(want) {
		t.Errorf("units %v, want %v", sums, want)
	}
}

// O14: a release and a confirmation link to the deduct; the stream's entry carries its trace context.
func TestTraceGoesOn(t *testing.T) {
	everywhere(t, func(t *testing.T, e *env) {
		r := record()
		c := e.counter(append(r.opts, WithHold(time.Minute), WithStream())...)
		e.warm(c, Sale{Units: 9})
		for _, of := range []bool{false, true} {
			o := e.order(1)
			res := e.deduct(c, o)
			deduct := r.last(t)
			opts := []EndOption{}
			if of {
				opts = append(opts, Of(o))
			}
			for _, end := range []func() (Ended, error){
				func() (Ended, error) { return c.Release(t.Context(), res.Order, Unpaid, opts...) },
				func() (Ended, error) { return c.Release(t.Context(), res.Order, Unpaid, opts...) },
				func() (Ended, error) { return c.Confirm(t.Context(), res.Order, opts...) },
			} {
				_, _ = end()
				span := r.last(t)
				if links := span.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != deduct.SpanContext().SpanID() {
					t.Errorf("%s has the links %v, want the deduct", span.Name(), links)
				}
				if attr(span, telemetry.ItemHash) != telemetry.Hash("1001") {
					t.Errorf("%s: attributes %v", span.Name(), span.Attributes())
				}
			}
			entries := e.entries(c)
			last := entries[len(entries)-1]
			if link, ok := telemetry.LinkTo(last.TraceParent); !ok || link.SpanContext.TraceID() != deduct.SpanContext().TraceID() {
				t.Errorf("the entry's trace context is %q", last.TraceParent)
			}
		}
	})
}

// What clients send shows nowhere in the clear: not in spans, metrics, logs or error texts, whatever the outcome.
func TestNothingOfTheClientShows(t *testing.T) {
	r := record()
	e := newMini(t, 0)
	c := e.counter(append(r.opts, WithHold(time.Minute), WithStream())...)
	quota := e.quota(r.opts...)
	secrets := map[string]string{"item": "ITEM/ëcret+1", "user": "USER/ëcret+2", "variant": "VARIANT/ëcret+3", "activity": "ACT/ëcret+4", "request": "REQ/ëcret+5", "order": "ORDER/ëcret+6"}
	o := Order{ID: secrets["order"], RequestID: secrets["request"], Item: secrets["item"], Variant: secrets["variant"], Activity: secrets["activity"], User: secrets["user"], Units: 1}
	var texts []string
	try := func(err error) {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	deduct := func(ctx context.Context, c *Counter, o Order) { _, err := c.Deduct(ctx, o); try(err) }
	ctx := t.Context()
	deduct(ctx, c, o)
	e.warm(c, Sale{Item: secrets["item"], Activity: secrets["activity"], Units: 2, Limit: Limit{Units: 1}})
	e.warm(quota, Sale{Item: secrets["item"], Units: 2})
	deduct(ctx, c, o)
	deduct(ctx, c, o)
	two := o
	two.Units = 2
	deduct(ctx, c, two)
	two.RequestID += "x"
	deduct(ctx, c, two)
	two.ID = ""
	deduct(ctx, c, two)
	many := o
	many.RequestID, many.ID, many.Units = "many", "", 3
	deduct(ctx, c, many)
	cart := Order{RequestID: secrets["request"], Activity: secrets["activity"], User: secrets["user"], Lines: []Line{{secrets["item"], nil, 1}, {"x", nil, 1}}}
	deduct(ctx, c, cart)
	_, err := c.Release(ctx, secrets["order"], Failed, Units(2), Operation("op"))
	try(err)
	_, err = c.Confirm(ctx, secrets["order"])
	try(err)
	_, err = c.Release(ctx, secrets["order"], Failed)
	try(err)
	_, err = c.Release(ctx, secrets["order"]+"x", Failed)
	try(err)
	try(c.Pause(ctx, secrets["item"]))
	_, err = c.Adjust(ctx, secrets["item"], -50, "op", "me")
	try(err)
	e.rdb.Set(ctx, c.keys.item(0, secrets["item"]), "x", 0)
	deduct(ctx, c, o)
	e.mini.SetError("LOADING")
	deduct(ctx, c, o)
	_, err = c.Release(ctx, secrets["order"], Failed)
	try(err)
	e.mini.SetError("")
	addr := e.mini.Addr()
	e.mini.Close()
	deduct(ctx, c, o)

	var shown strings.Builder
	shown.WriteString(strings.Join(texts, "\n"))
	shown.WriteString(r.logs.String())
	for _, span := range r.spans.Ended() {
		fmt.Fprintln(&shown, span.Name(), span.Attributes(), span.Events(), span.Status(), span.Links())
	}
	fmt.Fprintln(&shown, r.metrics(t))
	if len(texts) < 10 || shown.Len() < 5000 {
		t.Fatalf("only %d errors and %d bytes to look at", len(texts), shown.Len())
	}
	for name, secret := range secrets {
		for _, form := range []string{secret, url.PathEscape(secret), url.QueryEscape(secret), esc(secret), base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret))} {
			if strings.Contains(shown.String(), form) {
				t.Errorf("the %s shows as %q", name, form)
			}
		}
	}
	if strings.Contains(shown.String(), addr) {
		t.Errorf("the address %s shows", addr)
	}
}

func esc(value string) string {
	return (&line{item: value}).fingerprint()[:strings.IndexByte((&line{item: value}).fingerprint(), ':')]
}

// D81: the hash of the client's id is the same whether the middleware or the caller has set it.
func TestRequestHash(t *testing.T) {
	r := record()
	e := newMini(t, 0)
	c := e.counter(r.opts...)
	e.warm(c, Sale{Units: 9})
	o := e.order(1)
	e.deduct(c, o)
	if got, want := attr(r.last(t), telemetry.RequestHash), telemetry.Hash(o.RequestID); got != want {
		t.Errorf("an id of the caller's own: %q, want %q", got, want)
	}
	ctx := reqctx.WithRequest(t.Context(), reqctx.Request{ID: "record", Hash: "0123456789abcdef"})
	for _, id := range []string{"", "record"} {
		if _, err := c.Deduct(ctx, Order{RequestID: id, Item: 1001, User: 2, Units: 1}); err != nil {
			t.Fatal(err)
		}
		if got := attr(r.last(t), telemetry.RequestHash); got != "0123456789abcdef" {
			t.Errorf("an id from the context: %q, want the context's hash", got)
		}
	}
}

// Many items and users give as many series as one, but for the items that were chosen.
func TestSeriesDoNotGrow(t *testing.T) {
	r := record()
	e := newMini(t, 0)
	c := e.counter(append(r.opts, WithItemMetrics(1001, "gone"))...)
	defer c.Close()
	e.warm(c, Sale{Units: 9})
	for i := range 200 {
		_, _ = c.Deduct(t.Context(), Order{Item: i, User: i, Units: 1, RequestID: e.id()})
	}
	e.deduct(c, e.order(1))
	all := r.metrics(t)
	if n := len(all[telemetry.MetricStockDeductDuration].(metricdata.Histogram[float64]).DataPoints); n != 2 {
		t.Errorf("%d series of durations, want 2: not warmed and deducted", n)
	}
	points := all[telemetry.MetricStockRemaining].(metricdata.Gauge[int64]).DataPoints
	if len(points) != 1 || points[0].Value != 8 {
		t.Errorf("remaining = %+v, want 8 of the item that is there", points)
	}
	c.Close()
	if _, ok := r.metrics(t)[telemetry.MetricStockRemaining].(metricdata.Gauge[int64]); ok {
		t.Error("the gauge is still asked for after Close")
	}
}

// A log handler that panics must not look like an order that failed.
func TestPanickingLogHandler(t *testing.T) {
	e := newMini(t, 0)
	c := e.counter(WithLogger(slog.New(panicking{})))
	e.warm(c, Sale{Units: 9})
	e.deduct(c, e.order(1))
}

type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("full disk") }

// What operators decide is logged with who and why; no item shows in the clear.
func TestDecisionsAreLogged(t *testing.T) {
	r := record()
	e := newMini(t, 0)
	c := e.counter(r.opts...)
	e.warm(c, Sale{Units: 9})
	_ = c.Pause(t.Context(), 1001)
	_, _ = c.Adjust(t.Context(), 1001, 5, "op-1", "alice")
	got := r.logs.String()
	for _, want := range []string{`"msg":"stock: pause"`, `"msg":"stock: restock"`, `"operation":"op-1"`, `"operator":"alice"`, `"units":5`} {
		if !strings.Contains(got, want) {
			t.Errorf("logs %s\nhave no %s", got, want)
		}
	}
}
