package worker

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

func budgetOf(r *task.Row) store.BudgetKey { return store.BudgetKey{Tenant: r.Tenant, ID: r.BudgetID} }

// spend counts the sends that are about to be claimed into the budgets that
// their tasks name. A task whose budget is used up is settled instead.
//
// The count commits with the claim, before anything is sent: if the process dies
// right after, a send may have been counted and not made, never the other way
// round. What turns out not to have been sent is given back by the attempt's
// end, or by the reaper.
func (w *Worker) spend(ctx context.Context, tx pgx.Tx, p *plan) error {
	wanted := map[store.BudgetKey]int32{}
	var again []task.ID
	for _, c := range p.claims {
		if c.Row.BudgetID == "" {
			continue
		}
		wanted[budgetOf(c.Row)] = c.Row.BudgetSends
		if c.Row.Unclear {
			again = append(again, c.Row.ID)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	jobs, err := store.LiveJobs(ctx, tx, again)
	if err != nil {
		return err
	}
	have, err := store.LockBudgets(ctx, tx, wanted)
	if err != nil {
		return err
	}
	use := map[store.BudgetKey]int32{}
	claims, members := p.claims, p.members
	p.claims, p.members = nil, nil
	for k, i := range members {
		r := claims[k].Row
		if jobs[r.ID] != "" {
			p.got[i].polls = true // asks for a background job that was counted when it was started
		} else if r.BudgetID != "" {
			key := budgetOf(r)
			left := have[key].Left() - use[key]
			if left <= 0 {
				kind := p.got[i].kind
				delete(p.got, i)
				w.settleIn(p, i, r, kind, task.Spend(kind.Policy(), r.Unclear, r.BudgetID, have[key].Sends, r.LastError))
				continue
			}
			use[key]++
			left--
			p.got[i].left = &left
		}
		p.claims, p.members = append(p.claims, claims[k]), append(p.members, i)
	}
	return store.AddToBudgets(ctx, tx, use)
}

// account brings the budgets of ended attempts to what the calls came to: one
// send was counted at the claim, none where it only polls.
func account(ctx context.Context, tx pgx.Tx, all []*ending, ended map[task.ID]store.Ended) error {
	over := map[store.BudgetKey]int32{}
	for _, e := range all {
		if _, ok := ended[e.end.ID]; ok && e.a.row.BudgetID != "" {
			over[budgetOf(e.a.row)] += int32(e.at.Sends - 1)
			if e.a.polls {
				over[budgetOf(e.a.row)]++
			}
		}
	}
	return store.AddToBudgets(ctx, tx, over)
}

// settleAlone settles a task that is not to be called for and whose outcome runs
// statements, in a transaction of its own. What it is settled as is decided
// again under the lock: between the two the task may have moved.
func (w *Worker) settleAlone(id task.ID) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var queues []string
	var settled []outbox.Moved
	err := pgx.BeginTxFunc(ctx, w.EffectsDB, store.ReadCommitted, func(tx pgx.Tx) error {
		rows, err := store.LockTasks(ctx, tx, []task.ID{id}, false)
		if err != nil || len(rows) == 0 || rows[0].State != api.Pending {
			return err
		}
		r := rows[0]
		kind, err := w.Kinds.Version(ctx, tx, r.Kind, r.ConfigHash)
		if err != nil || kind == nil {
			return err
		}
		v, err := w.unclaimable(ctx, tx, r, kind.Policy())
		if err != nil || v == nil {
			return err
		}
		m := Settling(r, *v)
		m.Retention = w.Kinds.Config().RetentionOf(kind)
		settled = []outbox.Moved{{Row: r, Kind: kind, Move: m}}
		_, queues, err = w.Outbox.Move(ctx, tx, settled)
		return err
	})
	if err != nil {
		return err
	}
	outbox.CountMoved(settled)
	w.Notifier.Queues(queues...)
	w.Notifier.Settled(id)
	return nil
}

// unclaimable is the verdict on a pending task that must not be called for, nil
// where nothing speaks against it.
func (w *Worker) unclaimable(ctx context.Context, tx pgx.Tx, r *task.Row, p task.Policy) (*task.Verdict, error) {
	var v task.Verdict
	switch {
	case r.CancelRequested:
		v = task.Verdict{To: api.Cancelled}
	case !r.Deadline.After(r.Now):
		v = task.Expire(p, r.Unclear, r.LastError)
	case r.BudgetID != "":
		jobs, err := store.LiveJobs(ctx, tx, []task.ID{r.ID})
		if err != nil || jobs[r.ID] != "" {
			return nil, err
		}
		have, err := store.LockBudgets(ctx, tx, map[store.BudgetKey]int32{budgetOf(r): r.BudgetSends})
		if err != nil {
			return nil, err
		}
		b := have[budgetOf(r)]
		if b.Left() > 0 {
			return nil, nil
		}
		v = task.Spend(p, r.Unclear, r.BudgetID, b.Sends, r.LastError)
	default:
		return nil, nil
	}
	return &v, nil
}
