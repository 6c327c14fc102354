package destination

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
)

// Old is how long a signing secret may be in use before it is warned of.
const Old = 90 * 24 * time.Hour

// List says how each destination stands that this process or any worker knows, or that effects name.
func (b *Book) List(ctx context.Context, db store.DBTX) ([]api.Destination, error) {
	gates, now, err := store.Gates(ctx, db)
	if err != nil {
		return nil, err
	}
	if now.IsZero() {
		now = time.Now()
	}
	open, err := store.OpenEffects(ctx, db)
	if err != nil {
		return nil, err
	}
	stored, err := store.Destinations(ctx, db)
	if err != nil {
		return nil, err
	}
	signed, err := store.Signers(ctx, db)
	if err != nil {
		return nil, err
	}
	all := map[string]*api.Destination{}
	at := func(name string) *api.Destination {
		if all[name] == nil {
			all[name] = &api.Destination{Gate: api.Gate{Name: name, State: api.GateOpen}, Source: api.SourceElsewhere, Secrets: []api.DestinationSecret{}}
		}
		return all[name]
	}
	for _, g := range gates {
		if g.GateKey == gate.Destination(g.Name) {
			at(g.Name).Gate = gate.Wire(g, now)
		}
	}
	for name, n := range open {
		d := at(name)
		d.Waiting, d.Delivering, d.Held, d.Unknown = n[api.EffectWaiting], n[api.EffectDelivering], n[api.EffectHeld], n[api.EffectUnknown]
	}
	for _, row := range stored {
		b.describe(at(row.Name), row)
	}
	for name, to := range b.Config.Destinations {
		d := at(name)
		d.Source, d.Problem, d.UpdatedAt, d.Secrets = api.SourceFile, "", nil, []api.DestinationSecret{}
		rules(d, to)
	}
	for _, s := range signed {
		if d := all[s.Destination]; d != nil {
			count(d, s)
		}
	}
	out := make([]api.Destination, 0, len(all))
	for _, d := range all {
		for i := range d.Secrets {
			d.Secrets[i].Old = d.Secrets[i].RetiresAt == nil && now.Sub(d.Secrets[i].Since) >= Old
		}
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b api.Destination) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// describe fills in what the database says of a stored destination.
func (b *Book) describe(d *api.Destination, row store.Destination) {
	updated := row.UpdatedAt.UTC()
	d.Source, d.URL, d.UpdatedAt = api.SourceStored, row.URLShown, &updated
	e := b.open(row, time.Now())
	rules(d, e.to)
	d.URL, d.Problem = row.URLShown, e.problem
	for _, s := range row.Secrets {
		if s.Purpose == forSigning {
			d.Secrets = append(d.Secrets, api.DestinationSecret{ID: s.ID, Since: s.CreatedAt.UTC(), RetiresAt: s.RetiresAt})
		}
	}
}

func rules(d *api.Destination, to *config.Destination) {
	d.URL, d.Repeat, d.AllowPrivate, d.Tenants = to.URL.String(), string(to.Repeat), to.AllowPrivate, to.Tenants
}

// count adds what is counted of a secret. Of a destination of the file nothing else is known of its secrets: those that
// signed lately are shown.
func count(d *api.Destination, s store.Signer) {
	last := s.LastAt.UTC()
	for i := range d.Secrets {
		if d.Secrets[i].ID == s.Secret {
			d.Secrets[i].LastAt, d.Secrets[i].Deliveries = &last, s.Deliveries
			return
		}
	}
	if d.Source != api.SourceStored {
		d.Secrets = append(d.Secrets, api.DestinationSecret{ID: s.Secret, Since: s.FirstAt.UTC(), LastAt: &last, Deliveries: s.Deliveries})
	}
}
