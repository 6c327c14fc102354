package otlp

import (
	"context"
	"log/slog"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// stuck is an exporter whose receiver never answers.
type stuck struct{ free chan struct{} }

func (s stuck) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	select {
	case <-s.free:
	case <-ctx.Done():
	}
	return nil
}
func (stuck) Shutdown(context.Context) error { return nil }

// A receiver that hangs takes no place beyond the queue's, and what is left at the end is told.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	q := &queue{most: 3, log: slog.New(slog.DiscardHandler)}
	q.next = sdk.NewBatchSpanProcessor(&counted{SpanExporter: stuck{free}, queue: q}, sdk.WithMaxQueueSize(3))
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(q))
	for range 10 {
		_, s := p.Tracer("t").Start(t.Context(), "s")
		s.End()
	}
	if got := q.inside.Load(); got != 3 {
		t.Errorf("%d spans are inside, want 3", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = p.Shutdown(ended)
	if left := q.close(); left != 3 {
		t.Errorf("%d spans were left at the end, want 3", left)
	}
	close(free)
}

func TestWanted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  map[string]string
		way  string
		fail bool
	}{
		{nil, "", false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, http, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, grpc, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "", false},
		{map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, "", false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, "", true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "", true},
	} {
		way, err := wanted(func(name string) string { return tt.env[name] })
		if way != tt.way || err != nil != tt.fail {
			t.Errorf("%v: got %q, %v", tt.env, way, err)
		}
	}
}
