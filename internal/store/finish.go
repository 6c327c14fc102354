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

// Ending is a worker's move of its own task: into a settled state, or back to
// pending. It is guarded by the fence; a cancel that was requested meanwhile
// wins inside the statement.
type Ending struct {
	task.Fence
	To           api.State
	Code         string
	Message      string
	Permanent    bool
	Result       []byte
	ResultHash   []byte
	FinishReason string
	Truncated    bool

	After    time.Duration // with To pending
	JobID    *int64        // the new wake-up, with To pending
	GiveBack bool          // the attempt does not count
	NotSent  int16
	Released int16
	Lost     int16
	Unclear  bool
	// LastError and Same are what the next attempt compares itself with; Reported
	// is added to what services reported before.
	LastError string
	Same      int16
	Reported  int32

	Usage     api.Usage
	Retention time.Duration // of the key, once final
}

// The guard is the whole protocol: id and state and epoch and token. Epochs
// repeat after a failover; tokens do not.
const endTask = `
UPDATE onefold.tasks
SET state = CASE WHEN cancel_requested THEN 'cancelled' ELSE $4 END,
    owner = NULL,
    token = NULL,
    error_code = CASE WHEN NOT cancel_requested AND $4 <> 'pending' THEN $5 END,
    error_message = CASE WHEN NOT cancel_requested AND $4 <> 'pending' THEN $6 END,
    error_permanent = CASE WHEN NOT cancel_requested AND $4 = 'failed' THEN $7::boolean END,
    result = CASE WHEN NOT cancel_requested THEN $8::bytea END,
    result_hash = CASE WHEN NOT cancel_requested THEN $9::bytea END,
    finish_reason = $10,
    truncated = $11,
    run_at = CASE WHEN NOT cancel_requested AND $4 = 'pending' THEN least(now() + $12::interval, deadline) ELSE run_at END,
    job_id = CASE WHEN NOT cancel_requested AND $4 = 'pending' THEN $13 ELSE job_id END,
    attempts = attempts - CASE WHEN $14 THEN 1 ELSE 0 END,
    not_sent = $15,
    released = $16,
    lost = $17,
    unclear = $18,
    last_error = $26,
    same = $27,
    reported = reported + $28,
    slot = CASE WHEN dedupe = 'open' AND (cancel_requested OR $4 IN ('succeeded', 'failed')) THEN id::text ELSE slot END,
    input_tokens = input_tokens + $19,
    cached_tokens = cached_tokens + $20,
    output_tokens = output_tokens + $21,
    reasoning_tokens = reasoning_tokens + $22,
    cost = CASE WHEN $23::text IS NULL THEN cost ELSE coalesce(cost, 0) + $23::text::numeric END,
    billed = CASE WHEN 'unknown' IN (billed, $24) THEN 'unknown' WHEN 'yes' IN (billed, $24) THEN 'yes' ELSE 'no' END,
    finished_at = CASE WHEN cancel_requested OR $4 <> 'pending' THEN now() END,
    expires_at = CASE WHEN cancel_requested OR $4 IN ('succeeded', 'failed') THEN now() + $25::interval END
WHERE id = $1 AND state = 'running' AND epoch = $2 AND token = $3
RETURNING state, finished_at, run_at`

// Ended is what became of one ending.
type Ended struct {
	State      api.State // cancelled where a cancel won
	FinishedAt *time.Time
	RunAt      time.Time
}

// EndTasks locks the tasks in id order, as every grouped statement does, and
// runs the endings in one pipeline. An id that is not returned was fenced.
func EndTasks(ctx context.Context, tx DBTX, endings []Ending) (map[task.ID]Ended, error) {
	ids := make([]task.ID, len(endings))
	for i, e := range endings {
		ids[i] = e.ID
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT id FROM onefold.tasks WHERE id = ANY ($1) ORDER BY id FOR UPDATE`, ids)
	ended := make(map[task.ID]Ended, len(endings))
	for _, e := range endings {
		var permanent *bool
		if e.To == api.Failed {
			permanent = &e.Permanent
		}
		u := e.Usage
		b.Queue(endTask, e.ID, e.Epoch, e.Token, e.To, null(e.Code), null(e.Message), permanent, e.Result, e.ResultHash,
			null(e.FinishReason), e.Truncated, e.After, e.JobID, e.GiveBack, e.NotSent, e.Released, e.Lost, e.Unclear,
			u.InputTokens, u.CachedTokens, u.OutputTokens, u.ReasoningTokens, null(u.Cost), billed(u.Billed), e.Retention,
			null(e.LastError), e.Same, e.Reported,
		).QueryRow(func(row pgx.Row) error {
			var got Ended
			err := row.Scan(&got.State, &got.FinishedAt, &got.RunAt)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			ended[e.ID] = got
			return err
		})
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("end tasks: %w", err)
	}
	return ended, nil
}

func billed(b api.Billed) api.Billed {
	if b == "" {
		return api.BilledNo
	}
	return b
}

// RunBatch sends a batch and reports the first error.
func RunBatch(ctx context.Context, tx DBTX, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
