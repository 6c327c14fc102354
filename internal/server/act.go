package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// maxReason bounds what is written into the audit, in bytes.
const maxReason = 1000

// cancelBody may come with a cancel.
type cancelBody struct {
	Reason string `json:"reason,omitempty" doc:"Why, for the audit."`
}

// resolveBody is api.Resolve with the message a resolution as failed leaves.
type resolveBody struct {
	Action  api.Action      `json:"action" enum:"succeeded,failed,retry,finish"`
	Epoch   int64           `json:"epoch" doc:"The task's epoch as you saw it."`
	Reason  string          `json:"reason" doc:"How you know, for the audit."`
	Result  json.RawMessage `json:"result,omitempty" doc:"With succeeded: the result, any JSON value. It is stored byte for byte."`
	Message string          `json:"message,omitempty" doc:"With failed: what the task's error says."`
}

func (s *Server) cancel(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	id, err := s.subject(ctx, x, in)
	if err != nil {
		return nil, err
	}
	f, err := x.fields("reason")
	if err != nil {
		return nil, err
	}
	row, err := s.Submit.Cancel(ctx, x.act(id, f))
	if err != nil {
		return nil, s.acted(ctx, x, id, err)
	}
	status := http.StatusOK
	if row.State == api.Running {
		status = http.StatusAccepted
	}
	t := wire(row)
	t.Cancel = cancelling(row)
	return s.movedTo(ctx, x, status, row, t)
}

// cancelling says what a cancel came to: a call that is out cannot be called
// back, and what was called before cannot be taken back.
func cancelling(row *task.Row) *api.Cancelling {
	c := &api.Cancelling{Asked: row.State == api.Running}
	switch c.MayStillBill = c.Asked || row.Unclear; {
	case c.Asked:
		c.Note = "The task runs. Its call is cut off when its worker hears of this, within seconds; what it brings is dropped. The provider may bill for it."
	case c.MayStillBill:
		c.Note = "The task will not run again. A call was made before and its outcome is not known: the provider may bill for it."
	case row.Usage.Billed == api.BilledYes:
		c.Note = "The task will not run again. Calls made before were billed; no call is out."
	default:
		c.Note = "The task will not run. Nothing was sent that could be billed."
	}
	return c
}

func (s *Server) retry(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	id, err := s.subject(ctx, x, in)
	if err != nil {
		return nil, err
	}
	f, err := x.fields("epoch", "reason")
	if err != nil {
		return nil, err
	}
	row, err := s.Submit.Retry(ctx, x.act(id, f))
	if err != nil {
		return nil, s.acted(ctx, x, id, err)
	}
	return s.moved(ctx, x, http.StatusOK, row)
}

func (s *Server) resolve(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	id, err := s.subject(ctx, x, in)
	if err != nil {
		return nil, err
	}
	f, err := x.fields("action", "epoch", "reason", "result", "message")
	if err != nil {
		return nil, err
	}
	if f.action == string(api.ResolveSucceeded) && f.result == nil {
		return nil, api.Errorf(api.CodeInvalidField, "result is missing").WithField("result").WithFix("Send the result the task is to have, or another action.")
	}
	row, err := s.Submit.Resolve(ctx, x.act(id, f), submit.Resolution{Action: f.action, Result: f.result, Message: f.message})
	if err != nil {
		return nil, s.acted(ctx, x, id, err)
	}
	return s.moved(ctx, x, http.StatusOK, row)
}

// erasing has the reason in the query: a DELETE has no body.
type erasing struct {
	ByID
	Reason string `query:"reason" maxLength:"1000" doc:"Why, for the audit."`
}

func (s *Server) erase(ctx context.Context, x *exchange, in *erasing) (*answer, error) {
	id, err := s.subject(ctx, x, &in.ByID)
	if err != nil {
		return nil, err
	}
	if !storable(in.Reason) {
		return nil, api.Errorf(api.CodeInvalidParam, "reason holds characters that no text has").WithField("reason")
	}
	row, err := s.Submit.Erase(ctx, x.act(id, fields{reason: in.Reason}))
	if err != nil {
		return nil, s.acted(ctx, x, id, err)
	}
	return s.moved(ctx, x, http.StatusOK, row)
}

