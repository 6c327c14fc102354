package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// ConflictKey is a sort of refused submits: of one tenant and kind, under keys
// that begin alike.
type ConflictKey struct{ Tenant, Kind, Prefix string }

// Conflict is how many there were, and the task that held the key last.
type Conflict struct {
	Count    int64
	LastTask task.ID
}

// AddConflicts adds counted refusals to those of today.
func AddConflicts(ctx context.Context, db DBTX, all map[ConflictKey]Conflict) error {
	keys := make([]ConflictKey, 0, len(all))
	for k := range all {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b ConflictKey) int {
		return strings.Compare(a.Tenant+"\x00"+a.Kind+"\x00"+a.Prefix, b.Tenant+"\x00"+b.Kind+"\x00"+b.Prefix)
	})
	n := len(keys)
	tenants, kinds, prefixes := make([]string, n), make([]string, n), make([]string, n)
	counts, tasks := make([]int64, n), make([]task.ID, n)
	for i, k := range keys {
		tenants[i], kinds[i], prefixes[i], counts[i], tasks[i] = k.Tenant, k.Kind, k.Prefix, all[k].Count, all[k].LastTask
	}
	_, err := db.Exec(ctx, `
INSERT INTO onefold.key_conflicts AS c (tenant, kind, prefix, day, count, last_task)
SELECT u.tenant, u.kind, u.prefix, (now() AT TIME ZONE 'UTC')::date, u.n, u.task
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::uuid[]) AS u (tenant, kind, prefix, n, task)
ON CONFLICT (day, tenant, kind, prefix) DO UPDATE
SET count = c.count + excluded.count,
    last_task = excluded.last_task,
    last_at = now()`, tenants, kinds, prefixes, counts, tasks)
	if err != nil {
		return fmt.Errorf("count reused keys: %w", err)
	}
	return nil
}

// ConflictRow is one sort of refused submits over some days.
type ConflictRow struct {
	ConflictKey
	Conflict
	LastAt time.Time
}

// Conflicts reads refused submits since a time, the most frequent first.
func Conflicts(ctx context.Context, db DBTX, since time.Time, most int) ([]ConflictRow, error) {
	rows, err := db.Query(ctx, `
SELECT tenant, kind, prefix, sum(count)::bigint, (array_agg(last_task ORDER BY last_at DESC))[1], max(last_at)
FROM onefold.key_conflicts
WHERE day >= ($1::timestamptz AT TIME ZONE 'UTC')::date
GROUP BY tenant, kind, prefix
ORDER BY 4 DESC, 1, 2, 3
LIMIT $2`, since, most)
	if err != nil {
		return nil, fmt.Errorf("read reused keys: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ConflictRow, error) {
		var r ConflictRow
		return r, row.Scan(&r.Tenant, &r.Kind, &r.Prefix, &r.Count, &r.LastTask, &r.LastAt)
	})
	if err != nil {
		return nil, fmt.Errorf("read reused keys: %w", err)
	}
	return out, nil
}
