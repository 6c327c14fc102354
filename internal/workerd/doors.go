package workerd

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// addDoors adds the gates of destinations, and what is bounded there.
func addDoors(o *gate.Opts, cfg *config.Config) {
	for name, d := range cfg.Destinations {
		n := gate.Destination(name)
		o.Names = append(o.Names, n)
		if d.Concurrency > 0 || d.Rate > 0 {
			o.Limits[n] = doorLimit(d)
		}
		if c := doorCredential(d); c != nil {
			o.Credentials[n] = c
		}
	}
}

// doorCredential is what a receiver may refuse: a changed one releases what was held for the one before.
func doorCredential(d *config.Destination) func() telemetry.Secret {
	source := d.Auth
	if source == nil {
		source = d.Secret
	}
	if source == nil {
		return nil
	}
	return func() telemetry.Secret {
		s, _ := source.Get() // a source that broke gives its last value
		return s
	}
}

// adopt takes on the gates of destinations that were made or changed through the API.
func adopt(ctx context.Context, b *gate.Board, all []*config.Destination) error {
	adopted := make([]gate.Adopted, len(all))
	for i, d := range all {
		adopted[i] = gate.Adopted{Gate: gate.Destination(d.Name), Credential: doorCredential(d), Limit: doorLimit(d)}
	}
	return b.Adopt(ctx, adopted)
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
