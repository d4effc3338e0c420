package telemetry

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/internal/fault"
	"github.com/holdfast-go/holdfast/internal/reqctx"
)

func recorder() (*tracetest.SpanRecorder, *sdktrace.TracerProvider) {
	sr := tracetest.NewSpanRecorder()
	return sr, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sr))
}

func TestSpanCarriesRuleAndRequest(t *testing.T) {
	sr, tp := recorder()
	tr := NewTracer("scope", tp)
	ctx := reqctx.WithRule(context.Background(), &reqctx.Rule{Name: "buy", Method: "POST", Route: "/items/{id}"})
	ctx = reqctx.WithRequest(ctx, reqctx.Request{ID: "secret-id", Hash: "0123456789abcdef"})
	_, span := tr.Start(ctx, SpanLockAcquire)
	End(span, "acquired", LockOutcome.String("acquired"))

	got := attribute.NewSet(sr.Ended()[0].Attributes()...)
	want := attribute.NewSet(HTTPRoute.String("/items/{id}"), HTTPRequestMethod.String("POST"), RuleName.String("buy"),
		RequestHash.String("0123456789abcdef"), LockOutcome.String("acquired"))
	if !got.Equals(&want) {
		t.Errorf("attributes %v, want %v", got.Encoded(attribute.DefaultEncoder()), want.Encoded(attribute.DefaultEncoder()))
	}
}

func TestAnAnswerIsNoError(t *testing.T) {
	sr, tp := recorder()
	tr := NewTracer("scope", tp)
	for _, outcome := range []string{"acquired", string(fault.Busy), string(fault.Insufficient), string(fault.Duplicate), string(fault.Mismatch)} {
		_, span := tr.Start(context.Background(), "x")
		End(span, outcome)
	}
	_, span := tr.Start(context.Background(), "x")
	End(span, string(fault.Unavailable))
	spans := sr.Ended()
	for _, s := range spans[:len(spans)-1] {
		if s.Status().Code != codes.Unset {
			t.Errorf("an answer has status %v", s.Status())
		}
	}
	if s := spans[len(spans)-1].Status(); s.Code != codes.Error || s.Description != "unavailable" {
		t.Errorf("a fault has status %v", s)
	}
}

func TestProviderIsThatOfTheSpanInTheContext(t *testing.T) {
	outer, tp := recorder()
	ctx, parent := tp.Tracer("server").Start(context.Background(), "request")
	_, span := NewTracer("scope", nil).Start(ctx, "x")
	span.End()
	parent.End()
	if got := len(outer.Ended()); got != 2 {
		t.Errorf("%d spans reached the provider of the surrounding span, want 2", got)
	}
}
