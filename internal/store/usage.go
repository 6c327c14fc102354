package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// UsageBy says by what usage is told apart.
type UsageBy struct{ Day, Tenant, Kind, Provider, Model bool }

// UsageRow is what calls came to, over the days and things it stands for.
type UsageRow struct {
	Day                             *time.Time
	Tenant, Kind, Provider, Model   string
	Calls, Succeeded, Regenerations int64
	Orphaned, BilledUnknown         int64
	Input, Cached, Output           int64
	Reasoning                       int64
	Cost                            string // exact decimal, "" where no call has a price
	SavedCalls                      int64  // calls that folded duplicates would have made
	SavedInput, SavedOutput         int64
	SavedCost                       string
}

// attemptUsage are the columns of usage_days as an attempt a of task t, with
// the duplicates d of its task, adds to them. A call is what left: not what could
// not be sent, but also what a lost worker may have sent. Duplicates count where
// their task's first attempt does.
const attemptUsage = `
       (a.claimed_at AT TIME ZONE 'UTC')::date AS day, t.tenant, t.kind, a.provider, coalesce(a.model, '') AS model,
       count(*) FILTER (WHERE s.sent) AS calls,
       count(*) FILTER (WHERE a.outcome = 'succeeded') AS succeeded,
       count(*) FILTER (WHERE s.sent AND a.regeneration) AS regenerations,
       count(*) FILTER (WHERE a.orphaned) AS orphaned,
       count(*) FILTER (WHERE s.sent AND a.billed = 'unknown') AS unknown_billed,
       coalesce(sum(a.input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(a.cached_tokens), 0)::bigint AS cached_tokens,
       coalesce(sum(a.output_tokens), 0)::bigint AS output_tokens,
       coalesce(sum(a.reasoning_tokens), 0)::bigint AS reasoning_tokens,
       sum(a.cost) AS cost,
       coalesce(sum(d.count), 0)::bigint AS saved_calls,
       coalesce(sum(d.count * t.input_tokens), 0)::bigint AS saved_input_tokens,
       coalesce(sum(d.count * t.output_tokens), 0)::bigint AS saved_output_tokens,
       sum(d.count * t.cost) AS saved_cost`

const attemptUsageFrom = `
LEFT JOIN onefold.task_duplicates AS d ON d.task_id = a.task_id AND a.number = 1
CROSS JOIN LATERAL (
    SELECT a.closed_at IS NOT NULL AND a.outcome <> 'not_sent'
        AND (a.dispatched_at IS NOT NULL OR a.outcome = 'lost' AND a.billed <> 'no') AS sent
) AS s`

// Usage adds up what was called from the first to the last day, both included
// and in UTC: what is in the ledger still, and what the purge kept of it. An
// empty tenant is an instance key's: it sees every tenant.
func Usage(ctx context.Context, db DBTX, tenant, kind string, first, last time.Time, by UsageBy, most int) ([]UsageRow, error) {
	rows, err := db.Query(ctx, `
SELECT CASE WHEN $5 THEN u.day END, CASE WHEN $6 THEN u.tenant ELSE '' END, CASE WHEN $7 THEN u.kind ELSE '' END,
       CASE WHEN $8 THEN u.provider ELSE '' END, CASE WHEN $9 THEN u.model ELSE '' END,
       sum(u.calls)::bigint, sum(u.succeeded)::bigint, sum(u.regenerations)::bigint, sum(u.orphaned)::bigint, sum(u.unknown_billed)::bigint,
       sum(u.input_tokens)::bigint, sum(u.cached_tokens)::bigint, sum(u.output_tokens)::bigint, sum(u.reasoning_tokens)::bigint,
       coalesce(trim_scale(sum(u.cost))::text, ''),
       sum(u.saved_calls)::bigint, sum(u.saved_input_tokens)::bigint, sum(u.saved_output_tokens)::bigint,
       coalesce(trim_scale(sum(u.saved_cost))::text, '')
FROM (
    SELECT `+attemptUsage+`
    FROM onefold.attempts AS a
    JOIN onefold.tasks AS t ON t.id = a.task_id`+attemptUsageFrom+`
    WHERE a.claimed_at >= $3::date::timestamp AT TIME ZONE 'UTC' AND a.claimed_at < ($4::date + 1)::timestamp AT TIME ZONE 'UTC'
        AND ($1 = '' OR t.tenant = $1) AND ($2 = '' OR t.kind = $2)
    GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT day, tenant, kind, provider, model, calls, succeeded, regenerations, orphaned, unknown_billed, input_tokens,
           cached_tokens, output_tokens, reasoning_tokens, cost, saved_calls, saved_input_tokens, saved_output_tokens, saved_cost
    FROM onefold.usage_days
    WHERE day BETWEEN $3::date AND $4::date AND ($1 = '' OR tenant = $1) AND ($2 = '' OR kind = $2)
) AS u
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
LIMIT $10`, tenant, kind, first, last, by.Day, by.Tenant, by.Kind, by.Provider, by.Model, most)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (UsageRow, error) {
		var u UsageRow
		err := row.Scan(&u.Day, &u.Tenant, &u.Kind, &u.Provider, &u.Model, &u.Calls, &u.Succeeded, &u.Regenerations, &u.Orphaned,
			&u.BilledUnknown, &u.Input, &u.Cached, &u.Output, &u.Reasoning, &u.Cost, &u.SavedCalls, &u.SavedInput, &u.SavedOutput, &u.SavedCost)
		return u, err
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return out, nil
}

// keepUsage adds to usage_days what is about to be deleted: the attempts of
// those tasks that the DELETE with the same conditions takes, in the same
// transaction.
func keepUsage(ctx context.Context, tx DBTX, ids []task.ID) error {
	_, err := tx.Exec(ctx, `
INSERT INTO onefold.usage_days AS u (day, tenant, kind, provider, model, calls, succeeded, regenerations, orphaned, unknown_billed,
    input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost, saved_calls, saved_input_tokens, saved_output_tokens, saved_cost)
SELECT `+attemptUsage+`
FROM onefold.tasks AS t
JOIN onefold.tombstones AS tomb ON tomb.task_id = t.id
JOIN onefold.attempts AS a ON a.task_id = t.id`+attemptUsageFrom+`
WHERE t.id = ANY ($1) AND t.state IN ('succeeded', 'failed', 'cancelled') AND t.expires_at <= now()
    AND NOT EXISTS (SELECT FROM onefold.effects AS o WHERE o.task_id = t.id)
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (day, tenant, kind, provider, model) DO UPDATE
SET calls = u.calls + excluded.calls,
    succeeded = u.succeeded + excluded.succeeded,
    regenerations = u.regenerations + excluded.regenerations,
    orphaned = u.orphaned + excluded.orphaned,
    unknown_billed = u.unknown_billed + excluded.unknown_billed,
    input_tokens = u.input_tokens + excluded.input_tokens,
    cached_tokens = u.cached_tokens + excluded.cached_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens,
    reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
    cost = CASE WHEN u.cost IS NULL THEN excluded.cost ELSE u.cost + coalesce(excluded.cost, 0) END,
    saved_calls = u.saved_calls + excluded.saved_calls,
    saved_input_tokens = u.saved_input_tokens + excluded.saved_input_tokens,
    saved_output_tokens = u.saved_output_tokens + excluded.saved_output_tokens,
    saved_cost = CASE WHEN u.saved_cost IS NULL THEN excluded.saved_cost ELSE u.saved_cost + coalesce(excluded.saved_cost, 0) END`, ids)
	if err != nil {
		return fmt.Errorf("keep usage: %w", err)
	}
	return nil
}
