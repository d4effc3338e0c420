package dedup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const scopeName = "github.com/holdfast-go/holdfast/dedup"

// The outcomes of a request that are not error types; see outcomeOf.
const (
	outcomeExecuted = "executed"
	outcomeTakeover = "takeover"
	outcomeBypassed = "bypassed"
	outcomeReplayed = "replayed"
	outcomeWaited   = "waited"
	outcomeNoKey    = "no_key"
	outcomeLeft     = "cancelled"
)

// How the record of a request ended.
const (
	storedResult    = "stored"
	storedTombstone = "tombstone"
	storedFailed    = "failed"
	storedRemoved   = "removed"
	storedLost      = "lost"
	persistFailed   = "persist_failed"
)

var allOutcomes = [...]string{
	outcomeExecuted, outcomeTakeover, outcomeBypassed, outcomeReplayed, outcomeWaited, outcomeNoKey, outcomeLeft, string(fault.InFlight),
	string(fault.Mismatch), string(fault.Invalid), string(fault.Interrupted), string(fault.Withdrawn), string(fault.Corrupt),
	string(fault.Unavailable), string(fault.UnknownOutcome), string(fault.Misuse), string(fault.Closed),
}

var allStored = [...]string{storedResult, storedTombstone, storedFailed, storedRemoved, storedLost, persistFailed}

// sizeBuckets are the boundaries, in bytes, of the histogram of stored results.
var sizeBuckets = []float64{0, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

type instruments struct {
	log      *slog.Logger
	tracer   *telemetry.Tracer
	duration metric.Float64Histogram
	size     metric.Float64Histogram
	byRule   sync.Map // *reqctx.Rule -> *ruleOptions

	away, unrenewed, bypassed telemetry.Quiet
}

// ruleOptions are the attribute sets of one rule, made once.
type ruleOptions struct {
	began  [len(allOutcomes)][]metric.RecordOption
	stored [len(allStored)][]metric.RecordOption
}

func newInstruments(cfg *config) *instruments {
	m := telemetry.NewMeter(scopeName, cfg.meter)
	return &instruments{
		log:    cfg.log,
		tracer: telemetry.NewTracer(scopeName, cfg.tracer),
		duration: m.Histogram(telemetry.MetricDedupBeginDuration, "s",
			"Time from the first question to the decision whether a request runs, waiting included.", telemetry.WaitBuckets()),
		size: m.Histogram(telemetry.MetricDedupResponseSize, "By",
			"Size of the result of a request that ran, 0 where none was stored.", sizeBuckets),
	}
}

func (i *instruments) options(rule *reqctx.Rule) *ruleOptions {
	if o, ok := i.byRule.Load(rule); ok {
		return o.(*ruleOptions)
	}
	o := &ruleOptions{}
	named := telemetry.RuleAttributes(rule)
	for n, outcome := range allOutcomes {
		o.began[n] = attributes(named, telemetry.DedupOutcome.String(outcome))
	}
	var name []attribute.KeyValue
	if rule != nil && rule.Name != "" {
		name = append(name, telemetry.RuleName.String(rule.Name))
	}
	for n, stored := range allStored {
		o.stored[n] = attributes(name, telemetry.DedupStored.String(stored))
	}
	i.byRule.Store(rule, o)
	return o
}

func attributes(named []attribute.KeyValue, own attribute.KeyValue) []metric.RecordOption {
	set := attribute.NewSet(append([]attribute.KeyValue{own}, named...)...)
	if fault.Type(own.Value.AsString()).Failure() {
		set = attribute.NewSet(append(set.ToSlice(), telemetry.ErrorType.String(own.Value.AsString()))...)
	}
	return []metric.RecordOption{metric.WithAttributeSet(set)}
}

// begin starts the span of one Begin.
func (i *instruments) begin(ctx context.Context) (context.Context, trace.Span) {
	return i.tracer.Start(ctx, telemetry.SpanDedupBegin)
}

// told is what there is to tell of one Begin.
type told struct {
	outcome string
	err     error
	id      string
	key     string // the caller's, hashed only if somebody listens
	hash    string // the hash of it, where that is known
	attempt int
	first   string // traceparent of the first execution
	started time.Time
}

func (t *told) requestHash() string {
	if t.hash == "" && t.key != "" {
		t.hash = telemetry.Hash(t.key)
	}
	return t.hash
}

// began ends the span of one Begin, and counts and logs it.
func (i *instruments) began(ctx context.Context, span trace.Span, t told) {
	rule := reqctx.RuleOf(ctx)
	if span.IsRecording() {
		attrs := []attribute.KeyValue{telemetry.DedupOutcome.String(t.outcome)}
		if t.id != "" {
			attrs = append(attrs, telemetry.DedupRecord.String(t.id))
		}
		if hash := t.requestHash(); hash != "" {
			attrs = append(attrs, telemetry.RequestHash.String(hash))
		}
		if t.attempt > 0 {
			attrs = append(attrs, telemetry.DedupAttempt.Int(t.attempt))
		}
		if link, ok := telemetry.LinkTo(t.first); ok {
			span.AddLink(link)
		}
		span.SetAttributes(attrs...)
	}
	telemetry.End(span, t.outcome)
	if i.duration.Enabled(ctx) {
		i.duration.Record(ctx, time.Since(t.started).Seconds(), i.options(rule).began[index(allOutcomes[:], t.outcome)]...)
	}

	level, suppressed := slog.LevelDebug, 0
	switch t.outcome {
	case string(fault.Corrupt):
		level = slog.LevelError
	case string(fault.Unavailable), string(fault.UnknownOutcome):
		if n, ok := i.away.Allow(rule); ok {
			level, suppressed = slog.LevelWarn, n
		}
	case outcomeBypassed:
		if n, ok := i.bypassed.Allow(rule); ok {
			level, suppressed = slog.LevelWarn, n
		}
	}
	if i.log.Enabled(ctx, level) {
		i.write(ctx, level, "dedup: request "+t.outcome, rule, &t, suppressed)
	}
}

// ended ends the span of one end of a claim, and counts and logs it.
func (i *instruments) ended(ctx context.Context, span trace.Span, c *Claim, stored string, size int, err error) {
	rule := c.rule
	t := told{outcome: stored, err: err, id: c.Execution.id, hash: c.hash, attempt: c.attempt}
	outcome := stored
	if err != nil {
		outcome = string(fault.TypeOf(err))
	}
	if span.IsRecording() {
		span.SetAttributes(telemetry.DedupStored.String(stored), telemetry.DedupRecord.String(t.id), telemetry.RequestHash.String(c.hash))
	}
	telemetry.End(span, outcome)
	if i.size.Enabled(ctx) {
		i.size.Record(ctx, float64(size), i.options(rule).stored[index(allStored[:], stored)]...)
	}

	level, suppressed := slog.LevelDebug, 0
	switch {
	case stored == storedLost, stored == persistFailed:
		level = slog.LevelError
	case err != nil:
		if n, ok := i.away.Allow(rule); ok {
			level, suppressed = slog.LevelWarn, n
		}
	}
	if i.log.Enabled(ctx, level) {
		i.write(ctx, level, "dedup: record "+stored, rule, &t, suppressed)
	}
}

// settledLate tells how a result fared that was not stored when it left.
func (i *instruments) settledLate(ctx context.Context, c *Claim, err error) {
	t := told{outcome: storedResult, err: err, id: c.Execution.id, hash: c.hash, attempt: c.attempt}
	level, text := slog.LevelInfo, "dedup: record stored late"
	if err != nil {
		t.outcome, level, text = persistFailed, slog.LevelError, "dedup: gave up storing a record: a repeat of the request will run again"
	}
	if i.log.Enabled(ctx, level) {
		i.write(ctx, level, text, c.rule, &t, 0)
	}
}

func (i *instruments) renewFailed(ctx context.Context, c *Claim, err error) {
	t := told{outcome: "renew_failed", err: err, id: c.Execution.id, hash: c.hash, attempt: c.attempt}
	if n, ok := i.unrenewed.Allow(c.rule); ok && i.log.Enabled(ctx, slog.LevelWarn) {
		i.write(ctx, slog.LevelWarn, "dedup: renewal failed", c.rule, &t, n)
	}
}

func (i *instruments) mayEvict(ctx context.Context, policy string) {
	i.log.LogAttrs(ctx, slog.LevelWarn, "dedup: Redis may evict records, and a forgotten request runs again: set maxmemory-policy noeviction",
		slog.String("maxmemory_policy", policy))
}

func (i *instruments) write(ctx context.Context, level slog.Level, text string, rule *reqctx.Rule, t *told, suppressed int, more ...slog.Attr) {
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs, slog.String("outcome", t.outcome))
	if rule != nil {
		attrs = append(attrs, slog.String("rule", rule.Name), slog.String("route", rule.Route))
	}
	if t.id != "" {
		attrs = append(attrs, slog.String("record", t.id))
	}
	if hash := t.requestHash(); hash != "" {
		attrs = append(attrs, slog.String("request_hash", hash))
	}
	if t.attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", t.attempt))
	}
	if t.err != nil {
		attrs = append(attrs, slog.String("error_type", string(fault.TypeOf(t.err))))
		var e *Error
		if errors.As(t.err, &e) { // ours: its text holds nothing that a log must not
			attrs = append(attrs, slog.String("error", e.Error()))
		}
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	attrs = append(attrs, more...)
	defer func() { // a logger that panics must neither keep a claim nor end the process from a goroutine of ours
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("dedup: the log handler panicked: %v", p))
		}
	}()
	i.log.LogAttrs(ctx, level, text, attrs...)
}

