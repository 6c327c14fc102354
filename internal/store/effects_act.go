package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// LockedEffect is an effect about to be moved by a person.
type LockedEffect struct {
	Effect
	JobID *int64
	Order string // "" = none
	Body  []byte
}

// LockEffect locks one effect and reads it, nil where there is none.
func LockEffect(ctx context.Context, tx DBTX, id task.ID) (*LockedEffect, error) {
	var e LockedEffect
	err := tx.QueryRow(ctx, `
SELECT id, task_id, tenant, run, name, outcome, type, coalesce(destination, ''), created_at, state, epoch, nullif(next_at, 'infinity'),
       coalesce(reference, ''), attempts, unclear, finished_at, coalesce(error_code, ''), coalesce(error_message, ''),
       job_id, coalesce(order_key, ''), body
FROM onefold.effects
WHERE id = $1
FOR UPDATE`, id).Scan(&e.ID, &e.TaskID, &e.Tenant, &e.Run, &e.Name, &e.Outcome, &e.Type, &e.Destination, &e.CreatedAt, &e.State, &e.Epoch, &e.NextAt,
		&e.Reference, &e.Attempts, &e.Unclear, &e.FinishedAt, &e.ErrorCode, &e.ErrorMessage, &e.JobID, &e.Order, &e.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock effect: %w", err)
	}
	return &e, nil
}

// One that has an order waits behind the others of it until AdvanceOrders says
// that it is the first. What an unclear delivery may have done is not forgotten.
const moveEffect = `
UPDATE onefold.effects
SET state = $4,
    epoch = epoch + 1,
    job_id = NULL,
    next_at = CASE WHEN $4 <> 'waiting' THEN next_at WHEN order_key IS NULL THEN now() ELSE 'infinity' END,
    attempts = CASE WHEN $4 = 'waiting' AND $2 <> 'waiting' THEN 0 ELSE attempts END,
    misses = CASE WHEN $4 = 'waiting' THEN 0 ELSE misses END,
    first_miss_at = CASE WHEN $4 <> 'waiting' THEN first_miss_at END,
    unclear = unclear AND $4 <> 'delivered',
    asked = 0,
    compensations = 0,
    stuck_for = NULL,
    stuck_at = NULL,
    finished_at = CASE WHEN $4 <> 'waiting' THEN now() END,
    error_code = CASE WHEN $4 <> 'delivered' THEN error_code END,
    error_message = CASE WHEN $4 <> 'delivered' THEN error_message END
WHERE id = $1 AND state = $2 AND epoch = $3`

// MoveEffect moves an effect, locked, by a person's word, and takes its wake-up;
// the caller deletes the row it named. An effect that waits again begins its
// attempts anew.
func MoveEffect(ctx context.Context, tx DBTX, id task.ID, from api.EffectState, epoch int64, to api.EffectState) (bool, error) {
	tag, err := tx.Exec(ctx, moveEffect, id, string(from), epoch, string(to))
	if err != nil {
		return false, fmt.Errorf("move effect: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// EffectByID reads an effect of a tenant, or nil. An empty tenant is an instance
// key's: it sees every tenant.
func EffectByID(ctx context.Context, db DBTX, tenant string, id task.ID) (*Effect, error) {
	rows, err := db.Query(ctx, selectEffects+`
WHERE id = $1 AND ($2 = '' OR tenant = $2)`, id, tenant)
	all, err := collectEffects(rows, err)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}
