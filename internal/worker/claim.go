package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

const onUnknownReview = config.UnknownReview

// claimRequest is one wish to own a task.
type claimRequest struct {
	id    task.ID
	owner task.ID
	token task.ID
	full  bool // the provider's bounds let nothing in for long: not now
}

// claimed is a task this process owns, as the committed row says.
type claimed struct {
	row   *task.Row
	kind  *config.Kind
	fence task.Fence
	owner task.ID
	at    time.Time  // this process's clock when the claim returned
	polls bool       // names a budget, and only asks for a background job that was counted before
	pass  *gate.Pass // of the provider
	place *gate.Pass // of the kind
	left  *int32     // what the task's named budget has left, nil where it names none
	alone bool       // not claimed: it is to be settled, in a transaction of its own
}

// plan sorts the requests of one flush.
type plan struct {
	got     map[int]*claimed
	claims  []store.Claim
	members []int
	settle  []outbox.Moved
	back    []putBack
	park    []*task.Row
	places  map[int]*gate.Pass // taken for these claims
}

// putBack is a task that is not to run now: its wake-up is replaced by one at
// a later time.
type putBack struct {
	row   *task.Row
	after time.Duration
}

// How long an unclear commit of claims is looked into, and how often. What is
// still unclear then is a stray at worst: owned by this incarnation and not held.
const (
	claimResolveFor   = 10 * time.Second
	claimResolvePause = 100 * time.Millisecond
)

// claim is one flush: pending and due tasks become running. An unclear commit is
// resolved by the same claims again: their locks wait for the commit in flight,
// and one that stands is known by its token.
func (w *Worker) claim(ctx context.Context, requests []claimRequest) ([]*claimed, error) {
	var until time.Time // set once a commit was unclear
	for {
		out, err := w.claimOnce(ctx, requests)
		switch {
		case err == nil || !store.Unclear(err) && (until.IsZero() || !store.Away(err)):
			return out, err
		case until.IsZero():
			until = time.Now().Add(claimResolveFor)
			w.Log.Warn("claims unclear, asking again", "error", err, "count", len(requests))
		case time.Now().After(until):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(claimResolvePause):
		}
	}
}

// claimOnce is one transaction.
//
// Before the commit nothing has happened: the wake-ups stay and are found again.
// After it the tasks belong to this incarnation; if the process dies then, the
// lease runs out and the reaper takes them. Nothing is handed to a caller before
// the commit's answer.
func (w *Worker) claimOnce(ctx context.Context, requests []claimRequest) ([]*claimed, error) {
	var p *plan
	var queues []string
	out := make([]*claimed, len(requests))
	defer func() { p.leave(out) }()
	err := pgx.BeginTxFunc(ctx, w.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		ids := make([]task.ID, len(requests))
		for i, r := range requests {
			ids[i] = r.id
		}
		rows, err := store.LockTasks(ctx, tx, ids, false)
		if err != nil {
			return err
		}
		if err := failpoint.Hit(failpoint.ClaimBeforeUpdate); err != nil {
			return err
		}
		if p, err = w.plan(ctx, tx, requests, rows); err != nil {
			return err
		}
		if err := w.spend(ctx, tx, p); err != nil {
			return err
		}
		if _, queues, err = w.Outbox.Move(ctx, tx, p.settle); err != nil {
			return err
		}
		if err := w.putBack(ctx, tx, p.back); err != nil {
			return err
		}
		if err := park(ctx, tx, p.park); err != nil {
			return err
		}
		won, err := store.ClaimTasks(ctx, tx, p.claims)
		if err != nil {
			return err
		}
		p.take(won)
		return failpoint.Hit(failpoint.ClaimBeforeCommit)
	})
	if err != nil {
		return nil, err
	}
	w.Notifier.Queues(queues...)
	outbox.CountMoved(p.settle)
	for _, m := range p.settle {
		w.Notifier.Settled(m.Row.ID)
	}
	for i := range requests {
		if c := p.got[i]; c != nil {
			c.at = time.Now()
			out[i] = c
		}
	}
	return out, nil
}

// take hands the claims that were made to the requests they serve.
func (p *plan) take(won []store.Claim) {
	mine := make(map[task.ID]store.Claim, len(won))
	for _, c := range won {
		mine[c.Row.ID] = c
	}
	for k, i := range p.members {
		wanted := p.claims[k]
		if c, ok := mine[wanted.Row.ID]; ok && c.Token == wanted.Token {
			p.got[i].fence = task.Fence{ID: c.Row.ID, Epoch: c.Row.Epoch, Token: c.Token}
			continue
		}
		delete(p.got, i)
	}
}

