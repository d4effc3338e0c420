package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

// Tracer starts the spans of one package. It is safe for concurrent use.
type Tracer struct {
	scope  string
	given  trace.TracerProvider // nil: the provider of the span in the context, else the global one
	byProv sync.Map             // trace.TracerProvider -> trace.Tracer
	byRule sync.Map             // *reqctx.Rule -> trace.SpanStartOption
}

// NewTracer returns the tracer of the package with that import path. A nil provider means: that of the valid span in
// the context, else the global one, asked at each start, so that it may be set later.
func NewTracer(scope string, given trace.TracerProvider) *Tracer {
	return &Tracer{scope: scope, given: given}
}

// Start starts a span with the attributes of the rule and of the request in the context, where there are any.
// Ask span.IsRecording before anything is formatted or hashed for it.
func (t *Tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	if rule := reqctx.RuleOf(ctx); rule != nil {
		opts = append(opts, t.ruleOption(rule))
	}
	ctx, span := t.tracer(ctx).Start(ctx, name, opts...)
	if span.IsRecording() {
		if r, ok := reqctx.RequestOf(ctx); ok && r.Hash != "" {
			span.SetAttributes(RequestHash.String(r.Hash))
		}
	}
	return ctx, span
}

func (t *Tracer) tracer(ctx context.Context) trace.Tracer {
	prov := t.given
	if prov == nil {
		if span := trace.SpanFromContext(ctx); span.SpanContext().IsValid() {
			prov = span.TracerProvider()
		} else {
			prov = otel.GetTracerProvider()
		}
	}
	if tr, ok := t.byProv.Load(prov); ok {
		return tr.(trace.Tracer)
	}
	tr := prov.Tracer(t.scope, trace.WithInstrumentationVersion(Version()), trace.WithSchemaURL(semconv.SchemaURL))
	t.byProv.Store(prov, tr)
	return tr
}

func (t *Tracer) ruleOption(rule *reqctx.Rule) trace.SpanStartOption {
	if o, ok := t.byRule.Load(rule); ok {
		return o.(trace.SpanStartOption)
	}
	o := trace.WithAttributes(RuleAttributes(rule)...)
	t.byRule.Store(rule, o)
	return o
}

// RuleAttributes are the attributes that name a rule on spans and metrics; none for nil.
func RuleAttributes(rule *reqctx.Rule) []attribute.KeyValue {
	if rule == nil {
		return nil
	}
	attrs := make([]attribute.KeyValue, 0, 3)
	if rule.Route != "" {
		attrs = append(attrs, HTTPRoute.String(rule.Route), HTTPRequestMethod.String(rule.Method))
	}
	if rule.Name != "" {
		attrs = append(attrs, RuleName.String(rule.Name))
	}
	return attrs
}

// End ends a span. An outcome that is an error type whose answer is a 5xx makes the span an Error with that type; every
// other outcome, "busy" and "sold out" included, leaves the status alone: it is an answer, not a fault.
func End(span trace.Span, outcome string, attrs ...attribute.KeyValue) {
	if span.IsRecording() {
		if t := fault.Type(outcome); t.Failure() {
			attrs = append(attrs, ErrorType.String(outcome))
			span.SetStatus(codes.Error, outcome)
		}
		span.SetAttributes(attrs...)
	}
	span.End()
}
