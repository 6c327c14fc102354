package outbox

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// trace begins the span of one delivery, where the finish that made the effect left off. What goes out carries no
// traceparent: receivers outside hear nothing of our traces.
func (o *Outbox) trace(ctx context.Context, c *claimed) (context.Context, *tracing.Span) {
	if o.Traces == nil {
		return ctx, nil
	}
	return o.Traces.Continue(ctx, "process "+c.Destination, c.Traceparent, time.Now(),
		tracing.MessagingSystem.String(tracing.System), tracing.MessagingOperation.String("process"), tracing.MessagingOperationOf.String("process"),
		tracing.MessagingDestination.String(c.Destination), tracing.MessagingMessageID.String(c.ID.String()), tracing.Tenant.String(c.Tenant),
		tracing.TaskID.String(c.TaskID.String()), tracing.Run.Int(int(c.Run)), tracing.Attempt.Int(int(c.Attempts)),
		tracing.EffectID.String(c.ID.String()), tracing.Effect.String(c.Name), tracing.EffectOf.String(c.Type))
}

// traceSend begins the span of what goes over the wire. The address is left out: a webhook's may be its credential.
func (o *Outbox) traceSend(ctx context.Context, effectType string, d Delivery) (context.Context, *tracing.Span) {
	if o.Traces == nil {
		return ctx, nil
	}
	if effectType == typeEmail {
		return o.Traces.Start(ctx, tracing.Client, "send mail", tracing.EffectOf.String(effectType))
	}
	method := d.Method
	if method == "" {
		method = "POST"
	}
	return o.Traces.Start(ctx, tracing.Client, method, tracing.HTTPMethod.String(method), tracing.EffectOf.String(effectType))
}

func sent(span *tracing.Span, out Outcome) {
	if !span.Recording() {
		return
	}
	span.Set(tracing.Outcome.String(string(out.Class)))
	if out.Status != 0 {
		span.Set(tracing.HTTPStatus.Int(out.Status))
	}
	switch {
	case out.Class != Answered:
		span.Fail(out.Code)
	case out.Status >= 400:
		span.Fail("http_error")
	}
	span.End()
}

// delivered ends a delivery's span.
func delivered(span *tracing.Span, v Verdict, answer config.Answer) {
	if !span.Recording() {
		return
	}
	span.Set(tracing.State.String(string(v.To)))
	if v.Code != "" && answer != config.CheckDone {
		span.Fail(v.Code)
	}
	span.End()
}
