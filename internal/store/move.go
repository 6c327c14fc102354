package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// LockTasks locks rows in id order and reads them; with skip, rows locked by
// others are left out. Input and effects are read, too: what is locked is about
// to run or to settle.
func LockTasks(ctx context.Context, tx DBTX, ids []task.ID, skip bool) ([]*task.Row, error) {
	sql := `
SELECT ` + taskColumns + `, t.input, t.effects
FROM onefold.tasks AS t
WHERE t.id = ANY ($1)
ORDER BY t.id
FOR UPDATE OF t`
	if skip {
		sql += " SKIP LOCKED"
	}
	rows, err := tx.Query(ctx, sql, ids)
	if err != nil {
		return nil, fmt.Errorf("lock tasks: %w", err)
	}
	out, err := collectTasks(rows, func(r *task.Row) []any { return []any{&r.Input, &r.Effects} })
	if err != nil {
		return nil, fmt.Errorf("lock tasks: %w", err)
	}
	return out, nil
}

// Move is a move of a task by anyone but its worker: claim, sweep, reaper,
// cancel, reopen, retry, resolve. The row was locked and read in the same
// transaction; From and Epoch are what was seen. Counters are absolute.
type Move struct {
	ID    task.ID
	From  api.State
	Epoch int64

	To            api.State
	NewEpoch      int64
	Run           int32
	After         time.Duration // with To pending: run_at = now + After
	FreshDeadline bool          // with To pending: deadline = run_at + deadline_after
	NewConfigHash string        // "" keeps the task's
	NewProvider   string
	NewVirtual    *time.Time // the place of a new run
	Slot          string
	JobID         *int64 // the wake-up, where To is pending and the task is not held
	Attempts      int32
	NotSent       int16
	Released      int16
	Lost          int16
	Unclear       bool
	LastError     string
	Same          int16
	Reported      int32
	Cancel        bool // cancel_requested
	Code          string
	Message       string
	Permanent     bool
	Result        []byte
	ResultHash    []byte
	FinishReason  string
	Truncated     bool
	AddBilled     api.Billed
	Retention     time.Duration // of the key, once the state is final
	Effects       []byte        // those that the service asked for with Result; no column of the row
}

// Stay is the move that changes nothing of r yet: the caller sets what moves.
func Stay(r *task.Row) Move {
	return Move{
		ID: r.ID, From: r.State, Epoch: r.Epoch, To: r.State, NewEpoch: r.Epoch, Run: r.Run, Slot: r.Slot, JobID: r.JobID,
		Attempts: r.Attempts, NotSent: r.NotSent, Released: r.Released, Lost: r.Lost, Unclear: r.Unclear, LastError: r.LastError, Same: r.Same, Reported: r.Reported,
		Cancel: r.CancelRequested, AddBilled: api.BilledNo,
	}
}

const moveTask = `
UPDATE onefold.tasks
SET state = $4,
    epoch = $5,
    run = $6,
    owner = NULL,
    token = NULL,
    run_at = CASE WHEN $4 = 'pending' THEN now() + $7::interval ELSE run_at END,
    deadline = CASE WHEN $8 THEN now() + $7::interval + deadline_after ELSE deadline END,
    config_hash = coalesce($9, config_hash),
    provider = coalesce($10, provider),
    virtual_at = coalesce($31, virtual_at),
    slot = $11,
    job_id = $12,
    attempts = $13,
    not_sent = $14,
    released = $15,
    lost = $16,
    unclear = $17,
    cancel_requested = $18,
    error_code = $19,
    error_message = $20,
    error_permanent = $21,
    result = $22,
    result_hash = $23,
    finish_reason = $24,
    truncated = $27,
    last_error = $28,
    same = $29,
    reported = $30,
    billed = CASE WHEN 'unknown' IN (billed, $25) THEN 'unknown' WHEN 'yes' IN (billed, $25) THEN 'yes' ELSE 'no' END,
    started_at = CASE WHEN $4 = 'pending' AND run <> $6 THEN NULL ELSE started_at END,
    finished_at = CASE WHEN $4 = 'pending' THEN NULL ELSE now() END,
    expires_at = CASE WHEN $4 IN ('succeeded', 'failed', 'cancelled') THEN now() + $26::interval END
WHERE id = $1 AND state = $2 AND epoch = $3`

