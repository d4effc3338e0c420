package stock

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// tell logs one call: an answer at debug, a Redis that is away at warn and a stored value that cannot be read at error,
// the last two at most once a second for each rule.
func (i *instruments) tell(ctx context.Context, t *told) {
	rule := reqctx.RuleOf(ctx)
	level, suppressed := slog.LevelDebug, 0
	switch fault.Type(t.outcome) {
	case fault.Unavailable, fault.UnknownOutcome:
		if n, ok := i.away.Allow(rule); ok {
			level, suppressed = slog.LevelWarn, n
		}
	case fault.Corrupt:
		if n, ok := i.corrupt.Allow(rule); ok {
			level, suppressed = slog.LevelError, n
		}
	}
	if !i.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("outcome", t.outcome))
	if t.err != nil {
		attrs = append(attrs, slog.String("error_type", t.outcome))
		if e, ok := as(t.err); ok && e.reason != "" {
			attrs = append(attrs, slog.String("reason", e.reason))
		}
	}
	if rule != nil {
		attrs = append(attrs, slog.String("rule", rule.Name), slog.String("route", rule.Route))
	}
	if t.units > 0 {
		attrs = append(attrs, slog.Int64("units", t.units))
	}
	if t.item != "" {
		attrs = append(attrs, slog.String("item_hash", telemetry.Hash(t.item)))
	}
	if hash := t.requestHash(ctx); hash != "" {
		attrs = append(attrs, slog.String("request_hash", hash))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	i.write(ctx, level, "stock: "+t.what, attrs...)
}

// decided logs what an operator has done to an item.
func (i *instruments) decided(ctx context.Context, what, item, operation, operator string, units int64) {
	if !i.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	attrs := []slog.Attr{slog.String("item_hash", telemetry.Hash(item))}
	if operation != "" {
		attrs = append(attrs, slog.String("operation", operation), slog.String("operator", operator), slog.Int64("units", units))
	}
	i.write(ctx, slog.LevelInfo, "stock: "+what, attrs...)
}

func (i *instruments) mayEvict(ctx context.Context, policy string) {
	i.write(ctx, slog.LevelWarn, "stock: Redis may evict counters, and a sale whose counter is gone stops: set maxmemory-policy noeviction",
		slog.String("maxmemory_policy", policy))
}

func (i *instruments) write(ctx context.Context, level slog.Level, text string, attrs ...slog.Attr) {
	defer func() { // a log handler that panics must not look like an order that failed
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("stock: the log handler panicked: %v", p))
		}
	}()
	i.log.LogAttrs(ctx, level, text, attrs...)
}
