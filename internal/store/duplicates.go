package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// AddDuplicates adds what was counted to tasks, in id order, and keeps the first
// duplicates one by one; tasks purged meanwhile are skipped. What it also keeps, a row a day and kind, is the longest
// time between a first submit and a duplicate of it: what a retention has to
// cover. Duplicates are written within a second of their coming. It takes two
// statements, so that a transaction has to hold them together.
func AddDuplicates(ctx context.Context, tx pgx.Tx, tallies []Tally, firsts []Submitted) error {
	var spans []task.ID
	ids, folded, refused := make([]task.ID, len(tallies)), make([]int64, len(tallies)), make([]int64, len(tallies))
	for i, t := range tallies {
		if ids[i], folded[i], refused[i] = t.ID, t.Folded, t.Refused; t.Folded > 0 {
			spans = append(spans, t.ID)
		}
	}
	var of []task.ID
	var nths []int64
	var ages []time.Duration
	var cols [6][]string
	for _, s := range firsts {
		of, nths, ages = append(of, s.TaskID), append(nths, s.Nth), append(ages, s.Age)
		for i, v := range []string{s.What, s.RequestID, s.Client, s.UserAgent, s.Actor, s.TraceID} {
			cols[i] = append(cols[i], v)
		}
	}
	_, err := tx.Exec(ctx, `
WITH q AS (
    SELECT q.id, q.folded, q.refused
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS q (id, folded, refused)
    JOIN onefold.tasks AS t ON t.id = q.id
), counted AS (
    INSERT INTO onefold.task_duplicates AS d (task_id, count, refused)
    SELECT q.id, q.folded, q.refused
    FROM q
    ORDER BY q.id
    ON CONFLICT (task_id) DO UPDATE
    SET count = d.count + excluded.count,
        refused = d.refused + excluded.refused,
        last_at = now()
    RETURNING task_id, count, refused
)
INSERT INTO onefold.task_submits (task_id, at, what, request_id, client, user_agent, actor, trace_id)
SELECT s.id, clock_timestamp() - s.age, s.what, s.request_id, s.client, s.user_agent, s.actor, s.trace_id
FROM unnest($4::uuid[], $5::bigint[], $6::interval[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
  AS s (id, nth, age, what, request_id, client, user_agent, actor, trace_id)
JOIN q ON q.id = s.id
JOIN counted AS c ON c.task_id = s.id
WHERE CASE s.what WHEN 'refused' THEN c.refused - q.refused ELSE c.count - q.folded END + s.nth <= $13
ORDER BY s.id`, ids, folded, refused, of, nths, ages, cols[0], cols[1], cols[2], cols[3], cols[4], cols[5], FirstSubmits)
	if err != nil {
		return fmt.Errorf("count duplicates: %w", err)
	}
	_, err = tx.Exec(ctx, `
INSERT INTO onefold.duplicate_spans AS s (day, tenant, kind, longest)
SELECT (now() AT TIME ZONE 'UTC')::date, t.tenant, t.kind, max(now() - t.created_at)
FROM onefold.tasks AS t
WHERE t.id = ANY ($1)
GROUP BY t.tenant, t.kind
ORDER BY t.tenant, t.kind
ON CONFLICT (day, tenant, kind) DO UPDATE
SET longest = excluded.longest
WHERE excluded.longest > s.longest`, spans)
	if err != nil {
		return fmt.Errorf("note the span of duplicates: %w", err)
	}
	return nil
}

// DuplicateSpan is the longest time between a first submit of a kind and a
// duplicate of it, as far back as asked for.
type DuplicateSpan struct {
	Kind    string
	Longest time.Duration
}

// DuplicateSpans reads the longest spans by kind, of all tenants.
func DuplicateSpans(ctx context.Context, db DBTX, days int) ([]DuplicateSpan, error) {
	rows, err := db.Query(ctx, `
SELECT kind, max(longest)
FROM onefold.duplicate_spans
WHERE day > (now() AT TIME ZONE 'UTC')::date - $1::int
GROUP BY kind
ORDER BY kind`, days)
	if err != nil {
		return nil, fmt.Errorf("read the spans of duplicates: %w", err)
	}
	defer rows.Close()
	var all []DuplicateSpan
	for rows.Next() {
		var s DuplicateSpan
		if err := rows.Scan(&s.Kind, &s.Longest); err != nil {
			return nil, fmt.Errorf("read the spans of duplicates: %w", err)
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// LateRepeats counts, by kind, keys that were submitted anew within so many days
// after their first task had been purged: repeats that came too late to fold, or
// new intents under an old key. It reads the newest tombstones only.
func LateRepeats(ctx context.Context, db DBTX, days, most int) (map[string]int, error) {
	rows, err := db.Query(ctx, `
SELECT d.kind, count(DISTINCT d.key)
FROM (
    SELECT tenant, kind, key, purged_at
    FROM onefold.tombstones
    WHERE purged_at > now() - make_interval(days => $1) AND key <> ''
    ORDER BY purged_at DESC
    LIMIT $2
) AS d
JOIN onefold.tasks AS t ON t.tenant = d.tenant AND t.kind = d.kind AND t.key = d.key
WHERE t.dedupe = 'key' AND t.created_at > d.purged_at - interval '1 second'
GROUP BY d.kind`, days, most)
	if err != nil {
		return nil, fmt.Errorf("look for late repeats: %w", err)
	}
	defer rows.Close()
	all := map[string]int{}
	for rows.Next() {
		var kind string
		var n int
		if err := rows.Scan(&kind, &n); err != nil {
			return nil, fmt.Errorf("look for late repeats: %w", err)
		}
		all[kind] = n
	}
	return all, rows.Err()
}

// ForgetDuplicateSpans deletes spans of days that far back.
func ForgetDuplicateSpans(ctx context.Context, db DBTX, days int) error {
	if _, err := db.Exec(ctx, `DELETE FROM onefold.duplicate_spans WHERE day <= (now() AT TIME ZONE 'UTC')::date - $1::int`, days); err != nil {
		return fmt.Errorf("forget spans of duplicates: %w", err)
	}
	return nil
}
