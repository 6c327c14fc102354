package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// ending is an attempt's end on its way into the database.
type ending struct {
	a    *attempt
	end  store.Ending
	at   store.AttemptEnd
	news []gate.Observation // what the call says of its provider
	park bool               // pending, and without a wake-up until the gate opens
}

// outcomeCancelled closes an attempt whose reply came after its task was to be
// cancelled.
const outcomeCancelled = "cancelled"

// reply is the whole reply of the call, or what its result was made of.
func (e *ending) reply() []byte {
	if e.at.Reply != nil {
		return e.at.Reply
	}
	return e.end.Result
}

func (e *ending) size() int { return len(e.end.Result) + len(e.at.Reply) + len(e.at.Partial) }

// Pauses between tries to write an ending while the database is away, and how
// often effects that fail for a passing reason are tried again.
const (
	endPause    = 200 * time.Millisecond
	effectTries = 4
	// mostTries bounds the tries against a database that is there and refuses:
	// then the task is left to the reaper, which finds it owned and not held.
	mostTries = 25
	// lateFor is how long a reply that was fenced is tried to be kept.
	lateFor = 2 * time.Minute
)

// end writes an ending, for as long as this incarnation lives; then the reaper
// has the task, and only the reply is kept, on its own attempt row.
func (w *Worker) end(a *attempt, e *ending) {
	if e == nil {
		fencedTotal.WithLabelValues("finish").Inc()
		a.line.Add(slog.Bool("fenced", true))
		return
	}
	a.line.Add(slog.String("outcome", e.at.Outcome), slog.String("code", e.at.Code), slog.String("phase", e.at.Phase),
		slog.Int64("first_byte_ms", e.at.FirstByte.Milliseconds()), slog.Int64("total_ms", e.at.Total.Milliseconds()),
		slog.String("model", e.at.Model), slog.Int64("input_tokens", e.at.Usage.InputTokens), slog.Int64("output_tokens", e.at.Usage.OutputTokens),
		slog.String("billed", string(e.at.Billed)))
	span := w.traceFinish(a)
	done, err := w.write(a, e)
	a.finished(span, e, done, err)
	switch {
	case err != nil:
		a.line.Fail(err)
		w.keep(a, e)
	case done == nil:
		fencedTotal.WithLabelValues("finish").Inc()
		a.line.Add(slog.Bool("fenced", true))
		w.keep(a, e)
	default:
		a.line.Add(slog.String("state", string(done.State)))
	}
}

// write tries until the ending is committed, refused by its fence, or too late.
func (w *Worker) write(a *attempt, e *ending) (*store.Ended, error) {
	for try := 0; ; try++ {
		done, err := w.once(e)
		var broken *outbox.EffectError
		switch {
		case err == nil && done != nil:
			return done, nil
		case err == nil:
			return w.reread(a, e)
		case errors.As(err, &broken) && e.end.To == api.Succeeded && (broken.Permanent || try >= effectTries):
			e = finishFailed(e, broken)
			continue
		case store.DataError(err) && e.end.To != api.Unknown:
			e = finishFailed(e, &outbox.EffectError{Message: "the result could not be stored (SQLSTATE " + store.SQLState(err) + ")"})
			e.end.Result, e.at.Kept, e.at.Partial = nil, nil, nil
			continue
		case a.inc.Ctx.Err() != nil || try >= mostTries && !store.Away(err):
			return nil, err
		}
		w.Log.Warn("finish not written yet", "task_id", a.row.ID, "error", err)
		select {
		case <-a.inc.Ctx.Done():
		case <-time.After(endPause):
		}
	}
}

// once writes an ending in a group, or alone where its effects run statements
// in the same transaction.
func (w *Worker) once(e *ending) (*store.Ended, error) {
	if outbox.Alone(e.a.kind, e.end.To, e.a.row, e.at.Effects) || outbox.Alone(e.a.kind, api.Cancelled, e.a.row, nil) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		out, err := w.endIn(ctx, w.EffectsDB, []*ending{e})
		if err != nil {
			return nil, err
		}
		return out[0], nil
	}
	return w.ends.Do(context.Background(), e)
}

