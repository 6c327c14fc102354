package store

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/task"
)

// EffectWake is a wake-up for a waiting effect: at its own next_at, or After
// from now where the effect is due but cannot be taken yet.
type EffectWake struct {
	ID    task.ID
	After *time.Duration
}

// The updates below find their rows by an array: joined with what was picked,
// the planner reads the whole table (seen with 30,000 effects).

// wakeEffects leaves an effect without a wake-up once window effects of its
// destination have one: it is found by WakeNextEffects when it is due.
const wakeEffects = `
WITH r AS (
    SELECT e.id, e.destination, coalesce(now() + q.after, e.next_at) AS at,
           row_number() OVER (PARTITION BY e.destination ORDER BY e.next_at, e.id) AS place
    FROM onefold.effects AS e
    JOIN unnest($1::uuid[], $2::interval[]) AS q (id, after) USING (id)
    WHERE e.id = ANY ($1) AND e.state = 'waiting' AND e.next_at < 'infinity' -- not behind another of its order
), busy AS (
    SELECT d.destination,
           (SELECT count(*)
            FROM (
                SELECT
                FROM onefold.effects AS e
                WHERE e.destination = d.destination AND e.finished_at IS NULL AND e.job_id IS NOT NULL
                LIMIT $3
            ) AS few) AS n
    FROM (SELECT DISTINCT r.destination FROM r) AS d
), woken AS (
    UPDATE onefold.effects AS e
    SET job_id = nextval('onefold.river_job_id_seq')
    WHERE e.id = ANY (ARRAY(
        SELECT r.id
        FROM r
        JOIN busy AS b USING (destination)
        WHERE r.place + b.n <= $3))
    RETURNING e.id, e.job_id
)
INSERT INTO onefold.river_job (id, state, max_attempts, scheduled_at, args, kind, queue)
SELECT w.job_id,
       CASE WHEN r.at <= now() THEN 'available' ELSE 'scheduled' END::onefold.river_job_state,
       1000, r.at, jsonb_build_object('id', w.id), 'effect', $4
FROM woken AS w
JOIN r USING (id)`

