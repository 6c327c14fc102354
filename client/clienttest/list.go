package clienttest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Tasks a page of a list.
const (
	defaultPage = 50
	maxPage     = 200
)

func (s *Server) list(r *http.Request) (*answer, error) {
	q, err := params(r, "state", "kind", "key", "metadata", "trace", "batch", "input_hash", "created_after", "created_before", "limit", "cursor")
	if err != nil {
		return nil, err
	}
	f, err := newFilter(q)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	start := len(s.tasks)
	if f.cursor != "" {
		start = slices.IndexFunc(s.tasks, func(t *task) bool { return t.ID == f.cursor })
		if start < 0 {
			return nil, api.Errorf(api.CodeInvalidParam, "the cursor is not one of this list").WithField("cursor")
		}
	}
	page := []byte(`{"items":[`)
	n, next := 0, json.RawMessage("null")
	for i := start - 1; i >= 0; i-- {
		t := s.tasks[i]
		if !f.takes(t) {
			continue
		}
		if n > 0 {
			page = append(page, ',')
		}
		w := t.Task
		w.Result = nil
		if page, err = w.Append(page); err != nil {
			return nil, err
		}
		if n++; n == f.limit {
			next = json.RawMessage(strconv.Quote(t.ID))
			break
		}
	}
	page = append(append(append(page, `],"next":`...), next...), "}\n"...)
	return &answer{status: http.StatusOK, header: http.Header{}, body: page}, nil
}

type filter struct {
	states        []string
	metadata      map[string]string
	exact         map[string]string
	after, before time.Time
	limit         int
	cursor        string
}

func newFilter(q url.Values) (f filter, err error) {
	f = filter{states: q["state"], metadata: map[string]string{}, exact: map[string]string{}, limit: defaultPage, cursor: q.Get("cursor")}
	bad := func(name string) error {
		return api.Errorf(api.CodeInvalidParam, "%s is not one that can be asked for", name).WithField(name)
	}
	for _, state := range f.states {
		if !api.State(state).Valid() {
			return f, bad("state")
		}
	}
	for name, values := range q {
		if rest, ok := strings.CutPrefix(name, "metadata["); ok {
			f.metadata[strings.TrimSuffix(rest, "]")] = values[0]
		}
	}
	for _, name := range []string{"kind", "key", "trace", "batch", "input_hash"} {
		if v := q.Get(name); v != "" {
			f.exact[name] = v
		}
	}
	if f.exact["key"] != "" && f.exact["kind"] == "" {
		return f, bad("kind")
	}
	if text := q.Get("limit"); text != "" {
		if f.limit, err = strconv.Atoi(text); err != nil || f.limit < 1 || f.limit > maxPage {
			return f, bad("limit")
		}
	}
	for name, to := range map[string]*time.Time{"created_after": &f.after, "created_before": &f.before} {
		if text := q.Get(name); text != "" {
			if *to, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return f, bad(name)
			}
		}
	}
	return f, nil
}

func (f *filter) takes(t *task) bool {
	for name, want := range f.exact {
		got := map[string]string{"kind": t.Kind, "key": t.Key, "trace": t.TraceID, "batch": t.BatchID, "input_hash": t.InputHash}[name]
		if got != want {
			return false
		}
	}
	if len(f.states) > 0 && !slices.Contains(f.states, string(t.State)) {
		return false
	}
	if !f.after.IsZero() && t.CreatedAt.Before(f.after) || !f.before.IsZero() && !t.CreatedAt.Before(f.before) {
		return false
	}
	var have map[string]string
	if len(f.metadata) > 0 && json.Unmarshal(t.Metadata, &have) != nil {
		return false
	}
	for name, want := range f.metadata {
		if have[name] != want {
			return false
		}
	}
	return true
}
