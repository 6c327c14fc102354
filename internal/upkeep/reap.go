package upkeep

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// wideEvery is how many rounds pass between two looks at every running task;
// the rounds between look only at the open attempts of dead incarnations.
const wideEvery = 10

// reap takes tasks from workers whose lease ran out.
func (u *Upkeep) reap(ctx context.Context) error {
	limit := u.Longest + 2*u.Lease
	return u.reaping(ctx, func(tx pgx.Tx) (map[task.ID]int64, error) {
		return store.LostTasks(ctx, tx, u.round%wideEvery == 0, limit, most)
	})
}

// Reap takes tasks, by id and epoch, that their owner says it does not hold. It
// is called between two heartbeats, so it never waits for a round under way:
// then the owner sees its strays again and asks again.
func (u *Upkeep) Reap(ctx context.Context, owned map[task.ID]int64) {
	if !u.mu.TryLock() {
		return
	}
	defer u.mu.Unlock()
	if err := u.connect(ctx); err != nil {
		u.Log.Warn("strays not taken", "error", err)
		return
	}
	err := u.reaping(ctx, func(pgx.Tx) (map[task.ID]int64, error) { return owned, nil })
	if err != nil {
		u.Log.Warn("strays not taken", "error", err)
	}
}

// reaping judges running tasks: the attempt is closed as lost, the epoch rises,
// and the domain says what follows. Before the commit nothing has happened and
// the next round finds the same; after it the old owner's writes are refused.
// Tasks whose outcome runs statements are settled one by one, each in a
// transaction of its own.
func (u *Upkeep) reaping(ctx context.Context, pick func(tx pgx.Tx) (map[task.ID]int64, error)) error {
	var alone map[task.ID]int64
	found := false
	err := u.elected(ctx, lockReap, func(tx pgx.Tx) error {
		judged, err := pick(tx)
		if err != nil || len(judged) == 0 {
			return err
		}
		found = true
		alone, err = u.take(ctx, tx, judged, false)
		return err
	})
	if err != nil || !found {
		return err
	}
	for id, epoch := range alone {
		err := u.elected(ctx, lockReap, func(tx pgx.Tx) error {
			_, err := u.take(ctx, tx, map[task.ID]int64{id: epoch}, true)
			return err
		})
		if err != nil {
			return err
		}
	}
	return failpoint.Hit(failpoint.ReapAfterCommit)
}

// lost is one running task and what the domain says of it.
type lost struct {
	row     *task.Row
	kind    *config.Kind
	verdict task.Verdict
	sent    bool
	job     bool // a background job goes on without its worker
}

