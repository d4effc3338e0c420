package landing

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

type reconcileInstruments struct {
	log         *slog.Logger
	tracer      *telemetry.Tracer
	differences metric.Int64Gauge
	lastSuccess metric.Float64Gauge
	all, asked  map[Class][]metric.RecordOption
}

func newReconcileInstruments(cfg *config) *reconcileInstruments {
	m := telemetry.NewMeter(scopeName, cfg.meters)
	i := &reconcileInstruments{
		log:         cfg.logger,
		tracer:      telemetry.NewTracer(scopeName, cfg.tracers),
		differences: m.Gauge(telemetry.MetricReconcileDifferences, "{difference}", "Differences between Redis and SQL that the last comparison has found."),
		lastSuccess: m.FloatGauge(telemetry.MetricReconcileLastSuccess, "s", "When a comparison last came to its end, Unix time."),
		all:         byClass(&Report{}, "all"),
		asked:       byClass(&Report{asked: true}, "asked"),
	}
	return i
}

// byClass are the gauges that such a comparison sets. Comparing some items and comparing all are two halves of one job: neither
// must call off an alarm that only the other one can raise.
func byClass(like *Report, scope string) map[Class][]metric.RecordOption {
	options := map[Class][]metric.RecordOption{}
	for _, c := range classes() {
		if like.sees(c) {
			set := attribute.NewSet(telemetry.ReconcileClass.String(string(c)), telemetry.ReconcileScope.String(scope))
			options[c] = []metric.RecordOption{metric.WithAttributeSet(set)}
		}
	}
	return options
}

// compare starts the span of a comparison, and returns what ends it.
func (i *reconcileInstruments) compare(ctx context.Context) (context.Context, func(context.Context, *Report, error)) {
	ctx, span := i.tracer.Start(ctx, telemetry.SpanReconcileCompare)
	return ctx, func(ctx context.Context, rep *Report, err error) {
		defer span.End()
		if err != nil {
			failed(span, err)
			return
		}
		counts := map[Class]int64{}
		soldOut := 0
		for n := range rep.Differences {
			counts[rep.Differences[n].Class]++
			if rep.Differences[n].SoldOut {
				soldOut++
			}
		}
		gauges := i.all
		if rep.asked {
			gauges = i.asked
		}
		for c, options := range gauges {
			i.differences.Record(ctx, counts[c], options...)
		}
		i.lastSuccess.Record(ctx, float64(time.Now().UnixMilli())/1000)
		told := tell(span, counts)
		i.log.LogAttrs(ctx, slog.LevelInfo, "landing: Redis and SQL compared", slog.Int("items", rep.Items),
			slog.Int("differences", len(rep.Differences)), slog.Any("classes", told), slog.Int("unsettled", len(rep.Unsettled)))
		if soldOut > 0 {
			i.log.LogAttrs(ctx, slog.LevelError, "landing: sold out in Redis while SQL has units left", slog.Int("items", soldOut))
		}
	}
}

// apply starts the span of a plan's execution.
func (i *reconcileInstruments) apply(ctx context.Context) (context.Context, func(context.Context, *Applied, error)) {
	ctx, span := i.tracer.Start(ctx, telemetry.SpanReconcileApply)
	return ctx, func(ctx context.Context, a *Applied, err error) {
		defer span.End()
		counts := map[Class]int64{}
		for n := range a.Results {
			if a.Results[n].Outcome == ResultApplied {
				counts[a.Results[n].Class]++
			}
		}
		told := tell(span, counts)
		level, attrs := slog.LevelInfo, []slog.Attr{
			slog.Int("applied", a.Count(ResultApplied)), slog.Int("gone", a.Count(ResultGone)), slog.Int("left", a.Count(ResultLeft)),
			slog.Any("classes", told),
		}
		if err != nil {
			failed(span, err)
			level = slog.LevelWarn
			attrs = append(attrs, slog.String("error_type", string(fault.TypeOf(err))))
		}
		i.log.LogAttrs(ctx, level, "landing: plan applied", attrs...)
	}
}

// tell puts the number of differences of each class on the span.
func tell(span trace.Span, counts map[Class]int64) []string {
	told := []string{}
	for _, c := range classes() {
		if counts[c] > 0 {
			told = append(told, string(c)+" "+strconv.FormatInt(counts[c], 10))
		}
	}
	if span.IsRecording() {
		span.SetAttributes(telemetry.ReconcileDifferences.StringSlice(told))
	}
	return told
}

func failed(span trace.Span, err error) {
	typ := fault.TypeOf(err)
	if span.IsRecording() {
		span.SetAttributes(telemetry.ErrorType.String(string(typ)))
		if typ.Failure() {
			span.SetStatus(codes.Error, string(typ))
		}
	}
}
