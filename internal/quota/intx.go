package quota

import (
	"context"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// InTx is Admit inside a transaction that the caller began and ends, where there
// is no Book: quotas and counts are read, and what the transaction itself has
// queued before comes on top. The rate is not asked, for its row would stay
// locked as long as the caller likes.
func InTx(ctx context.Context, tx store.DBTX, tenant string, n int) (let int, why *api.Error, err error) {
	bound, queued, err := store.QueueOf(ctx, tx, tenant)
	if err != nil || bound == nil {
		return n, nil, err
	}
	before, err := store.SetTransactionCount(ctx, tx, tenant, 0)
	if err != nil {
		return 0, nil, err
	}
	if let = min(n, room(*bound, queued+int64(before))); let < n {
		why = overQueued(*bound)
	}
	_, err = store.SetTransactionCount(ctx, tx, tenant, let)
	return let, why, err
}
