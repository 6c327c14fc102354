package batch

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batchfile"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// releaseBytes bounds the texts of the lines handed over in one transaction.
const releaseBytes = 8 << 20

// release hands over the next lines, as many as the queue has room for. Each
// becomes the task whose id was chosen when it was staged, or meets the task
// that has its key. Before the commit nothing of it is there; after it the tasks
// run, and the lines are not handed over again.
func (s *Service) release(ctx context.Context, tx pgx.Tx, b *store.Batch) (queues []string, err error) {
	waiting, err := store.BacklogOf(ctx, tx, b, s.Opts.Backlog)
	if err != nil || waiting >= s.Opts.Backlog {
		return nil, err
	}
	let, err := s.Quotas.Room(ctx, b.Tenant, min(s.Opts.Backlog-waiting, s.Opts.Chunk))
	if err != nil || let.N == 0 {
		return nil, err // its tenant is over a quota: the lines wait
	}
	r := &releasing{s: s, tx: tx, b: b, form: batchfile.Form{Name: b.Form, BatchKey: b.Key, Kind: b.Kind}}
	defer func() { let.Settle(r.created) }()
	lines, err := store.NextLines(ctx, tx, b, let.N, releaseBytes)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		b.Released = b.LastLine
		return nil, nil
	}
	for _, l := range lines {
		if _, ok := s.Kinds.Newest(l.Kind); !ok {
			// Its configuration is younger or older than this process's: another
			// one hands it over.
			s.Log.Warn("a line's kind is not known here", "batch_id", b.ID, "kind", l.Kind)
			break
		}
		r.sort(l)
	}
	if len(r.done) == 0 {
		return nil, nil
	}
	if err := r.submit(ctx); err != nil {
		return nil, err
	}
	if err := r.rerun(ctx); err != nil {
		return nil, err
	}
	if err := store.UpdateLines(ctx, tx, b.ID, r.changed); err != nil {
		return nil, err
	}
	if err := store.DeleteBodies(ctx, tx, b.ID, r.done); err != nil {
		return nil, err
	}
	b.Released = r.done[len(r.done)-1]
	return r.queues, failpoint.Hit(failpoint.BatchReleaseBeforeCommit)
}

// releasing is one release under way.
type releasing struct {
	s    *Service
	tx   pgx.Tx
	b    *store.Batch
	form batchfile.Form

	fresh    []store.Line // to be submitted, with requests beside
	requests []submit.Request
	again    []store.Line // failed in an earlier run
	done     []int32
	changed  []store.Line
	queues   []string
	created  int // tasks that were not there
}

// sort decides what a line asks for.
func (r *releasing) sort(l store.Line) {
	r.done = append(r.done, l.Number)
	if l.Body == nil {
		if l.State == lineFailed || l.State == lineExpired {
			r.again = append(r.again, l)
		}
		return
	}
	_, wish, bad, refuse := r.form.Read(batchfile.Line{Number: int(l.Number), Text: l.Body, Ended: true})
	if refuse != nil {
		bad = asError(refuse)
	}
	if bad != nil {
		r.refuse(l, bad)
		return
	}
	q := asked(wish, r.b.Tenant)
	q.ID, q.Batch, q.Before, q.TraceID, q.Traceparent, q.Actor = &l.TaskID, &r.b.ID, r.b.Deadline, r.b.TraceID, r.b.Traceparent, "batch"
	r.fresh, r.requests = append(r.fresh, l), append(r.requests, q)
}

func (r *releasing) submit(ctx context.Context) error {
	out, queues, err := submit.InTx(ctx, r.tx, r.s.Submit.Rules(), r.requests)
	if err != nil {
		return err
	}
	r.queues = queues
	for i, o := range out {
		l := r.fresh[i]
		if o.Created {
			r.created++
		}
		var told *api.Error
		switch {
		case errors.As(o.Err, &told):
			r.refuse(l, told)
			continue
		case o.Row.ID != l.TaskID:
			l.TaskID, l.Folded = o.Row.ID, true
		case l.State == lineOpen:
			continue // nothing to write: it stands as it was staged
		}
		l.State, l.Run = lineOpen, r.b.Run
		r.changed = append(r.changed, l)
	}
	return nil
}

// refuse settles a line that cannot become a task.
func (r *releasing) refuse(l store.Line, why *api.Error) {
	r.b.Finished++
	l.State, l.Run, l.Finished = lineInvalid, r.b.Run, r.b.Finished
	l.Code, l.Message, l.Field = string(why.Code), why.Message, why.Field
	r.changed = append(r.changed, l)
}

// rerun runs the tasks of failed lines again, each under the newest
// configuration of its kind.
func (r *releasing) rerun(ctx context.Context) error {
	if len(r.again) == 0 {
		return nil
	}
	ids := make([]task.ID, len(r.again))
	for i, l := range r.again {
		ids[i] = l.TaskID
	}
	rows, err := store.LockTasks(ctx, r.tx, ids, false)
	if err != nil {
		return err
	}
	there := make(map[task.ID]*task.Row, len(rows))
	for _, row := range rows {
		there[row.ID] = row
	}
	ids = ids[:0]
	for _, l := range r.again {
		l.Run = r.b.Run
		row := there[l.TaskID]
		if row != nil && !(row.State == api.Failed && row.PayloadPurgedAt != nil) {
			l.State = lineOpen // what became of its task meanwhile is collected
		}
		if l.State == lineOpen && row.State == api.Failed {
			kind, _ := r.s.Kinds.Newest(l.Kind)
			queue, err := r.s.Submit.Rerun(ctx, r.tx, row, kind)
			if err != nil {
				return err
			}
			r.queues = append(r.queues, queue)
			r.created++ // it waits again
			if row.BatchID != nil && *row.BatchID == r.b.ID {
				ids = append(ids, row.ID)
			}
		}
		r.changed = append(r.changed, l)
	}
	return store.SetDeadlines(ctx, r.tx, ids, *r.b.Deadline)
}
