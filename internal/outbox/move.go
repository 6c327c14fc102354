package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

var settledTotal = telemetry.Counter("tasks_settled_total", "Tasks that reached succeeded, failed, unknown or cancelled; one that runs again counts again.", "kind", "state")

// CountSettled counts a task that settled. Whoever commits its move calls it then.
func CountSettled(kind string, state api.State) {
	settledTotal.WithLabelValues(kind, string(state)).Inc()
}

// CountMoved counts those of all that moved, once their transaction has committed.
func CountMoved(all []Moved) {
	for _, m := range all {
		if m.Row.State.Settled() {
			CountSettled(m.Row.Kind, m.Row.State)
		}
	}
}

// Moved is a task about to be moved into a settled state by anyone but its
// worker. Row is locked and as it was read; it is brought up to date.
type Moved struct {
	Row  *task.Row
	Kind *config.Kind
	Move store.Move
}

// Move moves tasks into settled states, each with its outcome's effects and
// without its wake-up: claim, sweep, reaper, cancel and resolve settle through
// here, so that none of them can forget the effects. It returns which moved and
// the queues to notify after the commit.
func (o *Outbox) Move(ctx context.Context, tx pgx.Tx, all []Moved) (moved map[task.ID]bool, queues []string, err error) {
	moves := make([]store.Move, len(all))
	for i := range all {
		m := &all[i].Move
		if m.To == api.Pending || m.To == api.Running || !task.Legal(m.From, m.To) {
			return nil, nil, fmt.Errorf("settle task %s: %s cannot become %s", m.ID, m.From, m.To)
		}
		if all[i].Row.Dedupe == api.DedupeOpen && m.To.Final() {
			m.Slot = m.ID.String()
		}
		moves[i] = *m
	}
	if moved, err = store.MoveTasks(ctx, tx, moves); err != nil {
		return nil, nil, err
	}
	var settled []Settled
	var jobs []int64
	for _, m := range all {
		if !moved[m.Row.ID] {
			continue
		}
		if m.Row.JobID != nil {
			jobs = append(jobs, *m.Row.JobID)
		}
		apply(m.Row, m.Move)
		settled = append(settled, Settled{Row: m.Row, Kind: m.Kind, Answered: m.Move.Effects})
	}
	if err := store.DeleteWakes(ctx, tx, jobs); err != nil {
		return nil, nil, err
	}
	queues, err = o.Settle(ctx, tx, settled)
	return moved, queues, err
}

// apply brings a row up to date with a move that was made.
func apply(r *task.Row, m store.Move) {
	r.State, r.Epoch, r.Run, r.Slot, r.Owner, r.Token = m.To, m.NewEpoch, m.Run, m.Slot, nil, nil
	r.Attempts, r.NotSent, r.Released, r.Lost, r.Unclear = m.Attempts, m.NotSent, m.Released, m.Lost, m.Unclear
	r.LastError, r.Same, r.Reported = m.LastError, m.Same, m.Reported
	r.CancelRequested, r.ErrorCode, r.ErrorMessage, r.ErrorPermanent = m.Cancel, m.Code, m.Message, nil
	if m.To == api.Failed {
		r.ErrorPermanent = &m.Permanent
	}
	r.Result, r.ResultHash, r.FinishReason, r.Truncated = m.Result, m.ResultHash, m.FinishReason, m.Truncated
}
