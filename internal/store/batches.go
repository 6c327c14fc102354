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

// Batch is one row of onefold.batches.
type Batch struct {
	ID            task.ID
	Tenant        string
	Key           string
	Kind          string
	Webhook       string
	DeadlineAfter time.Duration
	OptionsHash   []byte
	TraceID       string
	Traceparent   string
	CreatedAt     time.Time

	Form       api.BatchForm
	State      api.BatchState
	Upload     *task.ID
	ProgressAt time.Time
	Chunks     int32
	Lines      int32
	LastLine   int32
	Bytes      int64
	Hash       []byte
	Run        int32
	Released   int32 // lines up to this number have been handed over
	Finished   int32 // lines that have settled, in this run or an earlier one
	StartedAt  *time.Time
	Deadline   *time.Time
	EndedAt    *time.Time
	ExpiresAt  *time.Time
	Now        time.Time // the database's time when the row was read
}

const batchColumns = `
b.id, b.tenant, b.key, b.kind, coalesce(b.webhook, ''), b.deadline_after, b.options_hash, coalesce(b.trace_id, ''), coalesce(b.traceparent, ''),
b.created_at, coalesce(b.form, ''), b.state, b.upload, b.progress_at, b.chunks, b.lines, b.last_line, b.bytes, b.hash,
b.run, b.released, b.finished, b.started_at, b.deadline, b.ended_at, b.expires_at, clock_timestamp()`

func scanBatch(row pgx.CollectableRow) (*Batch, error) {
	b := new(Batch)
	err := row.Scan(&b.ID, &b.Tenant, &b.Key, &b.Kind, &b.Webhook, &b.DeadlineAfter, &b.OptionsHash, &b.TraceID, &b.Traceparent,
		&b.CreatedAt, &b.Form, &b.State, &b.Upload, &b.ProgressAt, &b.Chunks, &b.Lines, &b.LastLine, &b.Bytes, &b.Hash,
		&b.Run, &b.Released, &b.Finished, &b.StartedAt, &b.Deadline, &b.EndedAt, &b.ExpiresAt, &b.Now)
	return b, err
}

func oneBatch(ctx context.Context, db DBTX, sql string, args ...any) (*Batch, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	b, err := pgx.CollectExactlyOneRow(rows, scanBatch)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	return b, nil
}

// BatchByID reads one batch of a tenant, or nil. An empty tenant is an instance
// key's: it sees every tenant.
func BatchByID(ctx context.Context, db DBTX, tenant string, id task.ID) (*Batch, error) {
	return oneBatch(ctx, db, `
SELECT `+batchColumns+`
FROM onefold.batches AS b
WHERE b.id = $1 AND ($2 = '' OR b.tenant = $2) AND b.state <> 'dropped'`, id, tenant)
}

// BatchByKey reads the batch under a tenant's key, or nil.
func BatchByKey(ctx context.Context, db DBTX, tenant, key string) (*Batch, error) {
	return oneBatch(ctx, db, `
SELECT `+batchColumns+`
FROM onefold.batches AS b
WHERE b.tenant = $1 AND b.key = $2 AND b.state <> 'dropped'`, tenant, key)
}

// LockBatchByKey is BatchByKey under the row's lock.
func LockBatchByKey(ctx context.Context, tx DBTX, tenant, key string) (*Batch, error) {
	return oneBatch(ctx, tx, `
SELECT `+batchColumns+`
FROM onefold.batches AS b
WHERE b.tenant = $1 AND b.key = $2 AND b.state <> 'dropped'
FOR UPDATE`, tenant, key)
}

// LockBatch reads a batch under its row's lock, or nil where it is gone; with
// skip also where somebody else holds the lock.
func LockBatch(ctx context.Context, tx DBTX, id task.ID, skip bool) (*Batch, error) {
	sql := `
SELECT ` + batchColumns + `
FROM onefold.batches AS b
WHERE b.id = $1
FOR UPDATE`
	if skip {
		sql += " SKIP LOCKED"
	}
	return oneBatch(ctx, tx, sql, id)
}

