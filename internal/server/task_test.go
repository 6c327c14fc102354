package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// settle ends a task as a worker would, and says so to those who wait.
func (b *bundle) settle(t *testing.T, id string, state api.State, result []byte) {
	t.Helper()
	ctx := context.Background()
	var code, message *string
	var permanent *bool
	if state == api.Failed || state == api.Unknown {
		c, m := string(api.CodeAttemptsExhaust), "no luck"
		code, message = &c, &m
	}
	if state == api.Failed {
		no := false
		permanent = &no
	}
	_, err := b.DB.Exec(ctx, `
UPDATE onefold.tasks
SET state = $2, result = $3, result_hash = sha256($3), error_code = $4, error_message = $5, error_permanent = $6, epoch = epoch + 1,
    attempts = 1, total_attempts = 1, started_at = now(), finished_at = now(), expires_at = now() + interval '30 days'
WHERE id = $1`, id, state, result, code, message, permanent)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.NotifySettled(ctx, b.DB, []uuid.UUID{uuid.MustParse(id)}); err != nil {
		t.Fatal(err)
	}
}

// odd is a result that encoding/json would not leave as it is.
const odd = "{ \"b\":1e100,\n\t\"a\": \"<&>\\u00e9\u2028\\/\", \"n\":0.10000000000000000001, \"a\":1.0}"

func TestResultComesOutAsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	b.settle(t, id, api.Succeeded, []byte(odd))
	replay := b.submit(t, "k", chat)
	for name, body := range map[string]string{
		"get":    string(b.get(t, id).body),
		"replay": string(replay.body),
		"wait":   string(b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "?wait=30s"}).body),
	} {
		if !strings.Contains(body, `"result":`+odd) {
			t.Errorf("%s: the result does not stand in %s", name, body)
		}
	}
	r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "/result"})
	sum := sha256.Sum256([]byte(odd))
	if string(r.body) != odd || r.header.Get("Content-Type") != "application/json" || r.header.Get("ETag") != `"`+hex.EncodeToString(sum[:])+`"` {
		t.Errorf("got %q of type %s, ETag %s", r.body, r.header.Get("Content-Type"), r.header.Get("ETag"))
	}
	if replay.status != 200 || replay.header.Get("Idempotent-Replayed") != "true" || replay.header.Get("Retry-After") != "" {
		t.Errorf("replay: got %d %v", replay.status, replay.header)
	}
}

func (b *bundle) get(t *testing.T, id string) reply {
	t.Helper()
	return b.do(t, call{method: "GET", path: "/v1/tasks/" + id})
}

func TestNewTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.do(t, call{
		method: "POST", path: "/v1/tasks", idem: "k",
		body: `{"kind":"llm.chat","input":{"model":"m"},"metadata":{"order":"7"},"priority":9}`,
		header: http.Header{
			"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
			"Request-Id":  {"my-request.1"},
		},
	})
	if r.status != 202 || r.header.Get("Location") != "/v1/tasks/"+r.task.ID || r.header.Get("Retry-After") == "" || r.header.Get("Request-Id") != "my-request.1" {
		t.Errorf("got %d %v", r.status, r.header)
	}
	yes := true
	want := api.Task{
		Kind: "llm.chat", Key: "k", State: api.Pending, Run: 1, Created: &yes, Priority: 9, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
		Metadata: []byte(`{"order":"7"}`),
	}
	got := r.task
	if got.Deadline == nil || got.Deadline.Sub(got.CreatedAt) != 24*time.Hour || !got.RunAt.Equal(got.CreatedAt) || len(got.InputHash) != 64 {
		t.Errorf("got deadline %v, run_at %v, created_at %v, input_hash %q", got.Deadline, got.RunAt, got.CreatedAt, got.InputHash)
	}
	got.ID, got.Deadline, got.RunAt, got.CreatedAt, got.InputHash = "", nil, time.Time{}, time.Time{}, ""
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	line := b.logLine(t, "my-request.1")
	for _, want := range []string{`"key":"k"`, `"input_hash":"` + r.task.InputHash, `"trace_id":"4bf9`, `"tenant":"a"`, `"status":202`, `"route":"POST /v1/tasks"`} {
		if !strings.Contains(line, want) {
			t.Errorf("the line %s lacks %s", line, want)
		}
	}
}

