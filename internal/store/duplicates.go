package store

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/task"
)

// AddDuplicates adds counted duplicates to tasks, in id order; tasks purged
// meanwhile are skipped. What it also keeps, a row a day and kind, is the longest
// time between a first submit and a duplicate of it: what a retention has to
// cover. Duplicates are written within a second of their coming.
func AddDuplicates(ctx context.Context, db DBTX, ids []task.ID, counts []int64) error {
	_, err := db.Exec(ctx, `
INSERT INTO onefold.task_duplicates AS d (task_id, count)
SELECT q.id, q.n
FROM unnest($1::uuid[], $2::bigint[]) AS q (id, n)
JOIN onefold.tasks AS t ON t.id = q.id
ORDER BY q.id
ON CONFLICT (task_id) DO UPDATE
SET count = d.count + excluded.count,
    last_at = now()`, ids, counts)
	if err != nil {
		return fmt.Errorf("count duplicates: %w", err)
	}
	_, err = db.Exec(ctx, `
INSERT INTO onefold.duplicate_spans AS s (day, tenant, kind, longest)
SELECT (now() AT TIME ZONE 'UTC')::date, t.tenant, t.kind, max(now() - t.created_at)
FROM onefold.tasks AS t
WHERE t.id = ANY ($1)
GROUP BY t.tenant, t.kind
ORDER BY t.tenant, t.kind
ON CONFLICT (day, tenant, kind) DO UPDATE
SET longest = excluded.longest
WHERE excluded.longest > s.longest`, ids)
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
