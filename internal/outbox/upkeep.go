package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// most is how many effects one round of upkeep moves.
const most = 500

// Round is what a round of upkeep did: how many effects it moved, and the queues to notify after the commit.
type Round struct {
	Count  int
	Queues []string
}

func round(count, woken int) Round {
	r := Round{Count: count}
	if woken > 0 {
		r.Queues = []string{job.EffectQueue}
	}
	return r
}

// ReapEffects takes effects from deliveries whose owner's lease ran out, and from those that run longer than SendLimit
// and two leases whoever owns them, in the caller's transaction. One whose destination says that a repeat is safe waits
// again at once, under the same id; any other becomes unknown, but not before its send must be over: mark + SendLimit +
// lease. It returns the queues to notify after the commit. The caller judges only after it has read the database
// without a gap for one lease.
func (o *Outbox) ReapEffects(ctx context.Context, tx pgx.Tx, lease time.Duration) (Round, error) {
	lost, err := store.LostEffects(ctx, tx, o.safe(), SendLimit+lease, SendLimit+2*lease, most)
	if err != nil {
		return Round{}, err
	}
	return o.takeLost(ctx, tx, lost)
}

// safe names the destinations where a repeat does no harm.
func (o *Outbox) safe() []string {
	names := []string{}
	for name, d := range o.Destinations.All() {
		if d.Repeat == config.RepeatSafe {
			names = append(names, name)
		}
	}
	return names
}

func (o *Outbox) takeLost(ctx context.Context, tx pgx.Tx, lost []store.LostEffect) (Round, error) {
	if len(lost) == 0 {
		return Round{}, nil
	}
	moves := make([]store.LostMove, len(lost))
	for i, l := range lost {
		moves[i] = o.lostMove(l)
	}
	taken, err := store.TakeLost(ctx, tx, moves)
	if err != nil {
		return Round{}, err
	}
	var jobs []int64
	var wakes []store.EffectWake
	next := map[string]int{}
	for _, m := range moves {
		if !taken[m.ID] {
			continue
		}
		if m.JobID != nil {
			jobs = append(jobs, *m.JobID)
		}
		next[m.Destination]++
		if m.To == api.EffectWaiting {
			wakes = append(wakes, store.EffectWake{ID: m.ID})
		}
	}
	if err := store.DeleteWakes(ctx, tx, jobs); err != nil {
		return Round{}, err
	}
	own, err := store.WakeEffects(ctx, tx, wakes, job.EffectQueue, o.Window)
	if err != nil {
		return Round{}, err
	}
	others, err := store.WakeNextEffects(ctx, tx, next, job.EffectQueue)
	return round(len(taken), own+others), err
}

// lostMove is the verdict on a delivery whose outcome nobody reported.
func (o *Outbox) lostMove(l store.LostEffect) store.LostMove {
	m := store.LostMove{
		LostEffect: l, To: api.EffectUnknown, Code: CodeOutcomeUnknown,
		Message: "the worker was lost while it delivered this; it may have arrived",
	}
	to := o.destination(l.Destination)
	switch {
	case to == nil:
		return m
	case to.Repeat == config.RepeatSafe:
	case to.Check != nil && (l.Gone || o.Ended(l.Identity)):
		// Its process can send nothing any more, so what the destination says now stays true.
		m.After = to.Check.After
	default:
		return m
	}
	m.Code, m.To = CodeSenderLost, api.EffectWaiting
	if int(l.Attempts) >= len(Schedule) {
		m.Code, m.To = CodeAttemptsUsed, api.EffectDead
		if to.Repeat != config.RepeatSafe {
			m.Code, m.To = CodeOutcomeUnknown, api.EffectUnknown
		}
	}
	return m
}

// SweepEffects gives due waiting effects a wake-up where they lack one, in the caller's transaction: those whose River
// row River has done with, is overdue, or was fetched a lease ago; and those that wait without one at a destination
// that has places left, so that a chain of wake-ups that broke goes on.
func (o *Outbox) SweepEffects(ctx context.Context, tx pgx.Tx, lease time.Duration) (Round, error) {
	ids, jobs, err := store.SleeplessEffects(ctx, tx, lease, most)
	if err != nil {
		return Round{}, err
	}
	if err := store.ParkEffects(ctx, tx, ids); err != nil {
		return Round{}, err
	}
	if err := store.DeleteWakes(ctx, tx, jobs); err != nil {
		return Round{}, err
	}
	stuck, err := store.StuckOrders(ctx, tx, most)
	if err != nil {
		return Round{}, err
	}
	if _, err := store.AdvanceOrders(ctx, tx, stuck); err != nil {
		return Round{}, err
	}
	closed, err := o.sweepHeld(ctx, tx)
	if err != nil {
		return Round{}, err
	}
	idle, err := store.IdleDestinations(ctx, tx, o.PerDestination, closed)
	if err != nil {
		return Round{}, err
	}
	woken, err := store.WakeNextEffects(ctx, tx, idle, job.EffectQueue)
	return round(woken, woken), err
}