// logLine is the line of the log about a request. It is written after the
// answer.
func (b *bundle) logLine(t *testing.T, requestID string) string {
	t.Helper()
	for look := time.NewTicker(time.Millisecond); ; <-look.C {
		for line := range strings.Lines(b.Log.String()) {
			if strings.Contains(line, `"request_id":"`+requestID+`"`) {
				return line
			}
		}
	}
}

func TestETag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	conditional := func(path, tag string) reply {
		return b.do(t, call{method: "GET", path: "/v1/tasks/" + id + path, header: http.Header{"If-None-Match": {tag}}})
	}
	first := b.get(t, id)
	tag := first.header.Get("ETag")
	if tag == "" {
		t.Fatal("there is no ETag")
	}
	if r := conditional("", tag); r.status != 304 || len(r.body) != 0 || r.header.Get("ETag") != tag || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d %v %s, want 304", r.status, r.header, r.body)
	}
	if r := conditional("", `"other", `+tag); r.status != 304 {
		t.Errorf("a list of tags: got %d, want 304", r.status)
	}
	if r := conditional("", `"other"`); r.status != 200 {
		t.Errorf("another tag: got %d, want 200", r.status)
	}
	// Duplicates are no part of it.
	if _, err := b.DB.Exec(context.Background(), `INSERT INTO onefold.task_duplicates (task_id, count) VALUES ($1, 41)`, id); err != nil {
		t.Fatal(err)
	}
	if r := b.get(t, id); r.task.Duplicates != 41 || r.header.Get("ETag") != tag {
		t.Errorf("got %d duplicates under %s, want 41 under %s", r.task.Duplicates, r.header.Get("ETag"), tag)
	}
	b.settle(t, id, api.Succeeded, []byte("1"))
	r := conditional("", tag)
	if r.status != 200 || r.task.State != api.Succeeded || r.header.Get("Retry-After") != "" {
		t.Errorf("after it settled: got %d %s", r.status, r.body)
	}
	for _, path := range []string{"", "/input", "/result"} {
		tag := conditional(path, "").header.Get("ETag")
		if r := conditional(path, tag); tag == "" || r.status != 304 || r.header.Get("Retry-After") != "" {
			t.Errorf("%q under %s: got %d, want 304", path, tag, r.status)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	got := make(chan reply, 1)
	go func() { got <- b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "?wait=60s"}) }()
	b.awaitWaiter(t)
	b.settle(t, id, api.Unknown, nil)
	if r := <-got; r.status != 200 || r.task.State != api.Unknown || r.task.Error == nil {
		t.Errorf("got %d %s", r.status, r.body)
	}
	other := b.submit(t, "k2", chat).task.ID
	if r := b.do(t, call{method: "GET", path: "/v1/tasks/" + other + "?wait=1"}); r.status != 200 || r.task.State != api.Pending || r.header.Get("Retry-After") == "" {
		t.Errorf("time over: got %d %v %s", r.status, r.header, r.body)
	}
	for _, wait := range []string{"61s", "-1s", "soon", "61", "1h"} {
		r := b.do(t, call{method: "GET", path: "/v1/tasks/" + other + "?wait=" + wait})
		checkProblem(t, r)
		if r.problem.Field != "wait" {
			t.Errorf("wait=%s: got %d about %q", wait, r.status, r.problem.Field)
		}
	}
}

