package store

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/internal/task"
)

// HoldEffects moves waiting effects, locked and without a wake-up, to held, as
// far as the gates of their destinations are closed. Those gates stay locked
// until the transaction ends: a release comes before, and then nothing moves,
// or after, and then it finds what has moved.
func HoldEffects(ctx context.Context, tx DBTX, ids []task.ID, byHold bool) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	tag, err := tx.Exec(ctx, `
WITH closed AS (
    SELECT g.name
    FROM onefold.gates AS g
    WHERE g.scope = 'destination' AND g.state IN ('held', 'disabled')
        AND g.name IN (SELECT e.destination FROM onefold.effects AS e WHERE e.id = ANY ($1))
    ORDER BY g.name
    FOR SHARE
)
UPDATE onefold.effects AS e
SET state = 'held',
    job_id = NULL
WHERE e.id = ANY ($1) AND e.state = 'waiting' AND ($2 OR e.destination IN (SELECT c.name FROM closed AS c))`, ids, byHold)
	if err != nil {
		return 0, fmt.Errorf("hold effects: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// WaitingAt locks due waiting effects of these destinations that have no
// wake-up, and returns their ids.
func WaitingAt(ctx context.Context, tx DBTX, destinations []string, most int) ([]task.ID, error) {
	if len(destinations) == 0 {
		return nil, nil
	}
	return queryIDs(ctx, tx, "look for effects to hold", `
SELECT e.id
FROM unnest($1::text[]) AS q (destination)
CROSS JOIN LATERAL (
    SELECT e.id
    FROM onefold.effects AS e
    WHERE e.destination = q.destination AND e.finished_at IS NULL AND e.job_id IS NULL AND e.state = 'waiting' AND e.next_at <= now()
    ORDER BY e.next_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
) AS e
LIMIT $2`, destinations, most)
}

// HeldGroup is a sort of held effects: those of one tenant at one destination.
type HeldGroup struct {
	Destination, Tenant string
	Tried               bool
}

// HeldGroups lists the sorts of effects that are held.
func HeldGroups(ctx context.Context, db DBTX) ([]HeldGroup, error) {
	rows, err := db.Query(ctx, `
WITH RECURSIVE g AS (
    (SELECT e.destination, e.tenant, e.epoch > 0 AS tried
     FROM onefold.effects AS e
     WHERE e.state = 'held'
     ORDER BY e.destination, e.tenant, e.epoch > 0
     LIMIT 1)
    UNION ALL
    SELECT f.destination, f.tenant, f.tried
    FROM g
    CROSS JOIN LATERAL (
        SELECT e.destination, e.tenant, e.epoch > 0 AS tried
        FROM onefold.effects AS e
        WHERE e.state = 'held' AND (e.destination, e.tenant, e.epoch > 0) > (g.destination, g.tenant, g.tried)
        ORDER BY e.destination, e.tenant, e.epoch > 0
        LIMIT 1) AS f
)
SELECT destination, tenant, tried
FROM g`)
	if err != nil {
		return nil, fmt.Errorf("look for held effects: %w", err)
	}
	defer rows.Close()
	var out []HeldGroup
	for rows.Next() {
		var g HeldGroup
		if err := rows.Scan(&g.Destination, &g.Tenant, &g.Tried); err != nil {
			return nil, fmt.Errorf("look for held effects: %w", err)
		}
		out = append(out, g)
	}
	return out, rows.Err()
}

// ReleaseEffects moves held effects of these sorts to waiting, due now and
// without a wake-up, at most that many of each, and returns how many of each
// destination. Those behind another of their order stay behind it.
func ReleaseEffects(ctx context.Context, tx DBTX, groups []HeldGroup, most int) (map[string]int, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	destinations, tenants, tried := make([]string, len(groups)), make([]string, len(groups)), make([]bool, len(groups))
	for i, g := range groups {
		destinations[i], tenants[i], tried[i] = g.Destination, g.Tenant, g.Tried
	}
	rows, err := tx.Query(ctx, `
UPDATE onefold.effects AS e
SET state = 'waiting',
    next_at = CASE WHEN e.next_at = 'infinity' THEN e.next_at ELSE now() END
WHERE e.id = ANY (ARRAY(
    SELECT h.id
    FROM unnest($1::text[], $2::text[], $3::boolean[]) AS q (destination, tenant, tried)
    CROSS JOIN LATERAL (
        SELECT e.id
        FROM onefold.effects AS e
        WHERE e.state = 'held' AND e.destination = q.destination AND e.tenant = q.tenant AND (e.epoch > 0) = q.tried
        LIMIT $4
        FOR UPDATE SKIP LOCKED
    ) AS h)) AND e.state = 'held'
RETURNING e.destination`, destinations, tenants, tried, most)
	if err != nil {
		return nil, fmt.Errorf("release effects: %w", err)
	}
	return countDestinations(rows)
}

// DestinationOf is where an effect goes; "" when there is no such effect.
func DestinationOf(ctx context.Context, db DBTX, id task.ID) (destination string, err error) {
	err = db.QueryRow(ctx, `SELECT coalesce((SELECT e.destination FROM onefold.effects AS e WHERE e.id = $1), '')`, id).Scan(&destination)
	if err != nil {
		return "", fmt.Errorf("read an effect's destination: %w", err)
	}
	return destination, nil
}

// TaskKey reads what a check names a task by.
func TaskKey(ctx context.Context, db DBTX, id task.ID) (key, kind string, err error) {
	if err := db.QueryRow(ctx, `SELECT key, kind FROM onefold.tasks WHERE id = $1`, id).Scan(&key, &kind); err != nil {
		return "", "", fmt.Errorf("read a task's key: %w", err)
	}
	return key, kind, nil
}