// markBody is api.MarkDuplicate as the description shows it.
type markBody struct {
	Of     string `json:"of" doc:"The id of the task that stays."`
	Reason string `json:"reason" doc:"How you know, for the audit."`
}

func (s *Server) markDuplicate(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	id, err := s.subject(ctx, x, in)
	if err != nil {
		return nil, err
	}
	f, err := x.fields("of", "reason")
	if err != nil {
		return nil, err
	}
	of, err := task.ParseID(f.of)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidField, "of is no task's id").WithField("of")
	}
	row, err := s.Submit.MarkDuplicate(ctx, x.act(id, f), of)
	if err != nil {
		return nil, s.acted(ctx, x, id, err)
	}
	return s.moved(ctx, x, http.StatusOK, row)
}

// subject is the task an act is about. One past its retention is gone for acts
// as well, whether the purge has come by or not.
func (s *Server) subject(ctx context.Context, x *exchange, in *ByID) (task.ID, error) {
	id, err := s.which(ctx, x, *in)
	if err != nil {
		return id, err
	}
	_, err = s.find(ctx, x.who.Tenant, id, 0)
	return id, err
}

// moved answers with the task after an act.
func (s *Server) moved(ctx context.Context, x *exchange, status int, row *task.Row) (*answer, error) {
	return s.movedTo(ctx, x, status, row, wire(row))
}

func (s *Server) movedTo(ctx context.Context, x *exchange, status int, row *task.Row, t *api.Task) (*answer, error) {
	x.about(t)
	a, err := taskAnswer(status, t)
	if err != nil {
		return nil, err
	}
	s.hint(ctx, a, row)
	return a, nil
}

// acted is the error of an act; a task may have been purged in between.
func (s *Server) acted(ctx context.Context, x *exchange, id task.ID, err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.CodeNotFound {
		return s.missing(ctx, x.who.Tenant, id)
	}
	return err
}

func (x *exchange) act(id task.ID, f fields) submit.Act {
	return submit.Act{Tenant: x.who.Tenant, ID: id, Epoch: f.epoch, Reason: f.reason, Actor: x.who.Actor(), RequestID: x.id}
}

// fields are what the body of an act may hold.
type fields struct {
	action, reason, message, of string
	epoch                       *int64
	run                         *int32
	result                      []byte
}

// fields reads the body of an act as strictly as a submit's.
func (x *exchange) fields(known ...string) (f fields, err error) {
	body, err := x.body(maxAct, bodyTimeout)
	if err != nil || len(body) == 0 {
		return f, err
	}
	members, err := canon.Members(body)
	if err != nil {
		return f, submission.CanonError(err)
	}
	for _, m := range members {
		if !contains(known, m.Name) {
			return f, api.Errorf(api.CodeUnknownField, "the body has a field that does not exist").
				WithField(printable(m.Name)).WithFix("Remove it. The fields are %s.", strings.Join(known, ", "))
		}
		if err := f.set(m.Name, m.Value); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *fields) set(name string, v []byte) error {
	switch name {
	case "epoch":
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil || n < 0 {
			return api.Errorf(api.CodeInvalidField, "epoch is not a whole number").WithField(name)
		}
		f.epoch = &n
	case "run":
		var err error
		f.run, err = run(v)
		return err
	case "result":
		f.result = v
	default:
		var text string
		if v[0] != '"' || json.Unmarshal(v, &text) != nil || len(text) > maxReason {
			return api.Errorf(api.CodeInvalidField, "%s is not a string of at most %d bytes", name, maxReason).WithField(name)
		}
		switch name {
		case "action":
			f.action = text
		case "reason":
			f.reason = text
		case "message":
			f.message = text
		case "of":
			f.of = text
		}
	}
	return nil
}
