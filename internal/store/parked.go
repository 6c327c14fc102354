package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// A parked task is pending, may not run now, and waits without a wake-up:
// job_id is null. Nobody but WakeParked gives it one.

// ParkTasks takes their wake-ups from locked pending tasks; the caller deletes
// the rows they named.
func ParkTasks(ctx context.Context, tx DBTX, ids []task.ID) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `UPDATE onefold.tasks SET job_id = NULL WHERE id = ANY ($1) AND state = 'pending'`, ids); err != nil {
		return fmt.Errorf("park tasks: %w", err)
	}
	return nil
}

// Parked is what parked tasks have in common.
type Parked struct{ Provider, Kind, Tenant string }

// ParkedGroups lists whose tasks are parked. It walks the index from one group
// to the next, so that ten thousand tasks of one cost as much as one.
func ParkedGroups(ctx context.Context, db DBTX, most int) ([]Parked, error) {
	rows, err := db.Query(ctx, `
WITH RECURSIVE groups AS (
    (SELECT t.provider, t.kind, t.tenant
     FROM onefold.tasks AS t
     WHERE t.finished_at IS NULL AND t.job_id IS NULL
     ORDER BY t.provider, t.kind, t.tenant
     LIMIT 1)
    UNION ALL
    SELECT next.provider, next.kind, next.tenant
    FROM groups AS g
    CROSS JOIN LATERAL (
        SELECT t.provider, t.kind, t.tenant
        FROM onefold.tasks AS t
        WHERE t.finished_at IS NULL AND t.job_id IS NULL AND (t.provider, t.kind, t.tenant) > (g.provider, g.kind, g.tenant)
        ORDER BY t.provider, t.kind, t.tenant
        LIMIT 1
    ) AS next
)
SELECT provider, kind, tenant FROM groups LIMIT $1`, most)
	if err != nil {
		return nil, fmt.Errorf("look for parked tasks: %w", err)
	}
	defer rows.Close()
	var out []Parked
	for rows.Next() {
		var p Parked
		if err := rows.Scan(&p.Provider, &p.Kind, &p.Tenant); err != nil {
			return nil, fmt.Errorf("look for parked tasks: %w", err)
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

// WakeGroup asks for wake-ups for up to Most parked tasks of a group; without
// Retries, only for those that were not tried before in their run.
type WakeGroup struct {
	Parked
	Queue   string
	Most    int
	Retries bool
	// From and Step give a place to those whose own was passed while they were
	// stopped: it, and every Step after it. A zero From leaves all where they are.
	From time.Time
	Step time.Duration
}

// The update finds its rows by an array: joined with what was picked, the
// planner may read the whole table.
const wakeParked = `
WITH picked AS (
    SELECT p.id, q.queue, q.provider, q.tenant,
           CASE WHEN p.virtual_at < q."from" THEN q."from" + (row_number() OVER (PARTITION BY q.provider, q.tenant ORDER BY p.virtual_at, p.id) - 1) * q.step
                ELSE p.virtual_at END AS place
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::boolean[], $7::timestamptz[], $8::interval[])
        AS q (provider, kind, tenant, queue, most, retries, "from", step)
    CROSS JOIN LATERAL (
        SELECT t.id, t.virtual_at
        FROM onefold.tasks AS t
        WHERE t.provider = q.provider AND t.kind = q.kind AND t.tenant = q.tenant AND t.finished_at IS NULL AND t.job_id IS NULL
            AND t.state = 'pending' AND t.run_at <= now()
            AND (q.retries OR NOT (t.attempts > 0 OR t.released > 0 OR t.lost > 0 OR t.unclear))
        ORDER BY t.run_at
        LIMIT q.most
        FOR UPDATE SKIP LOCKED
    ) AS p
), woken AS (
    UPDATE onefold.tasks AS t
    SET job_id = nextval('onefold.river_job_id_seq'),
        virtual_at = (SELECT p.place FROM picked AS p WHERE p.id = t.id)
    WHERE t.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
    RETURNING t.id, t.job_id
), wakes AS (
INSERT INTO onefold.river_job (id, state, max_attempts, scheduled_at, args, kind, queue)
SELECT w.job_id, 'available', 1000, p.place, jsonb_build_object('id', w.id), 'task', p.queue
FROM woken AS w
JOIN picked AS p USING (id)
)
SELECT provider, tenant, count(*) FROM picked GROUP BY 1, 2`

// Woken says how many tasks of a tenant at a provider were given their wake-ups.
type Woken struct {
	Provider, Tenant string
	Count            int
}

// WakeParked gives parked tasks their wake-ups, the longest due first, and
// returns how many.
func WakeParked(ctx context.Context, tx DBTX, groups []WakeGroup) ([]Woken, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	n := len(groups)
	providers, kinds, tenants, queues := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	mosts, retries := make([]int32, n), make([]bool, n)
	froms, steps := make([]*time.Time, n), make([]time.Duration, n)
	for i, g := range groups {
		providers[i], kinds[i], tenants[i], queues[i], mosts[i], retries[i] = g.Provider, g.Kind, g.Tenant, g.Queue, int32(g.Most), g.Retries
		if steps[i] = g.Step; !g.From.IsZero() {
			froms[i] = &g.From
		}
	}
	rows, err := tx.Query(ctx, wakeParked, providers, kinds, tenants, queues, mosts, retries, froms, steps)
	if err != nil {
		return nil, fmt.Errorf("wake parked tasks: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Woken, err error) {
		err = row.Scan(&w.Provider, &w.Tenant, &w.Count)
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("wake parked tasks: %w", err)
	}
	return out, nil
}

// Waiting is what waits at a provider, and who serves it.
type Waiting struct {
	Provider         string
	Pending, Running int64
	Workers          int
}

// waitingScan bounds the rows that are counted.
const waitingScan = 200_000

// WaitingByProvider counts unfinished tasks by provider, and the live workers
// that serve it; up to waitingScan tasks are looked at.
func WaitingByProvider(ctx context.Context, db DBTX) ([]Waiting, error) {
	rows, err := db.Query(ctx, `
SELECT coalesce(t.provider, w.provider), coalesce(t.pending, 0), coalesce(t.running, 0), coalesce(w.workers, 0)
FROM (
    SELECT few.provider, count(*) FILTER (WHERE few.state = 'pending') AS pending, count(*) FILTER (WHERE few.state = 'running') AS running
    FROM (SELECT provider, state FROM onefold.tasks WHERE finished_at IS NULL LIMIT $1) AS few
    GROUP BY few.provider
) AS t
FULL JOIN (
    SELECT p AS provider, count(DISTINCT process)::integer AS workers
    FROM onefold.workers
    CROSS JOIN unnest(providers) AS p
    WHERE expires_at > now()
    GROUP BY p
) AS w USING (provider)
ORDER BY 1`, waitingScan)
	if err != nil {
		return nil, fmt.Errorf("count what waits: %w", err)
	}
	defer rows.Close()
	var out []Waiting
	for rows.Next() {
		var w Waiting
		if err := rows.Scan(&w.Provider, &w.Pending, &w.Running, &w.Workers); err != nil {
			return nil, fmt.Errorf("count what waits: %w", err)
		}
		out = append(out, w)
	}
	return out, rows.Err()
}

// TouchWakes says of wake-ups that were fetched and wait in a living process
// that they are not lost: to the sweep they were fetched just now.
func TouchWakes(ctx context.Context, db DBTX, ids []task.ID, lease time.Duration) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := db.Exec(ctx, `
UPDATE onefold.river_job
SET attempted_at = now()
WHERE id = ANY (ARRAY(SELECT job_id FROM onefold.tasks WHERE id = ANY ($1) AND state = 'pending')) AND state = 'running'
    AND attempted_at < now() - $2::interval / 4`, ids, lease)
	if err != nil {
		return fmt.Errorf("touch wake-ups: %w", err)
	}
	return nil
}
