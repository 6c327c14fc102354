package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// The kinds of spans.
const (
	Internal = trace.SpanKindInternal
	Server   = trace.SpanKindServer
	Client   = trace.SpanKindClient
	Producer = trace.SpanKindProducer
	Consumer = trace.SpanKindConsumer
)

// Tracer makes spans. A nil Tracer makes none.
type Tracer struct{ to trace.Tracer }

// New makes a Tracer that makes spans with to.
func New(to trace.Tracer) *Tracer { return &Tracer{to} }

// Span is something that takes time, on its way into a trace. Its methods may be called on a nil Span, where they do
// nothing.
type Span struct{ of trace.Span }

// Start begins a span within that of ctx, if any. On a nil Tracer it gives ctx back, and no span.
func (t *Tracer) Start(ctx context.Context, kind trace.SpanKind, name string, attrs ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(clean(attrs)...))
}

// Serve begins the span of a request that came with a traceparent, "" where it came with none.
func (t *Tracer) Serve(ctx context.Context, name, traceparent string, attrs ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, parse(traceparent))
	return t.start(ctx, name, trace.WithSpanKind(Server), trace.WithAttributes(clean(attrs)...))
}

// Continue begins the span of something that was queued with a traceparent, as its child and with a link to it: the
// wait between the two is no span of anybody's. Without one it begins a trace of its own. It began at at.
func (t *Tracer) Continue(ctx context.Context, name, traceparent string, at time.Time, attrs ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(Consumer), trace.WithTimestamp(at), trace.WithAttributes(clean(attrs)...)}
	if from := parse(traceparent); from.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	return t.start(ctx, name, opts...)
}

func (t *Tracer) start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, *Span) {
	ctx, s := t.to.Start(ctx, name, opts...)
	return ctx, &Span{s}
}

// Set puts attributes on the span.
func (s *Span) Set(attrs ...attribute.KeyValue) {
	if s != nil && s.of.IsRecording() {
		s.of.SetAttributes(clean(attrs)...)
	}
}

// Link says that the span has to do with another one, that of a traceparent.
func (s *Span) Link(traceparent string) {
	if s == nil || !s.of.IsRecording() {
		return
	}
	if to := parse(traceparent); to.IsValid() {
		s.of.AddLink(trace.Link{SpanContext: to})
	}
}

// Fail says that what the span stands for went wrong, by a code of ours. Texts are for the log.
func (s *Span) Fail(code string) {
	if s == nil || !s.of.IsRecording() || code == "" {
		return
	}
	s.of.SetAttributes(clean([]attribute.KeyValue{ErrorType.String(code)})...)
	s.of.SetStatus(codes.Error, "")
}

// End ends the span, now.
func (s *Span) End() {
	if s != nil {
		s.of.End()
	}
}

// Recording says whether anybody will see the span.
func (s *Span) Recording() bool { return s != nil && s.of.IsRecording() }

// Traceparent is what continues from the span carries, "" for none.
func (s *Span) Traceparent() string {
	if s == nil {
		return ""
	}
	return format(s.of.SpanContext())
}

// TraceID is the id of the span's trace, "" for none.
func (s *Span) TraceID() string {
	if s == nil || !s.of.SpanContext().HasTraceID() {
		return ""
	}
	return s.of.SpanContext().TraceID().String()
}

// clean leaves out what is not on the list, and searches texts for what looks like a credential: the name of a model
// is whatever a caller wrote there.
func clean(attrs []attribute.KeyValue) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		if !allowed[a.Key] {
			continue
		}
		switch a.Value.Type() {
		case attribute.STRING:
			if a.Value.AsString() == "" {
				continue
			}
			a.Value = attribute.StringValue(text(a.Key, a.Value.AsString()))
		case attribute.STRINGSLICE:
			all := a.Value.AsStringSlice()
			for i := range all {
				all[i] = text(a.Key, all[i])
			}
			a.Value = attribute.StringSliceValue(all)
		}
		out = append(out, a)
	}
	return out
}

// foreign are the attributes whose values are words of callers or providers.
var foreign = setOf(GenAIRequestModel, GenAIResponseModel, GenAIFinishReasons, ErrorType)

// maxText bounds a value, in bytes.
const maxText = 256

func text(key attribute.Key, s string) string {
	if foreign[key] {
		s = telemetry.ScrubText(s)
	}
	if len(s) > maxText {
		s = s[:maxText]
	}
	return s
}
