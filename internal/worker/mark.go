package worker

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// mark is one flush: it notes for kinds that are reviewed that their call is
// about to be sent.
//
// Without the mark it is certain that nothing was sent, and the reaper may let
// the task run again. With it the call counts as sent, even if the process dies
// one line later and never sent it.
func (w *Worker) mark(ctx context.Context, fences []task.Fence) ([]bool, error) {
	if err := failpoint.Hit(failpoint.DispatchBeforeMark); err != nil {
		return nil, err
	}
	var marked map[task.ID]bool
	err := pgx.BeginTxFunc(ctx, w.Pool, store.ReadCommitted, func(tx pgx.Tx) (err error) {
		marked, err = store.MarkDispatched(ctx, tx, fences)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]bool, len(fences))
	for i, f := range fences {
		out[i] = marked[f.ID]
	}
	return out, failpoint.Hit(failpoint.DispatchAfterMark)
}
