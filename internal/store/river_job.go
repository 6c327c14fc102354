package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// Wake-ups. A row of river_job is disposable: {"id": ...} of a task or an
// effect. These are the only statements on river_job, and the columns they
// name are asserted at start-up by CheckRiver.

// The kinds of River rows.
const (
	WakeTask   = "task"
	WakeEffect = "effect"
)

// Wake is one wake-up to be written under an id taken from the sequence. At
// nil means due now: the row's place in the queue is then Virtual.
type Wake struct {
	JobID   int64
	ID      task.ID
	Queue   string
	Virtual time.Time
	At      *time.Time
}

const insertWakes = `
INSERT INTO onefold.river_job (id, state, max_attempts, scheduled_at, args, kind, queue)
SELECT r.job_id,
       CASE WHEN r.at IS NULL THEN 'available' ELSE 'scheduled' END::onefold.river_job_state,
       1000,
       coalesce(r.at, r.virtual_at),
       jsonb_build_object('id', r.id),
       $1,
       r.queue
FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::timestamptz[], $6::timestamptz[]) AS r (job_id, id, queue, virtual_at, at)`

// InsertWakes writes wake-ups of one kind. Whoever calls it has set job_id on
// the task's or effect's row in the same transaction and deletes the row's
// former wake-up with DeleteWakes.
func InsertWakes(ctx context.Context, db DBTX, kind string, wakes []Wake) error {
	if len(wakes) == 0 {
		return nil
	}
	n := len(wakes)
	jobs, ids, queues := make([]int64, n), make([]task.ID, n), make([]string, n)
	virtuals, ats := make([]time.Time, n), make([]*time.Time, n)
	for i, w := range wakes {
		jobs[i], ids[i], queues[i], virtuals[i], ats[i] = w.JobID, w.ID, w.Queue, w.Virtual, w.At
	}
	if _, err := db.Exec(ctx, insertWakes, kind, jobs, ids, queues, virtuals, ats); err != nil {
		return fmt.Errorf("insert wake-ups: %w", err)
	}
	return nil
}

// DueWakes makes the wake-ups of tasks that have become due available at their
// task's place, and moves those there that River made available at the time they
// were due: it would come after everything that waits. It returns the queues.
func DueWakes(ctx context.Context, db DBTX, most int) ([]string, error) {
	rows, err := db.Query(ctx, `
WITH due AS (
    SELECT j.id, t.virtual_at
    FROM onefold.river_queue AS q
    CROSS JOIN LATERAL (
        (SELECT id, args
         FROM onefold.river_job
         WHERE state = 'scheduled' AND queue = q.name AND priority = 1 AND kind = 'task' AND scheduled_at <= now()
         LIMIT $1)
        UNION ALL
        (SELECT id, args
         FROM onefold.river_job
         WHERE state = 'available' AND queue = q.name AND priority = 1 AND kind = 'task' AND scheduled_at >= `+virtualEnd+`
         LIMIT $1)
    ) AS j
    JOIN onefold.tasks AS t ON t.id = (j.args ->> 'id')::uuid
    WHERE q.name LIKE 'p-%' AND t.virtual_at < `+virtualEnd+`
    LIMIT $1
), locked AS (
    SELECT j.id
    FROM onefold.river_job AS j
    WHERE j.id = ANY (ARRAY(SELECT id FROM due)) AND j.state IN ('scheduled', 'available')
    ORDER BY j.id
    FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE onefold.river_job AS j
    SET state = 'available', scheduled_at = due.virtual_at
    FROM due
    WHERE due.id = j.id AND j.id = ANY (ARRAY(SELECT id FROM locked))
    RETURNING j.queue
)
SELECT DISTINCT queue FROM moved`, most)
	if err != nil {
		return nil, fmt.Errorf("wake what is due: %w", err)
	}
	queues, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("wake what is due: %w", err)
	}
	return queues, nil
}

// DeleteWakes deletes wake-ups by the ids that rows named.
func DeleteWakes(ctx context.Context, db DBTX, jobs []int64) error {
	if len(jobs) == 0 {
		return nil
	}
	if _, err := db.Exec(ctx, `DELETE FROM onefold.river_job WHERE id = ANY ($1)`, jobs); err != nil {
		return fmt.Errorf("delete wake-ups: %w", err)
	}
	return nil
}

// NextJobIDs takes n ids from River's sequence.
func NextJobIDs(ctx context.Context, db DBTX, n int) ([]int64, error) {
	rows, err := db.Query(ctx, `SELECT nextval('onefold.river_job_id_seq') FROM generate_series(1, $1::int)`, n)
	if err != nil {
		return nil, fmt.Errorf("take job ids: %w", err)
	}
	defer rows.Close()
	ids := make([]int64, 0, n)
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("take job ids: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// NotifyQueues tells River's clients that queues have new rows. It is sent
// after the commit, and a lost one costs only the poll interval.
func NotifyQueues(ctx context.Context, db DBTX, queues map[string]bool) error {
	if len(queues) == 0 {
		return nil
	}
	payloads := make([]string, 0, len(queues))
	for q := range queues {
		b, err := json.Marshal(map[string]string{"queue": q})
		if err != nil {
			return fmt.Errorf("encode queue name: %w", err)
		}
		payloads = append(payloads, string(b))
	}
	_, err := db.Exec(ctx, `SELECT pg_notify('onefold.river_insert', p) FROM unnest($1::text[]) AS p`, payloads)
	if err != nil {
		return fmt.Errorf("notify queues: %w", err)
	}
	return nil
}

// CheckRiver asserts the columns our statements name, so that a River upgrade
// that moves them is refused at start-up instead of failing at night.
func CheckRiver(ctx context.Context, db DBTX) error {
	const want = `id,state,attempt,max_attempts,attempted_at,scheduled_at,args,kind,queue`
	var have int
	err := db.QueryRow(ctx, `
SELECT count(*)
FROM information_schema.columns
WHERE table_schema = 'onefold' AND table_name = 'river_job' AND column_name = ANY (string_to_array($1, ','))`, want).Scan(&have)
	if err != nil {
		return fmt.Errorf("check river's columns: %w", err)
	}
	if have != 9 {
		return fmt.Errorf("table onefold.river_job does not have the columns %s: this River version is not supported; run `onefold migrate`", want)
	}
	return nil
}
