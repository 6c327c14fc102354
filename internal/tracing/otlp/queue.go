package otlp

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

var (
	sentTotal    = telemetry.Counter("spans_sent_total", "Spans that the receiver of traces took.")
	droppedTotal = telemetry.Counter("spans_dropped_total", "Spans that were dropped: the queue was full, the receiver did not take them, or the process stopped first.", "what")
)

// Why spans are dropped.
const (
	whyFull = "queue_full"
	whySend = "not_sent"
	whyStop = "stopped"
)

// sayEvery bounds the lines about a receiver that takes nothing.
const sayEvery = time.Minute

// queue lets at most so many spans wait to be sent or be on their way as the SDK's own queue holds. That one drops what
// it has no room for without a word; this one counts it, and so the other is never full.
type queue struct {
	next   sdk.SpanProcessor
	most   int64
	inside atomic.Int64
	said   atomic.Int64 // when a failure was last told, in nanoseconds
	log    *slog.Logger
}

func (q *queue) OnStart(ctx context.Context, s sdk.ReadWriteSpan) { q.next.OnStart(ctx, s) }

func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.inside.Add(1) > q.most {
		q.inside.Add(-1)
		droppedTotal.WithLabelValues(whyFull).Inc()
		return
	}
	q.next.OnEnd(s)
}

func (q *queue) Shutdown(ctx context.Context) error   { return q.next.Shutdown(ctx) }
func (q *queue) ForceFlush(ctx context.Context) error { return q.next.ForceFlush(ctx) }

// close counts what never left as dropped.
func (q *queue) close() int64 {
	left := max(q.inside.Swap(0), 0)
	droppedTotal.WithLabelValues(whyStop).Add(float64(left))
	return left
}

// counted counts what is sent and what is not. A receiver that takes nothing is told of once a minute, and no error of
// it reaches the SDK.
type counted struct {
	sdk.SpanExporter
	queue *queue
}

func (c *counted) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.queue.inside.Add(-int64(len(spans)))
	if err == nil {
		sentTotal.WithLabelValues().Add(float64(len(spans)))
		return nil
	}
	droppedTotal.WithLabelValues(whySend).Add(float64(len(spans)))
	now := time.Now().UnixNano()
	if last := c.queue.said.Load(); now-last >= int64(sayEvery) && c.queue.said.CompareAndSwap(last, now) {
		c.queue.log.Warn("spans not sent", "error", err, "count", len(spans))
	}
	return nil
}
