package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/internal/task"
)

// Job is a provider's background job that an attempt waits for.
type Job struct {
	task.Fence
	Name    string // the provider's own id
	Resumed bool   // started by an earlier attempt; this one only asks for it
}

// NoteJobs stores which jobs attempts are about to wait for, and returns the
// ids whose attempt is still open and owned: only those may be waited for.
func NoteJobs(ctx context.Context, tx DBTX, jobs []Job) (map[task.ID]bool, error) {
	b := &pgx.Batch{}
	noted := map[task.ID]bool{}
	for _, j := range jobs {
		b.Queue(`
UPDATE onefold.attempts
SET provider_job = $4,
    regeneration = regeneration AND NOT $5,
    dispatched_at = CASE WHEN $5 THEN dispatched_at ELSE coalesce(dispatched_at, clock_timestamp()) END
WHERE task_id = $1 AND epoch = $2 AND token = $3 AND outcome IS NULL`, j.ID, j.Epoch, j.Token, j.Name, j.Resumed).
			Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() == 1 {
					noted[j.ID] = true
				}
				return nil
			})
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("note jobs: %w", err)
	}
	return noted, nil
}

// LiveJobs reads, of each task's present run, the newest background job unless
// it is over: it is polled, and nothing is sent in its place.
func LiveJobs(ctx context.Context, db DBTX, ids []task.ID) (map[task.ID]string, error) {
	rows, err := db.Query(ctx, `
SELECT t.id, a.provider_job
FROM onefold.tasks AS t
JOIN LATERAL (
    SELECT provider_job, job_over
    FROM onefold.attempts
    WHERE task_id = t.id AND run = t.run AND provider = t.provider AND provider_job IS NOT NULL
    ORDER BY epoch DESC
    LIMIT 1
) AS a ON NOT a.job_over
WHERE t.id = ANY ($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read background jobs: %w", err)
	}
	defer rows.Close()
	out := map[task.ID]string{}
	for rows.Next() {
		var id task.ID
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return nil, fmt.Errorf("read background jobs: %w", err)
		}
		out[id] = name
	}
	return out, rows.Err()
}

// QueueSettleJob adds to a batch that the charge for a resumed job stands on the
// attempt of the fence, which heard of its end, and on none before.
func QueueSettleJob(b *pgx.Batch, f task.Fence, name string) {
	b.Queue(`
UPDATE onefold.attempts
SET billed = 'no',
    job_over = true
WHERE task_id = $1 AND epoch < $2 AND provider_job = $3`, f.ID, f.Epoch, name)
}
