package outbox

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// order gives new effects that have an order key their places: after all that were committed before, and behind the
// first of them that is still open.
func order(ctx context.Context, tx pgx.Tx, news []store.NewEffect) error {
	wanted := map[store.OrderKey]int{}
	for i := range news {
		if e := &news[i]; e.Order != "" && e.State == api.EffectWaiting {
			wanted[orderKey(e)]++
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	last, err := store.TakeOrder(ctx, tx, wanted)
	if err != nil {
		return err
	}
	open, err := store.OpenOrders(ctx, tx, slices.Collect(maps.Keys(wanted)))
	if err != nil {
		return err
	}
	for i := range news {
		e := &news[i]
		if e.Order == "" {
			continue
		}
		if e.State != api.EffectWaiting { // broken ones have no place
			e.Order = ""
			continue
		}
		k := orderKey(e)
		e.OrderSeq, e.Behind = last[k]-int64(wanted[k])+1, open[k]
		wanted[k]--
		open[k] = true
	}
	return nil
}

func orderKey(e *store.NewEffect) store.OrderKey {
	return store.OrderKey{Tenant: e.Tenant, Destination: e.Destination, Key: e.Order}
}
