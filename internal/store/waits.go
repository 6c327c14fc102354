package store

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/internal/task"
)

// MaxWaitedResult is the largest result that TasksWaited brings along, in
// bytes: many tasks are read at once there. A row with a ResultHash, no Result
// and no PayloadPurgedAt has a larger one; Task reads it.
const MaxWaitedResult = 1 << 20

// TasksWaited reads tasks of any tenant with their results, one query for all
// who wait in a process. Missing ids are left out.
func TasksWaited(ctx context.Context, db DBTX, ids []task.ID) ([]*task.Row, error) {
	rows, err := db.Query(ctx, `
SELECT `+taskColumns+`,
       CASE WHEN octet_length(t.result) <= $2 THEN t.result END,
       coalesce((SELECT d.count FROM onefold.task_duplicates AS d WHERE d.task_id = t.id), 0)
FROM onefold.tasks AS t
WHERE t.id = ANY ($1)`, ids, MaxWaitedResult)
	if err != nil {
		return nil, fmt.Errorf("read waited tasks: %w", err)
	}
	out, err := collectTasks(rows, withResult)
	if err != nil {
		return nil, fmt.Errorf("read waited tasks: %w", err)
	}
	return out, nil
}
