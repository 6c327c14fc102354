package fair

import (
	"context"

	"github.com/onefold-dev/onefold/internal/store"
)

// InTx gives new tasks their places inside a transaction of somebody else's,
// from what the database says. It locks nothing that others write: two such
// transactions at a time may give out the same places to one tenant.
func InTx(ctx context.Context, tx store.DBTX, news []*store.New) error {
	seen := map[Flow]bool{}
	var flows []Flow
	for _, n := range news {
		if f := Of(n); n.Virtual.IsZero() && !seen[f] {
			seen[f] = true
			flows = append(flows, f)
		}
	}
	if len(flows) == 0 {
		return nil
	}
	got, weights, err := store.FlowsOf(ctx, tx, flows)
	if err != nil {
		return err
	}
	c := newClock(Opts{DB: tx, Weight: func(tenant string) int {
		if w := weights[tenant]; w > 0 {
			return w
		}
		return DefaultWeight
	}})
	c.reached(got)
	for _, f := range flows {
		c.lane(f)
	}
	if _, err := c.serve(ctx); err != nil {
		return err
	}
	c.PlaceAll(news)
	return store.ChargeFlows(ctx, tx, c.told())
}