// reread decides what an ending that moved no row means: an earlier try of it
// had committed, or the fence refused it.
func (w *Worker) reread(a *attempt, e *ending) (*store.Ended, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	closed, err := store.ClosedAs(ctx, w.Pool, a.fence)
	if err != nil {
		return nil, err
	}
	if closed == e.at.Outcome || closed == outcomeCancelled {
		return &store.Ended{State: e.end.To}, nil
	}
	return nil, nil
}

// finishFailed turns an ending whose effects cannot be stored into unknown, the
// result kept on its attempt.
func finishFailed(e *ending, broken *outbox.EffectError) *ending {
	f := *e
	f.at.Kept = e.end.Result
	f.end.To, f.end.Code, f.end.Result, f.end.ResultHash = api.Unknown, string(api.CodeFinishFailed), nil, nil
	f.end.Message = broken.Message
	if broken.Name != "" {
		f.end.Message = "effect " + broken.Name + ": " + broken.Message
	}
	return &f
}

func (w *Worker) endGroup(ctx context.Context, all []*ending) ([]*store.Ended, error) {
	return w.endIn(ctx, w.Pool, all)
}

// endIn is one flush: tasks leave running, their attempts are closed, and the
// effects of the outcomes are there or not with them.
//
// Before the commit nothing has happened: the calls were made and the ledger
// says so by an open attempt; the reaper closes it as lost. After it result,
// ledger, effects and wake-ups are there together, whether or not anyone hears.
func (w *Worker) endIn(ctx context.Context, db *pgxpool.Pool, all []*ending) ([]*store.Ended, error) {
	var ended map[task.ID]store.Ended
	var queues []string
	var moved *gate.Moved
	err := pgx.BeginTxFunc(ctx, db, store.ReadCommitted, func(tx pgx.Tx) error {
		var err error
		if ended, queues, err = w.endTx(ctx, tx, all); err != nil {
			return err
		}
		moved, err = w.Gates.Observe(ctx, tx, news(all))
		return err
	})
	if err != nil {
		return nil, err
	}
	moved.Committed()
	out := make([]*store.Ended, len(all))
	for i, e := range all {
		d, ok := ended[e.end.ID]
		if !ok {
			continue
		}
		out[i] = &d
		e.count()
		if d.State != api.Pending {
			outbox.CountSettled(e.a.row.Kind, d.State)
			w.Notifier.Settled(e.end.ID)
		}
	}
	w.Notifier.Queues(queues...)
	if err := failpoint.Hit(failpoint.FinishAfterCommit); err != nil {
		return nil, err
	}
	return out, nil
}

func (w *Worker) endTx(ctx context.Context, tx pgx.Tx, all []*ending) (map[task.ID]store.Ended, []string, error) {
	if err := failpoint.Hit(failpoint.FinishBeforeUpdate); err != nil {
		return nil, nil, err
	}
	again := requeued(all)
	if len(again) > 0 {
		jobs, err := store.NextJobIDs(ctx, tx, len(again))
		if err != nil {
			return nil, nil, err
		}
		for i, e := range again {
			e.end.JobID = &jobs[i]
		}
	}
	moves := make([]store.Ending, len(all))
	for i, e := range all {
		moves[i] = e.end
	}
	ended, err := store.EndTasks(ctx, tx, moves)
	if err != nil {
		return nil, nil, err
	}
	if err := failpoint.Hit(failpoint.FinishAfterUpdate); err != nil {
		return nil, nil, err
	}
	if err := account(ctx, tx, all, ended); err != nil {
		return nil, nil, err
	}
	queues, err := w.after(ctx, tx, all, ended)
	if err != nil {
		return nil, nil, err
	}
	if len(again) > 0 {
		if err := failpoint.Hit(failpoint.RequeueBeforeCommit); err != nil {
			return nil, nil, err
		}
	}
	return ended, queues, failpoint.Hit(failpoint.FinishAfterEffects)
}