// Batches reads a page of a tenant's batches, newest first: those before an id,
// where one is given.
func Batches(ctx context.Context, db DBTX, tenant, key string, before *task.ID, limit int) ([]*Batch, error) {
	rows, err := db.Query(ctx, `
SELECT `+batchColumns+`
FROM onefold.batches AS b
WHERE ($1 = '' OR b.tenant = $1) AND ($2 = '' OR b.key = $2) AND ($3::uuid IS NULL OR b.id < $3) AND b.state <> 'dropped'
    AND (b.expires_at IS NULL OR b.expires_at > now())
ORDER BY b.id DESC
LIMIT $4`, tenant, key, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list batches: %w", err)
	}
	out, err := pgx.CollectRows(rows, scanBatch)
	if err != nil {
		return nil, fmt.Errorf("list batches: %w", err)
	}
	return out, nil
}

// InsertBatch adds a batch that is staging, unless its key is taken.
func InsertBatch(ctx context.Context, tx DBTX, b *Batch) error {
	_, err := tx.Exec(ctx, `
INSERT INTO onefold.batches (id, tenant, key, kind, webhook, deadline_after, options_hash, trace_id, traceparent, form, upload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT DO NOTHING`, b.ID, b.Tenant, b.Key, b.Kind, null(b.Webhook), b.DeadlineAfter, b.OptionsHash, null(b.TraceID), null(b.Traceparent), b.Form, b.Upload)
	if err != nil {
		return fmt.Errorf("insert batch: %w", err)
	}
	return nil
}

// StagedChunk notes on a locked batch what one chunk added.
func StagedChunk(ctx context.Context, tx DBTX, b *Batch) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.batches
SET upload = $2,
    chunks = $3,
    lines = $4,
    last_line = $5,
    bytes = $6,
    hash = $7,
    finished = $8,
    form = $9,
    progress_at = now()
WHERE id = $1 AND state = 'staging'`, b.ID, b.Upload, b.Chunks, b.Lines, b.LastLine, b.Bytes, b.Hash, b.Finished, b.Form)
	if err != nil {
		return fmt.Errorf("note the chunk: %w", err)
	}
	return nil
}

// StartBatch lets a wholly staged batch run, by the upload given; hash is now the
// whole file's.
func StartBatch(ctx context.Context, tx DBTX, id, upload task.ID, bytes int64, hash []byte) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.batches
SET state = 'running',
    upload = $4,
    bytes = $2,
    hash = $3,
    started_at = now(),
    deadline = now() + deadline_after,
    progress_at = now()
WHERE id = $1 AND state = 'staging'`, id, bytes, hash, upload)
	if err != nil {
		return fmt.Errorf("start batch: %w", err)
	}
	return nil
}

// DropBatch takes a batch out of sight and frees its key; PurgeDropped removes
// its lines.
func DropBatch(ctx context.Context, tx DBTX, id task.ID) error {
	if _, err := tx.Exec(ctx, `UPDATE onefold.batches SET state = 'dropped' WHERE id = $1`, id); err != nil {
		return fmt.Errorf("drop batch: %w", err)
	}
	return nil
}

// MoveBatch writes what a step of a running batch decided about it.
func MoveBatch(ctx context.Context, tx DBTX, b *Batch) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.batches
SET state = $2,
    run = $3,
    released = $4,
    finished = $5,
    deadline = $6,
    progress_at = now()
WHERE id = $1`, b.ID, b.State, b.Run, b.Released, b.Finished, b.Deadline)
	if err != nil {
		return fmt.Errorf("move batch: %w", err)
	}
	return nil
}

// EndBatch ends a locked batch; it is kept for the retention given.
func EndBatch(ctx context.Context, tx DBTX, id task.ID, state api.BatchState, retention time.Duration) (at time.Time, err error) {
	err = tx.QueryRow(ctx, `
UPDATE onefold.batches
SET state = $2,
    ended_at = now(),
    expires_at = now() + $3::interval,
    progress_at = now()
WHERE id = $1
RETURNING ended_at`, id, state, retention).Scan(&at)
	if err != nil {
		return at, fmt.Errorf("end batch: %w", err)
	}
	return at, nil
}

// RerunBatch lets a locked batch run again: its failed and expired lines wait.
func RerunBatch(ctx context.Context, tx DBTX, id task.ID) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.batches
SET state = 'running',
    run = run + 1,
    released = 0,
    deadline = now() + deadline_after,
    ended_at = NULL,
    expires_at = NULL,
    progress_at = now()
WHERE id = $1`, id)
	if err != nil {
		return fmt.Errorf("run batch again: %w", err)
	}
	return nil
}

