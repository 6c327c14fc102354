package worker

import (
	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/provider"
)

// learn notes what an attempt's call says of its provider, to be told in the
// transaction that ends the attempt. A task that was turned away for its
// provider's credential waits without a wake-up until the gate opens.
func (w *Worker) learn(a *attempt, e *ending) {
	a.pass.Leave() // the call is over
	if a.sent.IsZero() || e == nil || w.Gates == nil {
		return
	}
	o := gate.Observation{Gate: gate.Provider(a.row.Provider), Task: a.row.ID, Credential: a.credential, Begun: a.row.Now}
	if says(&o, a.failure) {
		e.news = append(e.news, o)
	}
	if o.What == gate.Unauthorized && e.end.To == api.Pending {
		e.park, e.end.After = true, 0
	}
	switch {
	case e.at.UsageKnown:
		a.pass.Took(e.at.Usage.InputTokens + e.at.Usage.OutputTokens)
	case a.failure != nil && (a.failure.Class == provider.NotSent || a.failure.Class == provider.Refused || a.failure.Class == provider.Unauthorized):
		a.pass.Took(0)
	}
}

// says turns a call's failure, nil for none, into what it says of the provider.
func says(o *gate.Observation, pe *provider.Error) bool {
	if pe == nil {
		o.What = gate.Healthy
		return true
	}
	o.Code, o.Reason, o.RetryAfter = pe.Code, pe.Message, pe.RetryAfter
	switch {
	case pe.Class == provider.Unauthorized:
		o.What = gate.Unauthorized
	case pe.Gate == provider.GateHold:
		o.What = gate.Quota
	case pe.Gate == provider.GateCool:
		o.What = gate.Refused
	case pe.Code == provider.CodeForbidden:
		o.What = gate.Suspect
	case pe.Class == provider.Rejected && pe.Status != 0 || pe.Class == provider.BadOutput:
		o.What = gate.Healthy // it took the credential and looked at the request
	default:
		return false
	}
	return true
}

// suspected makes a refusal without a word why one of the credential, where
// different tasks before got the same.
func (w *Worker) suspected(a *attempt, pe *provider.Error) *provider.Error {
	if pe.Code != provider.CodeForbidden || w.Gates == nil {
		return pe
	}
	others := 0
	for _, id := range w.Gates.State(gate.Provider(a.row.Provider)).Suspects {
		if id != a.row.ID {
			others++
		}
	}
	if others < gate.SuspectsNeeded-1 {
		return pe
	}
	made := *pe
	made.Class, made.Code, made.Permanent, made.Gate, made.Billed = provider.Unauthorized, provider.CodeUnauthorized, false, provider.GateHold, provider.BilledNo
	return &made
}

// news is what all endings of a flush say of gates.
func news(all []*ending) (out []gate.Observation) {
	for _, e := range all {
		out = append(out, e.news...)
	}
	return out
}