// WakeEffects gives waiting effects, locked and without a wake-up, one each, as
// far as window allows. It returns how many got one.
func WakeEffects(ctx context.Context, tx DBTX, wakes []EffectWake, queue string, window int) (int, error) {
	if len(wakes) == 0 {
		return 0, nil
	}
	ids, afters := make([]task.ID, len(wakes)), make([]*time.Duration, len(wakes))
	for i, w := range wakes {
		ids[i], afters[i] = w.ID, w.After
	}
	tag, err := tx.Exec(ctx, wakeEffects, ids, afters, window, queue)
	if err != nil {
		return 0, fmt.Errorf("wake effects: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

const wakeNextEffects = `
WITH picked AS (
    SELECT e.id
    FROM unnest($1::text[], $2::integer[]) AS q (destination, n)
    CROSS JOIN LATERAL (
        SELECT e.id
        FROM onefold.effects AS e
        WHERE e.destination = q.destination AND e.finished_at IS NULL AND e.job_id IS NULL AND e.state = 'waiting'
            AND e.next_at <= now()
        ORDER BY e.next_at
        LIMIT q.n
        FOR UPDATE SKIP LOCKED
    ) AS e
), woken AS (
    UPDATE onefold.effects AS e
    SET job_id = nextval('onefold.river_job_id_seq')
    WHERE e.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
    RETURNING e.id, e.job_id, e.next_at
)
INSERT INTO onefold.river_job (id, state, max_attempts, scheduled_at, args, kind, queue)
SELECT w.job_id, 'available', 1000, w.next_at, jsonb_build_object('id', w.id), 'effect', $3
FROM woken AS w`

// WakeNextEffects wakes, for each destination, up to that many of its due
// effects that wait without a wake-up, the longest due first.
func WakeNextEffects(ctx context.Context, tx DBTX, next map[string]int, queue string) (int, error) {
	if len(next) == 0 {
		return 0, nil
	}
	destinations, counts := make([]string, 0, len(next)), make([]int32, 0, len(next))
	for d, n := range next {
		destinations, counts = append(destinations, d), append(counts, int32(n))
	}
	tag, err := tx.Exec(ctx, wakeNextEffects, destinations, counts, queue)
	if err != nil {
		return 0, fmt.Errorf("wake the next effects: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// ParkEffects takes their wake-up from waiting effects, locked; the caller
// deletes the rows it named.
func ParkEffects(ctx context.Context, tx DBTX, ids []task.ID) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `UPDATE onefold.effects SET job_id = NULL WHERE id = ANY ($1) AND state = 'waiting'`, ids); err != nil {
		return fmt.Errorf("park effects: %w", err)
	}
	return nil
}

// IdleDestinations finds destinations with due effects that wait without a
// wake-up, and for each how many may be woken: share less those that are due or
// delivering with a wake-up. It walks the index from one destination to the
// next, so that ten thousand effects of one cost as much as one. Those in
// closed are left out.
func IdleDestinations(ctx context.Context, db DBTX, share int, closed []string) (map[string]int, error) {
	rows, err := db.Query(ctx, `
WITH RECURSIVE parked AS (
    SELECT min(e.destination) AS destination
    FROM onefold.effects AS e
    WHERE e.finished_at IS NULL AND e.job_id IS NULL
    UNION ALL
    SELECT (SELECT min(e.destination)
            FROM onefold.effects AS e
            WHERE e.finished_at IS NULL AND e.job_id IS NULL AND e.destination > p.destination)
    FROM parked AS p
    WHERE p.destination IS NOT NULL
)
SELECT p.destination, $1 - busy.n
FROM parked AS p
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS n
    FROM (
        SELECT
        FROM onefold.effects AS e
        WHERE e.destination = p.destination AND e.finished_at IS NULL AND e.job_id IS NOT NULL AND e.next_at <= now()
        LIMIT $1
    ) AS few
) AS busy
WHERE p.destination IS NOT NULL AND busy.n < $1 AND NOT p.destination = ANY ($2)
    AND EXISTS (
        SELECT
        FROM onefold.effects AS e
        WHERE e.destination = p.destination AND e.finished_at IS NULL AND e.job_id IS NULL AND e.state = 'waiting'
            AND e.next_at <= now())`, share, closed)
	if err != nil {
		return nil, fmt.Errorf("look for idle destinations: %w", err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var d string
		var n int
		if err := rows.Scan(&d, &n); err != nil {
			return nil, fmt.Errorf("look for idle destinations: %w", err)
		}
		out[d] = n
	}
	return out, rows.Err()
}

// SleeplessEffects locks due waiting effects that name a wake-up which does not
// live: River has done with it, or it is overdue, or it was fetched a lease ago
// and its effect never marked. It returns them with the rows they name.
func SleeplessEffects(ctx context.Context, tx DBTX, lease time.Duration, most int) (ids []task.ID, jobs []int64, err error) {
	rows, err := tx.Query(ctx, `
SELECT e.id, e.job_id
FROM onefold.effects AS e
LEFT JOIN onefold.river_job AS j ON j.id = e.job_id
WHERE e.finished_at IS NULL AND e.job_id IS NOT NULL AND e.state = 'waiting' AND e.next_at <= now()
    AND (j.id IS NULL
        OR j.state IN ('completed', 'discarded', 'cancelled')
        OR (j.state IN ('scheduled', 'retryable', 'pending') AND j.scheduled_at < now() - interval '30 s')
        OR (j.state = 'running' AND j.attempted_at < now() - $2::interval))
ORDER BY e.id
LIMIT $1
FOR UPDATE OF e SKIP LOCKED`, most, lease)
	if err != nil {
		return nil, nil, fmt.Errorf("look for effects without a wake-up: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id task.ID
		var job int64
		if err := rows.Scan(&id, &job); err != nil {
			return nil, nil, fmt.Errorf("look for effects without a wake-up: %w", err)
		}
		ids, jobs = append(ids, id), append(jobs, job)
	}
	return ids, jobs, rows.Err()
}
