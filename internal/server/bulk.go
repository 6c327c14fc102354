package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// bulkBody is api.Bulk as the description shows it.
type bulkBody struct {
	Tasks []api.Keyed `json:"tasks" minItems:"1" maxItems:"1000" doc:"The tasks, each with its key."`
}

func (s *Server) bulk(ctx context.Context, x *exchange, _ *none) (*answer, error) {
	body, err := x.body(maxSubmit, bodyTimeout)
	if err != nil {
		return nil, err
	}
	items, err := list(body, "tasks", api.MaxBulk)
	if err != nil {
		return nil, err
	}
	requests := make([]submit.Request, len(items))
	for i, item := range items {
		requests[i] = submit.Request{Tenant: x.who.Tenant, Keyed: true, Body: item, TraceID: x.traceID, Traceparent: x.traceparent, RequestID: x.id, Actor: x.who.Actor(), Client: x.r.RemoteAddr, UserAgent: x.r.UserAgent()}
	}
	all := s.Submit.Many(ctx, requests)
	if e, ok := submit.Unavailable(all); ok {
		return nil, e
	}
	counts := map[string]int{}
	out := []byte(`{"items":[`)
	for i, o := range all {
		if i > 0 {
			out = append(out, ',')
		}
		item := s.bulkItem(x, o, counts)
		if out, err = item.Append(out); err != nil {
			return nil, err
		}
	}
	x.line.Add(slog.Int("tasks", len(all)), slog.Int("created", counts["created"]), slog.Int("replayed", counts["replayed"]), slog.Int("refused", counts["refused"]))
	return &answer{status: http.StatusOK, body: append(out, "]}\n"...)}, nil
}

func (s *Server) bulkItem(x *exchange, o submit.Outcome, counts map[string]int) api.BulkItem {
	if o.Err != nil {
		counts["refused"]++
		e := *s.caller(x, o.Err)
		e.RequestID = x.id
		item := api.BulkItem{Status: e.Status, Error: &e}
		if e.RetryAfter > 0 {
			item.RetryAfter = wholeSeconds(e.RetryAfter)
		}
		return item
	}
	t := wire(o.Row)
	created := o.Created
	t.Created, t.Reopened = &created, o.Reopened
	if created {
		counts["created"]++
		return api.BulkItem{Status: http.StatusAccepted, Task: t}
	}
	counts["replayed"]++
	return api.BulkItem{Status: http.StatusOK, Task: t}
}

// list reads a body that is an object with one member, an array of at most most
// values. The values are as they stood there and not looked into: each is judged
// on its own.
func list(body []byte, name string, most int) ([]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, notAnObject(err)
	}
	var values []json.RawMessage
	for seen := false; d.More(); seen = true {
		member, err := d.Token()
		if err != nil {
			return nil, notAnObject(err)
		}
		if member != name {
			return nil, api.Errorf(api.CodeUnknownField, "the body has a field that does not exist").
				WithField(printable(fmt.Sprint(member))).WithFix("Remove it. The one field is %s.", name)
		}
		if seen {
			return nil, api.Errorf(api.CodeDuplicateMember, "%s stands twice in the body", name).WithField(name)
		}
		if err := d.Decode(&values); err != nil {
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, notAnObject(err)
			}
			values = nil // another type than an array, told below
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, notAnObject(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, api.Errorf(api.CodeTrailingData, "something follows the JSON value")
	}
	if len(values) == 0 || len(values) > most {
		return nil, api.Errorf(api.CodeInvalidField, "%s is not an array of 1 to %d elements", name, most).WithField(name)
	}
	return values, nil
}

func notAnObject(err error) error {
	e := api.Errorf(api.CodeInvalidJSON, "the body is not one well-formed JSON object")
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		e.Message += fmt.Sprintf(" (byte %d)", syntax.Offset)
	}
	return e
}

type waitAnyParams struct {
	Waiting
}

func (s *Server) waitAny(ctx context.Context, x *exchange, in *waitAnyParams) (*answer, error) {
	hold, err := in.duration()
	if err != nil {
		return nil, err
	}
	body, err := x.body(maxSubmit, bodyTimeout)
	if err != nil {
		return nil, err
	}
	items, err := list(body, "ids", api.MaxWaitAny)
	if err != nil {
		return nil, err
	}
	ids := make([]task.ID, len(items))
	for i, item := range items {
		var text string
		if err := json.Unmarshal(item, &text); err != nil {
			return nil, api.Errorf(api.CodeInvalidField, "ids is not an array of ids").WithField("ids")
		}
		if ids[i], err = uuid.Parse(text); err != nil || len(text) != 36 {
			return nil, noTask()
		}
	}
	row, err := s.first(ctx, x.who.Tenant, ids, hold)
	if err != nil {
		return nil, err
	}
	if row == nil {
		a := &answer{status: http.StatusOK, body: []byte("{}\n")}
		a.retryAfter(time.Second)
		return a, nil
	}
	t := wire(row)
	x.about(t)
	out, err := t.Append([]byte(`{"task":`))
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, body: append(out, "}\n"...)}, nil
}

// first is the task of the tenant that settles first, or nil. An id that is no
// task of the tenant's, or one past its retention, is an error at once: waiting
// would not change it.
func (s *Server) first(ctx context.Context, tenant string, ids []task.ID, hold time.Duration) (*task.Row, error) {
	row, err := s.firstNow(ctx, tenant, ids)
	if err != nil || row != nil || hold == 0 {
		return row, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type found struct {
		row *task.Row
		err error
	}
	all := make(chan found, len(ids))
	for _, id := range ids {
		go func() {
			row, err := s.find(ctx, tenant, id, hold)
			all <- found{row, err}
		}()
	}
	for range ids {
		f := <-all
		if f.err != nil || f.row.State.Settled() {
			return f.row, f.err
		}
	}
	return nil, nil
}

// firstNow is the task among ids that settled first, if one has, after one look
// at all of them.
func (s *Server) firstNow(ctx context.Context, tenant string, ids []task.ID) (*task.Row, error) {
	rctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := store.TasksWaited(rctx, s.DB, ids)
	if err != nil {
		return nil, err
	}
	there := make(map[task.ID]bool, len(rows))
	var first *task.Row
	for _, r := range rows {
		if tenant != "" && r.Tenant != tenant {
			continue
		}
		if r.Expired() {
			return nil, expired(tombstone(r))
		}
		there[r.ID] = true
		if r.State.Settled() && (first == nil || r.FinishedAt.Before(*first.FinishedAt)) {
			first = r
		}
	}
	for _, id := range ids {
		if !there[id] {
			return nil, s.missing(ctx, tenant, id)
		}
	}
	if first == nil {
		return nil, nil
	}
	return s.find(ctx, tenant, first.ID, 0) // a large result was left out
}
