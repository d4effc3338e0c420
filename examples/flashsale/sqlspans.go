package main

import (
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"
)

// sqlSpans makes a span for each statement, so that the traces of this example show SQL. A service has gorm's own
// OpenTelemetry plugin for that; this stand-in registers its callbacks under the same names.
type sqlSpans struct{}

// Name implements gorm.Plugin.
func (sqlSpans) Name() string { return "otel" }

// Initialize implements gorm.Plugin.
func (sqlSpans) Initialize(db *gorm.DB) error {
	cb := db.Callback()
	for _, err := range []error{
		cb.Create().Before("gorm:create").Register("otel:before:create", startSpan("INSERT")),
		cb.Create().After("gorm:create").Register("otel:after:create", endSpan),
		cb.Query().Before("gorm:query").Register("otel:before:select", startSpan("SELECT")),
		cb.Query().After("gorm:query").Register("otel:after:select", endSpan),
		cb.Update().Before("gorm:update").Register("otel:before:update", startSpan("UPDATE")),
		cb.Update().After("gorm:update").Register("otel:after:update", endSpan),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func startSpan(verb string) func(*gorm.DB) {
	return func(tx *gorm.DB) {
		name := strings.TrimSpace(verb + " " + tx.Statement.Table)
		tx.Statement.Context, _ = otel.Tracer("flashsale/sql").Start(tx.Statement.Context, name, trace.WithSpanKind(trace.SpanKindClient))
	}
}

func endSpan(tx *gorm.DB) { trace.SpanFromContext(tx.Statement.Context).End() }