// awaitWaiter waits until the process reads for somebody who waits: the query
// has run on a connection of its pool.
func (b *bundle) awaitWaiter(t *testing.T) {
	t.Helper()
	for look := time.NewTicker(5 * time.Millisecond); ; <-look.C {
		var n int
		err := b.DB.QueryRow(context.Background(), `
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'onefold-api' AND state = 'idle' AND query LIKE '%CASE WHEN octet_length(t.result)%'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
}

func TestSubmitWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := make(chan reply, 1)
	go func() {
		got <- b.do(t, call{method: "POST", path: "/v1/tasks", idem: "k", body: chat, header: http.Header{"Prefer": {"respond-async, wait=3600"}}})
	}()
	b.awaitWaiter(t)
	id := b.find(t, "k")
	b.settle(t, id, api.Succeeded, []byte(`"done"`))
	r := <-got
	if r.status != 202 || string(r.task.Result) != `"done"` || r.header.Get("Preference-Applied") != "wait=60" || r.task.Created == nil || !*r.task.Created {
		t.Errorf("got %d %v %s, want 202 with the result", r.status, r.header, r.body)
	}
	r = b.do(t, call{method: "POST", path: "/v1/tasks", idem: "k", body: chat, header: http.Header{"Prefer": {"wait=nonsense"}}})
	if r.status != 200 || r.header.Get("Preference-Applied") != "" {
		t.Errorf("a preference that makes no sense: got %d %v, want it ignored", r.status, r.header)
	}
	r = b.do(t, call{method: "POST", path: "/v1/tasks?wait=1s", idem: "k2", body: chat})
	if r.status != 202 || r.task.State != api.Pending || r.header.Get("Preference-Applied") != "" {
		t.Errorf("time over: got %d %s", r.status, r.body)
	}
}

func (b *bundle) find(t *testing.T, key string) (id string) {
	t.Helper()
	if err := b.DB.QueryRow(context.Background(), `SELECT id::text FROM onefold.tasks WHERE key = $1`, key).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// Those who wait get what is known when the server stops, not a broken
// connection.
func TestStopEndsWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	got := make(chan reply, 1)
	go func() { got <- b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "?wait=60s"}) }()
	b.awaitWaiter(t)
	if err := b.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if r := <-got; r.status != 200 || r.task.State != api.Pending {
		t.Errorf("got %d %s, want the pending task", r.status, r.body)
	}
}

func TestNoResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, state := range []api.State{api.Pending, api.Failed, api.Unknown} {
		id := b.submit(t, string(state), chat).task.ID
		if state.Settled() {
			b.settle(t, id, state, nil)
		}
		r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "/result"})
		checkProblem(t, r)
		if r.problem.Code != api.CodeNotFinished || r.problem.TaskID != id {
			t.Errorf("%s: got %s", state, r.body)
		}
	}
}

func TestFailedShowsWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	b.settle(t, id, api.Failed, nil)
	got := b.get(t, id).task.Error
	want := &api.TaskError{Code: "attempts_exhausted", Message: "no luck", Fix: api.Codes[api.CodeAttemptsExhaust].Fix}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

// A task past its retention is told as such, whether the purge has come by or
// not.
func TestExpired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	id := b.submit(t, "k", chat).task.ID
	b.settle(t, id, api.Succeeded, []byte("1"))
	sum := sha256.Sum256([]byte("1"))
	look := func(when string, purged bool) {
		t.Helper()
		for _, path := range []string{"", "/input", "/result", "/effects", "?wait=5s"} {
			r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id + path})
			checkProblem(t, r)
			tomb := r.problem.Tombstone
			if r.status != 410 || tomb == nil || tomb.State != api.Succeeded || tomb.ResultHash != hex.EncodeToString(sum[:]) || (tomb.PurgedAt != nil) != purged {
				t.Errorf("%s, %q: got %d %s", when, path, r.status, r.body)
			}
		}
		if r := b.do(t, call{method: "GET", path: "/v1/tasks"}); string(r.body) != "{\"items\":[],\"next\":null}\n" {
			t.Errorf("%s: listed as %s", when, r.body)
		}
	}
	if _, err := b.DB.Exec(ctx, `UPDATE onefold.tasks SET expires_at = now() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	look("before the purge", false)
	if err := store.RetireExpired(ctx, b.DB, []uuid.UUID{uuid.MustParse(id)}); err != nil {
		t.Fatal(err)
	}
	look("after the purge", true)
	r := b.do(t, call{method: "POST", path: "/v1/tasks/" + id + "/cancel"})
	if r.status != 410 {
		t.Errorf("cancel: got %d %s, want 410", r.status, r.body)
	}
	if r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id, key: b.key(t, "b", api.ScopeRead)}); r.status != 404 {
		t.Errorf("another tenant: got %d %s, want 404", r.status, r.body)
	}
}

