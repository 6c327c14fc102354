package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/group"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// How long the outcome of a delivery is kept in memory while the database is away. It is longer than a lease on purpose:
// what is known about a delivery is worth more than the lease. Should the reaper come first, the outcome is fenced and
// lands on the delivery's own row; it cannot do harm.
const (
	recordFor      = 10 * time.Minute
	recordPauseMin = 100 * time.Millisecond
	recordPauseMax = 2 * time.Second
)

// ending is the outcome of one delivery, to be recorded.
type ending struct {
	store.DeliveryEnd
	destination string
	order       *store.OrderKey   // nil: it has none
	seen        *gate.Observation // what it says of the destination; nil: nothing
	jobID       *int64
	owner       task.ID
	number      int32
}

// record commits an outcome; it is false where the delivery was fenced meanwhile. While the database is away it tries
// again, until ctx ends, recordFor is over, or the outcome stands. Any other error is the end: the effect goes by the
// strays' rule.
func (o *Outbox) record(ctx context.Context, e *ending) (recorded bool, err error) {
	began := o.Clock()
	wait := recordPauseMin
	for {
		recorded, err = o.outcomes.Do(context.WithoutCancel(ctx), e)
		if err == nil || errors.Is(err, group.ErrClosed) || !store.Away(err) && !store.Retryable(err) || ctx.Err() != nil ||
			o.Clock()-began > recordFor {
			return recorded, err
		}
		if wait == recordPauseMin {
			o.Log.Warn("outcome of a delivery not recorded yet", "effect_id", e.ID.String(), "error", err)
		}
		pause(ctx, wait)
		wait = min(2*wait, recordPauseMax)
	}
}

// flushOutcomes is one transaction: delivering effects become delivered, waiting, held, unknown or dead, their deliveries are
// closed, whoever is next at their destinations is woken, and the destinations' gates move. If the process dies before its commit, the effects are
// delivering still and the reaper decides; if after, all is said and every effect that waits has its wake-up, or is one
// of those the sweep finds.
func (o *Outbox) flushOutcomes(ctx context.Context, ends []*ending) ([]bool, error) {
	rows := make([]store.DeliveryEnd, len(ends))
	for i, e := range ends {
		rows[i] = e.DeliveryEnd
	}
	var ended map[task.ID]bool
	var moved *gate.Moved
	woken := 0
	err := o.transact(ctx, failpoint.OutcomeBeforeCommit, failpoint.OutcomeAfterCommit, func(tx pgx.Tx) (err error) {
		if ended, err = store.EndDeliveries(ctx, tx, rows); err != nil {
			return err
		}
		var seen []gate.Observation
		for _, e := range ends {
			if ended[e.ID] && e.seen != nil { // what was recorded before has been seen before
				seen = append(seen, *e.seen)
			}
		}
		if woken, err = o.wakeAfter(ctx, tx, ends, ended); err != nil {
			return err
		}
		if err := keepRest(ctx, tx, ends, ended); err != nil {
			return err
		}
		moved, err = o.Gates.Observe(ctx, tx, seen)
		return err
	})
	if err != nil {
		return nil, err
	}
	moved.Committed()
	if woken > 0 {
		o.notify(job.EffectQueue)
	}
	out := make([]bool, len(ends))
	for i, e := range ends {
		out[i] = ended[e.ID]
	}
	return out, nil
}

// wakeAfter deletes the wake-ups that are used up, writes those of the next tries, and wakes as many others of each
// destination as this process has places for.
func (o *Outbox) wakeAfter(ctx context.Context, tx pgx.Tx, ends []*ending, ended map[task.ID]bool) (woken int, err error) {
	var jobs []int64
	var wakes []store.EffectWake
	next := map[string]int{}
	for _, e := range ends {
		if !ended[e.ID] {
			continue
		}
		if e.jobID != nil {
			jobs = append(jobs, *e.jobID)
		}
		if e.To == api.EffectWaiting {
			wakes = append(wakes, store.EffectWake{ID: e.ID})
		}
		if _, counted := next[e.destination]; !counted {
			next[e.destination] = o.flights.free(e.destination, o.limit(e.destination))
		}
		next[e.destination]++ // the place this one is about to leave
	}
	if err := store.DeleteWakes(ctx, tx, jobs); err != nil {
		return 0, err
	}
	freed, err := store.AdvanceOrders(ctx, tx, finishedOrders(ends, ended))
	if err != nil {
		return 0, err
	}
	for d, n := range freed {
		next[d] = max(next[d], min(n, o.Window))
	}
	for d := range next {
		if !o.Gates.Open(gate.Destination(d)) {
			delete(next, d)
		}
	}
	own, err := store.WakeEffects(ctx, tx, wakes, job.EffectQueue, o.Window)
	if err != nil {
		return 0, err
	}
	others, err := store.WakeNextEffects(ctx, tx, next, job.EffectQueue)
	return own + others, err
}

// finishedOrders are the order keys of which an effect is delivered now.
func finishedOrders(ends []*ending, ended map[task.ID]bool) []store.OrderKey {
	seen := map[store.OrderKey]bool{}
	var keys []store.OrderKey
	for _, e := range ends {
		if e.order != nil && ended[e.ID] && e.To == api.EffectDelivered && !seen[*e.order] {
			seen[*e.order] = true
			keys = append(keys, *e.order)
		}
	}
	return keys
}

// keepRest looks at the endings that met no row. One whose delivery is closed by its own outcome was committed by an
// earlier try whose answer was lost; it counts as recorded. The others were fenced: what they learned goes onto their
// own delivery rows.
func keepRest(ctx context.Context, tx pgx.Tx, ends []*ending, ended map[task.ID]bool) error {
	var rest []*ending
	var fences []task.Fence
	for _, e := range ends {
		if !ended[e.ID] {
			rest, fences = append(rest, e), append(fences, e.Fence)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	before, err := store.RecordedDeliveries(ctx, tx, fences)
	if err != nil {
		return err
	}
	var late []store.LateDelivery
	for _, e := range rest {
		if before[e.ID] {
			ended[e.ID] = true
			continue
		}
		late = append(late, store.LateDelivery{
			Fence: e.Fence, Incarnation: e.owner, Number: e.number, Outcome: e.Outcome, Status: e.Status,
		})
	}
	if err := store.KeepLate(ctx, tx, late); err != nil {
		return err
	}
	return store.EmitMarker(ctx, tx) // so that the commit waits for the standbys as the first one did
}