// Note is a task that was never pending: what is told of the end of a batch.
type Note struct {
	ID        task.ID
	Tenant    string
	Kind      string
	Key       string
	Batch     task.ID
	Body      []byte
	Retention time.Duration
}

// InsertNote inserts a note as a task that has succeeded with its body.
func InsertNote(ctx context.Context, tx DBTX, n Note) error {
	_, err := tx.Exec(ctx, `
WITH kind AS (
    INSERT INTO onefold.kind_configs (hash, kind, body)
    VALUES ($3, $3, '{}')
    ON CONFLICT DO NOTHING
)
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, batch_id,
    deadline_after, input, config_hash, state, deadline, finished_at, expires_at, result, result_hash)
VALUES ($1, $2, $3, $4, 'key', '', sha256($6), 0, sha256($6), $5, interval '1 h', $6, $3, 'succeeded', now(), now(),
    now() + $7::interval, $6, sha256($6))`, n.ID, n.Tenant, n.Kind, n.Key, n.Batch, n.Body, n.Retention)
	if err != nil {
		return fmt.Errorf("insert note: %w", err)
	}
	return nil
}

// OpenBatches are the batches that steps can be taken for, in the order they
// came, and how many uploads were given up.
func OpenBatches(ctx context.Context, db DBTX, limit int) ([]task.ID, error) {
	return queryIDs(ctx, db, "look for open batches", `
SELECT b.id
FROM onefold.batches AS b
WHERE b.ended_at IS NULL AND b.state IN ('running', 'cancelling')
ORDER BY b.progress_at
LIMIT $1`, limit)
}

// DropIdleBatches drops uploads without progress for that long, and batches past
// their retention.
func DropIdleBatches(ctx context.Context, db DBTX, idle time.Duration) error {
	_, err := db.Exec(ctx, `
UPDATE onefold.batches AS b
SET state = 'dropped'
WHERE b.id IN (
    SELECT s.id
    FROM onefold.batches AS s
    WHERE s.ended_at IS NULL AND s.state = 'staging' AND s.progress_at < now() - $1::interval
        OR s.expires_at <= now() AND s.state IN ('completed', 'cancelled', 'expired')
    LIMIT 100
    FOR UPDATE SKIP LOCKED)`, idle)
	if err != nil {
		return fmt.Errorf("drop batches: %w", err)
	}
	return nil
}

// PurgeDropped removes up to limit lines of dropped batches, and the batches
// that have none left. It returns how many rows went.
func PurgeDropped(ctx context.Context, tx DBTX, limit int) (removed int64, err error) {
	for _, sql := range []string{`
DELETE FROM onefold.batch_bodies AS l
WHERE (l.batch_id, l.number) IN (
    SELECT d.batch_id, d.number
    FROM onefold.batches AS b
    JOIN onefold.batch_bodies AS d ON d.batch_id = b.id
    WHERE b.state = 'dropped'
    LIMIT $1)`, `
DELETE FROM onefold.batch_lines AS l
WHERE (l.batch_id, l.number) IN (
    SELECT d.batch_id, d.number
    FROM onefold.batches AS b
    JOIN onefold.batch_lines AS d ON d.batch_id = b.id
    WHERE b.state = 'dropped'
    LIMIT $1)`, `
DELETE FROM onefold.batches AS b
WHERE b.id IN (
    SELECT d.id
    FROM onefold.batches AS d
    WHERE d.state = 'dropped'
        AND NOT EXISTS (SELECT FROM onefold.batch_lines AS l WHERE l.batch_id = d.id)
        AND NOT EXISTS (SELECT FROM onefold.batch_bodies AS l WHERE l.batch_id = d.id)
    LIMIT $1)`} {
		tag, err := tx.Exec(ctx, sql, limit)
		if err != nil {
			return removed, fmt.Errorf("purge dropped batches: %w", err)
		}
		removed += tag.RowsAffected()
	}
	return removed, nil
}
