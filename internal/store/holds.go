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

// Hold is one row of onefold.holds. An empty name concerns all.
type Hold struct {
	ID                                  task.ID
	Tenant, Kind, Provider, Destination string
	Stops                               []api.Stop
	Reason, Actor                       string
	CreatedAt                           time.Time
}

const holdColumns = `id, coalesce(tenant, ''), coalesce(kind, ''), coalesce(provider, ''), coalesce(destination, ''), stops, reason, actor, created_at`

func holdTargets(h *Hold) []any {
	return []any{&h.ID, &h.Tenant, &h.Kind, &h.Provider, &h.Destination, &h.Stops, &h.Reason, &h.Actor, &h.CreatedAt}
}

// Holds reads a tenant's holds, those that name no tenant left out, or all with
// an empty tenant; oldest first.
func Holds(ctx context.Context, db DBTX, tenant string) ([]Hold, error) {
	rows, err := db.Query(ctx, `
SELECT `+holdColumns+`
FROM onefold.holds
WHERE $1 = '' OR tenant = $1
ORDER BY created_at, id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("read holds: %w", err)
	}
	defer rows.Close()
	var out []Hold
	for rows.Next() {
		var h Hold
		if err := rows.Scan(holdTargets(&h)...); err != nil {
			return nil, fmt.Errorf("read holds: %w", err)
		}
		out = append(out, h)
	}
	return out, rows.Err()
}

// PutHold makes a hold, or adds to the one there is for the same names what it
// stops, and gives it this reason. It returns the hold as it stands.
func PutHold(ctx context.Context, tx DBTX, h Hold) (*Hold, error) {
	var out Hold
	err := tx.QueryRow(ctx, `
INSERT INTO onefold.holds AS h (id, tenant, kind, provider, destination, stops, reason, actor)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT ON CONSTRAINT holds_once DO UPDATE
SET stops = ARRAY(SELECT DISTINCT s FROM unnest(h.stops || excluded.stops) AS s ORDER BY s),
    reason = excluded.reason,
    actor = excluded.actor
RETURNING `+holdColumns,
		h.ID, null(h.Tenant), null(h.Kind), null(h.Provider), null(h.Destination), h.Stops, h.Reason, h.Actor).Scan(holdTargets(&out)...)
	if err != nil {
		return nil, fmt.Errorf("set hold: %w", err)
	}
	return &out, nil
}

// DeleteHold takes a hold of a tenant away, or any with an empty tenant; nil
// when there is none.
func DeleteHold(ctx context.Context, tx DBTX, tenant string, id task.ID) (*Hold, error) {
	var out Hold
	err := tx.QueryRow(ctx, `
DELETE FROM onefold.holds
WHERE id = $1 AND ($2 = '' OR tenant = $2)
RETURNING `+holdColumns, id, tenant).Scan(holdTargets(&out)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take hold away: %w", err)
	}
	return &out, nil
}
