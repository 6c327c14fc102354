package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// Reconciling says what is looked for: rows that have been due for After. Those
// due for longer than Window are given up to people; of the others, those whose
// wake-up River cannot deliver get another, at most Most times for one due time.
type Reconciling struct {
	After, Window time.Duration
	Most          int16
	Lease         time.Duration
	High          []string // the kinds that come first
	From          time.Time
	Scan, Limit   int
	TaskQueue     string // what the names of task queues begin with
	EffectQueue   string
}

// Due is a row that has been due for long and does not move.
type Due struct {
	What    api.ReviewWhat
	ID      task.ID
	Kind    string
	Tenant  string
	DueAt   time.Time
	High    bool
	Overdue bool // longer than the window: nobody compensates any more
	Spent   bool // every compensation is used up
	JobID   *int64

	Provider string
	Virtual  time.Time
}

// badWake says of a row x and the wake-up j it names that River will not bring
// it to whoever waits for it: it is not there, done with, overdue, was fetched
// and nothing came of it, or stands for something else.
const badWake = `
x.job_id IS NOT NULL AND (j.id IS NULL
    OR j.kind <> @wake OR j.args ->> 'id' IS DISTINCT FROM x.id::text OR j.queue <> @queue || x.place
    OR j.state IN ('completed', 'discarded', 'cancelled')
    OR (j.state IN ('scheduled', 'retryable', 'pending') AND j.scheduled_at < now() - interval '30 s')
    OR (j.state = 'running' AND j.attempted_at < now() - @lease::interval))`

const dueColumns = `
SELECT x.id, x.kind, x.tenant, x.due, x.kind = ANY (@high) AS high, x.due < now() - @window::interval AS overdue,
       x.compensations >= @most AND x.stuck_for IS NOT DISTINCT FROM x.due AS spent, x.job_id, x.place, x.virtual_at
FROM x
LEFT JOIN onefold.river_job AS j ON j.id = x.job_id
WHERE (x.stuck_at IS NULL OR x.stuck_for IS DISTINCT FROM x.due)
    AND (x.due < now() - @window::interval OR (` + badWake + `))
ORDER BY high DESC, x.due
LIMIT @limit`

func (r Reconciling) args(wake, queue string) pgx.NamedArgs {
	return pgx.NamedArgs{
		"after": r.After, "window": r.Window, "most": r.Most, "lease": r.Lease, "high": r.High, "from": r.From, "scan": r.Scan,
		"limit": r.Limit, "wake": wake, "queue": queue,
	}
}

// DueTasks looks at pending tasks that have been due for long, from r.From on,
// and returns those that are to be compensated or given up. next is where the
// next look begins, zero at the end.
func DueTasks(ctx context.Context, db DBTX, r Reconciling) (due []Due, next time.Time, err error) {
	args := r.args(WakeTask, r.TaskQueue)
	const scan = `
    SELECT t.id, t.kind, t.tenant, t.run_at AS due, t.state, t.compensations, t.stuck_for, t.stuck_at, t.job_id, t.provider AS place, t.virtual_at
    FROM onefold.tasks AS t
    WHERE t.finished_at IS NULL AND t.run_at >= @from AND t.run_at < now() - @after::interval
    ORDER BY t.run_at
    LIMIT @scan`
	rows, err := db.Query(ctx, `WITH s AS (`+scan+`), x AS (SELECT * FROM s WHERE s.state = 'pending')`+dueColumns, args)
	if err != nil {
		return nil, next, fmt.Errorf("look for tasks that stand still: %w", err)
	}
	if due, err = collectDue(rows, api.ReviewTask); err != nil {
		return nil, next, err
	}
	err = db.QueryRow(ctx, `SELECT coalesce((SELECT s.due FROM (`+scan+`) AS s OFFSET @scan - 1), 'epoch')`, args).Scan(&next)
	if err != nil {
		return nil, next, fmt.Errorf("look for tasks that stand still: %w", err)
	}
	return due, next, nil
}

