package clienttest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
)

// wish is the body of an act.
type wish struct {
	action, message, reason string
	epoch, run              *int64
	result                  []byte
}

// wishes reads the body of an act, which may have the fields named.
func wishes(r *http.Request, known ...string) (w wish, err error) {
	if _, err := params(r); err != nil {
		return w, err
	}
	body, err := read(r)
	if err != nil || len(body) == 0 {
		return w, err
	}
	members, err := canon.Members(body)
	if err != nil {
		return w, submission.CanonError(err)
	}
	for _, m := range members {
		if !slices.Contains(known, m.Name) {
			return w, api.Errorf(api.CodeUnknownField, "the body has a field that does not exist").WithField(submission.Printable(m.Name))
		}
		if err := w.set(m); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *wish) set(m canon.Member) error {
	switch m.Name {
	case "result":
		w.result = m.Value
		return nil
	case "epoch", "run":
		n, err := strconv.ParseInt(string(m.Value), 10, 64)
		if err != nil || n < 0 {
			return api.Errorf(api.CodeInvalidField, "%s is not a whole number", m.Name).WithField(m.Name)
		}
		*map[string]**int64{"epoch": &w.epoch, "run": &w.run}[m.Name] = &n
		return nil
	}
	var text string
	if m.Value[0] != '"' || json.Unmarshal(m.Value, &text) != nil {
		return api.Errorf(api.CodeInvalidField, "%s is not a string", m.Name).WithField(m.Name)
	}
	*map[string]*string{"action": &w.action, "message": &w.message, "reason": &w.reason}[m.Name] = text
	return nil
}

// seen refuses an act decided on another state of the task than it has.
func (w *wish) seen(t *task) error {
	switch {
	case w.epoch == nil:
		return api.Errorf(api.CodeInvalidField, "epoch is missing").WithField("epoch")
	case *w.epoch != t.Epoch:
		return conflict(t, "the task is at epoch %d, the act is for %d", t.Epoch, *w.epoch)
	}
	return nil
}

func conflict(t *task, format string, args ...any) error {
	e := api.Errorf(api.CodeConflict, format, args...)
	e.TaskID = t.ID
	return e
}

func (s *Server) cancel(r *http.Request) (*answer, error) {
	if _, err := wishes(r, "reason"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if err := s.stop(t); err != nil {
		return nil, err
	}
	s.moved()
	note := "The task will not run again."
	if t.State == api.Running {
		note = "The task runs. What its call brings is dropped; the provider may bill for it."
	}
	status := http.StatusOK
	if t.State == api.Running {
		status = http.StatusAccepted
	}
	return t.answer(status, func(w *api.Task) {
		w.Cancel = &api.Cancelling{Asked: t.State == api.Running, MayStillBill: t.State == api.Running, Note: note}
	})
}

// stop cancels a task, or asks its run to end. s.mu is held.
func (s *Server) stop(t *task) error {
	switch t.State {
	case api.Cancelled:
	case api.Running:
		t.CancelAsked = true
		t.stop() // the run's own end makes it cancelled
	case api.Pending, api.Unknown:
		t.Epoch++
		t.cancelled()
		s.freed(t)
	default:
		return conflict(t, "a %s task cannot be cancelled", t.State)
	}
	return nil
}

func (s *Server) retry(r *http.Request) (*answer, error) {
	w, err := wishes(r, "epoch", "reason")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.again(t, w, api.Unknown, api.Failed)
}

// again runs a task again by a person's word. s.mu is held.
func (s *Server) again(t *task, w wish, from ...api.State) (*answer, error) {
	if err := w.seen(t); err != nil {
		return nil, err
	}
	if !slices.Contains(from, t.State) {
		return nil, conflict(t, "a %s task cannot run again", t.State)
	}
	if holder := s.byPlace[t.place]; holder != nil && holder != t {
		e := api.Errorf(api.CodeSuperseded, "another unfinished task holds the key").WithField("key")
		return nil, e
	}
	s.rerun(t)
	return t.answer(http.StatusOK, nil)
}

func (s *Server) resolve(r *http.Request) (*answer, error) {
	w, err := wishes(r, "action", "epoch", "reason", "result", "message")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if err := w.complete(); err != nil {
		return nil, err
	}
	if w.action == string(api.ResolveRetry) {
		return s.again(t, w, api.Unknown)
	}
	if err := w.seen(t); err != nil {
		return nil, err
	}
	if t.State != api.Unknown {
		return nil, conflict(t, "a %s task has nothing to resolve", t.State)
	}
	usage := t.Usage
	switch api.Action(w.action) {
	case api.ResolveFinish:
		return nil, conflict(t, "there is no kept result to finish with")
	case api.ResolveFailed:
		if w.message == "" {
			w.message = "resolved as failed"
		}
		t.settle(failure(api.CodeRefusedByPerson, w.message, true))
	default:
		t.settle(Outcome{Result: w.result})
	}
	t.Epoch++
	t.Usage = usage
	s.freed(t)
	s.moved()
	return t.answer(http.StatusOK, nil)
}

// complete says what a resolution lacks.
func (w *wish) complete() error {
	switch {
	case !slices.Contains(api.Actions, api.Action(w.action)):
		return api.Errorf(api.CodeInvalidField, "action is not succeeded, failed, retry or finish").WithField("action")
	case w.reason == "":
		return api.Errorf(api.CodeInvalidField, "reason is missing").WithField("reason")
	case w.action == string(api.ResolveSucceeded) && w.result == nil:
		return api.Errorf(api.CodeInvalidField, "result is missing").WithField("result")
	}
	return nil
}
