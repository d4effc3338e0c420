package landing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const scopeName = "github.com/holdfast-go/holdfast/landing"

// group is the consumer group of the workers: one, since each order lands once.
const group = "landing"

// What becomes of an order on its way into SQL: values of holdfast.landing.outcome.
const (
	outcomeLanded       = "landed"
	outcomeDuplicate    = "duplicate"
	outcomeLimitReached = "limit_reached"
	outcomeInsufficient = "insufficient"
	outcomeRetried      = "retried"
	outcomeDeadLetter   = "dead_letter"
)

var outcomes = [...]string{outcomeLanded, outcomeDuplicate, outcomeLimitReached, outcomeInsufficient, outcomeRetried, outcomeDeadLetter}

type instruments struct {
	log      *slog.Logger
	tracer   *telemetry.Tracer
	lag      metric.Float64Gauge
	pending  metric.Int64Gauge
	orders   metric.Int64Counter
	sent     metric.Int64Counter
	consumed metric.Int64Counter
	duration metric.Float64Histogram
	landed   [len(outcomes)][]metric.AddOption
	byStream sync.Map // key of a stream -> *streamNames

	away telemetry.Quiet // warnings, at most one a second
}

func newInstruments(cfg *config) *instruments {
	m := telemetry.NewMeter(scopeName, cfg.meters)
	i := &instruments{
		log:      cfg.logger,
		tracer:   telemetry.NewTracer(scopeName, cfg.tracers),
		lag:      m.FloatGauge(telemetry.MetricLandingLag, "s", "Age of the oldest order that has not landed."),
		pending:  m.Gauge(telemetry.MetricLandingPending, "{order}", "Orders that have not landed."),
		orders:   m.Counter(telemetry.MetricLandingOrders, "{order}", "Orders by what became of them."),
		sent:     m.Counter(telemetry.MetricMessagesSent, "{message}", "Dead letters appended or replayed."),
		consumed: m.Counter(telemetry.MetricMessagesConsumed, "{message}", "Stream entries read."),
		duration: m.Histogram(telemetry.MetricProcessDuration, "s", "Time that one batch took.", telemetry.HTTPBuckets()),
	}
	for n, outcome := range outcomes {
		i.landed[n] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(telemetry.LandingOutcome.String(outcome)))}
	}
	return i
}

// streamNames is what telemetry says of one stream, prepared once.
type streamNames struct {
	process, send         string
	processing, sending   []attribute.KeyValue
	gauge                 []metric.RecordOption
	read                  []metric.AddOption
	write                 []metric.AddOption
	processed             []metric.RecordOption
	processedWithoutError []attribute.KeyValue
}

// partition is the part of a stream's key that is not the same in all partitions.
var partition = regexp.MustCompile(`\{\d\d\}`)

func (i *instruments) stream(key string) *streamNames {
	if n, ok := i.byStream.Load(key); ok {
		return n.(*streamNames)
	}
	template := partition.ReplaceAllString(key, "{pp}")
	destination := []attribute.KeyValue{telemetry.MessagingSystem.String("redis"), telemetry.MessagingDestination.String(key)}
	if template != key {
		destination = append(destination, telemetry.MessagingTemplate.String(template))
	}
	with := func(operation string, more ...attribute.KeyValue) []attribute.KeyValue {
		all := append([]attribute.KeyValue{}, destination...)
		all = append(all, telemetry.MessagingOperationName.String(operation), telemetry.MessagingOperationType.String(operation))
		return append(all, more...)
	}
	processing := with("process", telemetry.MessagingGroup.String(group))
	n := &streamNames{
		process: "process " + template, send: "send " + template,
		processing: processing, sending: with("send"),
		gauge:                 []metric.RecordOption{metric.WithAttributes(telemetry.MessagingDestination.String(key))},
		read:                  []metric.AddOption{metric.WithAttributes(processing...)},
		write:                 []metric.AddOption{metric.WithAttributes(with("send")...)},
		processed:             []metric.RecordOption{metric.WithAttributes(processing...)},
		processedWithoutError: processing,
	}
	first, _ := i.byStream.LoadOrStore(key, n)
	return first.(*streamNames)
}

// looked records what a look at a stream has shown.
func (i *instruments) looked(ctx context.Context, key string, length int64, age time.Duration) {
	n := i.stream(key)
	i.pending.Record(ctx, length, n.gauge...)
	i.lag.Record(ctx, age.Seconds(), n.gauge...)
}

