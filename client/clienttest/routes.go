package clienttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
)

func (s *Server) post(r *http.Request) (*answer, error) {
	q, err := params(r, "wait")
	if err != nil {
		return nil, err
	}
	wait, err := hold(q)
	if err != nil {
		return nil, err
	}
	if wait == 0 {
		wait = preferred(r.Header)
	}
	key, sent, err := canon.Key(r.Header)
	if err != nil {
		return nil, named(err)
	}
	body, err := read(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, created, reopened, err := s.submit(wanted{body: body, key: key, sent: sent, trace: traceID(r)})
	if err != nil {
		return nil, named(err)
	}
	s.await(r, wait, t)
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	a, err := t.answer(status, func(t *api.Task) { t.Created, t.Reopened = &created, reopened })
	switch {
	case err != nil:
		return nil, err
	case created:
		a.header.Set("Location", "/v1/tasks/"+t.ID)
	case !reopened:
		a.header.Set("Idempotent-Replayed", "true")
	}
	return a, nil
}

// named puts the key's header into an error that is about the key.
func named(err error) error {
	err = submission.CanonError(err)
	var e *api.Error
	if errors.As(err, &e) && e.Field == "" && e.Code != api.CodeKeyReused && len(e.Code) > 4 && e.Code[:4] == "key_" {
		e.Field = canon.Header
	}
	return err
}

// answer is a task as callers see it, after a change of the caller's. s.mu is
// held.
func (t *task) answer(status int, change func(*api.Task)) (*answer, error) {
	w := t.Task
	if change != nil {
		change(&w)
	}
	body, err := w.Append(nil)
	if err != nil {
		return nil, err
	}
	a := &answer{status: status, header: http.Header{}, body: append(body, '\n')}
	if !t.State.Settled() {
		a.header.Set("Retry-After", "1")
	}
	return a, nil
}

// etag names a state of a task. s.mu is held.
func (t *task) etag() (string, error) {
	w := t.Task
	w.Duplicates = 0
	body, err := w.Append(nil)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(body)
	return `W/"` + hex.EncodeToString(sum[:16]) + `"`, nil
}

// await waits until one of the tasks has settled, the time is over, or nobody
// waits any more. s.mu is held, and let go of meanwhile.
func (s *Server) await(r *http.Request, wait time.Duration, tasks ...*task) (first *task) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		for _, t := range tasks {
			if t.State.Settled() && (first == nil || t.FinishedAt.Before(*first.FinishedAt)) {
				first = t
			}
		}
		if first != nil || wait <= 0 || s.closed {
			return first
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-over.C:
			wait = 0
		case <-s.closing:
			wait = 0
		case <-r.Context().Done():
			wait = 0
		}
		s.mu.Lock()
	}
}

// find is the task that a request is about. s.mu is held.
func (s *Server) find(id string) (*task, error) {
	if t := s.byID[id]; t != nil {
		return t, nil
	}
	return nil, api.Errorf(api.CodeNotFound, "there is no such task")
}

