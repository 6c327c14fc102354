package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/api"
)

const (
	fakeKey  = "of_script01_0123456789abcdefghijklmnopqrstuv"
	purgedID = "01990000-0000-7000-8000-000000000000"
	readOnly = "of_script02_0123456789abcdefghijklmnopqrstuv" // a key without the scope submit
)

// server is as much of a server as the scripts need: it folds keys and settles
// a task at its first poll, as the model's name says (the names are scripts of
// fakellm, so that a real server does the same).
type server struct {
	*httptest.Server
	mu    sync.Mutex
	tasks []*stored
	polls map[string]chan struct{} // closed at the first long poll of a task
}

type stored struct {
	api.Task
	input []byte
}

func newServer() *server {
	s := &server{polls: map[string]chan struct{}{}}
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/tasks", s.submit)
	m.HandleFunc("GET /v1/tasks", s.list)
	m.HandleFunc("GET /v1/tasks/{id}", s.get)
	m.HandleFunc("GET /v1/tasks/{id}/{part}", s.raw)
	m.HandleFunc("GET /v1/tasks/{id}/attempts", s.attempts)
	m.HandleFunc("GET /v1/tasks/{id}/attempts/{epoch}/{part}", s.attemptPart)
	m.HandleFunc("POST /v1/tasks/{id}/cancel", s.cancel)
	m.HandleFunc("DELETE /v1/tasks/{id}/payload", s.erase)
	m.HandleFunc("GET /v1/usage", s.usage)
	m.HandleFunc("POST /v1/tasks/{id}/{act}", s.act)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer " + fakeKey:
		case "Bearer " + readOnly:
			if r.Method != http.MethodGet {
				refuse(w, api.Errorf(api.CodeForbidden, "the API key lacks the scope submit"))
				return
			}
		default:
			refuse(w, api.Errorf(api.CodeUnauthorized, "the API key is not valid"))
			return
		}
		m.ServeHTTP(w, r)
	}))
	return s
}

func refuse(w http.ResponseWriter, e *api.Error) {
	e.RequestID = "req-1"
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(e)
}

