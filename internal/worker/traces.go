package worker

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// trace begins the attempt's span, where the task's submit left off.
func (w *Worker) trace(a *attempt) {
	if w.Traces == nil {
		return
	}
	r := a.row
	a.ctx, a.span = w.Traces.Continue(a.ctx, "process "+r.Kind, r.Traceparent, a.at,
		tracing.MessagingSystem.String(tracing.System), tracing.MessagingOperation.String("process"), tracing.MessagingOperationOf.String("process"),
		tracing.MessagingDestination.String(r.Kind), tracing.MessagingMessageID.String(r.ID.String()), tracing.Tenant.String(r.Tenant),
		tracing.Kind.String(r.Kind), tracing.TaskKey.String(r.Key), tracing.TaskID.String(r.ID.String()), tracing.Run.Int(int(r.Run)),
		tracing.Attempt.Int(int(r.Attempts)), tracing.Provider.String(r.Provider), tracing.QueueWait.Float64(max(r.Now.Sub(r.RunAt).Seconds(), 0)))
}

// traceCall begins the span of the call itself. A service that is no model has a plain request's.
func (w *Worker) traceCall(a *attempt, r provider.Request) (context.Context, *tracing.Span) {
	if w.Traces == nil {
		return a.ctx, nil
	}
	typ := ""
	if p := w.Kinds.Config().Providers[a.row.Provider]; p != nil {
		typ = p.Type
	}
	if typ == "httpcall" {
		return w.Traces.Start(a.ctx, tracing.Client, "POST", tracing.HTTPMethod.String("POST"), tracing.Provider.String(a.row.Provider))
	}
	model := clean(modelOf(r.Body))
	return w.Traces.Start(a.ctx, tracing.Client, strings.TrimSpace("chat "+telemetry.ScrubText(model)), tracing.GenAIOperation.String("chat"), tracing.GenAIProvider.String(typ),
		tracing.GenAIRequestModel.String(model), tracing.GenAIStream.Bool(r.Stream), tracing.Provider.String(a.row.Provider))
}

// calledBack ends the call's span with what came back.
func calledBack(span *tracing.Span, resp *provider.Response, err error) {
	if !span.Recording() {
		return
	}
	defer span.End()
	if err == nil {
		span.Set(said(resp.Model, resp.FinishReason, resp.Usage, resp.Phases.FirstByte)...)
		return
	}
	var pe *provider.Error
	if !errors.As(err, &pe) {
		span.Fail("internal")
		return
	}
	if p := pe.Partial; p != nil {
		span.Set(said(p.Model, p.FinishReason, p.Usage, pe.Phases.FirstByte)...)
	}
	if pe.Status != 0 {
		span.Set(tracing.HTTPStatus.Int(pe.Status))
	}
	span.Set(tracing.Phase.String(string(pe.Phase)), tracing.Billed.String(string(pe.Billed)), tracing.Outcome.String(string(pe.Class)))
	span.Fail(string(pe.Class))
}

func said(model, reason string, u provider.Usage, first time.Duration) []attribute.KeyValue {
	out := []attribute.KeyValue{tracing.GenAIResponseModel.String(clean(model))}
	if reason != "" {
		out = append(out, tracing.GenAIFinishReasons.StringSlice([]string{clean(reason)}))
	}
	if first > 0 {
		out = append(out, tracing.GenAIFirstChunk.Float64(first.Seconds()))
	}
	if u.Known {
		out = append(out, tracing.GenAIInput.Int64(u.InputTokens), tracing.GenAIOutput.Int64(u.OutputTokens),
			tracing.GenAICached.Int64(u.CachedTokens), tracing.GenAIReasoning.Int64(u.ReasoningTokens))
	}
	return out
}

// traceFinish begins the span in which an attempt's end is written. Effects and follow-up tasks continue from it.
func (w *Worker) traceFinish(a *attempt) *tracing.Span {
	if w.Traces == nil {
		return nil
	}
	_, span := w.Traces.Start(a.ctx, tracing.Internal, "finish "+a.row.Kind, tracing.TaskID.String(a.row.ID.String()))
	a.row.Traceparent = span.Traceparent()
	return span
}

// finished ends the span of the finish, and says on the attempt's what came of it.
func (a *attempt) finished(span *tracing.Span, e *ending, done *store.Ended, err error) {
	if a.span == nil {
		return
	}
	switch {
	case err != nil:
		span.Fail("internal")
	case done == nil:
		span.Set(tracing.Fenced.Bool(true))
		a.span.Set(tracing.Fenced.Bool(true))
	default:
		span.Set(tracing.State.String(string(done.State)))
		a.span.Set(tracing.State.String(string(done.State)))
	}
	span.End()
	a.span.Set(tracing.Outcome.String(e.at.Outcome), tracing.Billed.String(string(e.at.Billed)))
	if e.at.Outcome != "succeeded" && e.at.Outcome != "released" && e.at.Outcome != outcomeCancelled {
		a.span.Fail(e.at.Outcome)
	}
}