// plan decides for each locked row what its wake-up means. With an error, too,
// it tells which places it took.
func (w *Worker) plan(ctx context.Context, tx pgx.Tx, requests []claimRequest, rows []*task.Row) (*plan, error) {
	byID := make(map[task.ID]*task.Row, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	p := &plan{got: map[int]*claimed{}, places: map[int]*gate.Pass{}}
	for i, q := range requests {
		r := byID[q.id]
		if r == nil {
			continue // purged: stale
		}
		if r.State == api.Running && r.Token != nil && *r.Token == q.token {
			// An earlier try of this very claim had committed.
			kind, err := w.Kinds.Version(ctx, tx, r.Kind, r.ConfigHash)
			if err != nil {
				return p, err
			}
			c := &claimed{row: r, kind: kind, owner: q.owner, fence: task.Fence{ID: r.ID, Epoch: r.Epoch, Token: q.token}}
			if r.BudgetID != "" && r.Unclear {
				jobs, err := store.LiveJobs(ctx, tx, []task.ID{r.ID})
				if err != nil {
					return p, err
				}
				c.polls = jobs[r.ID] != ""
			}
			p.got[i] = c
			p.places[i], _ = w.Gates.TryEnter(gate.Kind(r.Kind))
			continue
		}
		if r.State != api.Pending {
			continue // stale
		}
		delete(byID, q.id) // two wake-ups of one task in a flush: the first serves both
		if err := w.planPending(ctx, tx, p, i, q, r); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (w *Worker) planPending(ctx context.Context, tx pgx.Tx, p *plan, i int, q claimRequest, r *task.Row) error {
	kind, err := w.Kinds.Version(ctx, tx, r.Kind, r.ConfigHash)
	if err != nil {
		return err
	}
	switch {
	case kind == nil || w.Providers[r.Provider] == nil:
		p.back = append(p.back, putBack{r, w.later(r.ID)})
	case r.CancelRequested:
		w.settleIn(p, i, r, kind, task.Verdict{To: api.Cancelled})
	case !r.Deadline.After(r.Now):
		w.settleIn(p, i, r, kind, task.Expire(kind.Policy(), r.Unclear, r.LastError))
	case r.RunAt.After(r.Now):
		p.back = append(p.back, putBack{r, r.RunAt.Sub(r.Now)})
	case !w.admit(p, i, q, r):
	default:
		p.claims = append(p.claims, store.Claim{Row: r, Owner: q.owner, Token: q.token, ProviderHash: w.Kinds.Config().ProviderHash(r.Provider)})
		p.members = append(p.members, i)
		p.got[i] = &claimed{row: r, kind: kind, owner: q.owner}
	}
	return nil
}

// settleIn adds a settling move, unless its effects need a transaction of their
// own: then whoever asked for the claim settles it apart.
func (w *Worker) settleIn(p *plan, i int, r *task.Row, kind *config.Kind, v task.Verdict) {
	if outbox.Alone(kind, v.To, r, nil) {
		p.got[i] = &claimed{row: r, kind: kind, alone: true}
		return
	}
	m := Settling(r, v)
	m.Retention = w.Kinds.Config().RetentionOf(kind)
	p.settle = append(p.settle, outbox.Moved{Row: r, Kind: kind, Move: m})
}

// later is when a task this worker cannot run is looked at again: 5 to 15 s
// ahead, and at most once a minute for one task.
func (w *Worker) later(id task.ID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for other, at := range w.passed {
		if now.Sub(at) > time.Minute {
			delete(w.passed, other)
		}
	}
	wait := 5*time.Second + rand.N(10*time.Second)
	if _, again := w.passed[id]; again {
		wait += time.Minute
	}
	w.passed[id] = now
	return wait
}

// putBack replaces the wake-ups of tasks that are not to run now.
func (w *Worker) putBack(ctx context.Context, tx pgx.Tx, back []putBack) error {
	if len(back) == 0 {
		return nil
	}
	jobs, err := store.NextJobIDs(ctx, tx, len(back))
	if err != nil {
		return err
	}
	var old []int64
	ids := make([]task.ID, len(back))
	wakes := make([]store.Wake, len(back))
	for i, b := range back {
		at := b.row.Now.Add(b.after)
		ids[i] = b.row.ID
		wakes[i] = store.Wake{JobID: jobs[i], ID: b.row.ID, Queue: job.Queue(b.row.Provider), Virtual: b.row.VirtualAt, At: &at}
		if b.row.JobID != nil {
			old = append(old, *b.row.JobID)
		}
	}
	if err := store.Rewake(ctx, tx, ids, jobs); err != nil {
		return err
	}
	if err := store.DeleteWakes(ctx, tx, old); err != nil {
		return err
	}
	return store.InsertWakes(ctx, tx, store.WakeTask, wakes)
}

// Settling is the move of a waiting row that a verdict asks for.
func Settling(r *task.Row, v task.Verdict) store.Move {
	m := store.Stay(r)
	m.To, m.Code, m.Message, m.Permanent, m.Unclear = v.To, string(v.Code), v.Message, v.Permanent, v.Unclear
	return m
}