// DueEffects is the same for effects that wait or are held, the longest due of
// each destination.
func DueEffects(ctx context.Context, db DBTX, r Reconciling) ([]Due, error) {
	rows, err := db.Query(ctx, `
WITH RECURSIVE parked AS (
    SELECT min(e.destination) AS destination FROM onefold.effects AS e WHERE e.finished_at IS NULL AND e.job_id IS NULL
    UNION ALL
    SELECT (SELECT min(e.destination) FROM onefold.effects AS e WHERE e.finished_at IS NULL AND e.job_id IS NULL AND e.destination > p.destination)
    FROM parked AS p
    WHERE p.destination IS NOT NULL
), awake AS (
    SELECT min(e.destination) AS destination FROM onefold.effects AS e WHERE e.finished_at IS NULL AND e.job_id IS NOT NULL
    UNION ALL
    SELECT (SELECT min(e.destination) FROM onefold.effects AS e WHERE e.finished_at IS NULL AND e.job_id IS NOT NULL AND e.destination > p.destination)
    FROM awake AS p
    WHERE p.destination IS NOT NULL
), x AS (
    SELECT e.id, t.kind, e.tenant, e.next_at AS due, e.compensations, e.stuck_for, e.stuck_at, e.job_id, '' AS place, e.created_at AS virtual_at
    FROM (
        SELECT d.*
        FROM parked AS p
        CROSS JOIN LATERAL (
            SELECT * FROM onefold.effects AS e
            WHERE e.destination = p.destination AND e.finished_at IS NULL AND e.job_id IS NULL AND e.next_at < now() - @after::interval
            ORDER BY e.next_at
            LIMIT @scan) AS d
        UNION ALL
        SELECT d.*
        FROM awake AS p
        CROSS JOIN LATERAL (
            SELECT * FROM onefold.effects AS e
            WHERE e.destination = p.destination AND e.finished_at IS NULL AND e.job_id IS NOT NULL AND e.next_at < now() - @after::interval
            ORDER BY e.next_at
            LIMIT @scan) AS d
    ) AS e
    JOIN onefold.tasks AS t ON t.id = e.task_id
    WHERE e.state IN ('waiting', 'held')
)`+dueColumns, r.args(WakeEffect, r.EffectQueue))
	if err != nil {
		return nil, fmt.Errorf("look for effects that stand still: %w", err)
	}
	return collectDue(rows, api.ReviewEffect)
}

func collectDue(rows pgx.Rows, what api.ReviewWhat) ([]Due, error) {
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Due, error) {
		d := Due{What: what}
		return d, row.Scan(&d.ID, &d.Kind, &d.Tenant, &d.DueAt, &d.High, &d.Overdue, &d.Spent, &d.JobID, &d.Provider, &d.Virtual)
	})
	if err != nil {
		return nil, fmt.Errorf("look for what stands still: %w", err)
	}
	return out, nil
}

// LockDue locks rows that were found, but for those that others have locked, and
// returns which of them still are as they were found: waiting, due at the same
// time, naming the same wake-up.
func LockDue(ctx context.Context, tx DBTX, what api.ReviewWhat, due []Due) ([]Due, error) {
	if len(due) == 0 {
		return nil, nil
	}
	ids := make([]task.ID, len(due))
	for i, d := range due {
		ids[i] = d.ID
	}
	sql := `SELECT id, run_at, job_id FROM onefold.tasks WHERE id = ANY ($1) AND state = 'pending' ORDER BY id FOR UPDATE SKIP LOCKED`
	if what == api.ReviewEffect {
		sql = `SELECT id, next_at, job_id FROM onefold.effects WHERE id = ANY ($1) AND state IN ('waiting', 'held') ORDER BY id FOR UPDATE SKIP LOCKED`
	}
	rows, err := tx.Query(ctx, sql, ids)
	if err != nil {
		return nil, fmt.Errorf("lock what stands still: %w", err)
	}
	defer rows.Close()
	type place struct {
		at  time.Time
		job int64
	}
	now := map[task.ID]place{}
	for rows.Next() {
		var id task.ID
		var p place
		var job *int64
		if err := rows.Scan(&id, &p.at, &job); err != nil {
			return nil, fmt.Errorf("lock what stands still: %w", err)
		}
		if job != nil {
			p.job = *job
		}
		now[id] = p
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock what stands still: %w", err)
	}
	var still []Due
	for _, d := range due {
		was := place{at: d.DueAt}
		if d.JobID != nil {
			was.job = *d.JobID
		}
		if p, there := now[d.ID]; there && p.at.Equal(was.at) && p.job == was.job {
			still = append(still, d)
		}
	}
	return still, nil
}

// PutInReview marks locked rows for people to see, and says that it is about
// their present due time.
func PutInReview(ctx context.Context, tx DBTX, what api.ReviewWhat, ids []task.ID) error {
	return onDue(ctx, tx, "put into review", what, ids, `
SET stuck_at = now(),
    compensations = CASE WHEN stuck_for = due THEN compensations ELSE 0 END,
    stuck_for = due`)
}

// CountCompensation counts one compensation of locked rows for their present due
// time.
func CountCompensation(ctx context.Context, tx DBTX, what api.ReviewWhat, ids []task.ID) error {
	return onDue(ctx, tx, "count compensations", what, ids, `
SET stuck_at = NULL,
    compensations = CASE WHEN stuck_for = due THEN compensations + 1 ELSE 1 END,
    stuck_for = due`)
}