// take locks what was judged and moves what is still as it was judged: a task
// that has moved since, even if it runs again, is left alone.
func (u *Upkeep) take(ctx context.Context, tx pgx.Tx, judged map[task.ID]int64, single bool) (alone map[task.ID]int64, err error) {
	ids := slices.Collect(maps.Keys(judged))
	alone = map[task.ID]int64{}
	rows, err := store.LockTasks(ctx, tx, ids, true)
	if err != nil {
		return nil, err
	}
	marks, err := store.Dispatched(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	jobs, err := store.LiveJobs(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	var all []lost
	for _, r := range rows {
		if r.State != api.Running || r.Epoch != judged[r.ID] {
			continue
		}
		l, err := u.judge(ctx, tx, r, marks[r.ID], jobs[r.ID] != "")
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		if !single && l.verdict.To != api.Pending && outbox.Alone(l.kind, l.verdict.To, l.row, nil) {
			alone[r.ID] = r.Epoch
			continue
		}
		all = append(all, *l)
	}
	if len(all) == 0 {
		return alone, nil
	}
	if err := u.moveLost(ctx, tx, all); err != nil {
		return nil, err
	}
	return alone, failpoint.Hit(failpoint.ReapBeforeCommit)
}

// judge says what becomes of a running task without its worker. A kind whose
// configuration nobody here can read is left to others.
func (u *Upkeep) judge(ctx context.Context, tx pgx.Tx, r *task.Row, marked, job bool) (*lost, error) {
	kind, err := u.Kinds.Version(ctx, tx, r.Kind, r.ConfigHash)
	if err != nil || kind == nil {
		return nil, err
	}
	sent := marked || job || kind.OnUnknown != config.UnknownReview
	l := &lost{row: r, kind: kind, sent: sent, job: job}
	if r.CancelRequested {
		l.verdict = task.Verdict{To: api.Cancelled}
		return l, nil
	}
	p := kind.Policy()
	left := r.Deadline.Sub(r.Now)
	l.verdict = task.Next(p, task.Ended{
		Class: task.Lost, Message: "the worker's lease ran out while the task was running", Dispatched: sent, Checkable: job || u.asks(r.Provider),
		Attempts: r.Attempts + r.Reported, NotSent: r.NotSent, Released: r.Released, Lost: r.Lost, Unclear: r.Unclear,
		LastError: r.LastError, Same: r.Same, Left: left,
	}, u.Random)
	if l.verdict.To == api.Pending && left <= 0 {
		l.verdict = task.Expire(p, r.Unclear || sent, r.LastError)
	}
	if l.verdict.Again && u.Retries != nil {
		l.verdict.After = u.Retries.Pace(l.verdict.After, left, u.Kinds.Config().TimeoutsOf(kind).Total)
	}
	return l, nil
}

// asks says whether a provider can be asked what became of a call: the next
// claim does, before it sends anything.
func (u *Upkeep) asks(name string) bool {
	p := u.Kinds.Config().Providers[name]
	return p != nil && p.Status != ""
}

func (u *Upkeep) moveLost(ctx context.Context, tx pgx.Tx, all []lost) error {
	ids, epochs := make([]task.ID, len(all)), make([]int64, len(all))
	outcomes, billed := make([]string, len(all)), make([]string, len(all))
	var again []lost
	var settle []outbox.Moved
	for i, l := range all {
		ids[i], epochs[i], outcomes[i], billed[i] = l.row.ID, l.row.Epoch, "lost", "no"
		if l.sent {
			billed[i] = "unknown"
		}
		if l.verdict.To == api.Pending {
			again = append(again, l)
			continue
		}
		m := l.move()
		m.Retention = u.Kinds.Config().RetentionOf(l.kind)
		settle = append(settle, outbox.Moved{Row: l.row, Kind: l.kind, Move: m})
	}
	if err := store.CloseLost(ctx, tx, ids, epochs, outcomes, billed); err != nil {
		return err
	}
	if err := giveBack(ctx, tx, all); err != nil {
		return err
	}
	_, queues, err := u.Outbox.Move(ctx, tx, settle)
	if err != nil {
		return err
	}
	woken, err := u.requeue(ctx, tx, again)
	if err != nil {
		return err
	}
	for _, l := range all {
		u.taken[l.row.Kind]++
	}
	u.Log.Warn("lost tasks taken", "count", len(all), "woken", len(again))
	u.hint(append(queues, woken...), settle)
	return nil
}

// giveBack takes out of the budgets what was counted at the claim and, as the
// missing mark says for certain, never sent.
func giveBack(ctx context.Context, tx pgx.Tx, all []lost) error {
	over := map[store.BudgetKey]int32{}
	for _, l := range all {
		if !l.sent && l.row.BudgetID != "" {
			over[store.BudgetKey{Tenant: l.row.Tenant, ID: l.row.BudgetID}]--
		}
	}
	return store.AddToBudgets(ctx, tx, over)
}

// move is the verdict as a move of the locked row; the epoch rises, so that the
// old owner is fenced twice.
func (l lost) move() store.Move {
	v := l.verdict
	m := store.Stay(l.row)
	m.To, m.NewEpoch, m.Code, m.Message, m.Permanent = v.To, l.row.Epoch+1, string(v.Code), v.Message, v.Permanent
	m.After, m.NotSent, m.Released, m.Lost, m.Unclear = v.After, v.NotSent, v.Released, v.Lost, v.Unclear
	m.LastError, m.Same = v.LastError, v.Same
	if v.GiveBack {
		m.Attempts--
	}
	if l.sent && !(l.job && v.To == api.Pending) { // a job that is polled on is charged once, to whoever hears of its end
		m.AddBilled = api.BilledUnknown
	}
	return m
}

// requeue moves tasks back to pending, each with a fresh wake-up.
func (u *Upkeep) requeue(ctx context.Context, tx pgx.Tx, all []lost) (queues []string, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	jobs, err := store.NextJobIDs(ctx, tx, len(all))
	if err != nil {
		return nil, err
	}
	moves := make([]store.Move, len(all))
	wakes := make([]store.Wake, 0, len(all))
	var old []int64
	for i, l := range all {
		m := l.move()
		m.JobID = &jobs[i]
		moves[i] = m
		if l.row.JobID != nil {
			old = append(old, *l.row.JobID)
		}
		w := store.Wake{JobID: jobs[i], ID: l.row.ID, Queue: job.Queue(l.row.Provider), Virtual: l.row.VirtualAt}
		if m.After > 0 {
			at := l.row.Now.Add(m.After)
			w.At = &at
		} else {
			queues = append(queues, w.Queue)
		}
		wakes = append(wakes, w)
	}
	moved, err := store.MoveTasks(ctx, tx, moves)
	if err != nil {
		return nil, err
	}
	if len(moved) != len(all) {
		return nil, fmt.Errorf("requeue lost tasks: %d of %d locked rows moved", len(moved), len(all))
	}
	if err := store.DeleteWakes(ctx, tx, old); err != nil {
		return nil, err
	}
	return queues, store.InsertWakes(ctx, tx, store.WakeTask, wakes)
}