func (s *Server) get(r *http.Request) (*answer, error) {
	q, err := params(r, "wait", "include")
	if err != nil {
		return nil, err
	}
	wait, err := hold(q)
	if err != nil {
		return nil, err
	}
	if v := q.Get("include"); v != "" && v != "queue" {
		return nil, api.Errorf(api.CodeInvalidParam, "include is not queue").WithField("include")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	s.await(r, wait, t)
	if q.Get("include") == "queue" && t.State == api.Pending {
		return t.answer(http.StatusOK, func(w *api.Task) { w.Queue = &api.Queue{Position: s.position(t)} })
	}
	tag, err := t.etag()
	if err != nil {
		return nil, err
	}
	a, err := t.answer(http.StatusOK, nil)
	if err != nil {
		return nil, err
	}
	if r.Header.Get("If-None-Match") == tag {
		a.status, a.body = http.StatusNotModified, nil
	}
	a.header.Set("ETag", tag)
	return a, nil
}

// position is a task's place among those that wait. s.mu is held.
func (s *Server) position(t *task) (n int64) {
	for _, other := range s.tasks {
		if other.State == api.Pending {
			n++
		}
		if other == t {
			break
		}
	}
	return n
}

func (s *Server) input(r *http.Request) (*answer, error) {
	return s.raw(r, func(t *task) ([]byte, error) { return t.input, nil })
}

func (s *Server) result(r *http.Request) (*answer, error) {
	return s.raw(r, func(t *task) ([]byte, error) {
		if t.State == api.Succeeded {
			return t.Result, nil
		}
		e := api.Errorf(api.CodeNotFinished, "the task is %s and has no result", t.State)
		e.TaskID = t.ID
		return nil, e
	})
}

func (s *Server) raw(r *http.Request, part func(*task) ([]byte, error)) (*answer, error) {
	if _, err := params(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	body, err := part(t)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	a := &answer{status: http.StatusOK, header: http.Header{"Etag": {`"` + hex.EncodeToString(sum[:]) + `"`}}, body: bytes.Clone(body)}
	if r.Header.Get("If-None-Match") == a.header.Get("ETag") {
		a.status, a.body = http.StatusNotModified, nil
	}
	return a, nil
}

func (s *Server) bulk(r *http.Request) (*answer, error) {
	items, err := elements(r, "tasks", api.MaxBulk)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []byte(`{"items":[`)
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		one := s.bulkItem(r, item)
		if out, err = one.Append(out); err != nil {
			return nil, err
		}
	}
	return &answer{status: http.StatusOK, header: http.Header{}, body: append(out, "]}\n"...)}, nil
}

func (s *Server) bulkItem(r *http.Request, body []byte) api.BulkItem {
	t, created, reopened, err := s.submit(wanted{body: body, keyed: true, trace: traceID(r)})
	if err != nil {
		e := api.Errorf(api.CodeInternal, "%v", err)
		errors.As(err, &e)
		return api.BulkItem{Status: e.Status, Error: e}
	}
	w := t.Task
	w.Created, w.Reopened = &created, reopened
	if created {
		return api.BulkItem{Status: http.StatusAccepted, Task: &w}
	}
	return api.BulkItem{Status: http.StatusOK, Task: &w}
}

// elements reads a body that is an object with one member, an array. Its values
// are not looked into: each is judged on its own.
func elements(r *http.Request, name string, most int) ([]json.RawMessage, error) {
	body, err := read(r)
	if err != nil {
		return nil, err
	}
	var whole map[string]json.RawMessage
	if json.Unmarshal(body, &whole) != nil {
		return nil, api.Errorf(api.CodeInvalidJSON, "the body is not one well-formed JSON object")
	}
	for field := range whole {
		if field != name {
			return nil, api.Errorf(api.CodeUnknownField, "the body has a field that does not exist").WithField(submission.Printable(field))
		}
	}
	var items []json.RawMessage
	if err := json.Unmarshal(whole[name], &items); err != nil || len(items) == 0 || len(items) > most {
		return nil, api.Errorf(api.CodeInvalidField, "%s is not an array of 1 to %d elements", name, most).WithField(name)
	}
	return items, nil
}

func (s *Server) waitAny(r *http.Request) (*answer, error) {
	q, err := params(r, "wait")
	if err != nil {
		return nil, err
	}
	wait, err := hold(q)
	if err != nil {
		return nil, err
	}
	items, err := elements(r, "ids", api.MaxWaitAny)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks := make([]*task, len(items))
	for i, item := range items {
		var id string
		if err := json.Unmarshal(item, &id); err != nil {
			return nil, api.Errorf(api.CodeInvalidField, "ids is not an array of ids").WithField("ids")
		}
		if tasks[i], err = s.find(id); err != nil {
			return nil, err
		}
	}
	first := s.await(r, wait, tasks...)
	if first == nil {
		return &answer{status: http.StatusOK, header: http.Header{"Retry-After": {"1"}}, body: []byte("{}\n")}, nil
	}
	body, err := first.Append([]byte(`{"task":`))
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return &answer{status: http.StatusOK, header: http.Header{}, body: append(body, "}\n"...)}, nil
}
