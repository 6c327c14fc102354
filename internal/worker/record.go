package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// good is the ledger's entry of a call that was answered whole.
func (w *Worker) good(a *attempt, resp *provider.Response) store.AttemptEnd {
	at := store.AttemptEnd{
		Outcome: "succeeded", Counted: true, Phase: string(provider.PhaseDone), Model: clean(resp.Model), RequestID: clean(resp.RequestID),
		Billed: api.BilledYes, Reply: resp.Reply, FinishReason: clean(resp.FinishReason), Truncated: resp.Truncated,
		JobOver: a.job != "",
	}
	w.fill(&at, a, resp.Phases, resp.Bytes, resp.Usage)
	at.Effects = effectsOf(resp)
	at.Reported = reported(resp.SendsUsed)
	at.Sends = int(at.Reported)
	if !a.sent.IsZero() { // not so where an earlier attempt had made the call
		at.Sends++
	}
	return at
}

// effectsOf are the effects that a service asked for, as one JSON array; nil for none.
func effectsOf(resp *provider.Response) []byte {
	if len(resp.Effects) == 0 {
		return nil
	}
	all := make([][]byte, len(resp.Effects))
	for i, e := range resp.Effects {
		all[i] = e.Raw
	}
	return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]"))
}

// bad is the ledger's entry of a call that brought no result: what is known of
// it, and what had come.
func (w *Worker) bad(a *attempt, pe *provider.Error) store.AttemptEnd {
	at := store.AttemptEnd{
		Outcome: string(pe.Class), Code: clean(pe.Code), Message: clean(pe.Message), Phase: string(pe.Phase), Status: pe.Status,
		RequestID: clean(pe.RequestID), Billed: api.Billed(pe.Billed), Reply: pe.Reply, Orphaned: orphaned(pe) && a.job == "", JobOver: pe.JobOver,
	}
	var usage provider.Usage
	if p := pe.Partial; p != nil {
		at.Partial, at.Model, at.FinishReason, at.Truncated, usage = []byte(p.Text), clean(p.Model), clean(p.FinishReason), p.Truncated, p.Usage
	}
	w.fill(&at, a, pe.Phases, pe.Bytes, usage)
	at.Reported = reported(pe.SendsUsed)
	at.Sends = int(at.Reported)
	if !a.sent.IsZero() && pe.Class != provider.NotSent && pe.Class != provider.Refused && pe.Class != provider.Unauthorized {
		at.Sends++ // what was turned away at the gate costs a budget nothing
	}
	return at
}

// mostReported bounds what a service can count down at once: more is a fault of
// its own, and would overflow.
const mostReported = 1_000_000

func reported(sends int) int32 { return int32(min(max(sends, 0), mostReported)) }

// orphaned says that a call was given up, or broke off, while the provider may
// have been at work: nobody hears what comes of it. An answer of any kind, an
// error's too, ends a call.
func orphaned(pe *provider.Error) bool {
	return pe.Class == provider.Unknown && pe.Status < 300 && pe.Sent()
}

// fill takes over times, sizes and tokens, and what they cost. The time of the
// send is reckoned on the database's clock from the claim on.
func (w *Worker) fill(at *store.AttemptEnd, a *attempt, p provider.Phases, bytes int64, u provider.Usage) {
	if !a.sent.IsZero() {
		sent := a.row.Now.Add(a.sent.Sub(a.at))
		at.Sent = &sent
	}
	at.Connect, at.FirstByte, at.Total, at.Bytes = p.Connect, p.FirstByte, p.Total, bytes
	at.UsageKnown = u.Known || u.OutputTokens > 0 // of a cut stream the tokens that came are counted
	at.Usage = api.Usage{
		InputTokens: u.InputTokens, CachedTokens: u.CachedTokens, OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens,
		Billed: at.Billed,
	}
	at.Asked = clean(modelOf(a.body))
	if u.Known {
		at.Usage.Cost = w.cost(a.kind, u, at.Model, at.Asked)
	}
	if at.Model == "" {
		at.Model = at.Asked
	}
}

// cost is what a call cost by the price of the first of the models that has
// one; "" where none has.
func (w *Worker) cost(k *config.Kind, u provider.Usage, models ...string) string {
	for _, m := range models {
		if p, ok := w.Kinds.Config().PriceOf(k, m); ok {
			return p.Cost(config.Tokens{Input: u.InputTokens, Cached: u.CachedTokens, Output: u.OutputTokens, Reasoning: u.ReasoningTokens})
		}
	}
	return ""
}

// modelOf is the model that a request asks for, "" where it names none.
func modelOf(body []byte) string {
	members, err := canon.Members(body)
	if err != nil {
		return ""
	}
	for _, m := range members {
		var name string
		if m.Name == "model" && json.Unmarshal(m.Value, &name) == nil {
			return name
		}
	}
	return ""
}

func notSent(code, text string) *provider.Error {
	return &provider.Error{Class: provider.NotSent, Code: code, Message: text, Billed: provider.BilledNo}
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
