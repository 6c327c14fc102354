package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// How long a fetched wake-up waits in memory: for a short pause of its provider
// to be over, and for a place within the provider's bounds. After that it goes
// back, for this long and a bit.
const (
	mostPause = 4 * time.Second
	mostWait  = time.Minute
	fullFor   = time.Second
)

// enter waits until one more call may begin at the provider. It owns nothing
// meanwhile: the task is pending, and its wake-up is kept from the sweep by
// OnBeat. full says that it waited in vain.
func (w *Worker) enter(provider string, id task.ID) (pass *gate.Pass, full bool) {
	if provider == "" || w.Gates == nil {
		return nil, false
	}
	w.mu.Lock()
	w.waiting[id] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiting, id)
		w.mu.Unlock()
	}()
	n := gate.Provider(provider)
	if !w.Gates.Await(w.leaving, n, mostPause) || w.Gates.Barred(n) {
		return nil, false // the claim says what becomes of it
	}
	ctx, cancel := context.WithTimeout(w.leaving, mostWait)
	defer cancel()
	pass, err := w.Gates.Enter(ctx, n)
	return pass, err != nil
}

// admit says whether a due task may be claimed now. If not, its wake-up is put
// back to when it may, or taken away until upkeep gives it another.
func (w *Worker) admit(p *plan, i int, q claimRequest, r *task.Row) bool {
	if w.Gates == nil {
		return true
	}
	n := gate.Provider(r.Provider)
	g := w.Gates.State(n)
	switch {
	case g.State == api.GateCooling:
		p.back = append(p.back, putBack{r, g.Opens})
	case !g.Open() || w.stopped(r):
		p.park = append(p.park, r)
	case w.Gates.Barred(n):
		p.back = append(p.back, putBack{r, w.later(r.ID)}) // another process may have a better credential
	case q.full:
		p.back = append(p.back, putBack{r, fullFor + rand.N(fullFor)})
	default:
		place, ok := w.Gates.TryEnter(gate.Kind(r.Kind))
		if !ok {
			w.parks(r)
			p.park = append(p.park, r)
			return false
		}
		p.places[i] = place
		return true
	}
	return false
}

// stopped says whether an operator keeps the task from running: all tasks of
// its sort, or those whose run was begun before and is to go on by itself.
func (w *Worker) stopped(r *task.Row) bool {
	s := gate.Subject{Tenant: r.Tenant, Kind: r.Kind, Provider: r.Provider}
	if w.Gates.Stopped(api.StopClaims, s) != nil {
		return true
	}
	tried := r.Attempts > 0 || r.Released > 0 || r.Lost > 0 || r.Unclear
	return tried && w.Gates.Stopped(api.StopRetries, s) != nil
}

// leave hands the places of a flush to the claims that were made and gives the
// others back. out is as it was answered, empty when nothing was.
func (p *plan) leave(out []*claimed) {
	if p == nil {
		return
	}
	for i, place := range p.places {
		if out[i] != nil {
			out[i].place = place
			continue
		}
		place.Leave()
	}
}

// park takes tasks their wake-ups.
func park(ctx context.Context, tx pgx.Tx, rows []*task.Row) error {
	ids := make([]task.ID, len(rows))
	var old []int64
	for i, r := range rows {
		ids[i] = r.ID
		if r.JobID != nil {
			old = append(old, *r.JobID)
		}
	}
	if err := store.ParkTasks(ctx, tx, ids); err != nil {
		return err
	}
	return store.DeleteWakes(ctx, tx, old)
}

// parks remembers that tasks were parked for want of a place of their kind.
func (w *Worker) parks(r *task.Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked[store.Parked{Provider: r.Provider, Kind: r.Kind, Tenant: r.Tenant}] = true
}

// leaveKind gives a place of a kind back and wakes one that was parked for want
// of it. What this misses, other processes' parked tasks above all, upkeep finds
// within a second.
func (w *Worker) leaveKind(c *claimed) {
	if c.place == nil {
		return
	}
	c.place.Leave()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, group := range w.parkedOf(c.row.Kind) {
		g := store.WakeGroup{Parked: group, Queue: job.Queue(group.Provider), Most: 1, Retries: true}
		n, err := store.WakeParked(ctx, w.Pool, []store.WakeGroup{g})
		if err != nil {
			w.Log.Debug("parked task not woken", "error", err)
			return
		}
		if len(n) > 0 {
			w.Notifier.Queues(g.Queue)
			return
		}
		w.mu.Lock()
		delete(w.parked, group)
		w.mu.Unlock()
	}
}

func (w *Worker) parkedOf(kind string) (out []store.Parked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for g := range w.parked {
		if g.Kind == kind {
			out = append(out, g)
		}
	}
	return out
}

// waitingLong are the tasks whose wake-ups wait in this process.
func (w *Worker) waitingLong() []task.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]task.ID, 0, len(w.waiting))
	for id := range w.waiting {
		ids = append(ids, id)
	}
	return ids
}
