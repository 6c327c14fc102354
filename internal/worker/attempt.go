package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// maxResult is the largest result kept (design section 6): a larger one fails
// the task after its one call.
const maxResult = 64 << 20

// attempt is one try at a claimed task.
type attempt struct {
	*claimed
	inc  *Incarnation
	line *telemetry.Line
	ctx  context.Context
	cut  context.CancelCauseFunc
	sent time.Time // zero until the call was handed to the provider
}

// run makes one attempt and ends it. Whatever happens, a panic included, the
// task is ended by its fence or left to the reaper.
func (w *Worker) run(inc *Incarnation, c *claimed) {
	a := &attempt{claimed: c, inc: inc}
	ctx, end := context.WithDeadlineCause(inc.Ctx, c.at.Add(c.row.Deadline.Sub(c.row.Now)), errDeadline)
	defer end()
	a.ctx, a.cut = context.WithCancelCause(ctx)
	defer a.cut(nil)
	a.line = telemetry.NewLine(w.Log, telemetry.MsgAttempt, a.attrs()...)
	defer a.line.Emit(context.Background())
	w.mu.Lock()
	w.held[c.row.ID] = a
	if w.stopping {
		a.cut(errReleased) // claimed while the stop began: nothing was sent, so it goes back whole
	}
	w.mu.Unlock()
	w.end(a, w.try(a))
}

func (a *attempt) attrs() []slog.Attr {
	r := a.row
	return []slog.Attr{
		slog.String("tenant", r.Tenant), slog.String("kind", r.Kind), slog.String("key", r.Key), slog.String("task_id", r.ID.String()),
		slog.Int("run", int(r.Run)), slog.Int("attempt", int(r.Attempts)), slog.String("trace_id", r.TraceID),
		slog.String("input_hash", fmt.Sprintf("%x", r.InputHash)), slog.Int64("epoch", r.Epoch), slog.String("provider", r.Provider),
		slog.Int64("queue_ms", r.Now.Sub(r.RunAt).Milliseconds()),
	}
}