// batchSpan is the span of one batch, with what became of its orders.
type batchSpan struct {
	i      *instruments
	names  *streamNames
	span   trace.Span
	began  time.Time
	counts [len(outcomes)]int64
	err    error
}

// begin starts the span of a batch, linked to the deduct of each of its orders.
func (i *instruments) begin(ctx context.Context, key string, entries []*message) (context.Context, *batchSpan) {
	n := i.stream(key)
	var links []trace.Link
	for _, m := range entries {
		if link, ok := telemetry.LinkTo(m.entry.TraceParent); ok {
			links = append(links, link)
		}
	}
	ctx, span := i.tracer.Start(ctx, n.process, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(n.processing...))
	if span.IsRecording() {
		span.SetAttributes(telemetry.MessagingBatchCount.Int(len(entries)))
	}
	i.consumed.Add(ctx, int64(len(entries)), n.read...)
	return ctx, &batchSpan{i: i, names: n, span: span, began: time.Now()}
}

// count counts an order that has come to its end, or will be tried again.
func (b *batchSpan) count(ctx context.Context, outcome string) {
	b.counts[slices.Index(outcomes[:], outcome)]++
	b.i.count(ctx, outcome)
}

// count counts an order outside of a batch.
func (i *instruments) count(ctx context.Context, outcome string) {
	i.orders.Add(ctx, 1, i.landed[slices.Index(outcomes[:], outcome)]...)
}

func (b *batchSpan) end(ctx context.Context) {
	options := b.names.processed
	if b.err != nil {
		typ := string(fault.TypeOf(b.err))
		options = []metric.RecordOption{metric.WithAttributes(append(append([]attribute.KeyValue{}, b.names.processedWithoutError...), telemetry.ErrorType.String(typ))...)}
		if b.span.IsRecording() {
			b.span.SetStatus(codes.Error, typ)
			b.span.SetAttributes(telemetry.ErrorType.String(typ))
		}
	}
	b.i.duration.Record(ctx, time.Since(b.began).Seconds(), options...)
	if b.span.IsRecording() {
		var told []string
		for n, count := range b.counts {
			if count > 0 {
				told = append(told, outcomes[n]+" "+strconv.FormatInt(count, 10))
			}
		}
		b.span.SetAttributes(telemetry.LandingOutcome.StringSlice(told))
	}
	b.span.End()
}

// appended tells of a dead letter, or of one that was replayed; id is "" where a lost reply knew it.
func (i *instruments) appended(ctx context.Context, key, id string) {
	n := i.stream(key)
	_, span := i.tracer.Start(ctx, n.send, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(n.sending...))
	if span.IsRecording() && id != "" {
		span.SetAttributes(telemetry.MessagingMessageID.String(id))
	}
	span.End()
	i.sent.Add(ctx, 1, n.write...)
}

// warn logs what will be tried again, at most once a second.
func (i *instruments) warn(ctx context.Context, text string, err error) {
	suppressed, ok := i.away.Allow(nil)
	if !ok {
		return
	}
	attrs := []slog.Attr{slog.String("error_type", string(fault.TypeOf(err))), slog.String("error", fault.TextOf(err))}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	i.write(ctx, slog.LevelWarn, text, attrs...)
}

// alarm logs what somebody has to look at.
func (i *instruments) alarm(ctx context.Context, text string, m *message, err error) {
	var attrs []slog.Attr
	if m.entry.RequestID != "" { // an entry that cannot be read has none
		attrs = append(attrs, slog.String("request_hash", telemetry.Hash(m.entry.RequestID)), slog.String("item_hash", telemetry.Hash(m.entry.Item)))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error_type", string(fault.TypeOf(err))), slog.String("error", fault.TextOf(err)))
		var p *panicked
		if errors.As(err, &p) {
			attrs = append(attrs, slog.Bool("panicked", true))
		}
	}
	i.write(ctx, slog.LevelError, text, attrs...)
}

func (i *instruments) write(ctx context.Context, level slog.Level, text string, attrs ...slog.Attr) {
	defer func() { // a log handler that panics must not look like an order that failed
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("landing: the log handler panicked: %v", p))
		}
	}()
	i.log.LogAttrs(ctx, level, "landing: "+text, attrs...)
}

// panicked is a panic of the service's code, as an error.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }
