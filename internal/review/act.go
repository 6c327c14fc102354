package review

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// typeSQL is the type of effects that are done in the database itself.
const typeSQL = "sql"

// actWithin bounds one act.
const actWithin = 15 * time.Second

// moves are the states an act on an effect leads to.
var moves = map[api.ReviewAction]api.EffectState{
	api.ReviewRedeliver: api.EffectWaiting, api.ReviewDiscard: api.EffectDiscarded, api.ReviewDelivered: api.EffectDelivered,
}

// Effect does something about one effect that stands as it was seen, and returns
// it as it stands then: redeliver has it sent again under the same id, signed
// anew; discard says that it is never to be sent; delivered, of one whose outcome
// is unknown, that it arrived. The same act for the same epoch changes nothing
// the second time and is answered the same. Errors: not_found, conflict when the
// effect has moved since or the act does not fit its state.
//
// If the process dies before the commit nothing has happened; after it the act is
// done and audited, whether or not anyone hears of it, and an effect that is to
// be sent has its wake-up or is one of those the sweep finds.
func (s *Service) Effect(ctx context.Context, a submit.Act, action api.ReviewAction) (*store.Effect, error) {
	to, ok := moves[action]
	switch {
	case !ok:
		return nil, api.Errorf(api.CodeInvalidField, "an effect can be redelivered, discarded, or resolved as delivered").WithField("action")
	case a.Reason == "":
		return nil, api.Errorf(api.CodeInvalidField, "reason is missing").WithField("reason").WithFix("Say in a few words how you know.")
	case a.Epoch == nil:
		return nil, api.Errorf(api.CodeInvalidField, "epoch is missing").WithField("epoch").
			WithFix("Send the epoch of the effect you read, so that nothing is decided on an old state.")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), actWithin)
	defer cancel()
	var woken bool
	err := submit.Again(ctx, func() (err error) {
		woken, err = s.actOnce(ctx, a, action, to)
		return err
	})
	if err == nil {
		err = failpoint.Hit(failpoint.EffectActAfterCommit)
	}
	if err != nil {
		return nil, s.failed(err)
	}
	if woken {
		s.Notifier.Queues(job.EffectQueue)
	}
	e, err := store.EffectByID(ctx, s.Pool, a.Tenant, a.ID)
	if err != nil {
		return nil, s.failed(err)
	}
	if e == nil {
		return nil, notFound()
	}
	return e, nil
}

func (s *Service) actOnce(ctx context.Context, a submit.Act, action api.ReviewAction, to api.EffectState) (woken bool, err error) {
	err = pgx.BeginTxFunc(ctx, s.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		e, err := store.LockEffect(ctx, tx, a.ID)
		if err != nil {
			return err
		}
		if e == nil || a.Tenant != "" && e.Tenant != a.Tenant {
			return notFound()
		}
		done, err := seen(ctx, tx, a, action, e)
		if done || err != nil {
			return err
		}
		if !slices.Contains(effectActions(e.State, e.Type, e.Epoch), action) {
			return unfit(e, action)
		}
		if e.Type == typeSQL && to == api.EffectWaiting {
			if broken := s.Outbox.RunStored(ctx, tx, e.Name, e.Body); broken != nil {
				return conflict(e, "the statement still fails: %s", broken.Message).WithFix("Mend what the message names, then redeliver again.")
			}
			to = api.EffectDelivered
		}
		if woken, err = s.move(ctx, tx, e, to); err != nil {
			return err
		}
		err = store.InsertAudit(ctx, tx, store.AuditEntry{
			Tenant: e.Tenant, Actor: a.Actor, Action: string(action), TargetType: "effect", TargetID: e.ID.String(), Reason: a.Reason,
			RequestID: a.RequestID, Details: map[string]string{"from": string(e.State), "epoch": strconv.FormatInt(e.Epoch, 10)},
		})
		if err != nil {
			return err
		}
		return failpoint.Hit(failpoint.EffectActBeforeCommit)
	})
	return woken, err
}

// move moves the effect, takes its wake-up, and wakes what may go now: itself, or
// the next of its order.
func (s *Service) move(ctx context.Context, tx pgx.Tx, e *store.LockedEffect, to api.EffectState) (woken bool, err error) {
	moved, err := store.MoveEffect(ctx, tx, e.ID, e.State, e.Epoch, to)
	if err != nil {
		return false, err
	}
	if !moved {
		return false, conflict(e, "the effect moved meanwhile")
	}
	if e.JobID != nil {
		if err := store.DeleteWakes(ctx, tx, []int64{*e.JobID}); err != nil {
			return false, err
		}
	}
	var n, more int
	if e.Order != "" {
		freed, err := store.AdvanceOrders(ctx, tx, []store.OrderKey{{Tenant: e.Tenant, Destination: e.Destination, Key: e.Order}})
		if err != nil {
			return false, err
		}
		if more, err = store.WakeNextEffects(ctx, tx, freed, job.EffectQueue); err != nil {
			return false, err
		}
	} else if to == api.EffectWaiting {
		if n, err = store.WakeEffects(ctx, tx, []store.EffectWake{{ID: e.ID}}, job.EffectQueue, s.Outbox.Window); err != nil {
			return false, err
		}
	}
	return n+more > 0, nil
}

