package upkeep

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// The reconciler's bounds (requirements Q1, Q4). The sweep heals a lost wake-up
// within seconds; the reconciler looks at what has been due for an hour all the
// same, and has an end where the sweep has none.
const (
	reconcileEvery   = time.Minute
	reconcileAfter   = time.Hour
	reconcileMost    = 1000   // rows of one run
	reconcileScan    = 10_000 // rows looked at for them
	compensationMost = 3      // of one row for one due time
)

// looks is how far this process has looked.
type looks struct {
	done  bool
	at    time.Duration // when it last looked
	from  time.Time     // tasks due before have been looked at
	wakes int64         // wake-ups up to this id have been
}

// reconcile compares what is due for long with the wake-ups there are. A row
// whose wake-up River will not deliver gets another one, up to compensationMost
// times; one that has had them, or that is due for longer than the compensation
// window, goes into review, and the log says so. Kinds of high value come first.
//
// Before the commit nothing has happened, and the next run finds the same. After
// it each row has its fresh wake-up and has been counted, or stands in review.
func (u *Upkeep) reconcile(ctx context.Context) error {
	err := u.elected(ctx, lockReconcile, func(tx pgx.Tx) error {
		due, err := u.due(ctx, tx)
		if err != nil {
			return err
		}
		moved := 0
		for _, what := range []api.ReviewWhat{api.ReviewTask, api.ReviewEffect} { // in the order of locks
			n, err := u.settleDue(ctx, tx, what, due)
			if err != nil {
				return err
			}
			moved += n
		}
		if moved == 0 {
			return nil
		}
		return failpoint.Hit(failpoint.ReconcileBeforeCommit)
	})
	if err != nil {
		return err
	}
	return u.elected(ctx, lockReconcile, func(tx pgx.Tx) error { return u.orphans(ctx, tx) })
}

// due finds what is to be done, at most reconcileMost rows, those of high value
// first.
func (u *Upkeep) due(ctx context.Context, tx pgx.Tx) ([]store.Due, error) {
	cfg := u.Kinds.Config()
	r := store.Reconciling{
		After: reconcileAfter, Window: cfg.Retention.Compensation, Most: compensationMost, Lease: u.Lease, High: []string{},
		From: u.looks.from, Scan: reconcileScan, Limit: reconcileMost, TaskQueue: job.Queue(""), EffectQueue: job.EffectQueue,
	}
	if r.Window <= 0 { // nobody compensates: what is due for an hour is a person's
		r.Window = r.After
	}
	for name, k := range cfg.Kinds {
		if k.HighValue {
			r.High = append(r.High, name)
		}
	}
	due, next, err := store.DueTasks(ctx, tx, r)
	if err != nil {
		return nil, err
	}
	if u.looks.from = next; next.Unix() <= 0 {
		u.looks.from = time.Time{}
	}
	effects, err := store.DueEffects(ctx, tx, r)
	if err != nil {
		return nil, err
	}
	due = append(due, effects...)
	slices.SortStableFunc(due, func(a, b store.Due) int {
		if a.High != b.High {
			if a.High {
				return -1
			}
			return 1
		}
		return a.DueAt.Compare(b.DueAt)
	})
	return due[:min(len(due), reconcileMost)], nil
}

// settleDue locks those of one sort that still are as they were found, wakes them
// or puts them into review.
func (u *Upkeep) settleDue(ctx context.Context, tx pgx.Tx, what api.ReviewWhat, due []store.Due) (int, error) {
	due = slices.DeleteFunc(slices.Clone(due), func(d store.Due) bool { return d.What != what })
	due, err := store.LockDue(ctx, tx, what, due)
	if err != nil {
		return 0, err
	}
	var wake []store.Due
	review := map[api.ReviewReason][]task.ID{}
	for _, d := range due {
		switch {
		case d.Spent:
			review[api.ReviewStuck] = append(review[api.ReviewStuck], d.ID)
		case d.Overdue:
			review[api.ReviewOverdue] = append(review[api.ReviewOverdue], d.ID)
		default:
			wake = append(wake, d)
		}
	}
	for reason, ids := range review {
		if err := store.PutInReview(ctx, tx, what, ids); err != nil {
			return 0, err
		}
		u.Log.Error("put into review", "review", string(what), "reason", string(reason), "count", len(ids), "task_id", ids[0].String())
		if u.Reviewed != nil {
			u.Reviewed(what, reason, len(ids))
		}
	}
	if err := u.compensate(ctx, tx, what, wake); err != nil {
		return 0, err
	}
	return len(due), nil
}

// compensate replaces the wake-ups of locked rows.
func (u *Upkeep) compensate(ctx context.Context, tx pgx.Tx, what api.ReviewWhat, due []store.Due) error {
	if len(due) == 0 {
		return nil
	}
	slices.SortFunc(due, func(a, b store.Due) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	ids := make([]task.ID, len(due))
	old := make([]int64, len(due))
	for i, d := range due {
		ids[i], old[i] = d.ID, *d.JobID
	}
	if err := store.CountCompensation(ctx, tx, what, ids); err != nil {
		return err
	}
	u.Log.Warn("wake-ups replaced", "review", string(what), "count", len(due))
	if what == api.ReviewEffect {
		if err := store.ParkEffects(ctx, tx, ids); err != nil {
			return err
		}
		if err := store.DeleteWakes(ctx, tx, old); err != nil {
			return err
		}
		wakes := make([]store.EffectWake, len(ids))
		for i, id := range ids {
			wakes[i].ID = id
		}
		n, err := store.WakeEffects(ctx, tx, wakes, job.EffectQueue, u.Outbox.Window)
		if n > 0 {
			u.hint([]string{job.EffectQueue}, nil)
		}
		return err
	}
	jobs, err := store.NextJobIDs(ctx, tx, len(due))
	if err != nil {
		return err
	}
	wakes := make([]store.Wake, len(due))
	var queues []string
	for i, d := range due {
		wakes[i] = store.Wake{JobID: jobs[i], ID: d.ID, Queue: job.Queue(d.Provider), Virtual: d.Virtual}
		queues = append(queues, wakes[i].Queue)
	}
	if err := store.Rewake(ctx, tx, ids, jobs); err != nil {
		return err
	}
	if err := store.DeleteWakes(ctx, tx, old); err != nil {
		return err
	}
	u.hint(queues, nil)
	return store.InsertWakes(ctx, tx, store.WakeTask, wakes)
}

// orphans deletes wake-ups that nothing names and closes attempts and deliveries
// that nobody works on.
func (u *Upkeep) orphans(ctx context.Context, tx pgx.Tx) error {
	deleted, next, err := store.DeleteOrphanWakes(ctx, tx, reconcileAfter, u.looks.wakes, reconcileScan)
	if err != nil {
		return err
	}
	u.looks.wakes = next
	closed, err := store.CloseOrphans(ctx, tx, reconcileAfter, reconcileMost)
	if err != nil {
		return err
	}
	if deleted+closed > 0 {
		u.Log.Warn("orphans cleared", "woken", deleted, "lost", closed)
	}
	return nil
}
