package workerd

import (
	"context"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// newGates makes the process's copy of the gates, with its share of what is
// bounded.
func (w *Worker) newGates(ctx context.Context, cfg *config.Config) (*gate.Board, error) {
	o := gate.Opts{
		Pool: w.app.Pool, Log: w.app.Log, Connect: w.app.Direct, Incarnation: w.incarnation,
		Credentials: map[gate.Name]func() telemetry.Secret{}, Limits: map[gate.Name]gate.Limit{},
	}
	for name, p := range cfg.Providers {
		n := gate.Provider(name)
		o.Names = append(o.Names, n)
		o.Limits[n] = gate.Limit{Concurrency: p.Concurrency, Requests: p.RequestsPerMinute, TokensPerMinute: p.TokensPerMinute}
		if p.APIKey != nil {
			o.Credentials[n] = func() telemetry.Secret {
				s, _ := p.APIKey.Get() // a source that broke gives its last value
				return s
			}
		}
	}
	for name, k := range cfg.Kinds {
		o.Limits[gate.Kind(name)] = gate.Limit{Concurrency: k.Concurrency}
	}
	addDoors(&o, cfg)
	o.Also = w.doors.Refresh
	board, err := gate.New(ctx, o)
	if err != nil {
		return nil, err
	}
	w.doors.Changed = func(ctx context.Context, all []*config.Destination) error { return adopt(ctx, board, all) }
	return board, w.doors.Refresh(ctx)
}

// headroom is how many more wake-ups than its bound a provider's queue fetches,
// so that the next is at hand when a call ends.
const headroom = 64

// fetches is how many wake-ups of a provider this process holds at a time.
func fetches(p *config.Provider, otherwise int) int {
	if p.Concurrency > 0 {
		return p.Concurrency + min(p.Concurrency, headroom)
	}
	return otherwise
}
