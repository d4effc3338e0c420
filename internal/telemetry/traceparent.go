package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// A traceparent of version 00 is "00-" trace id "-" span id "-" flags, in lower-case hex (W3C Trace Context, 3.2).
const (
	traceparentLen = 55
	traceIDAt      = 3
	spanIDAt       = 36
	flagsAt        = 53
)

// TraceParent returns the W3C traceparent of the span in the context, empty unless it is sampled. It is what is kept
// where work is continued elsewhere; see LinkTo.
func TraceParent(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsSampled() || !sc.IsValid() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}

// LinkTo returns a link to the span of a stored traceparent, or false for one that does not parse: it is then ignored.
func LinkTo(traceparent string) (trace.Link, bool) {
	if len(traceparent) != traceparentLen || traceparent[:traceIDAt] != "00-" || traceparent[spanIDAt-1] != '-' || traceparent[flagsAt-1:] != "-01" {
		return trace.Link{}, false
	}
	traceID, err := trace.TraceIDFromHex(traceparent[traceIDAt : spanIDAt-1])
	if err != nil {
		return trace.Link{}, false
	}
	spanID, err := trace.SpanIDFromHex(traceparent[spanIDAt : flagsAt-1])
	if err != nil {
		return trace.Link{}, false
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled, Remote: true})
	return trace.Link{SpanContext: sc}, true
}
