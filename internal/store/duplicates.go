package store

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/internal/task"
)

// AddDuplicates adds counted duplicates to tasks, in id order; tasks purged
// meanwhile are skipped.
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
	return nil
}
