package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// Tombstone is what stays of a purged task.
type Tombstone struct {
	TaskID     task.ID
	State      api.State
	ErrorCode  string
	ResultHash []byte
	PurgedAt   time.Time
}

// TombstoneOf reads what stayed of a tenant's task, or nil. An empty tenant is
// an instance key's.
func TombstoneOf(ctx context.Context, db DBTX, tenant string, id task.ID) (*Tombstone, error) {
	t := Tombstone{TaskID: id}
	err := db.QueryRow(ctx, `
SELECT state, coalesce(error_code, ''), result_hash, purged_at
FROM onefold.tombstones
WHERE task_id = $1 AND ($2 = '' OR tenant = $2)`, id, tenant).Scan(&t.State, &t.ErrorCode, &t.ResultHash, &t.PurgedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read tombstone: %w", err)
	}
	return &t, nil
}
