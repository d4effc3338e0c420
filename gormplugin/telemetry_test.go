package gormplugin

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// checksIn reads holdfast.db.checks: counts by table, operation, outcome and fence.
func checksIn(t *testing.T, reader *metric.ManualReader) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != telemetry.MetricDBChecks {
				t.Errorf("unknown metric %s", m.Name)
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				var key []string
				for _, k := range []attribute.Key{telemetry.DBSystemName, telemetry.DBCollectionName, telemetry.DBOperationName, telemetry.DBOutcome, telemetry.DBFence} {
					if v, ok := p.Attributes.Value(k); ok {
						key = append(key, v.AsString())
					}
				}
				if p.Attributes.Len() != len(key) {
					t.Errorf("attributes %v", p.Attributes.ToSlice())
				}
				got[strings.Join(key, " ")] = p.Value
			}
		}
	}
	return got
}

func TestChecksAreCountedByOutcome(t *testing.T) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	db := newDatabase(t, dialectSQLite).open(t, gorm.Config{}, []any{&fenced{}, &paperless{}}, WithMeterProvider(provider), WithMeterProvider(nil), WithLogger(slog.New(slog.DiscardHandler)))
	item := fenced{Stock: 2}
	db.Create(&item)
	db.Model(&item).Update("stock", Sub(1))
	db.Model(&item).Update("stock", Sub(5))
	db.Model(&item).Update("stock", 5)
	db.Model(&item).Update("stock", Sub(0))
	db.Model(&item).Update("title", "x")
	db.Model(&fenced{ID: 9}).Update("stock", Sub(1))
	db.Delete(&item)
	db.Create(&paperless{}) // no guard: not counted
	want := map[string]int64{
		"sqlite fenceds INSERT applied":      1,
		"sqlite fenceds UPDATE applied":      1,
		"sqlite fenceds UPDATE insufficient": 1,
		"sqlite fenceds UPDATE unguarded":    1,
		"sqlite fenceds UPDATE invalid":      1,
		"sqlite fenceds UPDATE applied none": 1,
		"sqlite fenceds UPDATE not_found":    1,
		"sqlite fenceds DELETE applied none": 1,
	}
	got := checksIn(t, reader)
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%s: %d, want %d", k, got[k], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}

type paperless struct{ ID int64 }

// sqlSpans stands in for gorm's OpenTelemetry plugin: a span for each statement, ended in a callback of that plugin's name.
type sqlSpans struct{ tracer trace.Tracer }

func (sqlSpans) Name() string { return "otel" }

func (s sqlSpans) Initialize(db *gorm.DB) error {
	before := func(db *gorm.DB) {
		db.Statement.Context, _ = s.tracer.Start(db.Statement.Context, "sql")
	}
	after := func(db *gorm.DB) {
		span := trace.SpanFromContext(db.Statement.Context)
		if db.Error != nil {
			span.SetStatus(codes.Error, "sql")
		}
		span.End()
	}
	if err := db.Callback().Update().Before("gorm:update").Register("otel:before:update", before); err != nil {
		return err
	}
	return db.Callback().Update().After("gorm:update").Register("otel:after:update", after)
}

// The outcome lands on the SQL span, in whichever order the plugins were registered, else on the span around the statement;
// a refusal is an answer, which turns no span red.
func TestOutcomeLandsOnTheSpan(t *testing.T) {
	for _, order := range []string{"otel first", "otel last", "no otel"} {
		t.Run(order, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
			db := newDatabase(t, dialectSQLite).bare(t, gorm.Config{})
			if err := db.AutoMigrate(&fenced{}); err != nil {
				t.Fatal(err)
			}
			plugins := map[string][]gorm.Plugin{
				"otel first": {sqlSpans{tracer}, New()}, "otel last": {New(), sqlSpans{tracer}}, "no otel": {New()},
			}[order]
			for _, p := range plugins {
				if err := db.Use(p); err != nil {
					t.Fatal(err)
				}
			}
			item := fenced{Stock: 2}
			db.Create(&item)
			run := func(write func(tx *gorm.DB)) (sql, around sdktrace.ReadOnlySpan) {
				recorder.Reset()
				ctx, span := tracer.Start(ContextWithFence(context.Background(), "stock:1", 7), "around")
				write(db.WithContext(ctx))
				span.End()
				spans := recorder.Ended()
				if order != "no otel" {
					return spans[0], spans[1]
				}
				return nil, spans[0]
			}
			attrs := func(s sdktrace.ReadOnlySpan) string {
				var out []string
				for _, kv := range s.Attributes() {
					out = append(out, string(kv.Key)+"="+kv.Value.Emit())
				}
				return strings.Join(out, " ")
			}
			for want, write := range map[string]func(tx *gorm.DB){
				"holdfast.db.outcome=applied holdfast.db.fence=7":      func(tx *gorm.DB) { tx.Model(&item).Update("stock", Sub(1)) },
				"holdfast.db.outcome=insufficient holdfast.db.fence=7": func(tx *gorm.DB) { tx.Model(&item).Update("stock", Sub(9)) },
				"holdfast.db.outcome=unguarded holdfast.db.fence=7":    func(tx *gorm.DB) { tx.Model(&item).Update("stock", 9) },
			} {
				sql, around := run(write)
				span := around
				if sql != nil {
					span = sql
					if got := attrs(around); got != "" {
						t.Errorf("the outer span has %s too", got)
					}
				}
				if got := attrs(span); got != want {
					t.Errorf("span has %q, want %q", got, want)
				}
				if around.Status().Code != codes.Unset {
					t.Errorf("%s: the outer span is %v", want, around.Status())
				}
				red := sql != nil && sql.Status().Code == codes.Error
				if wantRed := sql != nil && strings.Contains(want, "unguarded"); red != wantRed {
					t.Errorf("%s: SQL span %v", want, sql.Status())
				}
			}
		})
	}
}

// Errors and logs name tables, columns and reasons, and no value.
func TestNoValueInTextsOrLogs(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		db := d.open(t, gorm.Config{}, []any{&stocked{}, &purchase{}}, WithLogger(log))
		item := newItem(t, db, 424242, 525252)
		ctx := ContextWithRequest(context.Background(), "sEcReT-request", 1)
		db.WithContext(ctx).Create(&purchase{Units: 1})
		texts := []error{
			db.Model(&item).Update("stock", Sub(636363)).Error,
			db.Model(&item).Update("stock", Add(636363)).Error,
			db.Model(&item).Update("stock", 636363).Error,
			db.Model(&item).Update("stock", gorm.Expr("stock * ?", 636363)).Error,
			db.Model(&item).Clauses(From("title", "sEcReT")).Update("title", "sEcReT2").Error,
			db.WithContext(ctx).Create(&purchase{Units: 1}).Error,
			db.Model(&stocked{ID: 747474}).Update("stock", Sub(1)).Error,
		}
		for _, err := range texts {
			if err == nil {
				t.Error("no error")
				continue
			}
			out.WriteString(err.Error())
		}
		for _, secret := range []string{"424242", "525252", "636363", "747474", "sEcReT"} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("%s is in\n%s", secret, out.String())
			}
		}
	})
}

func TestCountingCostsNoAllocation(t *testing.T) {
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	for name, r := range map[string]*report{"no provider": newReport(nil), "with a reader": newReport(provider)} {
		k := reportKey{dialectSQLite, "items", verbUpdate, applied, false}
		ctx := context.Background()
		r.count(ctx, k)
		if n := testing.AllocsPerRun(100, func() { r.count(ctx, k) }); n != 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
