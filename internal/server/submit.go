package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

type submitParams struct {
	Waiting
	Prefer      string `header:"Prefer" doc:"wait=N holds the answer until the task has settled, at most N seconds (RFC 7240), up to 60." example:"wait=30"`
	Traceparent string `header:"traceparent" doc:"W3C trace context; its trace id is kept with the task."`
}

func (s *Server) submit(ctx context.Context, x *exchange, in *submitParams) (*answer, error) {
	hold, err := in.duration()
	if err != nil {
		return nil, err
	}
	granted, asked := preferred(x.r.Header)
	if asked && in.Wait == "" {
		hold = granted
	}
	key, sent, err := canon.Key(x.r.Header)
	if err != nil {
		return nil, keyError(err)
	}
	x.line.Add(slog.String(telemetry.KeyKey, key))
	body, err := x.body(maxSubmit, bodyTimeout)
	if err != nil {
		return nil, err
	}
	got, err := s.Submit.Submit(ctx, submit.Request{
		Tenant: x.who.Tenant, Key: key, KeySent: sent, Body: body, TraceID: x.traceID, Traceparent: x.traceparent, RequestID: x.id, Actor: x.who.Actor(),
		Client: x.r.RemoteAddr, UserAgent: x.r.UserAgent(),
	})
	if err != nil {
		return nil, keyError(err)
	}
	row := s.held(ctx, x, got.Row, hold)
	x.line.Add(slog.Bool("created", got.Created), slog.Bool("reopened", got.Reopened))
	a, err := s.submitted(ctx, x, got, row)
	if err != nil {
		return nil, err
	}
	if asked && in.Wait == "" {
		a.set("Preference-Applied", "wait="+strconv.Itoa(int(hold/time.Second)))
	}
	return a, nil
}

// held is the task after the wait asked for. It is committed already, so that
// nothing which goes wrong while Waiting is an error of the submit.
func (s *Server) held(ctx context.Context, x *exchange, row *task.Row, hold time.Duration) *task.Row {
	if hold <= 0 || row.State.Settled() {
		return row
	}
	began := time.Now()
	later, err := s.await(ctx, row.Tenant, row.ID, hold)
	x.line.Add(slog.Duration("waited_ms", time.Since(began)))
	if err != nil || later == nil {
		return row
	}
	return later
}

func (s *Server) submitted(ctx context.Context, x *exchange, got submit.Answer, row *task.Row) (*answer, error) {
	t := wire(row)
	created := got.Created
	t.Created, t.Reopened = &created, got.Reopened
	x.about(t)
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	a, err := taskAnswer(status, t)
	if err != nil {
		return nil, err
	}
	switch {
	case created:
		a.set("Location", "/v1/tasks/"+t.ID)
	case !got.Reopened:
		a.set("Idempotent-Replayed", "true")
		x.line.Add(slog.Bool("replayed", true))
	}
	s.hint(ctx, a, row)
	return a, nil
}

// keyError names the key's header in an error that is about the key.
func keyError(err error) error {
	err = submission.CanonError(err)
	var e *api.Error
	if errors.As(err, &e) && e.Field == "" && strings.HasPrefix(string(e.Code), "key_") && e.Code != api.CodeKeyReused {
		return e.WithField(canon.Header)
	}
	return err
}
