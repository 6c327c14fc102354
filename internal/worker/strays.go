package worker

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// OnBeat compares, after each heartbeat, what the database says this
// incarnation runs with what it holds. A task flagged for cancelling has its
// call cut; one it does not hold, seen twice, goes by the reaper's rule: the
// claim's answer was lost, and nobody would ever finish it.
func (w *Worker) OnBeat(ctx context.Context, conn *pgx.Conn, incarnation task.ID) {
	if err := store.TouchWakes(ctx, conn, w.waitingLong(), w.Lease.c.Lease); err != nil {
		w.Log.Warn("waiting wake-ups not touched", "error", err)
	}
	owned, err := store.Owned(ctx, conn, incarnation)
	if err != nil {
		w.Log.Warn("owned tasks not compared", "error", err)
		return
	}
	lost := map[task.ID]int64{}
	w.mu.Lock()
	seen := make(map[task.ID]bool)
	for _, o := range owned {
		a, here := w.held[o.ID]
		switch {
		case here && a != nil && a.fence == o.Fence && o.CancelRequested:
			a.cut(errCancelled)
		case !here && w.strays[o.ID]:
			lost[o.ID] = o.Epoch
		case !here:
			seen[o.ID] = true
		}
	}
	w.strays = seen
	w.mu.Unlock()
	if len(lost) > 0 {
		w.Log.Warn("tasks owned but not held", "count", len(lost))
		w.Reap(ctx, lost)
	}
}