// index returns where the name is in the list, and the index of "unavailable" or of the last one for a name that is not:
// an error of the service's own, from StillTrue.
func index(list []string, name string) int {
	last := len(list) - 1
	for n, s := range list {
		if s == name {
			return n
		}
		if s == string(fault.Unavailable) {
			last = n
		}
	}
	return last
}

// outcomeOf names the outcome of a Begin.
func (q *call) outcomeOf(claim *Claim, rec *Record, err error) string {
	switch {
	case q.corrupt:
		return string(fault.Corrupt)
	case q.cancelled:
		return outcomeLeft
	case claim != nil && claim.bypassed:
		return outcomeBypassed
	case claim != nil && claim.takeover:
		return outcomeTakeover
	case claim != nil:
		return outcomeExecuted
	case q.shared, rec != nil && rec.Waited:
		return outcomeWaited
	case rec != nil:
		return outcomeReplayed
	}
	t := fault.TypeOf(err)
	if t == fault.Internal {
		return string(fault.Unavailable)
	}
	return string(t)
}

// Refused tells traces, metrics and logs of a request that was turned away before Begin, by the type of err, or that has
// no key and runs unprotected, if err is nil. One of Begin, Do and Refused is called for a request.
func (d *Dedup) Refused(ctx context.Context, err error) {
	started := time.Now()
	ctx, span := d.tel.begin(ctx)
	outcome := outcomeNoKey
	switch t := fault.TypeOf(err); {
	case err == nil:
	case t.Failure():
		outcome = string(fault.Misuse)
	default:
		outcome = string(fault.Invalid)
	}
	d.tel.began(ctx, span, told{outcome: outcome, err: err, started: started})
}
