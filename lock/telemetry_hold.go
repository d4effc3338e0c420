package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// began starts the span of a hold and counts it. Where that of its acquire leads nowhere, its own would not either.
func (h *hold) began(ctx context.Context, acquire trace.Span) {
	h.span = noop.Span{}
	if !h.l.noHoldSpan && acquire.SpanContext().IsValid() {
		ctx, h.span = h.l.tel.tracer.Start(ctx, telemetry.SpanLockHold)
	}
	h.ctx = context.WithoutCancel(ctx)
	move(h.ctx, h.l.tel.held, 1, h.tel.rule) //nolint:contextcheck // made of ctx just now
}

// counted ends the hold in the metrics, once.
func (h *hold) counted(end string) {
	d := time.Since(h.started)
	move(h.ctx, h.l.tel.held, -1, h.tel.rule)
	record(h.ctx, h.l.tel.hold, d.Seconds(), h.tel.hold[slices.Index(ends[:], end)])
	if h.tel.holds.slow(d, h.held.TTL) {
		h.l.tel.write(h.ctx, slog.LevelWarn, "lock: one in a hundred of this rule's holds takes longer than a third of its TTL: shorten the work or raise the TTL",
			h.rule, h.keys, 0, slog.Duration("ttl", h.held.TTL))
	}
}

// spanEnded ends the span.
func (h *hold) spanEnded(end string) {
	if h.span.IsRecording() {
		h.mu.Lock()
		renewals := h.renewals
		h.mu.Unlock()
		h.span.SetAttributes(telemetry.LockFence.Int64(h.fence), telemetry.LockRenewals.Int(renewals), telemetry.LockEnd.String(end))
	}
	outcome := end
	if end == endExpired {
		outcome = endLost
	}
	telemetry.End(h.span, outcome)
}

// endOf names how a release came out.
func endOf(err error) string {
	switch {
	case err == nil:
		return endReleased
	case errors.Is(err, ErrLost):
		return endExpired
	}
	return endUnknown
}

// tellReleased ends metrics and span of a hold that its owner has released.
func (h *hold) tellReleased(err error) {
	end := endOf(err)
	h.counted(end)
	h.spanEnded(end)
	level := slog.LevelDebug
	if err != nil {
		level = slog.LevelWarn // the work is done: what it may have missed is for the fence to say
	}
	if h.l.tel.log.Enabled(h.ctx, level) {
		h.l.tel.write(h.ctx, level, "lock: "+end, h.rule, h.keys, 0, slog.String("outcome", end), errorType(err))
	}
}

// markLost notes in the span that the hold has ended under its holder. The span goes on until the release, which may
// follow at once when the holder learns of it.
func (h *hold) markLost() {
	if h.span.IsRecording() {
		h.span.AddEvent(telemetry.EventLost, trace.WithAttributes(telemetry.LostReason.String(string(h.lost.Reason))))
	}
}

// tellLost tells of a hold that ended under its holder.
func (h *hold) tellLost() {
	h.counted(endLost)
	h.l.tel.write(h.ctx, slog.LevelError, "lock: lost while working", h.rule, h.keys, 0,
		slog.String("outcome", endLost), slog.String("reason", string(h.lost.Reason)), slog.String("error_type", string(fault.Lost)))
}

// tellRenewed tells of one renewal.
func (h *hold) tellRenewed(err error) {
	if err == nil {
		add(h.ctx, h.l.tel.renewals, h.tel.renewals[0])
		return
	}
	failure := string(fault.TypeOf(err))
	add(h.ctx, h.l.tel.renewals, h.tel.renewals[1+max(slices.Index(renewFailures[:], failure), 0)])
	if h.span.IsRecording() {
		h.span.AddEvent(telemetry.EventRenewFailed, trace.WithAttributes(telemetry.ErrorType.String(failure)))
	}
	if n, ok := h.l.tel.unrenewed.Allow(h.rule); ok {
		h.l.tel.write(h.ctx, slog.LevelWarn, "lock: a renewal failed", h.rule, h.keys, n, slog.String("error_type", failure))
	}
}

// holdTimes watches the holds of one rule: when more than one in a hundred is longer than a third of the TTL, renewals
// are no exception any more, and each of them is a chance to lose the lock. The zero value is ready.
type holdTimes struct {
	mu       sync.Mutex
	n, slowN int
	warned   bool
}

// holdSample is how many holds are judged together.
const holdSample = 200

// slow notes a hold, and reports true once, for the first sample in which too many were slow.
func (t *holdTimes) slow(d, ttl time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.warned {
		return false
	}
	t.n++
	if d > ttl/3 {
		t.slowN++
	}
	if t.n < holdSample {
		return false
	}
	t.warned = t.slowN*100 > t.n
	t.n, t.slowN = 0, 0
	return t.warned
}
