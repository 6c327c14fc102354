package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// succeeded makes the ending of a call that was answered well.
func (w *Worker) succeeded(a *attempt, resp *provider.Response) *ending {
	at := w.good(a, resp)
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
	if a.kind.Output == config.OutputResponse {
		at.Reply = nil // the result is the reply: kept once
	}
	return w.success(a, at, result)
}

func (w *Worker) success(a *attempt, at store.AttemptEnd, result []byte) *ending {
	hash := sha256.Sum256(result)
	return &ending{a: a, at: at, end: store.Ending{
		Fence: a.fence, To: api.Succeeded, Result: result, ResultHash: hash[:], FinishReason: at.FinishReason, Truncated: at.Truncated,
		Usage: at.Usage, Retention: w.Kinds.Config().RetentionOf(a.kind), Reported: at.Reported,
	}}
}

// failed makes the ending of an attempt without a result.
func (w *Worker) failed(a *attempt, pe *provider.Error) *ending {
	pe = w.suspected(a, pe)
	a.failure = pe
	at := w.bad(a, pe)
	released := errors.Is(context.Cause(a.ctx), errReleased)
	if released {
		at.Outcome, at.Code = "released", "worker_stopped"
	}
	if cut(pe) && !released && a.kind.OnCut == config.CutKeep {
		if e := w.kept(a, pe, at); e != nil {
			return e
		}
	}
	return w.verdict(a, pe, at)
}

// cut says that a reply broke off after something of it had come.
func cut(pe *provider.Error) bool { return pe.Class == provider.Unknown && pe.Partial != nil }

// kept makes a success of a cut reply: what came is the result, and says that it
// is not whole. It is nil where the kind's output cannot be made of a part.
func (w *Worker) kept(a *attempt, pe *provider.Error, at store.AttemptEnd) *ending {
	p := pe.Partial
	if p.Text == "" && a.kind.Output == config.OutputText || len(p.Reply) == 0 && a.kind.Output == config.OutputResponse {
		return nil
	}
	result, err := a.kind.Result(config.Reply{Body: p.Reply, Text: p.Text, Truncated: true})
	if err != nil || len(result) > maxResult {
		return nil
	}
	at.Truncated = true
	return w.success(a, at, result)
}

// verdict asks the domain what follows.
func (w *Worker) verdict(a *attempt, pe *provider.Error, at store.AttemptEnd) *ending {
	r := a.row
	dispatched := !a.sent.IsZero() && pe.Class != provider.NotSent
	if !dispatched {
		at.Sent = nil
	}
	e := task.Ended{
		Class: task.Class(pe.Class), Code: at.Code, Message: at.Message, RetryAfter: pe.RetryAfter, Permanent: pe.Permanent, Status: pe.Status,
		Dispatched: dispatched, Cut: cut(pe), Attempts: r.Attempts + r.Reported + at.Reported, NotSent: r.NotSent, Released: r.Released, Unclear: r.Unclear,
		LastError: r.LastError, Same: r.Same, Left: time.Until(a.deadline()), Checkable: a.job != "" && !at.JobOver,
		Patient: r.BatchID != nil,
	}
	a.byCheck(&e)
	unclear := e.Unclear || dispatched && e.Class == task.Unclear
	switch cause := context.Cause(a.ctx); {
	case errors.Is(cause, errReleased) && (pe.Class == provider.Unknown || pe.Class == provider.NotSent):
		e.Class = task.Released
		if _, asks := w.Providers[r.Provider].(provider.StatusChecker); asks {
			e.Checkable = true
		}
	case errors.Is(cause, errDeadline) && pe.Class != provider.Rejected:
		v := task.Expire(a.kind.Policy(), unclear, r.LastError)
		return w.ending(a, v, at)
	}
	return w.ending(a, task.Next(a.kind.Policy(), e, w.Random), at)
}

func (a *attempt) deadline() time.Time { return a.at.Add(a.row.Deadline.Sub(a.row.Now)) }

func (w *Worker) ending(a *attempt, v task.Verdict, at store.AttemptEnd) *ending {
	at.Counted = !v.GiveBack
	if v.Again {
		v.After = w.Retries.Pace(v.After, time.Until(a.deadline()), w.Kinds.Config().TimeoutsOf(a.kind).Total)
	}
	usage := at.Usage
	if v.To == api.Pending && a.job != "" && !at.JobOver {
		usage.Billed = api.BilledNo // a job that is polled on is charged once, to whoever hears of its end
	}
	return &ending{a: a, at: at, end: store.Ending{
		Fence: a.fence, To: v.To, Code: string(v.Code), Message: v.Message, Permanent: v.Permanent, After: v.After, GiveBack: v.GiveBack,
		NotSent: v.NotSent, Released: v.Released, Lost: v.Lost, Unclear: v.Unclear, LastError: v.LastError, Same: v.Same, Reported: at.Reported,
		FinishReason: at.FinishReason, Truncated: at.Truncated, Usage: usage, Retention: w.Kinds.Config().RetentionOf(a.kind),
	}}
}
