package telemetry

import (
	"context"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func TestTraceparentLeadsBackToItsSpan(t *testing.T) {
	_, tp := recorder()
	ctx, span := tp.Tracer("scope").Start(context.Background(), "first")
	defer span.End()
	link, ok := LinkTo(TraceParent(ctx))
	want := span.SpanContext()
	if !ok || link.SpanContext.TraceID() != want.TraceID() || link.SpanContext.SpanID() != want.SpanID() {
		t.Errorf("LinkTo(%q) = %v, %v; want the span %v", TraceParent(ctx), link.SpanContext, ok, want)
	}
}

func TestOnlyASampledSpanLeavesATraceparent(t *testing.T) {
	ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("scope").Start(context.Background(), "x")
	defer span.End()
	for name, ctx := range map[string]context.Context{"not sampled": ctx, "no span": context.Background(), "invalid": trace.ContextWithSpanContext(context.Background(), trace.SpanContext{})} {
		if got := TraceParent(ctx); got != "" {
			t.Errorf("%s: %q, want none", name, got)
		}
	}
}

func TestATraceparentThatDoesNotParseIsIgnored(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, ok := LinkTo(good); !ok {
		t.Fatalf("%q does not parse", good)
	}
	for _, bad := range []string{
		"", good[:54], good + "0", "01" + good[2:], strings.ReplaceAll(good, "-", "_"), strings.ToUpper(good), good[:53] + "00",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
	} {
		if link, ok := LinkTo(bad); ok {
			t.Errorf("%q gives a link to %v", bad, link.SpanContext)
		}
	}
}
