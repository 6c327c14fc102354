// Package otlp decides whether spans are sent, and where to, by OpenTelemetry's standard environment variables.
//
// Spans are a help and no promise: sending them holds up no work, whatever the receiver does. Each ended span takes a
// place in a bounded queue or is dropped, a stop waits for the receiver a few seconds at most, and what is dropped is
// counted.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/onefold-dev/onefold/internal/tracing"
)

// StopWithin is how long a stop waits for spans to leave.
const StopWithin = 3 * time.Second

// defaultQueue is how many ended spans wait to be sent at most, where OTEL_BSP_MAX_QUEUE_SIZE says nothing.
const defaultQueue = 2048

// scope names what makes the spans.
const scope = "github.com/onefold-dev/onefold"

// Opts say who sends.
type Opts struct {
	Service  string // service.name, where OTEL_SERVICE_NAME gives no other
	Version  string
	Instance string
	Getenv   func(string) string // nil: no variable is set
	Log      *slog.Logger
}

// Sender sends a process's spans. A nil one sends nothing: then there is no SDK, no connection and no goroutine.
type Sender struct {
	provider *sdk.TracerProvider
	queue    *queue
	log      *slog.Logger
}

// Start begins to send where the environment says so, and gives nil where it does not. It waits for nobody: a receiver
// that is not there yet is tried again with each batch. The error is about a variable whose value cannot be served.
func Start(ctx context.Context, o Opts) (*Sender, error) {
	if o.Getenv == nil {
		return nil, nil
	}
	way, err := wanted(o.Getenv)
	if err != nil || way == "" {
		return nil, err
	}
	// What the SDK has to say goes through our log, which shows no credential; its own would print to stderr.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Log.Warn("spans not sent", "error", err) }))
	exporter, err := newExporter(ctx, way)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	size := defaultQueue
	if n, err := strconv.Atoi(o.Getenv("OTEL_BSP_MAX_QUEUE_SIZE")); err == nil && n > 0 {
		size = n
	}
	q := &queue{most: int64(size), log: o.Log}
	q.next = sdk.NewBatchSpanProcessor(&counted{SpanExporter: exporter, queue: q}, sdk.WithMaxQueueSize(size))
	s := &Sender{queue: q, log: o.Log, provider: sdk.NewTracerProvider(sdk.WithSpanProcessor(q), sdk.WithResource(describe(ctx, o)))}
	o.Log.Info("traces on", "name", o.Service)
	return s, nil
}

func newExporter(ctx context.Context, way string) (sdk.SpanExporter, error) {
	if way == grpc {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// describe is the process as receivers know it. It is made of what we say and what OTEL_RESOURCE_ATTRIBUTES and
// OTEL_SERVICE_NAME say, and of nothing that is found: a command line may hold a database's password.
func describe(ctx context.Context, o Opts) *resource.Resource {
	ours := resource.NewSchemaless(attribute.String("service.name", o.Service), attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Instance))
	said, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		o.Log.Warn("resource attributes not understood", "error", err, "setting", "OTEL_RESOURCE_ATTRIBUTES")
	}
	if all, err := resource.Merge(ours, said); err == nil {
		return all
	}
	return ours
}

// Tracer makes the spans that s sends, nil where s is.
func (s *Sender) Tracer() *tracing.Tracer {
	if s == nil {
		return nil
	}
	return tracing.New(s.provider.Tracer(scope))
}

// Stop sends what is queued, for StopWithin at most; what is left then is dropped and counted.
func (s *Sender) Stop() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), StopWithin)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // what it could not send is counted below
	if left := s.queue.close(); left > 0 {
		s.log.Warn("spans dropped at the stop", "count", left)
	}
}
