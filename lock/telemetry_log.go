package lock

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// write logs one line about keys, of which it shows the hash of the first.
func (i *instruments) write(ctx context.Context, level slog.Level, text string, rule *reqctx.Rule, keys []string, suppressed int, more ...slog.Attr) {
	attrs := make([]slog.Attr, 0, 8)
	if rule != nil {
		attrs = append(attrs, slog.String("rule", rule.Name))
		if rule.Route != "" {
			attrs = append(attrs, slog.String("route", rule.Route))
		}
	}
	if len(keys) > 0 {
		attrs = append(attrs, slog.String("key_hash", telemetry.Hash(keys[0])))
	}
	if r, ok := reqctx.RequestOf(ctx); ok && r.Hash != "" {
		attrs = append(attrs, slog.String("request_hash", r.Hash))
	}
	for _, a := range more {
		if a.Key != "" {
			attrs = append(attrs, a)
		}
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	defer func() { // a logger that panics must neither keep a lock nor end the process from a goroutine of ours
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("lock: the log handler panicked: %v", p))
		}
	}()
	i.log.LogAttrs(ctx, level, text, attrs...)
}

// errorType is the attribute that names an error's type, none for nil.
func errorType(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String("error_type", string(fault.TypeOf(err)))
}
