package workerd

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// newDoors makes the process's copy of the gates of destinations, with its share
// of what is bounded there.
func (w *Worker) newDoors(ctx context.Context, cfg *config.Config) (*gate.Board, error) {
	o := gate.Opts{
		Pool: w.app.Pool, Log: w.app.Log, Connect: w.app.Direct, Incarnation: w.incarnation,
		Credentials: map[gate.Name]func() telemetry.Secret{}, Limits: map[gate.Name]gate.Limit{},
	}
	for name, d := range cfg.Destinations {
		n := gate.Destination(name)
		o.Names = append(o.Names, n)
		if d.Concurrency > 0 || d.Rate > 0 {
			o.Limits[n] = doorLimit(d)
		}
		source := d.Auth
		if source == nil {
			source = d.Secret
		}
		if source != nil {
			o.Credentials[n] = func() telemetry.Secret {
				s, _ := source.Get() // a source that broke gives its last value
				return s
			}
		}
	}
	return gate.New(ctx, o)
}

// doorLimit is what a destination's configuration bounds.
func doorLimit(d *config.Destination) gate.Limit {
	l := gate.Limit{Concurrency: d.Concurrency}
	switch {
	case d.Rate <= 0:
	case d.Rate > time.Minute:
		l.Requests, l.Per = 1, d.Rate
	default:
		l.Requests, l.Per = int(time.Minute/d.Rate), time.Minute
	}
	return l
}
