package submit

import (
	"context"
	"errors"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// opSend is the conventions' name of what a submit does: it hands a message to a queue.
const opSend = "send"

// trace begins the span of one submit. The task that it may make continues from there.
func (s *Service) trace(ctx context.Context, n *store.New) (context.Context, *tracing.Span) {
	if s.Traces == nil {
		return ctx, nil
	}
	ctx, span := s.Traces.Start(ctx, tracing.Producer, opSend+" "+n.Slot.Kind,
		tracing.MessagingSystem.String(tracing.System), tracing.MessagingOperation.String(opSend), tracing.MessagingOperationOf.String(opSend),
		tracing.MessagingDestination.String(n.Slot.Kind), tracing.Tenant.String(n.Slot.Tenant), tracing.TaskKey.String(n.Slot.Key))
	n.TraceID, n.Traceparent = span.TraceID(), span.Traceparent()
	return ctx, span
}

// traceMany begins the one span of many submits.
func (s *Service) traceMany(ctx context.Context, count int) (context.Context, *tracing.Span) {
	if s.Traces == nil {
		return ctx, nil
	}
	return s.Traces.Start(ctx, tracing.Producer, opSend, tracing.MessagingSystem.String(tracing.System), tracing.MessagingOperation.String(opSend),
		tracing.MessagingOperationOf.String(opSend), tracing.MessagingBatchCount.Int(count))
}

// traced ends a submit's span. A duplicate's has a link to the submit that made the task.
func traced(span *tracing.Span, a Answer, err error) {
	if !span.Recording() {
		return
	}
	var e *api.Error
	switch {
	case errors.As(err, &e):
		span.Fail(string(e.Code))
	case err != nil:
		span.Fail(string(api.CodeInternal))
	default:
		span.Set(tracing.MessagingMessageID.String(a.Row.ID.String()), tracing.TaskID.String(a.Row.ID.String()),
			tracing.Created.Bool(a.Created), tracing.Reopened.Bool(a.Reopened))
		if !a.Created {
			span.Link(a.Row.Traceparent)
		}
	}
	span.End()
}
