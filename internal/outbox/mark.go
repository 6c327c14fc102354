package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// How long an effect that cannot be taken now is put back: at least this, and up to twice as much again (protocols
// section 12); and how long an unclear commit of marks is looked into.
const (
	putBack      = 5 * time.Second
	resolveFor   = 10 * time.Second
	resolvePause = 100 * time.Millisecond
)

// claim asks for one effect. full says that its destination has no place left, over all processes.
type claim struct {
	id   task.ID
	full bool
}

// claimed is an effect this process delivers now, or nil where it does not.
type claimed struct {
	*store.MarkedEffect
	owner task.ID
	began time.Duration // when the mark was begun, on the outbox's clock
}

// plan is what one flush does with the effects it was asked for.
type plan struct {
	owner task.ID
	marks []store.EffectMark
	parks []task.ID // their wake-ups go; those beyond the destination's places get no other
	gated []task.ID // held, if their gates are closed in the database, too
	held  []task.ID // held by an operator's hold
	wakes []store.EffectWake
	jobs  []int64 // wake-ups to delete
	full  []string
}

// flushMarks is one transaction: waiting effects become delivering, with a fresh token and an open delivery row each.
// If it commits, they are ours to send. If the process dies before, nothing has happened; if it dies after, nothing was
// sent yet, but nobody can know that: the reaper decides by the destination's repeat rule.
func (o *Outbox) flushMarks(ctx context.Context, claims []*claim) ([]*claimed, error) {
	began := o.Clock()
	ids := make([]task.ID, len(claims))
	for i, c := range claims {
		ids[i] = c.id
	}
	var p plan
	var marked map[task.ID]*store.MarkedEffect
	woken := 0
	err := o.transact(ctx, failpoint.MarkBeforeCommit, failpoint.MarkAfterCommit, func(tx pgx.Tx) error {
		seen, err := store.LockEffects(ctx, tx, ids)
		if err != nil {
			return err
		}
		p = o.plan(claims, seen)
		if marked, err = store.MarkEffects(ctx, tx, p.marks); err != nil {
			return err
		}
		woken, err = o.putBack(ctx, tx, &p)
		return err
	})
	if store.Unclear(err) && len(p.marks) > 0 {
		marked, err = o.resolveMarks(ctx, p.marks)
	}
	for _, m := range p.marks {
		if err != nil || marked[m.ID] == nil {
			o.flights.end(m.ID)
		}
	}
	if err != nil {
		return nil, err
	}
	if woken > 0 {
		o.notify(job.EffectQueue)
	}
	o.recheck(ctx, p.full)
	out := make([]*claimed, len(claims))
	for i, c := range claims {
		if m := marked[c.id]; m != nil {
			out[i] = &claimed{MarkedEffect: m, owner: p.owner, began: began}
			delete(marked, c.id) // the second of two wake-ups in one flush gets nothing
		}
	}
	return out, nil
}

// plan decides for each effect. Places of destinations are taken here and given back by flights.end.
func (o *Outbox) plan(claims []*claim, seen map[task.ID]store.EffectSeen) plan {
	p := plan{owner: o.Incarnation()}
	able := p.owner != (task.ID{}) && o.MaySend() // without a living lease, what is marked could not be sent
	done := map[task.ID]bool{}
	for _, c := range claims {
		e, found := seen[c.id]
		if !found || e.State != api.EffectWaiting || done[c.id] {
			continue // a stale wake-up
		}
		done[c.id] = true
		o.planOne(&p, c, e, able)
	}
	return p
}

func (o *Outbox) planOne(p *plan, c *claim, e store.EffectSeen, able bool) {
	to := o.destination(e.Destination)
	g := o.Gates.State(gate.Destination(e.Destination))
	switch {
	case !e.Due:
		p.later(c.id, e, nil)
	case o.stopped(e):
		p.park(c.id, e.JobID)
		p.held = append(p.held, c.id)
	case g.State == api.GateHeld || g.State == api.GateDisabled:
		p.park(c.id, e.JobID)
		p.gated = append(p.gated, c.id)
	case g.State == api.GateCooling:
		opens := g.Opens + time.Duration(o.Random()*float64(withheldFor))
		p.later(c.id, e, &opens)
	case !able:
		soon := withheldFor
		p.later(c.id, e, &soon)
	case to == nil || o.Senders[e.Type] == nil || o.Gates.Barred(gate.Destination(e.Destination)):
		p.later(c.id, e, o.later()) // another process knows it, or has a better credential
	case c.full:
		p.park(c.id, e.JobID)
	default:
		ok, full := o.flights.begin(c.id, e.Destination, o.limit(e.Destination))
		switch {
		case ok:
			p.marks = append(p.marks, store.EffectMark{ID: c.id, Owner: p.owner, Token: task.NewToken()})
		case full:
			p.full = append(p.full, e.Destination)
			p.park(c.id, e.JobID)
		default:
			p.later(c.id, e, o.later()) // an earlier delivery of it is still at work here
		}
	}
}

