package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// mostHashes bounds the key hashes on one span.
const mostHashes = 8

// outcomeOf names the outcome of an acquire.
func outcomeOf(err error) string {
	if err == nil {
		return outcomeAcquired
	}
	var busy *BusyError
	if errors.As(err, &busy) && busy.Reason == Cancelled {
		return outcomeCancelled
	}
	var e *Error
	if errors.As(err, &e) && e.cancelled {
		return outcomeCancelled
	}
	return string(fault.TypeOf(err))
}

// decided ends the span of one acquire, and counts and logs it.
func (i *instruments) decided(ctx context.Context, span trace.Span, a *acquisition, err error) {
	outcome := outcomeOf(err)
	waited := time.Since(a.start)
	if span.IsRecording() {
		span.SetAttributes(a.attributes(outcome, waited)...)
	}
	telemetry.End(span, outcome)

	n := max(slices.Index(outcomes[:], outcome), 0)
	record(ctx, i.acquire, waited.Seconds(), a.tel.acquire[n])
	record(ctx, i.attempts, float64(a.attempts), a.tel.attempts[n])
	if a.waits {
		move(ctx, i.waiting, -1, a.tel.rule)
	}
	if a.attempts == 0 && err != nil {
		i.refused(ctx, a, err)
	}

	level, suppressed := slog.LevelDebug, 0
	switch fault.Type(outcome) {
	case fault.Unavailable, fault.UnknownOutcome:
		if n, ok := i.away.Allow(a.rule); ok {
			level, suppressed = slog.LevelWarn, n
		}
	case fault.ForeignKey, fault.Misuse:
		if n, ok := i.wrong.Allow(a.rule); ok {
			level, suppressed = slog.LevelError, n
		}
	}
	if i.log.Enabled(ctx, level) {
		i.write(ctx, level, "lock: "+outcome, a.rule, a.keys, suppressed, slog.String("outcome", outcome), slog.Int("attempt", a.attempts), errorType(err))
	}
}

// refused counts an acquire that the backend was not asked for.
func (i *instruments) refused(ctx context.Context, a *acquisition, err error) {
	var busy *BusyError
	if errors.As(err, &busy) && a.tel.refusals[busy.Reason] != nil {
		add(ctx, i.refusals, a.tel.refusals[busy.Reason])
	}
}

func (a *acquisition) attributes(outcome string, waited time.Duration) []attribute.KeyValue {
	mode := "wait"
	if a.s.wait == 0 {
		mode = "fail_fast"
	}
	attrs := append(make([]attribute.KeyValue, 0, 8),
		telemetry.LockMode.String(mode), telemetry.LockOutcome.String(outcome), telemetry.LockAttempts.Int(a.attempts),
		telemetry.LockWait.Float64(waited.Seconds()), telemetry.LockKeys.Int(len(a.keys)), telemetry.KeyHash.StringSlice(keyHashes(a.keys)))
	if a.tel.template.Valid() {
		attrs = append(attrs, a.tel.template)
	}
	if a.l.rawKeys {
		attrs = append(attrs, telemetry.RawKey.StringSlice(a.keys))
	}
	return attrs
}

func keyHashes(keys []string) []string {
	hashes := make([]string, min(len(keys), mostHashes))
	for n := range hashes {
		hashes[n] = telemetry.Hash(keys[n])
	}
	return hashes
}

// attempted adds an event for an attempt that found the lock taken, where that is wanted: the delay planned after it,
// and the real one.
func (a *acquisition) attempted(planned, waited time.Duration) {
	if a.l.attempts && a.span.IsRecording() {
		a.span.AddEvent(telemetry.EventAttempt, trace.WithAttributes(
			telemetry.LockAttempts.Int(a.attempts), telemetry.PlannedDelay.Float64(planned.Seconds()), telemetry.RealDelay.Float64(waited.Seconds())))
	}
}

// Bypassed tells traces, metrics and logs of work that goes on without a lock, by a rule that allows it while Redis is
// away. It is called in addition to the Acquire that failed, by whoever decides so.
func (l *Locker) Bypassed(ctx context.Context, keys []string) {
	a := &acquisition{l: l, s: l.settings, keys: keys, rule: reqctx.RuleOf(ctx), start: time.Now()}
	a.tel = l.tel.of(a.rule)
	ctx, span := l.tel.tracer.Start(ctx, telemetry.SpanLockAcquire)
	if span.IsRecording() {
		span.SetAttributes(a.attributes(outcomeBypassed, 0)...)
	}
	telemetry.End(span, outcomeBypassed)
	record(ctx, l.tel.acquire, 0, a.tel.acquire[slices.Index(outcomes[:], outcomeBypassed)])
	if n, ok := l.tel.bypassed.Allow(a.rule); ok {
		l.tel.write(ctx, slog.LevelWarn, "lock: work goes on without the lock", a.rule, keys, n, slog.String("outcome", outcomeBypassed))
	}
}
