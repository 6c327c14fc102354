package gate

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// Doors are gates and holds as one transaction reads them, for what decides by
// the rows alone.
type Doors struct {
	gates map[Name]store.Gate
	holds []store.Hold
	now   time.Time
}

// Read reads gates and holds.
func Read(ctx context.Context, db store.DBTX) (*Doors, error) {
	rows, now, err := store.Gates(ctx, db)
	if err != nil {
		return nil, err
	}
	d := &Doors{gates: map[Name]store.Gate{}, now: now}
	for _, g := range rows {
		d.gates[g.GateKey] = g
	}
	d.holds, err = store.Holds(ctx, db, "")
	return d, err
}

// Open says whether something may be begun at n.
func (d *Doors) Open(n Name) bool { return d.State(n).Open() }

// State is where a gate stands; one without a row is open.
func (d *Doors) State(n Name) State {
	g, ok := d.gates[n]
	if !ok {
		g = store.Gate{GateKey: n, State: api.GateOpen}
	}
	return stateOf(g, d.now)
}

// Stopped is the hold that keeps s from something, or nil.
func (d *Doors) Stopped(what api.Stop, s Subject) *store.Hold { return stopped(d.holds, what, s) }