func onDue(ctx context.Context, tx DBTX, doing string, what api.ReviewWhat, ids []task.ID, set string) error {
	if len(ids) == 0 {
		return nil
	}
	table, due := "tasks", "run_at"
	if what == api.ReviewEffect {
		table, due = "effects", "next_at"
	}
	sql := "UPDATE onefold." + table + strings.NewReplacer(" = due", " = "+due).Replace(set) + "\nWHERE id = ANY ($1)"
	if _, err := tx.Exec(ctx, sql, ids); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// DeleteOrphanWakes deletes wake-ups older than after that no task or effect
// names: of rows that are gone, or that have another. It looks at up to scan of
// them from one id on and returns how many it deleted, and where to go on; 0 at
// the end.
func DeleteOrphanWakes(ctx context.Context, tx DBTX, after time.Duration, from int64, scan int) (deleted int, next int64, err error) {
	err = tx.QueryRow(ctx, `
WITH s AS (
    SELECT j.id, j.kind, j.state, j.created_at, j.args ->> 'id' AS of
    FROM onefold.river_job AS j
    WHERE j.id > $2
    ORDER BY j.id
    LIMIT $3
), orphans AS (
    SELECT s.id
    FROM s
    LEFT JOIN onefold.tasks AS t ON s.kind = 'task' AND t.id = s.of::uuid
    LEFT JOIN onefold.effects AS e ON s.kind = 'effect' AND e.id = s.of::uuid
    WHERE s.kind IN ('task', 'effect') AND s.created_at < now() - $1::interval
        AND s.state IN ('available', 'scheduled', 'retryable', 'pending')
        AND coalesce(t.job_id, e.job_id) IS DISTINCT FROM s.id
), gone AS (
    DELETE FROM onefold.river_job AS j
    WHERE j.id = ANY (ARRAY(SELECT o.id FROM orphans AS o)) AND j.state IN ('available', 'scheduled', 'retryable', 'pending')
    RETURNING j.id
)
SELECT (SELECT count(*) FROM gone), CASE WHEN (SELECT count(*) FROM s) = $3 THEN (SELECT max(s.id) FROM s) ELSE 0 END`,
		after, from, scan).Scan(&deleted, &next)
	if err != nil {
		return 0, 0, fmt.Errorf("delete wake-ups of nothing: %w", err)
	}
	return deleted, next, nil
}

// CloseOrphans closes attempts and deliveries that are open though their task or
// effect has moved on, and opens the delivery that a delivering effect lacks, so
// that the reaper sees it. It returns how many of either.
func CloseOrphans(ctx context.Context, tx DBTX, after time.Duration, most int) (n int, err error) {
	for _, sql := range []string{`
UPDATE onefold.attempts AS a
SET closed_at = now(),
    outcome = 'lost',
    code = 'worker_lost'
WHERE (a.task_id, a.epoch) IN (
    SELECT o.task_id, o.epoch
    FROM onefold.attempts AS o
    JOIN onefold.tasks AS t ON t.id = o.task_id
    WHERE o.closed_at IS NULL AND o.claimed_at < now() - $1::interval AND NOT (t.state = 'running' AND t.epoch = o.epoch)
    LIMIT $2) AND a.closed_at IS NULL`, `
UPDATE onefold.deliveries AS d
SET closed_at = now(),
    outcome = 'lost',
    code = 'worker_lost'
WHERE (d.effect_id, d.epoch) IN (
    SELECT o.effect_id, o.epoch
    FROM onefold.deliveries AS o
    JOIN onefold.effects AS e ON e.id = o.effect_id
    WHERE o.closed_at IS NULL AND o.started_at < now() - $1::interval AND NOT (e.state = 'delivering' AND e.epoch = o.epoch)
    LIMIT $2) AND d.closed_at IS NULL`, `
INSERT INTO onefold.deliveries (effect_id, epoch, number, incarnation, token, started_at)
SELECT e.id, e.epoch, e.attempts, e.owner, e.token, e.next_at
FROM onefold.effects AS e
WHERE e.finished_at IS NULL AND e.state = 'delivering' AND e.next_at < now() - $1::interval
    AND NOT EXISTS (SELECT FROM onefold.deliveries AS d WHERE d.effect_id = e.id AND d.epoch = e.epoch)
LIMIT $2
ON CONFLICT DO NOTHING`} {
		tag, err := tx.Exec(ctx, sql, after, most)
		if err != nil {
			return n, fmt.Errorf("close what nobody works on: %w", err)
		}
		n += int(tag.RowsAffected())
	}
	return n, nil
}
