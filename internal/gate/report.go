package gate

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// Wire is a gate as it stands at now: a pause that is over is over.
func Wire(g store.Gate, now time.Time) api.Gate {
	w := api.Gate{
		Name: g.Name, State: g.State, Since: g.Since.UTC(), Until: g.Until, Code: g.Code, Reason: g.Reason, Actor: g.Actor,
		Failures: int(g.Failures), NeedsAttention: g.NeedsAttention,
	}
	if g.State == api.GateCooling && !g.Until.After(now) {
		w.State, w.Until, w.Code, w.Reason = api.GateOpen, nil, "", ""
	}
	return w
}

// WireHold is a hold as callers see it.
func WireHold(h store.Hold) api.Hold {
	return api.Hold{
		ID: h.ID.String(), Tenant: h.Tenant, Kind: h.Kind, Provider: h.Provider, Destination: h.Destination, Stops: h.Stops,
		Reason: h.Reason, Actor: h.Actor, CreatedAt: h.CreatedAt.UTC(),
	}
}

// Providers lists the providers that a worker has served or that tasks wait for, with what waits.
func Providers(ctx context.Context, db store.DBTX) ([]api.Provider, error) {
	gates, now, err := store.Gates(ctx, db)
	if err != nil {
		return nil, err
	}
	waiting, err := store.WaitingByProvider(ctx, db)
	if err != nil {
		return nil, err
	}
	out := []api.Provider{}
	at := map[string]int{}
	for _, g := range gates {
		if g.GateKey == Provider(g.Name) {
			at[g.Name] = len(out)
			out = append(out, api.Provider{Gate: Wire(g, now)})
		}
	}
	for _, w := range waiting {
		i, ok := at[w.Provider]
		if !ok {
			i = len(out)
			out = append(out, api.Provider{Gate: api.Gate{Name: w.Provider, State: api.GateOpen}})
		}
		out[i].Waiting, out[i].Running, out[i].Workers = w.Pending, w.Running, w.Workers
	}
	return out, nil
}
