package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
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
	for name, d := range o.Config.Destinations {
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
	if to == nil || to.Repeat != config.RepeatSafe {
		return m
	}
	m.Code, m.To = CodeSenderLost, api.EffectWaiting
	if int(l.Attempts) >= len(Schedule) {
		m.Code, m.To = CodeAttemptsUsed, api.EffectDead
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
	idle, err := store.IdleDestinations(ctx, tx, o.PerDestination)
	if err != nil {
		return Round{}, err
	}
	woken, err := store.WakeNextEffects(ctx, tx, idle, job.EffectQueue)
	return round(woken, woken), err
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
