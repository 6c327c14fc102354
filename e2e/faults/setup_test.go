package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

func TestMain(m *testing.M) { proc.Main(m) }

// slack is by how much a case's bounds are widened: they are guards, and the
// machine may be busy.
const slack = 5

// play runs the function of each case that the ledger gives to a test.
func play(t *testing.T, test string, plays map[string]func(*testing.T)) {
	for _, c := range casetest.Claimed(t, test) {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			f := plays[c.ID]
			if f == nil {
				t.Fatalf("nobody plays %s: %s", c.ID, c.Input)
			}
			f(t)
		})
	}
}

// work is a task of the kind work whose model plays a script.
func work(script string) api.Submit { return of("work", script) }

func of(kind, script string) api.Submit {
	input, _ := json.Marshal(map[string]string{"model": "fake:" + script, "text": "hello"})
	return api.Submit{Kind: kind, Input: input}
}

// caller sends requests to one api without a second try: every answer counts.
type caller struct {
	w    *proc.World
	api  *proc.Process
	http *http.Client
}

func newCaller(w *proc.World, api *proc.Process) *caller {
	return &caller{w: w, api: api, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// answer is what a request came to; status is 0 where the connection broke.
type answer struct {
	status  int
	task    api.Task
	problem struct {
		Code string `json:"code"`
	}
	body string
}

func (c *caller) do(method, path, key string, body []byte) answer {
	ctx, cancel := context.WithTimeout(context.Background(), proc.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.api.URL()+path, strings.NewReader(string(body)))
	if err != nil {
		return answer{body: err.Error()}
	}
	req.GetBody = nil // net/http must not send it a second time
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + c.w.Key}}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	a := answer{status: resp.StatusCode, body: string(raw)}
	into := any(&a.task)
	if resp.StatusCode >= 300 {
		into = &a.problem
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return answer{body: fmt.Sprintf("status %d, no JSON: %s", resp.StatusCode, raw)}
	}
	return a
}

func (c *caller) submit(key string, s api.Submit) answer {
	raw, _ := s.Append(nil)
	return c.do(http.MethodPost, "/v1/tasks", key, raw)
}

func (c *caller) get(id string) answer { return c.do(http.MethodGet, "/v1/tasks/"+id, "", nil) }

func (c *caller) cancel(id string) answer {
	return c.do(http.MethodPost, "/v1/tasks/"+id+"/cancel", "", []byte("{}"))
}

// accepted submits and demands a 202.
func (c *caller) accepted(t *testing.T, key string, s api.Submit) api.Task {
	t.Helper()
	a := c.submit(key, s)
	if a.status != http.StatusAccepted {
		t.Fatalf("submit %s: got %d %s, want 202", key, a.status, a.body)
	}
	return a.task
}

// settled waits until a task is settled and returns it.
func (c *caller) settled(t *testing.T, id string) api.Task {
	t.Helper()
	var last answer
	proc.Until(t, "task "+id+" settled", func() bool {
		last = c.get(id)
		return last.status == http.StatusOK && last.task.State.Settled()
	})
	return last.task
}

// succeeded demands that a task has come to its result.
func (c *caller) succeeded(t *testing.T, id string) api.Task {
	t.Helper()
	task := c.settled(t, id)
	if task.State != api.Succeeded {
		t.Errorf("task %s is %s (%+v), want succeeded", id, task.State, task.Error)
	}
	return task
}

// drained waits until every task is settled, every effect has left and no
// wake-up is left.
func drained(t *testing.T, w *proc.World) {
	t.Helper()
	proc.Until(t, "all tasks settled, all effects out, no wake-up left", func() bool {
		var left int
		err := w.Pool.QueryRow(context.Background(), `
SELECT (SELECT count(*) FROM onefold.tasks WHERE state IN ('pending', 'running'))
     + (SELECT count(*) FROM onefold.effects WHERE state IN ('waiting', 'delivering'))
     + (SELECT count(*) FROM onefold.river_job WHERE kind IN ('task', 'effect') AND state <> 'completed')`).Scan(&left)
		return err == nil && left == 0 // an error is a database that is still coming back
	})
}

// onceEach demands that each of n tasks has succeeded with one result and one
// webhook, and that nothing else is there.
func onceEach(t *testing.T, w *proc.World, n int) {
	t.Helper()
	for what, sql := range map[string]string{
		"tasks that succeeded":      `SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded' AND result IS NOT NULL`,
		"tasks":                     `SELECT count(*) FROM onefold.tasks`,
		"attempts that succeeded":   `SELECT count(*) FROM onefold.attempts WHERE outcome = 'succeeded'`,
		"tasks with such an effort": `SELECT count(DISTINCT task_id) FROM onefold.attempts WHERE outcome = 'succeeded'`,
		"effects":                   `SELECT count(*) FROM onefold.effects`,
		"effects delivered":         `SELECT count(*) FROM onefold.effects WHERE state = 'delivered'`,
	} {
		if got := w.Count(t, sql); got != n {
			t.Errorf("%d %s, want %d", got, what, n)
		}
	}
	received := w.Receiver.Received()
	if len(received) != n || w.Receiver.Bad() != 0 {
		t.Errorf("%d webhooks received, %d badly signed; want %d and none", len(received), w.Receiver.Bad(), n)
	}
	for id, r := range received {
		if r.Differ != 0 {
			t.Errorf("webhook %s came with two bodies", id)
		}
	}
}

// within demands that something took no longer than its bound, slack included.
func within(t *testing.T, what string, start time.Time, bound time.Duration) {
	t.Helper()
	if took := time.Since(start); took > slack*bound {
		t.Errorf("%s took %s, want at most %s", what, took.Round(time.Millisecond), slack*bound)
	}
}

// atWork waits until the model has n calls under way.
func atWork(t *testing.T, w *proc.World, n int) {
	t.Helper()
	proc.Until(t, fmt.Sprintf("%d calls under way", n), func() bool { return w.Model.Calls().Running >= n })
}
