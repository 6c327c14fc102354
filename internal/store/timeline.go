package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// Submitted is one submit that met a task, for its timeline.
type Submitted struct {
	TaskID    task.ID
	At        time.Time     // as read
	Age       time.Duration // as written: how long ago it was
	What      string        // folded, reopened or refused
	Nth       int64         // as written: its place among those of its sort that are written with it, from 1
	RequestID string
	Client    string
	UserAgent string
	Actor     string
	TraceID   string
}

// Tally is how many submits met a task since the last one.
type Tally struct {
	ID              task.ID
	Folded, Refused int64
}

// FirstSubmits is how many duplicates of a task, and how many refusals, are kept one by one.
const FirstSubmits = 20

// Salt is what folds callers' addresses in this installation.
func Salt(ctx context.Context, db DBTX) ([]byte, error) {
	var salt []byte
	if err := db.QueryRow(ctx, `SELECT salt FROM onefold.instance`).Scan(&salt); err != nil {
		return nil, fmt.Errorf("read the salt of addresses: %w", err)
	}
	return salt, nil
}

// Origin is who made a task, as JSON, and how many duplicates and refusals came
// after. Found is false where the tenant has no such task.
func Origin(ctx context.Context, db DBTX, tenant string, id task.ID) (origin string, folded, refused int64, found bool, err error) {
	err = db.QueryRow(ctx, `
SELECT coalesce(t.origin, ''), coalesce(d.count, 0), coalesce(d.refused, 0)
FROM onefold.tasks AS t
LEFT JOIN onefold.task_duplicates AS d ON d.task_id = t.id
WHERE t.id = $1 AND ($2 = '' OR t.tenant = $2)`, id, tenant).Scan(&origin, &folded, &refused)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", 0, 0, false, nil
	}
	if err != nil {
		return "", 0, 0, false, fmt.Errorf("read who made a task: %w", err)
	}
	return origin, folded, refused, true, nil
}

// Submits reads the first duplicates and refusals of a tenant's task, oldest first.
func Submits(ctx context.Context, db DBTX, tenant string, id task.ID) ([]Submitted, error) {
	rows, err := db.Query(ctx, `
SELECT s.task_id, s.at, s.what, s.request_id, s.client, s.user_agent, s.actor, s.trace_id
FROM onefold.task_submits AS s
JOIN onefold.tasks AS t ON t.id = s.task_id
WHERE s.task_id = $1 AND ($2 = '' OR t.tenant = $2)
ORDER BY s.at
LIMIT 200`, id, tenant)
	if err != nil {
		return nil, fmt.Errorf("read submits: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Submitted, err error) {
		return s, row.Scan(&s.TaskID, &s.At, &s.What, &s.RequestID, &s.Client, &s.UserAgent, &s.Actor, &s.TraceID)
	})
	if err != nil {
		return nil, fmt.Errorf("read submits: %w", err)
	}
	return out, nil
}

// Audited is one entry of the audit that concerns a task.
type Audited struct {
	At         time.Time
	TargetType string
	TargetID   string
	Actor      string
	Action     string
	Reason     string
	RequestID  string
}

// AuditAround reads what was done to a task and its effects, and how the gates of its provider and
// destinations moved between two times; oldest first, at most 200.
func AuditAround(ctx context.Context, db DBTX, id task.ID, effects []task.ID, provider string, destinations []string, from, to time.Time) ([]Audited, error) {
	names := make([]string, len(effects))
	for i, e := range effects {
		names[i] = e.String()
	}
	rows, err := db.Query(ctx, `
SELECT at, target_type, target_id, actor, action, reason, coalesce(request_id, '')
FROM onefold.audit
WHERE (target_type = 'task' AND target_id = $1)
   OR (target_type = 'effect' AND target_id = ANY ($2))
   OR (target_type = 'provider' AND target_id = $3 AND at BETWEEN $5 AND $6)
   OR (target_type = 'destination' AND target_id = ANY ($4) AND at BETWEEN $5 AND $6)
ORDER BY at
LIMIT 200`, id.String(), names, provider, destinations, from, to)
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Audited, err error) {
		return a, row.Scan(&a.At, &a.TargetType, &a.TargetID, &a.Actor, &a.Action, &a.Reason, &a.RequestID)
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	return out, nil
}

// Neighbour is another task like one that is looked into.
type Neighbour struct {
	ID        task.ID
	Key       string
	State     string
	CreatedAt time.Time
	SameInput bool
	SameTrace bool
	Origin    string
}

// neighbourScan bounds the tasks looked at on either side.
const neighbourScan = 20_000

// Neighbours finds tasks of the same tenant and kind within an hour of one, under other keys, with the same input or
// the same trace; oldest first, at most fifty. It reads the tenant's tasks of that time by their ids.
func Neighbours(ctx context.Context, db DBTX, r *task.Row) ([]Neighbour, error) {
	rows, err := db.Query(ctx, `
SELECT id, key, state, created_at, input_hash = $5, trace_id IS NOT NULL AND trace_id = $6, coalesce(origin, '')
FROM (
    SELECT *
    FROM onefold.tasks
    WHERE tenant = $1 AND id BETWEEN $2 AND $3
    ORDER BY id
    LIMIT $8
) AS t
WHERE kind = $4 AND id <> $7 AND (input_hash = $5 OR trace_id = $6)
ORDER BY created_at
LIMIT 50`, r.Tenant, firstID(r.CreatedAt.Add(-time.Hour)), firstID(r.CreatedAt.Add(time.Hour)), r.Kind, r.InputHash, null(r.TraceID), r.ID, neighbourScan)
	if err != nil {
		return nil, fmt.Errorf("read neighbours: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Neighbour, err error) {
		return n, row.Scan(&n.ID, &n.Key, &n.State, &n.CreatedAt, &n.SameInput, &n.SameTrace, &n.Origin)
	})
	if err != nil {
		return nil, fmt.Errorf("read neighbours: %w", err)
	}
	return out, nil
}