// try renders the request and makes the call.
func (w *Worker) try(a *attempt) (e *ending) {
	defer func() {
		if p := recover(); p != nil {
			w.Log.Error("attempt panicked", "task_id", a.row.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			e = w.failed(a, &provider.Error{Class: provider.Unknown, Code: "panic", Message: "the attempt panicked", Billed: provider.BilledUnknown, Phase: provider.PhaseWritten})
		}
	}()
	body, err := a.kind.Render(a.data())
	if err != nil {
		return w.failed(a, &provider.Error{Class: provider.Rejected, Code: string(api.CodeRenderFailed), Message: message(err), Permanent: true, Billed: provider.BilledNo})
	}
	if a.kind.OnUnknown == onUnknownReview {
		marked, err := w.marks.Do(a.ctx, a.fence)
		if err != nil {
			return w.failed(a, notSent("mark_failed", "the dispatch could not be noted"))
		}
		if !marked {
			return nil // fenced: the reaper has judged this attempt
		}
	}
	if !a.inc.Fresh() || a.ctx.Err() != nil {
		return w.failed(a, notSent("lease_old", "the lease was too old to send"))
	}
	a.sent = time.Now()
	resp, err := w.Providers[a.row.Provider].Call(a.ctx, w.request(a, body))
	if ferr := failpoint.Hit(failpoint.CallAfter); ferr != nil && err == nil {
		err = &provider.Error{Class: provider.Unknown, Code: "injected", Message: ferr.Error(), Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
	}
	if err != nil {
		return w.failed(a, providerError(err))
	}
	return w.succeeded(a, resp)
}

func notSent(code, text string) *provider.Error {
	return &provider.Error{Class: provider.NotSent, Code: code, Message: text, Billed: provider.BilledNo}
}

func (a *attempt) data() config.TemplateData {
	r := a.row
	return config.TemplateData{Input: r.Input, Task: config.TaskData{ID: r.ID.String(), Key: r.Key, Kind: r.Kind, Tenant: r.Tenant, Run: int(r.Run)}}
}

func (w *Worker) request(a *attempt, body []byte) provider.Request {
	r := a.row
	cfg := w.Kinds.Config()
	t := cfg.TimeoutsOf(a.kind)
	p := cfg.Providers[r.Provider]
	return provider.Request{
		TaskID: r.ID.String(), Key: r.Key, Tenant: r.Tenant, Kind: r.Kind, Attempt: int(r.Attempts), Run: int(r.Run), Body: body,
		Timeouts:        provider.Timeouts{Connect: t.Connect, FirstByte: t.FirstByte, Idle: t.Idle, Total: t.Total},
		BudgetRemaining: a.kind.MaxAttempts - int(r.Attempts),
		Stream:          p != nil && p.Stream,
	}
}

// succeeded makes the ending of a call that was answered well.
func (w *Worker) succeeded(a *attempt, resp *provider.Response) *ending {
	at := store.AttemptEnd{
		Outcome: "succeeded", Counted: true, Phase: string(provider.PhaseDone), Model: clean(resp.Model), RequestID: clean(resp.RequestID),
		Billed: api.BilledYes, Reply: resp.Reply, FinishReason: clean(resp.FinishReason), Truncated: resp.Truncated,
	}
	fill(&at, a, resp.Phases, resp.Bytes, resp.Usage)
	result, err := a.kind.Result(config.Reply{Body: resp.Reply, Text: resp.Text, Truncated: resp.Truncated})
	if err == nil && len(result) > maxResult {
		err = api.Errorf(api.CodeResultTooLarge, "the result has %d bytes, %d are allowed", len(result), maxResult)
	}
	if err != nil {
		pe := &provider.Error{Class: provider.BadOutput, Code: string(api.CodeBadOutput), Message: message(err), Billed: provider.BilledYes, Phase: provider.PhaseDone}
		var ae *api.Error
		if errors.As(err, &ae) && (ae.Code == api.CodeOutputTruncated || ae.Code == api.CodeResultTooLarge) {
			pe.Class, pe.Code, pe.Permanent = provider.Rejected, string(ae.Code), true
		}
		at.Outcome, at.Code, at.Message = string(pe.Class), pe.Code, pe.Message
		if len(at.Reply) > maxResult {
			at.Reply = nil
		}
		return w.verdict(a, pe, at)
	}
	hash := sha256.Sum256(result)
	end := store.Ending{
		Fence: a.fence, To: api.Succeeded, Result: result, ResultHash: hash[:], FinishReason: at.FinishReason, Truncated: resp.Truncated,
		Usage: at.Usage, Retention: w.Kinds.Config().RetentionOf(a.kind),
	}
	if a.kind.Output == config.OutputResponse {
		at.Reply = nil // the result is the reply: kept once
	}
	return &ending{a: a, end: end, at: at}
}

// failed makes the ending of an attempt without a result.
func (w *Worker) failed(a *attempt, pe *provider.Error) *ending {
	cause := context.Cause(a.ctx)
	at := store.AttemptEnd{
		Outcome: string(pe.Class), Code: clean(pe.Code), Message: clean(pe.Message), Phase: string(pe.Phase), Status: pe.Status,
		RequestID: clean(pe.RequestID), Billed: api.Billed(pe.Billed), Reply: pe.Reply,
	}
	var usage provider.Usage
	if p := pe.Partial; p != nil {
		at.Partial, at.Model, at.FinishReason, at.Truncated, usage = []byte(p.Text), clean(p.Model), clean(p.FinishReason), p.Truncated, p.Usage
	}
	fill(&at, a, pe.Phases, pe.Bytes, usage)
	if errors.Is(cause, errReleased) {
		at.Outcome, at.Code = "released", "worker_stopped"
	}
	return w.verdict(a, pe, at)
}

// verdict asks the domain what follows.
func (w *Worker) verdict(a *attempt, pe *provider.Error, at store.AttemptEnd) *ending {
	r := a.row
	dispatched := !a.sent.IsZero() && pe.Class != provider.NotSent
	if !dispatched {
		at.Sent = nil
	}
	e := task.Ended{
		Class: task.Class(pe.Class), Code: pe.Code, Message: at.Message, RetryAfter: pe.RetryAfter, Permanent: pe.Permanent, Dispatched: dispatched,
		Attempts: r.Attempts, NotSent: r.NotSent, Released: r.Released, Lost: 0, Unclear: r.Unclear, Left: time.Until(a.deadline()),
	}
	switch cause := context.Cause(a.ctx); {
	case errors.Is(cause, errReleased) && (pe.Class == provider.Unknown || pe.Class == provider.NotSent):
		e.Class = task.Released
	case errors.Is(cause, errDeadline) && pe.Class != provider.Rejected:
		v := task.Expire(Policy(a.kind), r.Unclear || dispatched && pe.Class == provider.Unknown)
		return w.ending(a, v, at)
	}
	return w.ending(a, task.Next(Policy(a.kind), e, w.Random), at)
}

func (a *attempt) deadline() time.Time { return a.at.Add(a.row.Deadline.Sub(a.row.Now)) }

func (w *Worker) ending(a *attempt, v task.Verdict, at store.AttemptEnd) *ending {
	at.Counted = !v.GiveBack
	return &ending{a: a, at: at, end: store.Ending{
		Fence: a.fence, To: v.To, Code: string(v.Code), Message: v.Message, Permanent: v.Permanent, After: v.After, GiveBack: v.GiveBack,
		NotSent: v.NotSent, Released: v.Released, Lost: v.Lost, Unclear: v.Unclear, FinishReason: at.FinishReason, Truncated: at.Truncated,
		Usage: at.Usage, Retention: w.Kinds.Config().RetentionOf(a.kind),
	}}
}

// fill takes over times, sizes and tokens. The time of the send is reckoned on
// the database's clock from the claim on.
func fill(at *store.AttemptEnd, a *attempt, p provider.Phases, bytes int64, u provider.Usage) {
	if !a.sent.IsZero() {
		sent := a.row.Now.Add(a.sent.Sub(a.at))
		at.Sent = &sent
	}
	at.Connect, at.FirstByte, at.Total, at.Bytes = p.Connect, p.FirstByte, p.Total, bytes
	at.UsageKnown = u.Known
	at.Usage = api.Usage{
		InputTokens: u.InputTokens, CachedTokens: u.CachedTokens, OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens,
		Billed: at.Billed,
	}
}

func providerError(err error) *provider.Error {
	var pe *provider.Error
	if errors.As(err, &pe) {
		return pe
	}
	return &provider.Error{Class: provider.Unknown, Code: "provider_bug", Message: "the provider returned an unclassed error", Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
}

// clean makes a provider's word storable: no NUL, valid UTF-8, bounded.
func clean(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	const most = 1024
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// message is the text of an error of ours, safe to show.
func message(err error) string {
	var ae *api.Error
	if errors.As(err, &ae) {
		return clean(ae.Message)
	}
	return clean(telemetry.ScrubError(err))
}
