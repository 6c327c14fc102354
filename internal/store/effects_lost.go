package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// LostEffect is a delivery nobody works on any more.
type LostEffect struct {
	ID          task.ID
	Epoch       int64
	Token       task.ID
	Destination string
	Attempts    int32
	JobID       *int64
	// Gone says that the owner signed off; Identity names its process to whoever can ask its machine.
	Gone     bool
	Identity string
}

const lostEffects = `
SELECT e.id, e.epoch, e.token, coalesce(e.destination, ''), e.attempts, e.job_id, w.stopped_at IS NOT NULL, coalesce(w.identity, '')
FROM onefold.deliveries AS d
JOIN onefold.effects AS e ON e.id = d.effect_id AND e.epoch = d.epoch AND e.token = d.token
LEFT JOIN onefold.workers AS w ON w.incarnation = e.owner
WHERE d.closed_at IS NULL AND e.state = 'delivering'`

// LostEffects locks delivering effects whose owner's lease ran out, or that
// run longer than limit whoever owns them. Those of a destination that is not
// in safe are left until they are older than wait: before, the send may be
// under way still.
func LostEffects(ctx context.Context, tx DBTX, safe []string, wait, limit time.Duration, most int) ([]LostEffect, error) {
	return queryLost(ctx, tx, lostEffects+`
    AND (w.incarnation IS NULL OR w.expires_at <= now() OR d.started_at < now() - $1::interval)
    AND (e.destination = ANY ($2) OR d.started_at < now() - $3::interval)
ORDER BY e.id
LIMIT $4
FOR UPDATE OF e SKIP LOCKED`, limit, safe, wait, most)
}

// StrayEffects locks those of ids that still are delivered by incarnation
// under the same epoch, with the same rule for destinations that are not safe.
func StrayEffects(ctx context.Context, tx DBTX, incarnation task.ID, fences []task.Fence, safe []string, wait time.Duration) ([]LostEffect, error) {
	tokens := make([]task.ID, len(fences))
	for i, f := range fences {
		tokens[i] = f.Token
	}
	return queryLost(ctx, tx, lostEffects+`
    AND e.owner = $1 AND e.token = ANY ($2)
    AND (e.destination = ANY ($3) OR d.started_at < now() - $4::interval)
ORDER BY e.id
FOR UPDATE OF e SKIP LOCKED`, incarnation, tokens, safe, wait)
}

func queryLost(ctx context.Context, tx DBTX, sql string, args ...any) ([]LostEffect, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("look for lost deliveries: %w", err)
	}
	defer rows.Close()
	var out []LostEffect
	for rows.Next() {
		var l LostEffect
		if err := rows.Scan(&l.ID, &l.Epoch, &l.Token, &l.Destination, &l.Attempts, &l.JobID, &l.Gone, &l.Identity); err != nil {
			return nil, fmt.Errorf("look for lost deliveries: %w", err)
		}
		out = append(out, l)
	}
	return out, rows.Err()
}

// OwnedEffects lists the deliveries the database says an incarnation makes.
func OwnedEffects(ctx context.Context, db DBTX, incarnation task.ID) ([]task.Fence, error) {
	rows, err := db.Query(ctx, `
SELECT e.id, e.epoch, e.token
FROM onefold.deliveries AS d
JOIN onefold.effects AS e ON e.id = d.effect_id AND e.epoch = d.epoch
WHERE d.incarnation = $1 AND d.closed_at IS NULL AND e.state = 'delivering' AND e.owner = $1`, incarnation)
	if err != nil {
		return nil, fmt.Errorf("read owned deliveries: %w", err)
	}
	defer rows.Close()
	var out []task.Fence
	for rows.Next() {
		var f task.Fence
		if err := rows.Scan(&f.ID, &f.Epoch, &f.Token); err != nil {
			return nil, fmt.Errorf("read owned deliveries: %w", err)
		}
		out = append(out, f)
	}
	return out, rows.Err()
}

// LostMove is where a lost delivery's effect goes. What it sent is not known.
type LostMove struct {
	LostEffect
	To      api.EffectState
	Code    string
	Message string
	After   time.Duration // with To waiting
}

// TakeLost takes effects from their deliveries: the epoch rises, so that
// whoever still works on one changes nothing; its delivery is closed as lost.
// It returns those that were still there.
func TakeLost(ctx context.Context, tx DBTX, moves []LostMove) (map[task.ID]bool, error) {
	b := &pgx.Batch{}
	taken := make(map[task.ID]bool, len(moves))
	for _, m := range moves {
		b.Queue(`
WITH taken AS (
    UPDATE onefold.effects
    SET state = $4,
        epoch = epoch + 1,
        owner = NULL,
        token = NULL,
        job_id = NULL,
        next_at = CASE WHEN $4 = 'waiting' THEN now() + $7::interval ELSE next_at END,
        asked = 0,
        unclear = true,
        finished_at = CASE WHEN $4 <> 'waiting' THEN now() END,
        error_code = $5,
        error_message = $6
    WHERE id = $1 AND state = 'delivering' AND epoch = $2 AND token = $3
    RETURNING id
), closed AS (
    UPDATE onefold.deliveries
    SET closed_at = now(),
        outcome = 'lost',
        code = $5,
        message = $6
    WHERE effect_id = $1 AND epoch = $2 AND token = $3 AND outcome IS NULL AND EXISTS (SELECT FROM taken)
)
SELECT id
FROM taken`, m.ID, m.Epoch, m.Token, string(m.To), null(m.Code), null(m.Message), m.After).QueryRow(func(row pgx.Row) error {
			var id task.ID
			err := row.Scan(&id)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			taken[m.ID] = true
			return err
		})
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("take lost deliveries: %w", err)
	}
	return taken, nil
}