// QueueMove adds the move to a batch; its tag says whether the row was still
// where the caller saw it.
func QueueMove(b *pgx.Batch, m Move) *pgx.QueuedQuery {
	var permanent *bool
	if m.To == api.Failed {
		permanent = &m.Permanent
	}
	return b.Queue(moveTask, m.ID, m.From, m.Epoch, m.To, m.NewEpoch, m.Run, m.After, m.FreshDeadline, null(m.NewConfigHash),
		null(m.NewProvider), m.Slot, m.JobID, m.Attempts, m.NotSent, m.Released, m.Lost, m.Unclear, m.Cancel,
		null(m.Code), null(m.Message), permanent, m.Result, m.ResultHash, null(m.FinishReason), billed(m.AddBilled), m.Retention, m.Truncated,
		null(m.LastError), m.Same, m.Reported, m.NewVirtual)
}

// MoveTasks runs moves in one pipeline and returns the ids that moved.
func MoveTasks(ctx context.Context, tx DBTX, moves []Move) (map[task.ID]bool, error) {
	b := &pgx.Batch{}
	moved := make(map[task.ID]bool, len(moves))
	for _, m := range moves {
		QueueMove(b, m).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 1 {
				moved[m.ID] = true
			}
			return nil
		})
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("move tasks: %w", err)
	}
	return moved, nil
}

// LetFailed makes the failure of a task, locked, one for good: a person says that
// nobody runs it again.
func LetFailed(ctx context.Context, tx DBTX, id task.ID, epoch int64) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.tasks
SET error_permanent = true,
    epoch = epoch + 1
WHERE id = $1 AND state = 'failed' AND NOT error_permanent AND epoch = $2`, id, epoch)
	if err != nil {
		return fmt.Errorf("let a task stay failed: %w", err)
	}
	return nil
}

// MarkDuplicate notes that a task, locked, repeats another one.
func MarkDuplicate(ctx context.Context, tx DBTX, id, of task.ID) error {
	if _, err := tx.Exec(ctx, `UPDATE onefold.tasks SET duplicate_of = $2 WHERE id = $1`, id, of); err != nil {
		return fmt.Errorf("mark a duplicate: %w", err)
	}
	return nil
}

// RequestCancel flags a running task; whoever moves it next honours the flag.
func RequestCancel(ctx context.Context, tx DBTX, id task.ID, epoch int64) (bool, error) {
	tag, err := tx.Exec(ctx, `
UPDATE onefold.tasks
SET cancel_requested = true
WHERE id = $1 AND state = 'running' AND epoch = $2`, id, epoch)
	if err != nil {
		return false, fmt.Errorf("request cancel: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// Rewake points pending tasks at new wake-ups, the old rows deleted and the new
// ones inserted by the caller in the same transaction.
func Rewake(ctx context.Context, tx DBTX, ids []task.ID, jobs []int64) error {
	b := &pgx.Batch{}
	for i, id := range ids {
		b.Queue(`UPDATE onefold.tasks SET job_id = $2 WHERE id = $1 AND state = 'pending'`, id, jobs[i])
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return fmt.Errorf("rewake tasks: %w", err)
	}
	return nil
}

// EmitMarker writes a marker into the log, so that a transaction that only
// resolves an unclear commit has a commit of its own to wait for.
func EmitMarker(ctx context.Context, tx DBTX) error {
	if _, err := tx.Exec(ctx, `SELECT pg_logical_emit_message(true, 'onefold', 'resolve')`); err != nil {
		return fmt.Errorf("mark the resolving transaction: %w", err)
	}
	return nil
}
