package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// Elect says whether process does what name names, for as long as it asks again
// within keep: one that holds it renews it, another takes it once it has run out.
func Elect(ctx context.Context, db DBTX, name string, process task.ID, keep time.Duration) (bool, error) {
	tag, err := db.Exec(ctx, `
INSERT INTO onefold.elections AS e (name, process, until)
VALUES ($1, $2, now() + $3::interval)
ON CONFLICT (name) DO UPDATE
SET process = excluded.process, until = excluded.until
WHERE e.process = excluded.process OR e.until < now()`, name, process, keep)
	if err != nil {
		return false, fmt.Errorf("elect who does %s: %w", name, err)
	}
	return tag.RowsAffected() == 1, nil
}

// TaskDepth is how many unfinished tasks of a kind stand where. What: due
// (pending and to be run now), scheduled (pending, later) or running.
type TaskDepth struct {
	Kind   string
	What   string
	Count  int64
	Oldest time.Duration // since the oldest was due
}

// TaskDepths counts unfinished tasks.
func TaskDepths(ctx context.Context, db DBTX) ([]TaskDepth, error) {
	return gauges(ctx, db, "count unfinished tasks", `
SELECT kind, CASE WHEN state = 'running' THEN 'running' WHEN run_at > now() THEN 'scheduled' ELSE 'due' END AS what,
       count(*), max(greatest(now() - run_at, '0'))
FROM onefold.tasks
WHERE finished_at IS NULL
GROUP BY kind, what`, func(r pgx.CollectableRow) (d TaskDepth, err error) {
		return d, r.Scan(&d.Kind, &d.What, &d.Count, &d.Oldest)
	})
}

// ReviewAge is how much waits for a person, by what it is (task or effect), its
// state, and how long it has waited: 15m, 1h, 1d, 1w or older.
type ReviewAge struct {
	What, State, Age string
	Count            int64
}

// ReviewAges counts unknown tasks, and unknown and dead effects.
func ReviewAges(ctx context.Context, db DBTX) ([]ReviewAge, error) {
	return gauges(ctx, db, "count what is in review", `
SELECT what, state,
       CASE WHEN at > now() - interval '15 min' THEN '15m' WHEN at > now() - interval '1 h' THEN '1h'
            WHEN at > now() - interval '1 d' THEN '1d' WHEN at > now() - interval '7 d' THEN '1w' ELSE 'older' END AS age,
       count(*)
FROM (
    SELECT 'task' AS what, state, finished_at AS at
    FROM onefold.tasks
    WHERE finished_at IS NOT NULL AND expires_at IS NULL
    UNION ALL
    SELECT 'effect', state, finished_at
    FROM onefold.effects
    WHERE state IN ('unknown', 'dead')
) AS r
GROUP BY what, state, age`, func(r pgx.CollectableRow) (a ReviewAge, err error) {
		return a, r.Scan(&a.What, &a.State, &a.Age, &a.Count)
	})
}

// EffectDepth is how many effects of a destination are not delivered yet.
type EffectDepth struct {
	Destination, State string
	Count              int64
	Oldest             time.Duration // since the oldest was due
}

// EffectDepths counts effects that are not delivered yet.
func EffectDepths(ctx context.Context, db DBTX) ([]EffectDepth, error) {
	return gauges(ctx, db, "count effects", `
SELECT coalesce(destination, ''), state, count(*), max(greatest(now() - next_at, '0'))
FROM onefold.effects
WHERE finished_at IS NULL
GROUP BY 1, 2`, func(r pgx.CollectableRow) (d EffectDepth, err error) {
		return d, r.Scan(&d.Destination, &d.State, &d.Count, &d.Oldest)
	})
}

// Health is what the database says of itself.
type Health struct {
	XminAge int64         // transactions that the oldest snapshot holds back
	XminFor time.Duration // how long the oldest transaction has been open, as far as this role may see
}