func requeued(all []*ending) []*ending {
	var out []*ending
	for _, e := range all {
		if e.end.To == api.Pending && !e.park {
			out = append(out, e)
		}
	}
	return out
}

// after writes what depends on the ids that passed their fence: the ledger, the
// effects, the wake-ups.
func (w *Worker) after(ctx context.Context, tx pgx.Tx, all []*ending, ended map[task.ID]store.Ended) ([]string, error) {
	b := &pgx.Batch{}
	var settled []outbox.Settled
	var old []int64
	var wakes []store.Wake
	queues := map[string]bool{}
	for _, e := range all {
		d, ok := ended[e.end.ID]
		if !ok {
			continue
		}
		r := e.a.row
		if r.JobID != nil {
			old = append(old, *r.JobID)
		}
		at := e.at
		if d.State == api.Cancelled && e.end.Result != nil {
			// It came too late: never shown as the result, but not thrown away.
			at.Outcome, at.Late, at.Reply, at.Orphaned = outcomeCancelled, e.reply(), nil, true
		}
		store.QueueCloseAttempt(b, e.end.Fence, at)
		if e.a.resumed && at.JobOver {
			store.QueueSettleJob(b, e.end.Fence, e.a.job)
		}
		if d.State == api.Pending && e.park {
			continue
		}
		if d.State == api.Pending {
			w := store.Wake{JobID: *e.end.JobID, ID: r.ID, Queue: job.Queue(r.Provider), Virtual: r.VirtualAt}
			if e.end.After > 0 {
				when := d.RunAt
				w.At = &when
			} else {
				queues[w.Queue] = true
			}
			wakes = append(wakes, w)
			continue
		}
		settled = append(settled, outbox.Settled{Row: e.settledRow(d), Kind: e.a.kind, Answered: e.at.Effects})
	}
	if err := store.RunBatch(ctx, tx, b); err != nil {
		return nil, err
	}
	if err := store.DeleteWakes(ctx, tx, old); err != nil {
		return nil, err
	}
	if err := store.InsertWakes(ctx, tx, store.WakeTask, wakes); err != nil {
		return nil, err
	}
	out, err := w.Outbox.Settle(ctx, tx, settled)
	for q := range queues {
		out = append(out, q)
	}
	return out, err
}

// settledRow is the task's row as it stands after the move.
func (e *ending) settledRow(d store.Ended) *task.Row {
	r := *e.a.row
	r.State, r.Owner, r.Token, r.FinishedAt = d.State, nil, nil, d.FinishedAt
	if d.State == api.Cancelled {
		return &r
	}
	r.Result, r.ResultHash, r.FinishReason, r.Truncated = e.end.Result, e.end.ResultHash, e.end.FinishReason, e.end.Truncated
	r.ErrorCode, r.ErrorMessage = e.end.Code, e.end.Message
	if d.State == api.Failed {
		r.ErrorPermanent = &e.end.Permanent
	}
	return &r
}

// keep stores a reply that came too late, on the attempt of its own epoch.
func (w *Worker) keep(a *attempt, e *ending) {
	at := e.at
	if at.Late = e.reply(); at.Late == nil && at.Partial == nil {
		return
	}
	until := time.Now().Add(lateFor)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := failpoint.Hit(failpoint.LateBeforeKeep)
		if err == nil {
			err = store.KeepLateResult(ctx, w.Pool, a.row, a.fence, a.owner, at)
		}
		cancel()
		if err == nil || store.DataError(err) || time.Now().After(until) {
			if err != nil {
				w.Log.Error("late result not kept", "task_id", a.row.ID, "error", err)
			}
			return
		}
		time.Sleep(time.Second)
	}
}
