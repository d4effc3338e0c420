package lock

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const scopeName = "github.com/holdfast-go/holdfast/lock"

// Outcomes of an acquire that are not error types.
const (
	outcomeAcquired  = "acquired"
	outcomeCancelled = "cancelled"
	outcomeBypassed  = "bypassed"
)

var outcomes = [...]string{
	outcomeAcquired, string(fault.Busy), outcomeCancelled, outcomeBypassed, string(fault.Lost), string(fault.ForeignKey), string(fault.Closed),
	string(fault.Misuse), string(fault.Unavailable), string(fault.UnknownOutcome),
}

// How a hold ended.
const (
	endReleased = "released"
	endLost     = "lost"                   // while the work went on
	endExpired  = "expired_before_release" // found out by the release
	endUnknown  = "unknown_outcome"        // the release had no answer
)

var ends = [...]string{endReleased, endLost, endExpired, endUnknown}

// Why a renewal failed.
var renewFailures = [...]string{string(fault.Unavailable), string(fault.UnknownOutcome)}

type instruments struct {
	log    *slog.Logger
	tracer *telemetry.Tracer

	acquire, attempts, hold                                       metric.Float64Histogram
	waiting, held                                                 metric.Int64UpDownCounter
	renewals, handovers, wakeups, refusals, outOfOrder, forcedOff metric.Int64Counter

	byRule sync.Map // *reqctx.Rule -> *ruleInstruments

	away, wrong, unrenewed, bypassed telemetry.Quiet
}

func newInstruments(c *config) *instruments {
	m := telemetry.NewMeter(scopeName, c.meters)
	return &instruments{
		log:        c.logger,
		tracer:     telemetry.NewTracer(scopeName, c.tracers),
		acquire:    m.Histogram(telemetry.MetricLockAcquireDuration, "s", "Time from the call to the decision, waiting included.", telemetry.WaitBuckets()),
		attempts:   m.Histogram(telemetry.MetricLockAcquireAttempts, "{attempt}", "Questions to the backend for one acquire.", telemetry.AttemptBuckets()),
		hold:       m.Histogram(telemetry.MetricLockHoldDuration, "s", "Time from the grant to the end of the lease.", telemetry.HTTPBuckets()),
		waiting:    m.UpDownCounter(telemetry.MetricLockWaiting, "{request}", "Requests that wait for a lock."),
		held:       m.UpDownCounter(telemetry.MetricLockHeld, "{lock}", "Locks held."),
		renewals:   m.Counter(telemetry.MetricLockRenewals, "{renewal}", "Renewals; those that failed have an error.type."),
		handovers:  m.Counter(telemetry.MetricLockHandovers, "{handover}", "Locks handed to the next waiter of the process."),
		wakeups:    m.Counter(telemetry.MetricLockWakeups, "{wakeup}", "Waits that a message from another process ended."),
		refusals:   m.Counter(telemetry.MetricLockRefusals, "{request}", "Requests refused without asking the backend."),
		outOfOrder: m.Counter(telemetry.MetricLockOutOfOrder, "{request}", "Locks wanted while holding one whose key sorts behind: two of these may wait for each other."),
		forcedOff:  m.Counter(telemetry.MetricLockForced, "{lock}", "Locks taken from their holder by an operator."),
	}
}

// ruleInstruments are the attribute sets of one rule, made once, and what is known of its holds.
type ruleInstruments struct {
	acquire  [len(outcomes)][]metric.RecordOption
	attempts [len(outcomes)][]metric.RecordOption
	hold     [len(ends)][]metric.RecordOption
	rule     []metric.AddOption
	renewals [1 + len(renewFailures)][]metric.AddOption // confirmed, and by failure
	refusals map[BusyReason][]metric.AddOption
	template attribute.KeyValue // of the acquire's span; invalid without one
	holds    holdTimes
}

func (i *instruments) of(rule *reqctx.Rule) *ruleInstruments {
	if r, ok := i.byRule.Load(rule); ok {
		return r.(*ruleInstruments)
	}
	var name, route []attribute.KeyValue
	if rule != nil && rule.Name != "" {
		name = append(name, telemetry.RuleName.String(rule.Name))
	}
	route = slices.Clone(name)
	if rule != nil && rule.Route != "" {
		route = append(route, telemetry.HTTPRoute.String(rule.Route))
	}
	r := &ruleInstruments{rule: adding(name)}
	if rule != nil && len(rule.KeyTemplates) > 0 {
		r.template = telemetry.KeyTemplate.StringSlice(rule.KeyTemplates)
	}
	for n, outcome := range outcomes {
		own := []attribute.KeyValue{telemetry.LockOutcome.String(outcome)}
		if fault.Type(outcome).Failure() {
			own = append(own, telemetry.ErrorType.String(outcome))
		}
		r.acquire[n] = recording(telemetry.RuleAttributes(rule), own...)
		r.attempts[n] = recording(name, own...)
	}
	for n, end := range ends {
		r.hold[n] = recording(route, telemetry.LockEnd.String(end))
	}
	r.renewals[0] = adding(name)
	for n, failure := range renewFailures {
		r.renewals[1+n] = adding(name, telemetry.ErrorType.String(failure))
	}
	r.refusals = map[BusyReason][]metric.AddOption{}
	for _, why := range []BusyReason{NoWait, QueueFull} {
		r.refusals[why] = adding(name, telemetry.LockReason.String(string(why)))
	}
	first, _ := i.byRule.LoadOrStore(rule, r)
	return first.(*ruleInstruments)
}

func recording(named []attribute.KeyValue, own ...attribute.KeyValue) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(append(own, named...)...))}
}

func adding(named []attribute.KeyValue, own ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(append(own, named...)...))}
}

// add counts, if somebody does.
func add(ctx context.Context, c metric.Int64Counter, opts []metric.AddOption) {
	if c.Enabled(ctx) {
		c.Add(ctx, 1, opts...)
	}
}

func move(ctx context.Context, c metric.Int64UpDownCounter, n int64, opts []metric.AddOption) {
	if c.Enabled(ctx) {
		c.Add(ctx, n, opts...)
	}
}

func record(ctx context.Context, h metric.Float64Histogram, v float64, opts []metric.RecordOption) {
	if h.Enabled(ctx) {
		h.Record(ctx, v, opts...)
	}
}
