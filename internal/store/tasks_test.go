package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Two groups that hold the same keys in opposite orders insert them in the same
// order, so that neither waits for the other in a circle.
func TestGroupsOfTheSameKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	ctx := context.Background()
	if err := store.PutKindConfigs(ctx, pool, []store.KindConfig{{Hash: "h", Kind: "k", Body: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	const rounds, keys = 8, 1500
	for round := range rounds {
		orders := [2][]*store.New{}
		for g := range orders {
			for k := range keys {
				orders[g] = append(orders[g], &store.New{
					ID: task.NewID(), Slot: store.Slot{Tenant: "a", Kind: "k", Key: fmt.Sprintf("%d-%05d", round, k)},
					Dedupe: api.DedupeKey, Provider: "p", Queue: "p-p", FingerprintV: 1, ConfigHash: "h", DeadlineAfter: time.Hour, Input: []byte("1"),
				})
			}
		}
		slices.Reverse(orders[1])
		won := [2]int{}
		var wg sync.WaitGroup
		for g, news := range orders {
			wg.Go(func() {
				err := pgx.BeginTxFunc(ctx, pool, store.ReadCommitted, func(tx pgx.Tx) error {
					got, err := store.InsertTasks(ctx, tx, news)
					won[g] = len(got)
					return err
				})
				if err != nil {
					t.Errorf("round %d, group %d: %v", round, g, err)
				}
			})
		}
		wg.Wait()
		if won[0]+won[1] != keys {
			t.Fatalf("round %d: %d and %d of %d keys inserted", round, won[0], won[1], keys)
		}
	}
}
