package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

type getParams struct {
	ByID
	Waiting
	Include     string `query:"include" enum:"queue" doc:"queue: the approximate place in the tenant's own queue."`
	IfNoneMatch string `header:"If-None-Match" doc:"An ETag from before; 304 while it still holds."`
}

func (s *Server) get(ctx context.Context, x *exchange, in *getParams) (*answer, error) {
	id, err := s.which(ctx, x, in.ByID)
	if err != nil {
		return nil, err
	}
	hold, err := in.duration()
	if err != nil {
		return nil, err
	}
	row, err := s.find(ctx, x.who.Tenant, id, hold)
	if err != nil {
		return nil, err
	}
	t := wire(row)
	x.about(t)
	if in.Include == "queue" && row.State == api.Pending {
		// The place moves with everybody else's tasks, so no ETag covers it.
		if t.Queue, err = s.place(ctx, row); err != nil {
			return nil, err
		}
		return s.polled(ctx, row, t, "")
	}
	tag, err := etag(row)
	if err != nil {
		return nil, err
	}
	if fresh(x.r.Header, tag) {
		a := &answer{status: http.StatusNotModified}
		a.set("ETag", tag)
		s.hint(ctx, a, row)
		return a, nil
	}
	return s.polled(ctx, row, t, tag)
}

func (s *Server) polled(ctx context.Context, row *task.Row, t *api.Task, tag string) (*answer, error) {
	a, err := taskAnswer(http.StatusOK, t)
	if err != nil {
		return nil, err
	}
	if tag != "" {
		a.set("ETag", tag)
	}
	s.hint(ctx, a, row)
	return a, nil
}

// hint says when to ask again, unless there is nothing to wait for.
func (s *Server) hint(ctx context.Context, a *answer, row *task.Row) {
	if !row.State.Settled() {
		a.retryAfter(s.latency.next(ctx, row))
	}
}

// find reads a task of the tenant, after it has settled or the time is over.
func (s *Server) find(ctx context.Context, tenant string, id task.ID, hold time.Duration) (*task.Row, error) {
	var row *task.Row
	var err error
	if hold > 0 {
		row, err = s.await(ctx, tenant, id, hold)
	} else {
		row, err = s.read(ctx, tenant, id)
	}
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, s.missing(ctx, tenant, id)
	}
	if row.Expired() {
		return nil, expired(tombstone(row))
	}
	return row, nil
}

func (s *Server) read(ctx context.Context, tenant string, id task.ID) (*task.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return store.Task(ctx, s.DB, tenant, id)
}

// await waits through the process's one waiter, which reads tasks of any
// tenant: another's is as good as none.
func (s *Server) await(ctx context.Context, tenant string, id task.ID, hold time.Duration) (*task.Row, error) {
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Stopping, cancel)()
	began := time.Now()
	defer func() { pollWait.WithLabelValues().Observe(time.Since(began).Seconds()) }()
	foreign := func(r *task.Row) bool { return tenant != "" && r.Tenant != tenant }
	row, err := s.Wait.Wait(wctx, id, func(r *task.Row) bool { return foreign(r) || r.State.Settled() }, hold)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && (wctx.Err() != nil || errors.Is(err, context.Canceled)): // the server stops: what is known now is the answer
		if row == nil {
			return s.read(ctx, tenant, id)
		}
	case err != nil:
		return nil, err
	}
	if row == nil || foreign(row) {
		return nil, nil
	}
	if row.ResultHash != nil && row.Result == nil && row.PayloadPurgedAt == nil {
		return s.read(ctx, tenant, id) // too large to be read for many at once
	}
	return row, nil
}

// missing is the error for an id without a task: it may have been purged.
func (s *Server) missing(ctx context.Context, tenant string, id task.ID) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	tomb, err := store.TombstoneOf(ctx, s.DB, tenant, id)
	if err != nil {
		return err
	}
	if tomb == nil {
		return noTask()
	}
	return expired(api.Tombstone{
		State: tomb.State, ErrorCode: tomb.ErrorCode, ResultHash: hexOf(tomb.ResultHash), PurgedAt: utc(&tomb.PurgedAt),
	})
}

type rawParams struct {
	ByID
	IfNoneMatch string `header:"If-None-Match" doc:"An ETag from before; 304 while it still holds."`
}

func (s *Server) input(ctx context.Context, x *exchange, in *rawParams) (*answer, error) {
	id, err := s.which(ctx, x, in.ByID)
	if err != nil {
		return nil, err
	}
	row, err := s.find(ctx, x.who.Tenant, id, 0)
	if err != nil {
		return nil, err
	}
	rctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	input, found, err := store.TaskInput(rctx, s.DB, x.who.Tenant, id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, s.missing(ctx, x.who.Tenant, id)
	}
	if input == nil {
		return nil, purged(row, "input")
	}
	return bytesAnswer(x, strongTag(row.InputHash), input), nil
}

func (s *Server) result(ctx context.Context, x *exchange, in *rawParams) (*answer, error) {
	id, err := s.which(ctx, x, in.ByID)
	if err != nil {
		return nil, err
	}
	row, err := s.find(ctx, x.who.Tenant, id, 0)
	if err != nil {
		return nil, err
	}
	x.about(wire(row))
	if row.ResultHash == nil {
		return nil, noResult(row)
	}
	if row.Result == nil {
		return nil, purged(row, "result")
	}
	return bytesAnswer(x, strongTag(row.ResultHash), row.Result), nil
}

// noResult says why a task has none.
func noResult(row *task.Row) error {
	e := api.Errorf(api.CodeNotFinished, "the task is %s and has no result yet", row.State)
	if row.State.Settled() {
		e = api.Errorf(api.CodeNotFinished, "the task %s and has no result", was(row.State)).
			WithFix("Read the task: its error says why there is none.")
	}
	if row.State == api.Unknown {
		e = api.Errorf(api.CodeNotFinished, "the outcome of the task is unknown; it has no result yet").
			WithFix("A person or a check decides; see the task's error.")
	}
	e.TaskID = row.ID.String()
	return e
}

func purged(row *task.Row, what string) error {
	e := api.Errorf(api.CodeResultExpired, "the %s was purged before the key", what)
	e.TaskID = row.ID.String()
	t := tombstone(row)
	e.Tombstone = &t
	return e
}

// tombstone is what is told of a row whose payload is gone or about to go.
func tombstone(row *task.Row) api.Tombstone {
	return api.Tombstone{State: row.State, ErrorCode: row.ErrorCode, ResultHash: hexOf(row.ResultHash), PurgedAt: utc(row.PayloadPurgedAt)}
}

func bytesAnswer(x *exchange, tag string, body []byte) *answer {
	a := &answer{status: http.StatusOK, body: body}
	if fresh(x.r.Header, tag) {
		a = &answer{status: http.StatusNotModified}
	}
	a.set("ETag", tag)
	return a
}
