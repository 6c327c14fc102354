package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// Gates tells of providers and destinations that are left alone, and since when.
func Gates(ctx context.Context, e Env) ([]Finding, error) {
	all, now, err := store.Gates(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	return judgeGates(all, now), nil
}

func judgeGates(all []store.Gate, now time.Time) (out []Finding) {
	for _, g := range all {
		subject := g.Scope + " " + g.Name
		text := fmt.Sprintf("%s for %s (%s)", g.State, span(now.Sub(g.Since)), g.Code)
		if g.Reason != "" {
			text += ": " + g.Reason
		}
		switch {
		case g.State == api.GateCooling && g.Until != nil && g.Until.After(now):
			out = append(out, Finding{Level: Note, Subject: subject, Text: text})
		case g.State != api.GateOpen && g.State != api.GateCooling:
			out = append(out, Finding{
				Level: Warn, Subject: subject, Text: text + "; its work waits",
				Fix: fmt.Sprintf("mend what it refused for, then onefold %ss release %s", g.Scope, g.Name),
			})
		case g.NeedsAttention:
			out = append(out, Finding{
				Level: Warn, Subject: subject, Text: fmt.Sprintf("%d failures in a row: it needs attention", g.Failures),
				Fix: fmt.Sprintf("see onefold %ss list, and what it answers", g.Scope),
			})
		}
	}
	if len(out) == 0 {
		out = []Finding{{Level: OK, Subject: "gates", Text: fmt.Sprintf("%d, all open", len(all))}}
	}
	return out
}
