package store

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/task"
)

// Worker is one incarnation of a worker process.
type Worker struct {
	Incarnation task.ID
	Process     task.ID
	Instance    string
	Host        string
	PID         int
	Version     string
	Providers   []string
	Identity    string // tells the process from every other of its machine; "" where that cannot be told
}

// RegisterWorker adds a fresh incarnation that lives for one lease.
func RegisterWorker(ctx context.Context, db DBTX, w Worker, lease time.Duration) error {
	_, err := db.Exec(ctx, `
INSERT INTO onefold.workers (incarnation, process, instance, host, pid, version, providers, expires_at, identity)
VALUES ($1, $2, $3, $4, $5, $6, coalesce($7::text[], '{}'), now() + $8::interval, $9)`,
		w.Incarnation, w.Process, w.Instance, w.Host, w.PID, w.Version, w.Providers, lease, null(w.Identity))
	if err != nil {
		return fmt.Errorf("register incarnation: %w", err)
	}
	return nil
}

// Heartbeat extends an incarnation that still lives. alive is false when its
// lease ran out: then it must never be used again.
func Heartbeat(ctx context.Context, db DBTX, incarnation task.ID, lease time.Duration) (alive bool, err error) {
	tag, err := db.Exec(ctx, `
UPDATE onefold.workers
SET expires_at = now() + $2::interval
WHERE incarnation = $1 AND expires_at > now() AND stopped_at IS NULL`, incarnation, lease)
	if err != nil {
		return false, fmt.Errorf("heartbeat: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// StopWorker ends an incarnation on a clean stop, and those that its process had
// before: proof that the process sends nothing any more.
func StopWorker(ctx context.Context, db DBTX, incarnation task.ID) error {
	_, err := db.Exec(ctx, `
UPDATE onefold.workers
SET stopped_at = now(), expires_at = least(expires_at, now())
WHERE process = (SELECT w.process FROM onefold.workers AS w WHERE w.incarnation = $1) AND stopped_at IS NULL`, incarnation)
	if err != nil {
		return fmt.Errorf("stop incarnation: %w", err)
	}
	return nil
}

// ForgetWorkers deletes incarnations that ended long ago and own nothing.
func ForgetWorkers(ctx context.Context, db DBTX, after time.Duration) error {
	_, err := db.Exec(ctx, `
DELETE FROM onefold.workers AS w
WHERE w.expires_at < now() - $1::interval
    AND NOT EXISTS (SELECT FROM onefold.attempts AS a WHERE a.incarnation = w.incarnation AND a.closed_at IS NULL)
    AND NOT EXISTS (SELECT FROM onefold.deliveries AS d WHERE d.incarnation = w.incarnation AND d.closed_at IS NULL)`, after)
	if err != nil {
		return fmt.Errorf("forget old incarnations: %w", err)
	}
	return nil
}

// OwnedTask is a task the database says an incarnation runs.
type OwnedTask struct {
	task.Fence
	CancelRequested bool
}

// Owned lists the tasks the database says an incarnation runs.
func Owned(ctx context.Context, db DBTX, incarnation task.ID) ([]OwnedTask, error) {
	rows, err := db.Query(ctx, `
SELECT t.id, t.epoch, t.token, t.cancel_requested
FROM onefold.attempts AS a
JOIN onefold.tasks AS t ON t.id = a.task_id AND t.epoch = a.epoch
WHERE a.incarnation = $1 AND a.closed_at IS NULL AND t.state = 'running' AND t.owner = $1`, incarnation)
	if err != nil {
		return nil, fmt.Errorf("read owned tasks: %w", err)
	}
	defer rows.Close()
	var out []OwnedTask
	for rows.Next() {
		var f OwnedTask
		if err := rows.Scan(&f.ID, &f.Epoch, &f.Token, &f.CancelRequested); err != nil {
			return nil, fmt.Errorf("read owned tasks: %w", err)
		}
		out = append(out, f)
	}
	return out, rows.Err()
}

// LostTasks picks running tasks whose owner's lease ran out, and, with
// everyone, also those whose owner is not known at all or that overran limit
// whoever owns them. The epochs it returns are what was judged: by the time the
// rows are locked a task may run again, under a living owner.
func LostTasks(ctx context.Context, tx DBTX, everyone bool, limit time.Duration, most int) (map[task.ID]int64, error) {
	sql := `
SELECT t.id, t.epoch
FROM onefold.attempts AS a
JOIN onefold.workers AS w USING (incarnation)
JOIN onefold.tasks AS t ON t.id = a.task_id AND t.epoch = a.epoch
WHERE a.closed_at IS NULL AND w.expires_at <= now() AND t.state = 'running'
LIMIT $1`
	args := []any{most}
	if everyone {
		sql = `
SELECT t.id, t.epoch
FROM onefold.tasks AS t
LEFT JOIN onefold.workers AS w ON w.incarnation = t.owner
LEFT JOIN onefold.attempts AS a ON a.task_id = t.id AND a.epoch = t.epoch
WHERE t.finished_at IS NULL AND t.state = 'running'
    AND (w.incarnation IS NULL OR w.expires_at <= now() OR a.claimed_at < now() - $2::interval)
LIMIT $1`
		args = append(args, limit)
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("look for lost tasks: %w", err)
	}
	defer rows.Close()
	out := map[task.ID]int64{}
	for rows.Next() {
		var id task.ID
		var epoch int64
		if err := rows.Scan(&id, &epoch); err != nil {
			return nil, fmt.Errorf("look for lost tasks: %w", err)
		}
		out[id] = epoch
	}
	return out, rows.Err()
}

// Dispatched says of running tasks whether their present attempt may have sent:
// it was marked, or its kind does not mark. The row tells only the mark.
func Dispatched(ctx context.Context, tx DBTX, ids []task.ID) (map[task.ID]bool, error) {
	rows, err := tx.Query(ctx, `
SELECT t.id, a.dispatched_at IS NOT NULL
FROM onefold.tasks AS t
JOIN onefold.attempts AS a ON a.task_id = t.id AND a.epoch = t.epoch
WHERE t.id = ANY ($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read dispatch marks: %w", err)
	}
	defer rows.Close()
	out := map[task.ID]bool{}
	for rows.Next() {
		var id task.ID
		var marked bool
		if err := rows.Scan(&id, &marked); err != nil {
			return nil, fmt.Errorf("read dispatch marks: %w", err)
		}
		out[id] = marked
	}
	return out, rows.Err()
}

// CloseLost closes the open attempts of tasks taken from their workers.
func CloseLost(ctx context.Context, tx DBTX, ids []task.ID, epochs []int64, outcomes []string, billed []string) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.attempts AS a
SET closed_at = now(),
    outcome = q.outcome,
    code = 'worker_lost',
    billed = q.billed,
    orphaned = q.billed <> 'no',
    sends = CASE WHEN q.billed = 'no' THEN 0 ELSE 1 END
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[]) AS q (task_id, epoch, outcome, billed)
WHERE a.task_id = q.task_id AND a.epoch = q.epoch AND a.outcome IS NULL`, ids, epochs, outcomes, billed)
	if err != nil {
		return fmt.Errorf("close lost attempts: %w", err)
	}
	return nil
}

// Sleepless picks due pending tasks whose wake-up does not live: it is gone,
// River has done with it, it is overdue, or it was fetched a lease ago and its
// task never claimed. Parked tasks name none and are left out.
func Sleepless(ctx context.Context, tx DBTX, lease time.Duration, most int) ([]task.ID, error) {
	return queryIDs(ctx, tx, "look for tasks without a wake-up", `
SELECT t.id
FROM onefold.tasks AS t
LEFT JOIN onefold.river_job AS j ON j.id = t.job_id
WHERE t.finished_at IS NULL AND t.state = 'pending' AND t.run_at <= now() AND t.job_id IS NOT NULL
    AND (j.id IS NULL
        OR j.state IN ('completed', 'discarded', 'cancelled')
        OR (j.state IN ('scheduled', 'retryable', 'pending') AND j.scheduled_at < now() - interval '30 s')
        OR (j.state = 'running' AND j.attempted_at < now() - $2::interval))
ORDER BY t.run_at
LIMIT $1`, most, lease)
}

// Overdue picks pending tasks whose deadline passed.
func Overdue(ctx context.Context, tx DBTX, most int) ([]task.ID, error) {
	return queryIDs(ctx, tx, "look for overdue tasks", `
SELECT t.id
FROM onefold.tasks AS t
WHERE t.finished_at IS NULL AND t.deadline <= now() AND t.state = 'pending'
ORDER BY t.deadline
LIMIT $1`, most)
}

// FlaggedPending picks pending tasks that carry a cancel flag.
func FlaggedPending(ctx context.Context, tx DBTX, most int) ([]task.ID, error) {
	return queryIDs(ctx, tx, "look for cancelled tasks", `
SELECT t.id
FROM onefold.tasks AS t
WHERE t.finished_at IS NULL AND t.state = 'pending' AND t.cancel_requested
LIMIT $1`, most)
}

func queryIDs(ctx context.Context, db DBTX, what, sql string, args ...any) ([]task.ID, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer rows.Close()
	var ids []task.ID
	for rows.Next() {
		var id task.ID
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
