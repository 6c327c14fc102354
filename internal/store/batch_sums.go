package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
)

// BatchSum is what the lines of a batch add up to.
type BatchSum struct {
	Counts api.BatchCounts
	Usage  api.Usage
}

// SumBatch counts the lines of a batch and what they used, from the rows. What a
// line's own row says is final is taken from there; for all else its task is
// asked.
func SumBatch(ctx context.Context, db DBTX, b *Batch) (BatchSum, error) {
	s := BatchSum{Usage: api.Usage{Billed: api.BilledNo}}
	rows, err := db.Query(ctx, `
SELECT q.state,
       count(*),
       coalesce(sum(q.input_tokens), 0)::bigint,
       coalesce(sum(q.cached_tokens), 0)::bigint,
       coalesce(sum(q.output_tokens), 0)::bigint,
       coalesce(sum(q.reasoning_tokens), 0)::bigint,
       coalesce((sum(sum(q.cost)) OVER ())::text, ''),
       coalesce(bool_or(q.billed = 'yes'), false),
       coalesce(bool_or(q.billed = 'unknown'), false)
FROM (
    SELECT CASE
               WHEN l.number > $2 AND (l.state = 'open' OR l.run < $3 AND l.state IN ('failed', 'expired')) THEN 'waiting'
               WHEN l.state IN ('succeeded', 'cancelled', 'expired', 'invalid') THEN l.state
               ELSE coalesce(t.state, CASE l.state WHEN 'open' THEN 'pending' ELSE l.state END)
           END AS state,
           CASE WHEN l.folded THEN NULL ELSE coalesce(t.input_tokens, l.input_tokens) END AS input_tokens,
           CASE WHEN l.folded THEN NULL ELSE coalesce(t.cached_tokens, l.cached_tokens) END AS cached_tokens,
           CASE WHEN l.folded THEN NULL ELSE coalesce(t.output_tokens, l.output_tokens) END AS output_tokens,
           CASE WHEN l.folded THEN NULL ELSE coalesce(t.reasoning_tokens, l.reasoning_tokens) END AS reasoning_tokens,
           CASE WHEN l.folded THEN NULL ELSE coalesce(t.cost, l.cost) END AS cost,
           CASE WHEN l.folded THEN NULL ELSE coalesce(t.billed, l.billed) END AS billed
    FROM onefold.batch_lines AS l
    LEFT JOIN LATERAL (
        SELECT t.state, t.input_tokens, t.cached_tokens, t.output_tokens, t.reasoning_tokens, t.cost, t.billed
        FROM onefold.tasks AS t
        WHERE l.state IN ('open', 'failed', 'unknown') AND l.number <= $2 AND t.id = l.task_id
        OFFSET 0
    ) AS t ON true
    WHERE l.batch_id = $1
) AS q
GROUP BY q.state`, b.ID, b.Released, b.Run)
	if err != nil {
		return s, fmt.Errorf("sum up batch %s: %w", b.ID, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := s.add(rows); err != nil {
			return s, fmt.Errorf("sum up batch %s: %w", b.ID, err)
		}
	}
	return s, rows.Err()
}

func (s *BatchSum) add(rows pgx.Rows) error {
	var state string
	var n int
	var u api.Usage
	var billed, unclear bool
	err := rows.Scan(&state, &n, &u.InputTokens, &u.CachedTokens, &u.OutputTokens, &u.ReasoningTokens, &s.Usage.Cost, &billed, &unclear)
	if err != nil {
		return err
	}
	count := map[string]*int{
		"waiting": &s.Counts.Waiting, "pending": &s.Counts.Pending, "running": &s.Counts.Running, "succeeded": &s.Counts.Succeeded,
		"failed": &s.Counts.Failed, "unknown": &s.Counts.Unknown, "cancelled": &s.Counts.Cancelled, "expired": &s.Counts.Expired,
		"invalid": &s.Counts.Invalid,
	}[state]
	if count == nil {
		return fmt.Errorf("a line is in the state %q", state)
	}
	*count += n
	s.Usage.InputTokens += u.InputTokens
	s.Usage.CachedTokens += u.CachedTokens
	s.Usage.OutputTokens += u.OutputTokens
	s.Usage.ReasoningTokens += u.ReasoningTokens
	switch {
	case unclear:
		s.Usage.Billed = api.BilledUnknown
	case billed && s.Usage.Billed == api.BilledNo:
		s.Usage.Billed = api.BilledYes
	}
	return nil
}