func TestPayloadPurged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	b.settle(t, id, api.Succeeded, []byte("1"))
	_, err := b.DB.Exec(context.Background(), `UPDATE onefold.tasks SET payload_purged_at = now(), input = NULL, result = NULL WHERE id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/input", "/result"} {
		r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id + path})
		checkProblem(t, r)
		if r.problem.Code != api.CodeResultExpired || r.problem.Tombstone == nil || r.problem.Tombstone.ResultHash == "" {
			t.Errorf("%s: got %s", path, r.body)
		}
	}
	if r := b.do(t, call{method: "POST", path: "/v1/tasks", idem: "k", body: chat}); r.status != 200 || !r.task.ResultExpired || len(r.task.ResultHash) != 64 || r.task.Result != nil {
		t.Errorf("a replay: got %d %s", r.status, r.body)
	}
	other := `{"kind":"llm.chat","input":{"model":"m","messages":[]}}`
	if r := b.do(t, call{method: "POST", path: "/v1/tasks", idem: "k", body: other}); r.status != 422 || !strings.Contains(string(r.body), `"mismatch":null`) {
		t.Errorf("another payload: got %d %s", r.status, r.body)
	}
	if r := b.get(t, id); r.status != 200 || r.task.Result != nil {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

func TestQueuePlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, b.submit(t, fmt.Sprint(i), chat).task.ID)
	}
	other := b.key(t, "b", api.ScopeSubmit)
	b.do(t, call{method: "POST", path: "/v1/tasks", key: other, idem: "k", body: chat})
	for i, id := range ids {
		r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "?include=queue"})
		if r.task.Queue == nil || r.task.Queue.Position != int64(i+1) || r.header.Get("ETag") != "" {
			t.Errorf("task %d: got %s", i, r.body)
		}
	}
	r := b.do(t, call{method: "GET", path: "/v1/tasks/" + ids[0] + "?include=everything"})
	checkProblem(t, r)
	if r.problem.Field != "include" {
		t.Errorf("got %s", r.body)
	}
}

// Retry-After comes from what the tenant's own tasks of the kind took.
func TestRetryAfterIsMeasured(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	for i := range 20 {
		id := b.submit(t, fmt.Sprintf("old%d", i), `{"kind":"open","input":1}`).task.ID
		b.settle(t, id, api.Succeeded, []byte("1"))
		if _, err := b.DB.Exec(ctx, `UPDATE onefold.tasks SET finished_at = run_at + interval '30 s', slot = id::text WHERE id = $1`, id); err != nil {
			t.Fatal(err)
		}
	}
	b2 := startOn(t, b) // a process that has measured nothing yet
	r := b2.submit(t, "k", `{"kind":"open","input":1}`)
	after, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || after < 25 || after > 30 {
		t.Errorf("got Retry-After %q, want about 30", r.header.Get("Retry-After"))
	}
	if r := b2.submit(t, "k", chat); r.header.Get("Retry-After") != "2" {
		t.Errorf("another kind: got Retry-After %q, want 2: nothing is measured there", r.header.Get("Retry-After"))
	}
	_, err = b.DB.Exec(ctx, `UPDATE onefold.tasks SET run_at = now() - interval '10 min' WHERE key = 'k' AND kind = 'open'`)
	if err != nil {
		t.Fatal(err)
	}
	if r := b2.get(t, r.task.ID); r.header.Get("Retry-After") != "60" {
		t.Errorf("ten minutes late: got Retry-After %q, want 60", r.header.Get("Retry-After"))
	}
}

// A task is found by its key wherever an id is taken: the newest under it.
func TestByKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "order:7/x&y", chat).task.ID
	const q = "?kind=llm.chat&key=order%3A7%2Fx%26y"
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/v1/tasks/by-key" + q, 200},
		{"GET", "/v1/tasks/by-key/input" + q, 200},
		{"GET", "/v1/tasks/by-key/result" + q, 409},
		{"GET", "/v1/tasks/by-key/attempts" + q, 200},
		{"GET", "/v1/tasks/by-key/effects" + q, 200},
		{"GET", "/v1/tasks/by-key?kind=llm.chat&key=nosuch", 404},
		{"GET", "/v1/tasks/by-key?kind=llm.chat", 400},
		{"GET", "/v1/tasks/by-key", 400},
		{"GET", "/v1/tasks/" + id + q, 400},
		{"POST", "/v1/tasks/by-key/cancel" + q, 200},
		{"DELETE", "/v1/tasks/by-key/payload" + q, 200},
	} {
		r := b.do(t, call{method: c.method, path: c.path})
		if r.status != c.want || c.want == 200 && r.task.ID != "" && r.task.ID != id {
			t.Errorf("%s %s: got %d %s, want %d", c.method, c.path, r.status, r.body, c.want)
		}
	}
	if r := b.do(t, call{method: "GET", path: "/v1/tasks/by-key" + q, key: b.key(t, "b", api.ScopeRead)}); r.status != 404 {
		t.Errorf("another tenant: got %d %s, want 404", r.status, r.body)
	}
}
