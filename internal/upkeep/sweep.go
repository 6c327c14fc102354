package upkeep

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// sweep gives due pending tasks without a live wake-up a new one. It is what
// makes wake-ups disposable: a row that was lost, fetched and never claimed, or
// left behind by a dead process costs time only.
func (u *Upkeep) sweep(ctx context.Context) error {
	return u.elected(ctx, lockSweep, func(tx pgx.Tx) error {
		ids, err := store.Sleepless(ctx, tx, u.Lease, 5*most)
		if err != nil || len(ids) == 0 {
			return err
		}
		rows, err := store.LockTasks(ctx, tx, ids, true)
		if err != nil {
			return err
		}
		queues, err := u.wake(ctx, tx, rows)
		if err != nil {
			return err
		}
		u.hint(queues, nil)
		return failpoint.Hit(failpoint.SweepBeforeCommit)
	})
}

func (u *Upkeep) wake(ctx context.Context, tx pgx.Tx, rows []*task.Row) (queues []string, err error) {
	var ids []task.ID
	var old []int64
	var wakes []store.Wake
	for _, r := range rows {
		if r.State != api.Pending {
			continue
		}
		ids = append(ids, r.ID)
		if r.JobID != nil {
			old = append(old, *r.JobID)
		}
		w := store.Wake{ID: r.ID, Queue: job.Queue(r.Provider), Virtual: r.VirtualAt}
		wakes = append(wakes, w)
		queues = append(queues, w.Queue)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := store.NextJobIDs(ctx, tx, len(ids))
	if err != nil {
		return nil, err
	}
	for i := range wakes {
		wakes[i].JobID = jobs[i]
	}
	if err := store.Rewake(ctx, tx, ids, jobs); err != nil {
		return nil, err
	}
	if err := store.DeleteWakes(ctx, tx, old); err != nil {
		return nil, err
	}
	u.Log.Info("tasks woken again", "count", len(ids))
	return queues, store.InsertWakes(ctx, tx, store.WakeTask, wakes)
}

// promote makes the wake-ups of tasks that waited for their time available, each at
// its task's place. River would do so at the time itself, behind everything that
// waits; what it was faster with is moved. A wake-up that is moved twice, or
// not, costs time only.
func (u *Upkeep) promote(ctx context.Context) error {
	return u.elected(ctx, lockDue, func(tx pgx.Tx) error {
		queues, err := store.DueWakes(ctx, tx, 5*most)
		if err != nil || len(queues) == 0 {
			return err
		}
		u.hint(queues, nil)
		return nil
	})
}

// overdue applies deadlines and cancel flags to waiting tasks: the claim is not
// the only place, for a held task is never claimed. Tasks whose outcome runs
// statements are settled one by one.
func (u *Upkeep) overdue(ctx context.Context) error {
	var alone []task.ID
	err := u.elected(ctx, lockOverdue, func(tx pgx.Tx) error {
		ids, err := store.Overdue(ctx, tx, most)
		if err != nil {
			return err
		}
		flagged, err := store.FlaggedPending(ctx, tx, most)
		if err != nil {
			return err
		}
		if ids = append(ids, flagged...); len(ids) == 0 {
			return nil
		}
		alone, err = u.expire(ctx, tx, ids, false)
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range alone {
		err := u.elected(ctx, lockOverdue, func(tx pgx.Tx) error {
			_, err := u.expire(ctx, tx, []task.ID{id}, true)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *Upkeep) expire(ctx context.Context, tx pgx.Tx, ids []task.ID, single bool) (alone []task.ID, err error) {
	rows, err := store.LockTasks(ctx, tx, ids, true)
	if err != nil {
		return nil, err
	}
	var all []outbox.Moved
	for _, r := range rows {
		if r.State != api.Pending || !r.CancelRequested && r.Deadline.After(r.Now) {
			continue // moved since it was picked: reopened with a fresh deadline, say
		}
		kind, err := u.Kinds.Version(ctx, tx, r.Kind, r.ConfigHash)
		if err != nil {
			return nil, err
		}
		if kind == nil {
			continue
		}
		v := task.Expire(kind.Policy(), r.Unclear, r.LastError)
		if r.CancelRequested {
			v = task.Verdict{To: api.Cancelled}
		}
		if !single && outbox.Alone(kind, v.To, r, nil) {
			alone = append(alone, r.ID)
			continue
		}
		m := store.Stay(r)
		m.To, m.Code, m.Message, m.Permanent, m.Unclear = v.To, string(v.Code), v.Message, v.Permanent, v.Unclear
		m.Retention = u.Kinds.Config().RetentionOf(kind)
		all = append(all, outbox.Moved{Row: r, Kind: kind, Move: m})
	}
	if len(all) == 0 {
		return alone, nil
	}
	_, queues, err := u.Outbox.Move(ctx, tx, all)
	if err != nil {
		return nil, err
	}
	u.hint(queues, all)
	return alone, failpoint.Hit(failpoint.ExpireBeforeCommit)
}

// effects applies the same rules to effects.
func (u *Upkeep) effects(ctx context.Context) error {
	judge := u.Clock()-u.since >= u.Lease
	return u.elected(ctx, lockEffects, func(tx pgx.Tx) error {
		moved := 0
		if judge {
			reaped, err := u.Outbox.ReapEffects(ctx, tx, u.Lease)
			if err != nil {
				return err
			}
			u.hint(reaped.Queues, nil)
			moved = reaped.Count
		}
		swept, err := u.Outbox.SweepEffects(ctx, tx, u.Lease)
		if err != nil {
			return err
		}
		u.hint(swept.Queues, nil)
		if moved += swept.Count; moved == 0 {
			return nil
		}
		return failpoint.Hit(failpoint.EffectsBeforeCommit)
	})
}
