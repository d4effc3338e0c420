package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// startTraces sets the global tracer provider: "tree" prints each finished trace as a tree, "stdout" what the official
// exporter prints.
func startTraces(kind string, out io.Writer) (stop func() error, err error) {
	var processor sdktrace.SpanProcessor
	switch kind {
	case "":
		return func() error { return nil }, nil
	case "tree":
		processor = &treePrinter{out: out, traces: map[trace.TraceID][]sdktrace.ReadOnlySpan{}}
	case "stdout":
		exporter, err := stdouttrace.New(stdouttrace.WithWriter(out), stdouttrace.WithPrettyPrint())
		if err != nil {
			return nil, err
		}
		processor = sdktrace.NewBatchSpanProcessor(exporter)
	default:
		return nil, fmt.Errorf("-trace is tree or stdout, not %q", kind)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return func() error { return provider.Shutdown(context.Background()) }, nil
}

// serverSpan makes the span of the request. A service has one from otelchi or otelhttp; any will do.
func serverSpan(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := otel.Tracer("flashsale").Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
		if pattern := chi.RouteContext(ctx).RoutePattern(); pattern != "" {
			span.SetName(r.Method + " " + pattern)
		}
	})
}

// treePrinter collects the spans of a trace and prints them when its root ends.
type treePrinter struct {
	out    io.Writer
	mu     sync.Mutex
	traces map[trace.TraceID][]sdktrace.ReadOnlySpan
}

func (p *treePrinter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (p *treePrinter) Shutdown(context.Context) error                  { return nil }
func (p *treePrinter) ForceFlush(context.Context) error                { return nil }

func (p *treePrinter) OnEnd(s sdktrace.ReadOnlySpan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := s.SpanContext().TraceID()
	p.traces[id] = append(p.traces[id], s)
	if s.Parent().IsValid() && !s.Parent().IsRemote() {
		return
	}
	spans := p.traces[id]
	delete(p.traces, id)
	slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	fmt.Fprintf(p.out, "\n%s\n", id)
	printTree(p.out, spans, s, 1)
}

func printTree(out io.Writer, spans []sdktrace.ReadOnlySpan, at sdktrace.ReadOnlySpan, depth int) {
	took := at.EndTime().Sub(at.StartTime()).Round(10 * time.Microsecond)
	fmt.Fprintf(out, "%s%-*s %9v  %s\n", strings.Repeat("  ", depth), 44-2*depth, at.Name(), took, describe(at.Attributes()))
	for _, s := range spans {
		if s.Parent().SpanID() == at.SpanContext().SpanID() {
			printTree(out, spans, s, depth+1)
		}
	}
}

// describe shows holdfast's own attributes, outcome first; route, rule and the request's ids are on every span and say
// nothing new here.
func describe(attrs []attribute.KeyValue) string {
	var words []string
	for _, a := range attrs {
		name, ours := strings.CutPrefix(string(a.Key), "holdfast.")
		switch {
		case !ours, strings.HasPrefix(name, "rule."), strings.HasPrefix(name, "request."), name == "dedup.record":
		case strings.HasSuffix(name, ".outcome"):
			words = slices.Insert(words, 0, a.Value.Emit())
		default:
			words = append(words, name+"="+a.Value.Emit())
		}
	}
	return strings.Join(words, "  ")
}