// ReadHealth reads how far vacuum is held back.
func ReadHealth(ctx context.Context, db DBTX) (h Health, err error) {
	err = db.QueryRow(ctx, `
SELECT greatest(
           (SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()),
           (SELECT max(greatest(age(xmin), age(catalog_xmin))) FROM pg_replication_slots),
           (SELECT max(age(transaction)) FROM pg_prepared_xacts), 0)::bigint,
       coalesce((SELECT max(clock_timestamp() - xact_start) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), '0')`,
	).Scan(&h.XminAge, &h.XminFor)
	if err != nil {
		return h, fmt.Errorf("read the oldest snapshot: %w", err)
	}
	return h, nil
}

// TableRows is how many rows of a table are dead, and live.
type TableRows struct {
	Table      string
	Dead, Live int64
}

// DeadRows reads Postgres' own counts of our tables.
func DeadRows(ctx context.Context, db DBTX) ([]TableRows, error) {
	return gauges(ctx, db, "read counts of dead rows", `
SELECT relname, n_dead_tup, n_live_tup
FROM pg_stat_user_tables
WHERE schemaname = 'onefold'`, func(r pgx.CollectableRow) (t TableRows, err error) {
		return t, r.Scan(&t.Table, &t.Dead, &t.Live)
	})
}

// WorkerStates counts incarnations: alive, or lost (their lease ran out within the last hour and they
// never signed off).
func WorkerStates(ctx context.Context, db DBTX) (alive, lost int64, err error) {
	err = db.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE stopped_at IS NULL AND expires_at > now()),
       count(*) FILTER (WHERE stopped_at IS NULL AND expires_at <= now() AND expires_at > now() - interval '1 h')
FROM onefold.workers`).Scan(&alive, &lost)
	if err != nil {
		return 0, 0, fmt.Errorf("count workers: %w", err)
	}
	return alive, lost, nil
}

// RepeatBounds are the upper bounds that KeyRepeats counts by.
var RepeatBounds = []float64{1, 2, 3, 5, 10, 20, 50, 100, 1000}

// Repeats is how often keys that were repeated at all were repeated.
type Repeats struct {
	Keys, Sum int64
	UpTo      []int64 // keys repeated at most RepeatBounds[i] times
}

// KeyRepeats counts duplicates a key, of all keys that are kept.
func KeyRepeats(ctx context.Context, db DBTX) (r Repeats, err error) {
	err = db.QueryRow(ctx, `
SELECT count(*), coalesce(sum(d.count), 0)::bigint,
       (SELECT array_agg((SELECT count(*) FROM onefold.task_duplicates AS k WHERE k.count > 0 AND k.count <= b) ORDER BY b)
        FROM unnest($1::float8[]) AS b)
FROM onefold.task_duplicates AS d
WHERE d.count > 0`, RepeatBounds).Scan(&r.Keys, &r.Sum, &r.UpTo)
	if err != nil {
		return r, fmt.Errorf("count repeats: %w", err)
	}
	return r, nil
}

// BehindGates is what waits behind a closed gate: tasks of a provider or effects of a destination.
type BehindGates struct {
	Scope, Name string
	Count       int64
}

// WaitingBehindGates counts tasks and effects whose provider's or destination's gate is not open.
func WaitingBehindGates(ctx context.Context, db DBTX) ([]BehindGates, error) {
	return gauges(ctx, db, "count what waits behind gates", `
SELECT g.scope, g.name, CASE g.scope
           WHEN 'provider' THEN (SELECT count(*) FROM onefold.tasks AS t WHERE t.finished_at IS NULL AND t.state = 'pending' AND t.provider = g.name)
           ELSE (SELECT count(*) FROM onefold.effects AS e WHERE e.finished_at IS NULL AND e.destination = g.name) END
FROM onefold.gates AS g
WHERE g.state <> 'open' AND (g.until IS NULL OR g.until > now())`, func(r pgx.CollectableRow) (b BehindGates, err error) {
		return b, r.Scan(&b.Scope, &b.Name, &b.Count)
	})
}

func gauges[T any](ctx context.Context, db DBTX, what, sql string, scan func(pgx.CollectableRow) (T, error)) ([]T, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	out, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}