// sweepHeld moves what waits at held destinations to held, and what is held at open ones back to waiting, a batch of
// each a round. It reads the gates anew: a release has opened the gate before anything else moves. It returns the
// destinations where nothing is to be woken now.
func (o *Outbox) sweepHeld(ctx context.Context, tx pgx.Tx) (closed []string, err error) {
	closed = []string{}
	if o.Gates == nil {
		return closed, nil
	}
	gates, now, err := store.Gates(ctx, tx)
	if err != nil {
		return nil, err
	}
	shut := map[string]bool{}
	var held []string
	for _, g := range gates {
		if g.Scope != gate.Destination("").Scope {
			continue
		}
		switch {
		case g.State == api.GateHeld || g.State == api.GateDisabled:
			shut[g.Name] = true
			held, closed = append(held, g.Name), append(closed, g.Name)
		case g.State == api.GateCooling && g.Until.After(now):
			closed = append(closed, g.Name)
		}
	}
	ids, err := store.WaitingAt(ctx, tx, held, most)
	if err != nil {
		return nil, err
	}
	if _, err := store.HoldEffects(ctx, tx, ids, false); err != nil {
		return nil, err
	}
	groups, err := store.HeldGroups(ctx, tx)
	if err != nil {
		return nil, err
	}
	free := slices.DeleteFunc(groups, func(g store.HeldGroup) bool {
		return shut[g.Destination] || o.stopped(store.EffectSeen{Tenant: g.Tenant, Destination: g.Destination, Tried: g.Tried})
	})
	_, err = store.ReleaseEffects(ctx, tx, free, most)
	return closed, err
}

// strays remembers what was seen once.
type strays struct {
	mu   sync.Mutex
	once map[task.Fence]bool
}

// Strays compares the deliveries that the database says an incarnation makes with those this process makes. What it
// finds astray twice goes by the reaper's rule, in a transaction of its own. It is called once a lease, by the process
// that has the incarnation.
func (o *Outbox) Strays(ctx context.Context, incarnation task.ID, lease time.Duration) (Round, error) {
	if err := o.confirmEnded(ctx); err != nil {
		return Round{}, err
	}
	owned, err := store.OwnedEffects(ctx, o.Pool, incarnation)
	if err != nil {
		return Round{}, err
	}
	twice := o.strays.see(owned, o.flights.holds)
	if len(twice) == 0 {
		return Round{}, nil
	}
	var r Round
	err = o.transact(ctx, "", "", func(tx pgx.Tx) error {
		lost, err := store.StrayEffects(ctx, tx, incarnation, twice, o.safe(), SendLimit+lease)
		if err != nil {
			return err
		}
		r, err = o.takeLost(ctx, tx, lost)
		return err
	})
	if err != nil {
		return Round{}, fmt.Errorf("take stray deliveries: %w", err)
	}
	o.notify(r.Queues...)
	return r, nil
}

// confirmEnded notes which silent processes of this machine have ended: proof that they send nothing any more, for
// whoever judges their deliveries.
func (o *Outbox) confirmEnded(ctx context.Context) error {
	silent, err := store.SilentWorkers(ctx, o.Pool)
	if err != nil {
		return err
	}
	ended := slices.DeleteFunc(silent, func(identity string) bool { return !o.Ended(identity) })
	if len(ended) == 0 {
		return nil
	}
	return store.ConfirmEnded(ctx, o.Pool, ended)
}

func (s *strays) see(owned []task.Fence, held func(task.ID) bool) (twice []task.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[task.Fence]bool{}
	for _, f := range owned {
		if held(f.ID) {
			continue
		}
		now[f] = true
		if s.once[f] {
			twice = append(twice, f)
		}
	}
	s.once = now
	return twice
}
