package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Traceparent returns a caller's traceparent in the form that is kept with a task, "" where it is absent or malformed.
func Traceparent(header string) string { return format(parse(strings.TrimSpace(header))) }

// TraceID is the trace id of a traceparent, "" for none.
func TraceID(traceparent string) string {
	if sc := parse(traceparent); sc.IsValid() {
		return sc.TraceID().String()
	}
	return ""
}

// From is the traceparent of the span in ctx, whoever began it, "" for none.
func From(ctx context.Context) string { return format(trace.SpanContextFromContext(ctx)) }

// parse reads a W3C traceparent (https://www.w3.org/TR/trace-context/). A malformed one is like none. Of versions to
// come what this one knows is taken.
func parse(h string) trace.SpanContext {
	if len(h) < 55 || h[2] != '-' || h[35] != '-' || h[52] != '-' {
		return trace.SpanContext{}
	}
	version, flags := h[:2], h[53:55]
	if !lowerHex(version+flags) || version == "ff" || version == "00" && len(h) != 55 || len(h) > 55 && h[55] != '-' {
		return trace.SpanContext{}
	}
	id, err := trace.TraceIDFromHex(h[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	span, err := trace.SpanIDFromHex(h[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	// The last bit of the flags says whether the trace is sampled.
	var f trace.TraceFlags
	f = f.WithSampled(strings.IndexByte("13579bdf", flags[1]) >= 0)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: f, Remote: true})
}

func format(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	flags := "00"
	if sc.IsSampled() {
		flags = "01"
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + flags
}

func lowerHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}
