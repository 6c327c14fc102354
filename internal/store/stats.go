package store

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/task"
)

// Latency is what a tenant's own tasks of one kind took lately.
type Latency struct {
	Measured int           // tasks it is taken from; 0: nothing is known
	P50, P95 time.Duration // from when a task was due to when it settled
	Run      time.Duration // median from its first claim to when it settled
}

// statsScan is how many of a tenant's newest tasks are looked at.
const statsScan = 1000

// TaskLatency measures a tenant's newest succeeded tasks of a kind. A second
// attempt moves run_at, so such a task counts from its creation.
func TaskLatency(ctx context.Context, db DBTX, tenant, kind string) (Latency, error) {
	var l Latency
	var p50, p95, run float64
	err := db.QueryRow(ctx, `
SELECT count(*),
       coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM t.finished_at - t.due_at)), 0)::float8,
       coalesce(percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM t.finished_at - t.due_at)), 0)::float8,
       coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM t.finished_at - t.started_at)), 0)::float8
FROM (
    SELECT kind, state, started_at, finished_at, CASE WHEN total_attempts > 1 THEN created_at ELSE run_at END AS due_at
    FROM onefold.tasks
    WHERE tenant = $1
    ORDER BY id DESC
    LIMIT $3
) AS t
WHERE t.kind = $2 AND t.state = 'succeeded'`, tenant, kind, statsScan).Scan(&l.Measured, &p50, &p95, &run)
	if err != nil {
		return Latency{}, fmt.Errorf("measure latency: %w", err)
	}
	seconds := func(s float64) time.Duration { return max(time.Duration(s*float64(time.Second)), 0) }
	l.P50, l.P95, l.Run = seconds(p50), seconds(p95), seconds(run)
	return l, nil
}

// queueScan bounds the rows looked at for one place in the queue.
const queueScan = 100_000

// QueuePlace counts the tenant's due tasks of a provider that come before a
// pending task, and those of it that run. Both are approximate.
func QueuePlace(ctx context.Context, db DBTX, r *task.Row) (before, running int64, err error) {
	err = db.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE t.state = 'pending' AND (t.virtual_at, t.id) < ($3, $4)),
       count(*) FILTER (WHERE t.state = 'running')
FROM (
    SELECT id, tenant, provider, state, virtual_at
    FROM onefold.tasks
    WHERE finished_at IS NULL AND run_at <= now()
    LIMIT $5
) AS t
WHERE t.tenant = $1 AND t.provider = $2`, r.Tenant, r.Provider, r.VirtualAt, r.ID, queueScan).Scan(&before, &running)
	if err != nil {
		return 0, 0, fmt.Errorf("count the queue: %w", err)
	}
	return before, running, nil
}