// stopped says whether an operator's hold keeps the effect from leaving: all of its sort, or those that were tried
// before and are to be tried again by themselves.
func (o *Outbox) stopped(e store.EffectSeen) bool {
	s := gate.Subject{Tenant: e.Tenant, Destination: e.Destination}
	return o.Gates.Stopped(api.StopClaims, s) != nil || e.Tried && o.Gates.Stopped(api.StopRetries, s) != nil
}

// recheck looks again at destinations that were full when effects were parked there. A place that was given back before
// those were committed has woken none of them; it does now. What fails here is found by the sweep.
func (o *Outbox) recheck(ctx context.Context, full []string) {
	next := map[string]int{}
	for _, d := range full {
		if n := o.flights.free(d, o.limit(d)); n > 0 && o.Gates.Open(gate.Destination(d)) {
			next[d] = n
		}
	}
	if len(next) == 0 {
		return
	}
	woken := 0
	err := o.transact(ctx, "", "", func(tx pgx.Tx) (err error) {
		woken, err = store.WakeNextEffects(ctx, tx, next, job.EffectQueue)
		return err
	})
	if err == nil && woken > 0 {
		o.notify(job.EffectQueue)
	}
}

func (p *plan) park(id task.ID, jobID *int64) {
	p.parks = append(p.parks, id)
	if jobID != nil {
		p.jobs = append(p.jobs, *jobID)
	}
}

// later parks an effect and gives it another wake-up: when it is due, or after a while.
func (p *plan) later(id task.ID, e store.EffectSeen, after *time.Duration) {
	p.park(id, e.JobID)
	p.wakes = append(p.wakes, store.EffectWake{ID: id, After: after})
}

func (o *Outbox) later() *time.Duration {
	d := putBack + time.Duration(o.Random()*2*float64(putBack))
	return &d
}

// limit is how many deliveries to a destination this process makes at a time: one, while it is tried again after failures
// in a row.
func (o *Outbox) limit(destination string) int {
	to := o.destination(destination)
	switch {
	case o.Gates.State(gate.Destination(destination)).Probing:
		return 1
	case to != nil && to.Concurrency > 0:
		return to.Concurrency
	}
	return o.PerDestination
}

func (o *Outbox) putBack(ctx context.Context, tx pgx.Tx, p *plan) (woken int, err error) {
	if len(p.parks) == 0 {
		return 0, nil
	}
	if err := store.ParkEffects(ctx, tx, p.parks); err != nil {
		return 0, err
	}
	if err := store.DeleteWakes(ctx, tx, p.jobs); err != nil {
		return 0, err
	}
	woken, err = store.WakeEffects(ctx, tx, p.wakes, job.EffectQueue, o.Window)
	if err != nil {
		return 0, err
	}
	if _, err := store.HoldEffects(ctx, tx, p.held, true); err != nil {
		return 0, err
	}
	_, err = store.HoldEffects(ctx, tx, p.gated, false)
	return woken, err
}

// resolveMarks finds out whether an unclear commit stands. The locks make it wait for the commit in flight.
func (o *Outbox) resolveMarks(ctx context.Context, marks []store.EffectMark) (marked map[task.ID]*store.MarkedEffect, err error) {
	ids := make([]task.ID, len(marks))
	for i, m := range marks {
		ids[i] = m.ID
	}
	until := time.Now().Add(resolveFor)
	for {
		err = o.transact(ctx, "", "", func(tx pgx.Tx) error {
			if _, err := store.LockEffects(ctx, tx, ids); err != nil {
				return err
			}
			if marked, err = store.MarkedBy(ctx, tx, marks); err != nil {
				return err
			}
			return store.EmitMarker(ctx, tx)
		})
		if err == nil || ctx.Err() != nil || time.Now().After(until) {
			return marked, err
		}
		pause(ctx, resolvePause)
	}
}

// transact runs f in one READ COMMITTED transaction. An error of the commit may be unclear.
func (o *Outbox) transact(ctx context.Context, before, after failpoint.Point, f func(tx pgx.Tx) error) error {
	conn, err := o.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	defer conn.Release()
	err = pgx.BeginTxFunc(ctx, conn, store.ReadCommitted, func(tx pgx.Tx) error {
		if err := f(tx); err != nil || before == "" {
			return err
		}
		return failpoint.Hit(before)
	})
	if err == nil && store.CommitWarned(conn.Conn()) {
		err = store.ErrCommitWarned
	}
	if err == nil && after != "" {
		err = failpoint.Hit(after)
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