// seen refuses an act decided on another state of the effect than it has, but for
// the same act that was done to that state before.
func seen(ctx context.Context, tx pgx.Tx, a submit.Act, action api.ReviewAction, e *store.LockedEffect) (done bool, err error) {
	if *a.Epoch == e.Epoch {
		return false, nil
	}
	was, _, err := store.ActDone(ctx, tx, "effect", e.ID.String(), *a.Epoch)
	if err != nil || was == string(action) {
		return err == nil, err
	}
	return false, conflict(e, "the effect is at epoch %d, the act is for %d", e.Epoch, *a.Epoch)
}

func unfit(e *store.LockedEffect, action api.ReviewAction) error {
	c := conflict(e, "a %s effect cannot be %s", e.State, map[api.ReviewAction]string{
		api.ReviewRedeliver: "redelivered", api.ReviewDiscard: "discarded", api.ReviewDelivered: "resolved",
	}[action])
	switch {
	case e.State == api.EffectDelivering:
		return c.WithFix("It is being delivered: wait until that is over.")
	case e.State == api.EffectHeld:
		return c.WithFix("Release its destination, and it goes on by itself.")
	case e.State == api.EffectDead && action == api.ReviewRedeliver:
		return c.WithFix("There is nothing to send: it could not be made (%s). Discard it, and submit what it was to do.", e.ErrorCode)
	}
	return c
}

func notFound() error { return api.Errorf(api.CodeNotFound, "there is no such effect") }

func conflict(e *store.LockedEffect, format string, args ...any) *api.Error {
	c := api.Errorf(api.CodeConflict, format, args...)
	c.TaskID = e.TaskID.String()
	return c
}

// failed turns a database that is away into the caller's "try again".
func (s *Service) failed(err error) error {
	var e *api.Error
	if errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) && !store.Away(err) {
		return err
	}
	s.Log.Warn("database away", "error", err)
	return api.Errorf(api.CodeUnavailable, "the database cannot be reached").WithRetryAfter(2 * time.Second)
}

// Acted is what came of one act among many.
type Acted struct {
	ID     task.ID
	Effect *store.Effect // nil for a task
	Task   *task.Row     // nil for an effect
	Err    error
}

// Any does something about an item, whatever it is: an effect, or a task by
// [submit.Service].
func (s *Service) Any(ctx context.Context, a submit.Act, action api.ReviewAction) Acted {
	out := Acted{ID: a.ID}
	e, err := store.EffectByID(ctx, s.Pool, a.Tenant, a.ID)
	switch {
	case err != nil:
		out.Err = s.failed(err)
	case e != nil:
		out.Effect, out.Err = s.Effect(ctx, a, action)
	default:
		out.Task, out.Err = s.task(ctx, a, action)
	}
	return out
}

// task does something about a task. To discard it is to cancel it, or to leave
// it failed for good.
func (s *Service) task(ctx context.Context, a submit.Act, action api.ReviewAction) (*task.Row, error) {
	row, err := store.Task(ctx, s.Pool, a.Tenant, a.ID)
	if err != nil {
		return nil, s.failed(err)
	}
	if row == nil || row.Expired() {
		return nil, api.Errorf(api.CodeNotFound, "there is no such task or effect")
	}
	how := submit.Resolution{Action: string(action)}
	switch action {
	case api.ReviewRetry:
		return s.Submit.Retry(ctx, a)
	case api.ReviewFailed, api.ReviewFinish:
		return s.Submit.Resolve(ctx, a, how)
	case api.ReviewDiscard:
		if row.State == api.Failed {
			how.Action = string(api.ReviewFailed)
			return s.Submit.Resolve(ctx, a, how)
		}
		if row.State == api.Running {
			return nil, api.Errorf(api.CodeConflict, "a running task cannot be discarded").WithFix("Cancel it.")
		}
		return s.Submit.Cancel(ctx, a)
	}
	return nil, api.Errorf(api.CodeInvalidField, "a task cannot be %sed", action).WithField("action").
		WithFix("Of a task use failed, retry, finish or discard; redeliver and delivered are for effects.")
}
