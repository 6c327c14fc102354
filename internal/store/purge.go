package store

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/task"
)

// Purging. Every pick here locks in id order and skips what others hold, so that
// it waits for nobody; every DELETE and UPDATE stands in a statement of its own
// after the lock, so that it sees the row as it was locked, and repeats the
// conditions: a task that was reopened in between stays.

// open effects keep a task and its payload: one of them may still be sent, or
// has to be decided by a person.
const openEffects = `EXISTS (SELECT FROM onefold.effects AS o WHERE o.task_id = t.id AND o.state NOT IN ('delivered', 'discarded'))`

const pastRetention = `t.state IN ('succeeded', 'failed', 'cancelled') AND t.expires_at <= now()`

// Expired picks final tasks past their retention whose effects are all done.
func Expired(ctx context.Context, tx DBTX, most int) ([]task.ID, error) {
	return queryIDs(ctx, tx, "look for expired tasks", `
SELECT t.id
FROM onefold.tasks AS t
WHERE `+pastRetention+` AND NOT `+openEffects+`
ORDER BY t.expires_at
LIMIT $1`, most)
}

// RetireExpired moves expired final tasks to the tombstones, with their
// attempts, effects and wake-ups, so that their keys are free again. One that
// has effects on the way or in review stays until they are done, and gives up
// its key. One that was reopened meanwhile, or is locked, is left alone.
func RetireExpired(ctx context.Context, tx DBTX, ids []task.ID) error {
	if len(ids) == 0 {
		return nil
	}
	locked, err := queryIDs(ctx, tx, "lock expired tasks", `
SELECT t.id
FROM onefold.tasks AS t
WHERE t.id = ANY ($1) AND `+pastRetention+`
ORDER BY t.id
FOR UPDATE SKIP LOCKED`, ids)
	if err != nil || len(locked) == 0 {
		return err
	}
	jobs, err := queryJobs(ctx, tx, `
DELETE FROM onefold.effects AS e
USING onefold.tasks AS t
WHERE t.id = ANY ($1) AND e.task_id = t.id AND `+pastRetention+` AND NOT `+openEffects+`
RETURNING e.job_id`, locked)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
INSERT INTO onefold.tombstones (task_id, tenant, kind, key, state, error_code, result_hash, created_at, finished_at)
SELECT t.id, t.tenant, t.kind, t.key, t.state, t.error_code, t.result_hash, t.created_at, t.finished_at
FROM onefold.tasks AS t
WHERE t.id = ANY ($1) AND `+pastRetention+` AND NOT EXISTS (SELECT FROM onefold.effects AS o WHERE o.task_id = t.id)
ON CONFLICT (task_id) DO NOTHING`, locked)
	if err != nil {
		return fmt.Errorf("retire expired tasks: %w", err)
	}
	if err := keepUsage(ctx, tx, locked); err != nil {
		return err
	}
	more, err := queryJobs(ctx, tx, `
DELETE FROM onefold.tasks AS t
USING onefold.tombstones AS d
WHERE t.id = ANY ($1) AND d.task_id = t.id AND `+pastRetention+`
    AND NOT EXISTS (SELECT FROM onefold.effects AS o WHERE o.task_id = t.id)
RETURNING t.job_id`, locked)
	if err != nil {
		return err
	}
	if err := DeleteWakes(ctx, tx, append(jobs, more...)); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
UPDATE onefold.tasks AS t
SET slot = t.id::text
WHERE t.id = ANY ($1) AND `+pastRetention+` AND t.slot <> t.id::text`, locked)
	if err != nil {
		return fmt.Errorf("free keys of expired tasks: %w", err)
	}
	return nil
}

