package upkeep

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
)

const (
	unparkMost   = 1000 // wake-ups of one transaction
	unparkRounds = 10   // transactions of one round
	groupsMost   = 10_000
	tellAgain    = 10 // rounds between two tellings of every queue's pause
)

// gates derives the pauses of River's queues from gates and holds, and gives
// parked tasks their wake-ups where nothing stands in their way any more.
func (u *Upkeep) gates(ctx context.Context) error {
	if err := store.PauseQueues(ctx, u.conn, u.round%tellAgain == 0); err != nil {
		return err
	}
	var places map[string]int
	for range unparkRounds {
		woken := 0
		err := u.elected(ctx, lockGates, func(tx pgx.Tx) (err error) {
			if places == nil {
				if places, err = u.places(ctx, tx); err != nil {
					return err
				}
			}
			woken, err = u.unpark(ctx, tx, places)
			if err != nil || woken == 0 {
				return err
			}
			return failpoint.Hit(failpoint.UnparkBeforeCommit)
		})
		if err != nil || woken == 0 {
			return err
		}
	}
	return nil
}

// unpark wakes up to unparkMost parked tasks, of bounded kinds as many as there
// are places, which it takes. If it commits each of them has its
// wake-up; if the process dies before, they are parked still and the next round
// finds them.
func (u *Upkeep) unpark(ctx context.Context, tx pgx.Tx, places map[string]int) (int, error) {
	groups, err := store.ParkedGroups(ctx, tx, groupsMost)
	if err != nil || len(groups) == 0 {
		return 0, err
	}
	doors, err := gate.Read(ctx, tx)
	if err != nil {
		return 0, err
	}
	each := max(1, unparkMost/len(groups))
	var wakes []store.WakeGroup
	queues := map[string]bool{}
	for _, g := range groups {
		s := gate.Subject{Tenant: g.Tenant, Kind: g.Kind, Provider: g.Provider}
		if !doors.Open(gate.Provider(g.Provider)) || doors.Stopped(api.StopClaims, s) != nil {
			continue
		}
		w := store.WakeGroup{Parked: g, Queue: job.Queue(g.Provider), Most: each, Retries: doors.Stopped(api.StopRetries, s) == nil}
		if free, bounded := places[g.Kind]; bounded {
			w.Most = min(w.Most, free)
			places[g.Kind] -= w.Most
		} else {
			w.From, w.Step = u.Fair.Resume(g.Provider, g.Tenant)
		}
		if w.Most > 0 {
			wakes = append(wakes, w)
			queues[w.Queue] = true
		}
	}
	all, err := store.WakeParked(ctx, tx, wakes)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	woken := 0
	for _, w := range all {
		woken += w.Count
		u.Fair.Resumed(w.Provider, w.Tenant, w.Count)
	}
	u.Log.Debug("parked tasks woken", "count", woken)
	for q := range queues {
		u.queues = append(u.queues, q)
	}
	return woken, nil
}

// places is how many more tasks of each bounded kind may run, as the workers
// told a second ago at most.
func (u *Upkeep) places(ctx context.Context, db store.DBTX) (map[string]int, error) {
	out := map[string]int{}
	for name, k := range u.Kinds.Config().Kinds {
		if k.Concurrency > 0 {
			out[name] = k.Concurrency
		}
	}
	if len(out) == 0 {
		return out, nil
	}
	shares, err := store.Shares(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, s := range shares {
		if _, bounded := out[s.Name]; bounded && s.GateKey == gate.Kind(s.Name) {
			out[s.Name] = max(0, out[s.Name]-s.Used)
		}
	}
	return out, nil
}