func give(w http.ResponseWriter, status int, t api.Task) {
	b, err := t.Append(nil)
	if err != nil {
		panic(err)
	}
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func (s *server) submit(w http.ResponseWriter, r *http.Request) {
	var body api.Submit
	raw, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if err := json.Unmarshal(raw, &body); err != nil || len(body.Input) == 0 {
		refuse(w, api.Errorf(api.CodeInvalidField, "input is missing").WithField("input"))
		return
	}
	switch {
	case !slices.Contains([]string{"llm.chat", "llm.careful", "note"}, body.Kind):
		refuse(w, api.Errorf(api.CodeUnknownKind, "no kind %q is configured", body.Kind).WithField("kind"))
		return
	case key == "" && body.Kind != "note":
		refuse(w, api.Errorf(api.CodeKeyMissing, "there is no idempotency key").WithField("Idempotency-Key"))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	yes, no := true, false
	for _, t := range s.tasks {
		if key != "" && t.Kind == body.Kind && t.Key == key {
			if !bytes.Equal(t.input, body.Input) {
				e := api.Errorf(api.CodeKeyReused, "the key was used with another payload")
				e.Mismatch = []string{"input.messages[0].content"}
				refuse(w, e)
				return
			}
			t.Duplicates++
			again := t.Task
			again.Created = &no
			give(w, http.StatusOK, again)
			return
		}
	}
	at := time.Date(2026, 3, 1, 12, 0, len(s.tasks), 0, time.UTC)
	t := &stored{input: body.Input, Task: api.Task{
		ID: fmt.Sprintf("01990000-0000-7000-8000-%012d", len(s.tasks)+1), Kind: body.Kind, Key: key, State: api.Pending,
		Run: 1, Epoch: 1, CreatedAt: at, RunAt: at, Metadata: body.Metadata, Priority: 4,
	}}
	if body.Priority != nil {
		t.Priority = *body.Priority
	}
	if body.RunAt != nil {
		t.RunAt = *body.RunAt
	}
	s.tasks = append(s.tasks, t)
	s.polls[t.ID] = make(chan struct{})
	fresh := t.Task
	fresh.Created = &yes
	give(w, http.StatusAccepted, fresh)
}

// settle is what a worker would do: the model's name says how it ends.
func (t *stored) settle() {
	var in struct{ Model string }
	_ = json.Unmarshal(t.input, &in) // an input without a model is answered like any other
	if t.State.Settled() {
		return
	}
	now := t.CreatedAt.Add(3 * time.Second)
	t.StartedAt, t.Attempts = &now, 1
	if strings.HasPrefix(in.Model, "fake:hang") {
		t.State = api.Running
		return
	}
	t.FinishedAt = &now
	switch {
	case strings.HasPrefix(in.Model, "fake:status=400"):
		t.State, t.Error = api.Failed, &api.TaskError{Code: "rejected", Message: "the provider says: bad model \x1b[2J", Permanent: true}
	case strings.HasPrefix(in.Model, "fake:cut"):
		t.State, t.Error = api.Unknown, &api.TaskError{Code: "cut", Message: "the reply was cut off"}
	default:
		t.State, t.Result = api.Succeeded, t.input
		t.Usage = &api.Usage{InputTokens: 12, OutputTokens: 3, Billed: api.BilledYes}
	}
}

// find calls f with the task, under the lock, or answers 404.
func (s *server) find(w http.ResponseWriter, r *http.Request, f func(*stored)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.ID == r.PathValue("id") {
			f(t)
			return
		}
	}
	if r.PathValue("id") == purgedID {
		e := api.Errorf(api.CodeExpired, "the task succeeded and is past its retention")
		e.Tombstone = &api.Tombstone{State: api.Succeeded, ResultHash: "abcdef"}
		refuse(w, e)
		return
	}
	refuse(w, api.Errorf(api.CodeNotFound, "there is no such task"))
}

func (s *server) get(w http.ResponseWriter, r *http.Request) {
	hold := r.URL.Query().Get("wait")
	s.mu.Lock()
	if polled := s.polls[r.PathValue("id")]; polled != nil && hold != "" {
		select {
		case <-polled:
		default:
			close(polled)
		}
	}
	s.mu.Unlock()
	var now api.Task
	s.find(w, r, func(t *stored) {
		t.settle()
		now = t.Task
	})
	if d, err := time.ParseDuration(hold); err == nil && now.State == api.Running {
		select { // a call that hangs: the poll is held until it is time, or nobody waits
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	if now.ID != "" {
		give(w, http.StatusOK, now)
	}
}

func (s *server) raw(w http.ResponseWriter, r *http.Request) {
	s.find(w, r, func(t *stored) {
		switch {
		case r.PathValue("part") == "input":
			_, _ = w.Write(t.input)
		case t.State != api.Succeeded:
			refuse(w, api.Errorf(api.CodeNotFinished, "the task is %s", t.State))
		default:
			_, _ = w.Write(t.Result)
		}
	})
}

func (s *server) attempts(w http.ResponseWriter, r *http.Request) {
	s.find(w, r, func(t *stored) {
		a := api.Attempt{
			Epoch: 1, Run: 1, Number: 1, Counted: true, Outcome: "unknown", Code: "stream_cut", Message: "the stream broke off", Provider: "p",
			Model: "m", Phase: "first_token", Bytes: 90, Billed: api.BilledYes, Sends: 1, Orphaned: true, ClaimedAt: t.CreatedAt,
			SentAt: &t.CreatedAt, RequestID: "req-9", Partial: "half an\n\x1b[2Janswer", PartialBytes: 18, Parts: []api.AttemptPart{api.PartPartial},
		}
		_ = json.NewEncoder(w).Encode(api.List[api.Attempt]{Items: []api.Attempt{a}})
	})
}

func (s *server) attemptPart(w http.ResponseWriter, r *http.Request) {
	s.find(w, r, func(*stored) {
		if r.PathValue("part") != "partial" {
			refuse(w, api.Errorf(api.CodeNotFound, "of this attempt there is no %s", r.PathValue("part")))
			return
		}
		_, _ = w.Write([]byte("half an\nanswer"))
	})
}

// usage reports what was asked for, and two rows.
func (s *server) usage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	_ = json.NewEncoder(w).Encode(api.List[api.UsageRow]{Items: []api.UsageRow{
		{Kind: strings.Join(q["by"], "+"), Model: q.Get("from") + ".." + q.Get("to"), Calls: 7, Succeeded: 6, Saved: api.Saved{Calls: 40, Cost: "0.8"}, Cost: "0.14"},
		{Kind: "note", Calls: 1},
	}})
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if limit = min(limit, 2); err != nil || limit < 1 { // small pages, so that there are some
		refuse(w, api.Errorf(api.CodeInvalidParam, "limit is not a number").WithField("limit"))
		return
	}
	var items [][]byte
	next := "null"
	from := len(s.tasks)
	if c, err := strconv.Atoi(q.Get("cursor")); err == nil {
		from = c
	}
	for i := from - 1; i >= 0; i-- {
		t := s.tasks[i]
		if len(items) == limit {
			next = fmt.Sprintf("%q", strconv.Itoa(i+1))
			break
		}
		if k := q.Get("kind"); k != "" && k != t.Kind || q.Get("key") != "" && q.Get("key") != t.Key || len(q["state"]) > 0 && !slices.Contains(q["state"], string(t.State)) {
			continue
		}
		if k := q.Get("metadata[customer]"); k != "" && !strings.Contains(string(t.Metadata), `"customer":"`+k+`"`) {
			continue
		}
		bare := t.Task
		bare.Result = nil
		b, err := bare.Append(nil)
		if err != nil {
			panic(err)
		}
		items = append(items, b)
	}
	fmt.Fprintf(w, `{"items":[%s],"next":%s}`, bytes.Join(items, []byte(",")), next)
}

func (s *server) cancel(w http.ResponseWriter, r *http.Request) {
	s.find(w, r, func(t *stored) {
		switch t.State {
		case api.Running:
			t.CancelAsked = true
			t.Cancel = &api.Cancelling{Asked: true, MayStillBill: true, Note: "The provider may bill for it."}
			give(w, http.StatusAccepted, t.Task)
		case api.Succeeded, api.Failed:
			refuse(w, api.Errorf(api.CodeConflict, "a %s task cannot be cancelled", t.State))
		default:
			t.State = api.Cancelled
			give(w, http.StatusOK, t.Task)
		}
	})
}

func (s *server) erase(w http.ResponseWriter, r *http.Request) {
	s.find(w, r, func(t *stored) {
		t.Result, t.ResultExpired, t.ResultHash = nil, true, "abcdef"
		give(w, http.StatusOK, t.Task)
	})
}

func (s *server) act(w http.ResponseWriter, r *http.Request) {
	var body api.Resolve
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.find(w, r, func(t *stored) {
		switch {
		case body.Epoch != t.Epoch:
			refuse(w, api.Errorf(api.CodeConflict, "the task is at epoch %d by now", t.Epoch))
			return
		case t.State != api.Unknown && t.State != api.Failed:
			refuse(w, api.Errorf(api.CodeConflict, "a %s task cannot be retried", t.State))
			return
		}
		t.Epoch++
		t.Error = nil
		switch body.Action {
		case api.ResolveSucceeded:
			t.State, t.Result = api.Succeeded, body.Result
		case api.ResolveFailed:
			t.State, t.Error = api.Failed, &api.TaskError{Code: "resolved_failed", Message: body.Message, Permanent: true}
		default:
			t.State, t.Run = api.Pending, t.Run+1
		}
		give(w, http.StatusOK, t.Task)
	})
}