func queryJobs(ctx context.Context, tx DBTX, sql string, ids []task.ID) (jobs []int64, err error) {
	rows, err := tx.Query(ctx, sql, ids)
	if err != nil {
		return nil, fmt.Errorf("retire expired tasks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var job *int64
		if err := rows.Scan(&job); err != nil {
			return nil, fmt.Errorf("retire expired tasks: %w", err)
		}
		if job != nil {
			jobs = append(jobs, *job)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("retire expired tasks: %w", err)
	}
	return jobs, nil
}

// settledForGood are the tasks that cannot run again: a failure of the system's
// may be reopened by a duplicate or a person, and keeps its payload for that.
// They are told without state, which the index tasks_payload_due must not name:
// only what failed or is unknown has an error_code (CHECK tasks_failed).
const settledForGood = `(t.finished_at IS NOT NULL AND (t.error_code IS NULL OR t.error_permanent))`

// PayloadsDue picks tasks that cannot run again, of the kinds given, that have
// been final for so long and still have their payload.
func PayloadsDue(ctx context.Context, tx DBTX, kinds []string, keep []time.Duration, most int) ([]task.ID, error) {
	return queryIDs(ctx, tx, "look for payloads to purge", `
SELECT d.id
FROM unnest($1::text[], $2::interval[]) AS k (kind, keep)
CROSS JOIN LATERAL (
    SELECT t.id
    FROM onefold.tasks AS t
    WHERE t.kind = k.kind AND t.payload_purged_at IS NULL AND `+settledForGood+` AND t.finished_at <= now() - k.keep
        AND NOT `+openEffects+`
    ORDER BY t.finished_at
    LIMIT $3
) AS d
LIMIT $3`, kinds, keep, most)
}

// PurgePayloads takes the payloads of those tasks that cannot run again and have
// no effect to be sent: input, result, what attempts and deliveries brought, and
// what effects carried. The outcome and the hashes stay.
func PurgePayloads(ctx context.Context, tx DBTX, ids []task.ID) error {
	locked, err := queryIDs(ctx, tx, "lock tasks to purge", `
SELECT t.id
FROM onefold.tasks AS t
WHERE t.id = ANY ($1) AND t.payload_purged_at IS NULL AND `+settledForGood+`
ORDER BY t.id
FOR UPDATE SKIP LOCKED`, ids)
	if err != nil || len(locked) == 0 {
		return err
	}
	return dropPayloads(ctx, tx, locked, settledForGood, "")
}

// ErasePayload takes a final task's payload on request, metadata included; the
// caller has locked the row. It may be one that could have run again: it cannot
// after this. It is false where an effect is still to be sent or decided.
func ErasePayload(ctx context.Context, tx DBTX, id task.ID) (bool, error) {
	ids := []task.ID{id}
	err := dropPayloads(ctx, tx, ids, `t.state IN ('succeeded', 'failed', 'cancelled')`, ", metadata = NULL")
	if err != nil {
		return false, err
	}
	var gone bool
	if err := tx.QueryRow(ctx, `SELECT payload_purged_at IS NOT NULL FROM onefold.tasks WHERE id = $1`, id).Scan(&gone); err != nil {
		return false, fmt.Errorf("erase a payload: %w", err)
	}
	return gone, nil
}

func dropPayloads(ctx context.Context, tx DBTX, locked []task.ID, which, also string) error {
	for _, sql := range []string{`
UPDATE onefold.tasks AS t
SET payload_purged_at = now(), input = NULL, effects = NULL, result = NULL` + also + `
WHERE t.id = ANY ($1) AND t.payload_purged_at IS NULL AND ` + which + ` AND NOT ` + openEffects, `
UPDATE onefold.attempts AS a
SET late_result = NULL, partial = NULL, kept_result = NULL, kept_effects = NULL, reply = NULL
FROM onefold.tasks AS t
WHERE t.id = ANY ($1) AND a.task_id = t.id AND t.payload_purged_at IS NOT NULL
    AND num_nonnulls(a.late_result, a.partial, a.kept_result, a.kept_effects, a.reply) > 0`, `
UPDATE onefold.deliveries AS d
SET reply = NULL
FROM onefold.tasks AS t
JOIN onefold.effects AS e ON e.task_id = t.id
WHERE t.id = ANY ($1) AND d.effect_id = e.id AND t.payload_purged_at IS NOT NULL AND d.reply IS NOT NULL`, `
UPDATE onefold.effects AS e
SET headers = NULL, body = NULL
FROM onefold.tasks AS t
WHERE t.id = ANY ($1) AND e.task_id = t.id AND t.payload_purged_at IS NOT NULL AND num_nonnulls(e.headers, e.body) > 0`} {
		if _, err := tx.Exec(ctx, sql, locked); err != nil {
			return fmt.Errorf("purge payloads: %w", err)
		}
	}
	return nil
}

// KindsSeen are the names of all kinds that tasks may be of, configured by now
// or not.
func KindsSeen(ctx context.Context, db DBTX) ([]string, error) {
	rows, err := db.Query(ctx, `SELECT DISTINCT kind FROM onefold.kind_configs ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("read kinds: %w", err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("read kinds: %w", err)
		}
		all = append(all, name)
	}
	return all, rows.Err()
}

// ForgetTombstones deletes the oldest tombstones that were made so long ago:
// after that an id is answered like one that never was.
func ForgetTombstones(ctx context.Context, db DBTX, after time.Duration, most int) (int64, error) {
	tag, err := db.Exec(ctx, `
DELETE FROM onefold.tombstones
WHERE task_id IN (
    SELECT task_id
    FROM onefold.tombstones
    WHERE purged_at <= now() - $1::interval
    ORDER BY purged_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
    AND purged_at <= now() - $1::interval`, after, most)
	if err != nil {
		return 0, fmt.Errorf("forget tombstones: %w", err)
	}
	return tag.RowsAffected(), nil
}
