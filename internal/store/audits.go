package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// LedgerGap is a task whose calls and ledger do not agree: it counts other
// attempts than the ledger has, or more than one of them succeeded.
type LedgerGap struct {
	ID                  task.ID
	Tenant, Kind, Key   string
	Counted             int32
	InLedger, Successes int64
}

// LedgerGaps compares the tasks created since a time with the ledger.
func LedgerGaps(ctx context.Context, db DBTX, since time.Time, most int) ([]LedgerGap, error) {
	rows, err := db.Query(ctx, `
SELECT t.id, t.tenant, t.kind, t.key, t.total_attempts, a.n, a.good
FROM onefold.tasks AS t
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE a.outcome = 'succeeded' AND a.run = t.run) AS good
    FROM onefold.attempts AS a
    WHERE a.task_id = t.id
) AS a
WHERE t.id >= $1 AND t.created_at >= $2 AND (a.n <> t.total_attempts OR a.good > 1)
ORDER BY t.id
LIMIT $3`, firstID(since.Add(-idSlack)), since, most)
	if err != nil {
		return nil, fmt.Errorf("compare calls with the ledger: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (LedgerGap, error) {
		var g LedgerGap
		return g, row.Scan(&g.ID, &g.Tenant, &g.Kind, &g.Key, &g.Counted, &g.InLedger, &g.Successes)
	})
	if err != nil {
		return nil, fmt.Errorf("compare calls with the ledger: %w", err)
	}
	return out, nil
}

// OpenEffectsRow counts effects of a destination that have no final state.
type OpenEffectsRow struct {
	Destination string
	State       api.EffectState
	Count, Old  int64 // Old: those older than what was asked for
	Oldest      time.Time
}

// OpenEffectsByAge counts effects without a final state, and those that are older
// than the age given: created so long ago, or unknown or dead for so long.
func OpenEffectsByAge(ctx context.Context, db DBTX, age time.Duration) ([]OpenEffectsRow, error) {
	rows, err := db.Query(ctx, `
SELECT coalesce(e.destination, ''), e.state, count(*), count(*) FILTER (WHERE coalesce(e.finished_at, e.created_at) < now() - $1::interval),
       min(coalesce(e.finished_at, e.created_at))
FROM onefold.effects AS e
WHERE e.state NOT IN ('delivered', 'discarded')
GROUP BY 1, 2
ORDER BY 1, 2`, age)
	if err != nil {
		return nil, fmt.Errorf("count open effects: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (OpenEffectsRow, error) {
		var r OpenEffectsRow
		return r, row.Scan(&r.Destination, &r.State, &r.Count, &r.Old, &r.Oldest)
	})
	if err != nil {
		return nil, fmt.Errorf("count open effects: %w", err)
	}
	return out, nil
}

// KindConfigs reads every stored version of every kind.
func KindConfigs(ctx context.Context, db DBTX) ([]KindConfig, error) {
	rows, err := db.Query(ctx, `SELECT hash, kind, body FROM onefold.kind_configs ORDER BY kind, hash`)
	if err != nil {
		return nil, fmt.Errorf("read configurations: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (KindConfig, error) {
		var c KindConfig
		return c, row.Scan(&c.Hash, &c.Kind, &c.Body)
	})
	if err != nil {
		return nil, fmt.Errorf("read configurations: %w", err)
	}
	return out, nil
}

// Missing is an effect that a task's outcome should have, and has not.
type Missing struct {
	ID                task.ID
	Tenant, Kind, Key string
	State             api.State
	Effect            string
}

// MissingEffects finds tasks created since a time that came to an outcome under a
// configuration and lack one of the effects it names for that outcome.
func MissingEffects(ctx context.Context, db DBTX, since time.Time, hash string, state api.State, names []string, most int) ([]Missing, error) {
	rows, err := db.Query(ctx, `
SELECT t.id, t.tenant, t.kind, t.key, t.state, n.name
FROM onefold.tasks AS t
CROSS JOIN unnest($4::text[]) AS n (name)
WHERE t.id >= $1 AND t.created_at >= $2 AND t.config_hash = $3 AND t.state = $5
    AND NOT EXISTS (SELECT FROM onefold.effects AS e WHERE e.task_id = t.id AND e.run = t.run AND e.name = n.name)
ORDER BY t.id
LIMIT $6`, firstID(since.Add(-idSlack)), since, hash, names, string(state), most)
	if err != nil {
		return nil, fmt.Errorf("look for missing effects: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Missing, error) {
		var m Missing
		return m, row.Scan(&m.ID, &m.Tenant, &m.Kind, &m.Key, &m.State, &m.Effect)
	})
	if err != nil {
		return nil, fmt.Errorf("look for missing effects: %w", err)
	}
	return out, nil
}

// MarkedDuplicates says which of these tasks a person has marked as duplicates.
func MarkedDuplicates(ctx context.Context, db DBTX, ids []task.ID) (map[task.ID]bool, error) {
	rows, err := db.Query(ctx, `SELECT id FROM onefold.tasks WHERE id = ANY ($1) AND duplicate_of IS NOT NULL`, ids)
	if err != nil {
		return nil, fmt.Errorf("read marked duplicates: %w", err)
	}
	return collectIDs(rows)
}
