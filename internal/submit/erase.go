package submit

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Erase takes the payload of a final task away: input, result, metadata, what
// its attempts and deliveries brought, what its effects carried. Key, outcome
// and hashes stay, so that a duplicate is still answered; the task cannot run
// again. A task that is not final, or has an effect to be sent or decided,
// answers conflict. Erasing twice is no error.
//
// The row is locked first, so that no effect is added meanwhile. If the process
// dies before the commit nothing is gone and nothing audited; after it both
// stand.
func (s *Service) Erase(ctx context.Context, a Act) (*task.Row, error) {
	return s.act(ctx, a, failpoint.EraseBeforeCommit, func(ctx context.Context, tx pgx.Tx, r *task.Row) ([]string, error) {
		if !r.State.Final() {
			return nil, conflict(r, "the payload of a %s task is still needed", r.State).
				WithFix("Wait for its end, or cancel it; decide it first if its outcome is unknown.")
		}
		if r.PayloadPurgedAt != nil {
			return nil, nil
		}
		gone, err := store.ErasePayload(ctx, tx, r.ID)
		if err != nil {
			return nil, err
		}
		if !gone {
			return nil, conflict(r, "an effect of the task is still to be delivered, or to be decided").
				WithFix("Read the task's effects; once they are delivered or discarded, erase again.")
		}
		return nil, s.audit(ctx, tx, a, r, "erase payload", r.State)
	})
}
