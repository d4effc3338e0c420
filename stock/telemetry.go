package stock

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const scopeName = "github.com/holdfast-go/holdfast/stock"

// What a span or a metric says besides error types and the outcomes of an end.
const (
	outcomeDeducted = "deducted"
	outcomeReplayed = "replayed"

	strategyCounter = "counter"
	strategyQuota   = "quota"
	strategyTokens  = "tokens"

	movementDeducted  = "deducted"
	movementConfirmed = "confirmed"
	movementReleased  = "released"
	movementSwept     = "swept"
	movementAdjusted  = "adjusted"
)

// outcomes are those of a deduct.
var outcomes = [...]string{
	outcomeDeducted, outcomeReplayed, string(fault.NotWarmed), string(fault.Insufficient), string(fault.LimitReached), string(fault.Released),
	string(fault.Mismatch), string(fault.InFlight), string(fault.Paused), string(fault.NotStarted), string(fault.Ended),
	string(fault.Overloaded), string(fault.Invalid), string(fault.Misuse), string(fault.Corrupt), string(fault.Unavailable),
	string(fault.UnknownOutcome),
}

var movements = [...]string{movementDeducted, movementConfirmed, movementReleased, movementSwept, movementAdjusted}

type instruments struct {
	log      *slog.Logger
	tracer   *telemetry.Tracer
	duration metric.Float64Histogram
	units    metric.Int64Counter
	moved    [len(movements)][]metric.AddOption
	strategy attribute.KeyValue
	byRule   sync.Map // *reqctx.Rule -> *[len(outcomes)][]metric.RecordOption
	stop     func()   // ends the gauge of items

	away, corrupt telemetry.Quiet
}

func (c *Counter) newInstruments() *instruments {
	m := telemetry.NewMeter(scopeName, c.cfg.meters)
	i := &instruments{
		log:    c.cfg.logger,
		tracer: telemetry.NewTracer(scopeName, c.cfg.tracers),
		duration: m.Histogram(telemetry.MetricStockDeductDuration, "s",
			"Time from the call to the decision whether an order may have its units.", telemetry.WaitBuckets()),
		units:    m.Counter(telemetry.MetricStockUnits, "{unit}", "Units that were taken, ended or adjusted."),
		strategy: telemetry.StockStrategy.String(strategyCounter),
		stop:     func() {},
	}
	switch {
	case c.keys.quota:
		i.strategy = telemetry.StockStrategy.String(strategyQuota)
	case c.keys.tokens:
		i.strategy = telemetry.StockStrategy.String(strategyTokens)
	}
	for n, movement := range movements {
		i.moved[n] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(i.strategy, telemetry.StockMovement.String(movement)))}
	}
	if len(c.cfg.items) > 0 {
		i.stop = m.ObservableGauge(telemetry.MetricStockRemaining, "{unit}", "Units left of the items that were chosen.", c.observe)
	}
	return i
}

// observe reads what is left of the chosen items, once a collection.
func (c *Counter) observe(ctx context.Context, record func(value int64, opts ...metric.ObserveOption)) {
	for _, item := range c.cfg.items {
		left, err := c.Remaining(ctx, item)
		if err != nil {
			continue // no value is the honest one: the gauge shows a gap
		}
		record(left, metric.WithAttributeSet(attribute.NewSet(c.tel.strategy, telemetry.ItemID.String(item))))
	}
}

func (i *instruments) options(rule *reqctx.Rule) *[len(outcomes)][]metric.RecordOption {
	if o, ok := i.byRule.Load(rule); ok {
		return o.(*[len(outcomes)][]metric.RecordOption)
	}
	o := new([len(outcomes)][]metric.RecordOption)
	for n, outcome := range outcomes {
		attrs := []attribute.KeyValue{i.strategy, telemetry.StockOutcome.String(outcome)}
		if rule != nil && rule.Name != "" {
			attrs = append(attrs, telemetry.RuleName.String(rule.Name))
		}
		if fault.Type(outcome).Failure() {
			attrs = append(attrs, telemetry.ErrorType.String(outcome))
		}
		o[n] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}
	}
	first, _ := i.byRule.LoadOrStore(rule, o)
	return first.(*[len(outcomes)][]metric.RecordOption)
}

// told is what there is to tell of one call.
type told struct {
	what    string // deduct, confirm, release
	outcome string
	err     error
	item    string
	request string // the id that the caller has set himself, which only its hash may tell
	units   int64
	turns   int // above 1: other segments or places were tried
	first   string
	why     Reason
}

// requestHash returns the hash of the client's key: the context's, or that of an id that the caller has set himself. It is
// asked for only where somebody reads it.
func (t *told) requestHash(ctx context.Context) string {
	r, ok := reqctx.RequestOf(ctx)
	switch {
	case t.request == "" || ok && t.request == r.ID:
		return r.Hash
	default:
		return telemetry.Hash(t.request)
	}
}

// deducted ends the span of a deduct, and counts and logs it.
func (i *instruments) deducted(ctx context.Context, span trace.Span, began time.Time, t *told) {
	i.end(ctx, span, t)
	if i.duration.Enabled(ctx) {
		i.duration.Record(ctx, time.Since(began).Seconds(), i.options(reqctx.RuleOf(ctx))[slices.Index(outcomes[:], t.outcome)]...)
	}
	if t.outcome == outcomeDeducted {
		i.move(ctx, movementDeducted, t.units)
	}
}

// ended ends the span of a confirmation or a release, and counts and logs it.
func (i *instruments) ended(ctx context.Context, span trace.Span, t *told) {
	i.end(ctx, span, t)
	switch {
	case t.outcome == OutcomeConfirmed:
		i.move(ctx, movementConfirmed, t.units)
	case t.outcome == OutcomeReleased && t.why == Unpaid:
		i.move(ctx, movementSwept, t.units)
	case t.outcome == OutcomeReleased:
		i.move(ctx, movementReleased, t.units)
	}
}

func (i *instruments) end(ctx context.Context, span trace.Span, t *told) {
	if span.IsRecording() {
		attrs := make([]attribute.KeyValue, 0, 6)
		attrs = append(attrs, telemetry.StockOutcome.String(t.outcome), i.strategy)
		if t.units > 0 {
			attrs = append(attrs, telemetry.StockUnits.Int64(t.units))
		}
		if t.item != "" {
			attrs = append(attrs, telemetry.ItemHash.String(telemetry.Hash(t.item)))
		}
		if hash := t.requestHash(ctx); hash != "" {
			attrs = append(attrs, telemetry.RequestHash.String(hash))
		}
		if t.turns > 1 {
			attrs = append(attrs, telemetry.StockSegmentsTried.Int(t.turns))
		}
		if link, ok := telemetry.LinkTo(t.first); ok {
			span.AddLink(link)
		}
		telemetry.End(span, t.outcome, attrs...)
	} else {
		span.End()
	}
	i.tell(ctx, t)
}

func (i *instruments) move(ctx context.Context, movement string, units int64) {
	if i.units.Enabled(ctx) {
		i.units.Add(ctx, units, i.moved[slices.Index(movements[:], movement)]...)
	}
}

// outcomeOf names an error in telemetry.
func outcomeOf(err error) string {
	t := fault.TypeOf(err)
	if t == fault.ForeignKey || t == fault.Internal {
		return string(fault.Corrupt)
	}
	return string(t)
}
