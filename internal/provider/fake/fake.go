// Package fake answers calls inside the process: for tests, benchmarks and trying a configuration out.
package fake

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
)

// Provider answers every call with its own request as the text, after Delay. The zero value answers at once.
type Provider struct {
	// Delay is how long a call takes from its send.
	Delay time.Duration
	// Answer, when not nil, makes the text or the failure of a call.
	Answer func(provider.Request) (text string, fail *provider.Error)
}

var _ provider.Provider = (*Provider)(nil)

// Call answers one call; see provider.Provider.
func (p *Provider) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	if ctx.Err() != nil {
		return nil, provider.New(provider.CodeNotSentCancelled, "the call was ended before it began")
	}
	start := time.Now()
	tell(r, provider.PhaseWriting, provider.PhaseWritten)
	if fail := p.wait(ctx, r.Timeouts.Total); fail != nil {
		fail.Phase, fail.Phases.Total = provider.PhaseWritten, time.Since(start)
		return nil, fail
	}
	text := string(r.Body)
	if p.Answer != nil {
		answer, fail := p.Answer(r)
		if fail != nil {
			return nil, fail
		}
		text = answer
	}
	tell(r, provider.PhaseHeaders, provider.PhaseFirstToken, provider.PhaseBody, provider.PhaseDone)
	took := max(time.Since(start), 1)
	reply := delta.NewObject()
	reply.Set("text", delta.NewString(text))
	return &provider.Response{
		Reply: reply.Append(nil), Text: reply.Get("text").Text(), FinishReason: "stop", Model: "fake", Bytes: int64(len(text)),
		Phases: provider.Phases{FirstByte: took, Total: took},
	}, nil
}

func (p *Provider) wait(ctx context.Context, limit time.Duration) *provider.Error {
	if p.Delay <= 0 {
		return nil
	}
	d, late := p.Delay, limit > 0 && limit < p.Delay
	if late {
		d = limit
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return provider.New(provider.CodeCancelled, "the call was ended while waiting for the reply")
	case <-timer.C:
	}
	if late {
		return provider.New(provider.CodeTotalTimeout, "the total timeout ran out")
	}
	return nil
}

func tell(r provider.Request, phases ...provider.Phase) {
	if r.OnPhase == nil {
		return
	}
	for _, p := range phases {
		r.OnPhase(p)
	}
}
