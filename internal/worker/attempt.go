package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// maxResult is the largest result kept (design section 6): a larger one fails
// the task after its one call.
const maxResult = 64 << 20

// attempt is one try at a claimed task.
type attempt struct {
	*claimed
	inc  *Incarnation
	line *telemetry.Line
	span *tracing.Span // nil: no spans are made
	ctx  context.Context
	cut  context.CancelCauseFunc
	body []byte    // the rendered request, nil before it is rendered
	sent time.Time // zero until the call was handed to the provider

	job     string      // the stored background job, "" if there is none
	resumed bool        // an earlier attempt started it
	polling atomic.Bool // only that job is waited for: another worker can go on
	checked provider.Status

	credential []byte          // the fingerprint of what the call was made with
	failure    *provider.Error // what went wrong with the call
}

// run makes one attempt and ends it. Whatever happens, a panic included, the
// task is ended by its fence or left to the reaper.
func (w *Worker) run(inc *Incarnation, c *claimed) {
	a := &attempt{claimed: c, inc: inc}
	ctx, end := context.WithDeadlineCause(inc.Ctx, c.at.Add(c.row.Deadline.Sub(c.row.Now)), errDeadline)
	defer end()
	a.ctx, a.cut = context.WithCancelCause(ctx)
	defer a.cut(nil)
	w.trace(a)
	defer a.span.End()
	a.span.Observe(queueWait.WithLabelValues(c.row.Kind), max(c.row.Now.Sub(c.row.RunAt).Seconds(), 0))
	a.line = telemetry.NewLine(w.Log, telemetry.MsgAttempt, a.attrs()...)
	defer a.line.Emit(context.Background())
	w.mu.Lock()
	w.held[c.row.ID] = a
	if w.stopping {
		a.cut(errReleased) // claimed while the stop began: nothing was sent, so it goes back whole
	}
	w.mu.Unlock()
	e := w.try(a)
	w.learn(a, e)
	w.end(a, e)
	if e != nil && !e.at.JobOver {
		w.stopUnwanted(a)
	}
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
	a.body = body
	p, r := w.Providers[a.row.Provider], w.request(a)
	if e, decided := w.earlier(a, p, r); decided {
		return e
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
	resp, err := w.send(a, p, r)
	if errors.Is(err, errFenced) {
		return nil
	}
	if ferr := failpoint.Hit(failpoint.CallAfter); ferr != nil && err == nil {
		err = &provider.Error{Class: provider.Unknown, Code: "injected", Message: ferr.Error(), Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
	}
	return w.answered(a, p, r, resp, err)
}

// answered makes the ending of what a call or a poll returned. A call whose
// outcome is not known is asked about first, where the provider can be asked.
func (w *Worker) answered(a *attempt, p provider.Provider, r provider.Request, resp *provider.Response, err error) *ending {
	if err == nil {
		return w.succeeded(a, resp)
	}
	pe := providerError(err)
	if resp, pe = w.check(a, p, r, pe); resp != nil {
		return w.succeeded(a, resp)
	}
	return w.failed(a, pe)
}

func (a *attempt) data() config.TemplateData {
	r := a.row
	return config.TemplateData{Input: r.Input, Task: config.TaskData{ID: r.ID.String(), Key: r.Key, Kind: r.Kind, Tenant: r.Tenant, Run: int(r.Run)}}
}

// remaining is how many sends are left after this one: of the task's own and of
// the budget that it names.
func (a *attempt) remaining() int {
	left := a.kind.MaxAttempts - int(a.row.Attempts+a.row.Reported)
	if a.left != nil {
		left = min(left, int(*a.left))
	}
	return max(left, 0)
}

func (w *Worker) request(a *attempt) provider.Request {
	r := a.row
	cfg := w.Kinds.Config()
	t := cfg.TimeoutsOf(a.kind)
	p := cfg.Providers[r.Provider]
	return provider.Request{
		TaskID: r.ID.String(), Key: r.Key, Tenant: r.Tenant, Kind: r.Kind, Attempt: int(r.Attempts), Run: int(r.Run), Number: int(r.TotalAttempts), Body: a.body,
		Timeouts:        provider.Timeouts{Connect: t.Connect, FirstByte: t.FirstByte, Idle: t.Idle, Total: t.Total},
		BudgetRemaining: a.remaining(),
		Stream:          p != nil && p.Stream,
	}
}
