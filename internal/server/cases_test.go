package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

// TestCases plays the submits of the cases over real connections.
func TestCases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range casetest.Claimed(t, "internal/server.TestCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			if c.ID == "C020" {
				databaseDownFirst(t, c)
				return
			}
			play(t, b, c, casetest.Submits(t, c))
		})
	}
}

// player sends the requests of one case, each tenant of it with a key of its own.
type player struct {
	b    *bundle
	id   string
	keys map[string]string
}

func (p *player) tenant(credential string) string {
	return strings.ToLower(p.id) + "-" + strings.TrimPrefix(credential, "tenant-")
}

func (p *player) key(t *testing.T, credential string) string {
	t.Helper()
	if p.keys[credential] == "" {
		p.keys[credential] = p.b.key(t, p.tenant(credential), api.ScopeSubmit, api.ScopeRead)
	}
	return p.keys[credential]
}

func (p *player) call(t *testing.T, s casetest.Submit) rawCall {
	t.Helper()
	c := rawCall{method: "POST", path: s.Path, auth: p.key(t, s.Credential), body: s.Body()}
	media := jsonLine
	for name, value := range s.Headers {
		if strings.EqualFold(name, "Content-Type") {
			media = name + ": " + value
			continue
		}
		c.lines = append(c.lines, name+": "+value)
	}
	for _, k := range s.Keys {
		c.lines = append(c.lines, s.HeaderName+": "+k)
	}
	c.lines = append(c.lines, media)
	return c
}

func play(t *testing.T, b *bundle, c casetest.Case, submits []casetest.Submit) {
	t.Helper()
	p := &player{b: b, id: c.ID, keys: map[string]string{}}
	var want casetest.SubmitAnswer
	c.Expect(t, &want)
	var statuses []int
	ids := map[string]bool{}
	for _, s := range submits {
		call := p.call(t, s)
		if s.Fault == "drop_reply_after_commit" {
			p.sendAndLeave(t, call)
			continue
		}
		r := sendRaw(t, b.Addr, call)
		statuses = append(statuses, r.status)
		p.judge(t, s, r, call.auth)
		if r.task.ID != "" {
			ids[r.task.ID] = true
		}
	}
	switch {
	case want.SecondStatus != 0:
		want.Statuses = []int{want.SecondStatus}
	case want.Statuses == nil: // one rule, whichever: never a server error
		for _, s := range statuses {
			if s != 202 && s != 400 {
				t.Errorf("got status %d, want 202 or 400", s)
			}
		}
		want.Statuses = statuses
	}
	if diff := cmp.Diff(statuses, want.Statuses); diff != "" {
		t.Errorf("statuses: -got +want:\n%s", diff)
	}
	if want.SameTaskID && len(ids) != 1 {
		t.Errorf("got the tasks %v, want one", ids)
	}
	created := p.created(t)
	if want.TasksCreated != nil && created != *want.TasksCreated {
		t.Errorf("%d tasks stand in the database, want %d", created, *want.TasksCreated)
	}
}

// judge checks what holds for every answer.
func (p *player) judge(t *testing.T, s casetest.Submit, r reply, auth string) {
	t.Helper()
	if r.status >= 400 {
		checkProblem(t, r)
		return
	}
	in := p.b.do(t, call{method: "GET", path: "/v1/tasks/" + r.task.ID + "/input", key: auth})
	if r.status == 202 && !bytes.Equal(in.body, bytes.TrimSpace(s.Input)) {
		t.Errorf("the input came back as %.200q, want the bytes that were sent: %.200q", in.body, s.Input)
	}
}

// checkProblem checks the form every refusal has.
func checkProblem(t *testing.T, r reply) {
	t.Helper()
	p := r.problem
	row, known := api.Codes[p.Code]
	if r.header.Get("Content-Type") != "application/problem+json" || !known || row.Status != r.status || p.Status != r.status ||
		p.Message == "" || p.Fix == "" || p.RequestID == "" || p.RequestID != r.header.Get("Request-Id") {
		t.Errorf("got %d %s, want a problem with a code of the table, a fix and the request id", r.status, r.body)
	}
}

// sendAndLeave sends a request and breaks the connection once the task is
// committed, without having read the answer.
func (p *player) sendAndLeave(t *testing.T, c rawCall) {
	t.Helper()
	conn, err := net.Dial("tcp", p.b.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(c.bytes()); err != nil {
		t.Fatal(err)
	}
	for look := time.NewTicker(5 * time.Millisecond); p.created(t) == 0; {
		<-look.C
	}
}

func (p *player) created(t *testing.T) (n int) {
	t.Helper()
	var tenants []string
	for credential := range p.keys {
		tenants = append(tenants, p.tenant(credential))
	}
	var wakes int
	err := p.b.DB.QueryRow(context.Background(), `
SELECT count(*), count(j.id)
FROM onefold.tasks AS t
LEFT JOIN onefold.river_job AS j ON j.args ->> 'id' = t.id::text
WHERE t.tenant = ANY ($1)`, tenants).Scan(&n, &wakes)
	if err != nil {
		t.Fatal(err)
	}
	if wakes != n {
		t.Errorf("%d tasks have %d wake-ups, want one each: more would be more calls", n, wakes)
	}
	return n
}

// databaseDownFirst is a submit while the database is away: 503 with
// Retry-After and nothing stored, and the same request is new afterwards.
func databaseDownFirst(t *testing.T, c casetest.Case) {
	t.Helper()
	cluster := pgtest.Cluster(t)
	b := start(t, pgtest.NewIn(t, cluster))
	submits := casetest.Submits(t, c)
	var want casetest.SubmitAnswer
	c.Expect(t, &want)
	p := &player{b: b, id: c.ID, keys: map[string]string{}}
	first := p.call(t, submits[0])
	// The key is known from before, as that of a caller in the middle of its work.
	if r := b.do(t, call{method: "GET", path: "/v1/tasks", key: first.auth}); r.status != 200 {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	if err := cluster.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	r := sendRaw(t, b.Addr, first)
	checkProblem(t, r)
	if r.status != want.Statuses[0] || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d, Retry-After %q, want %d with one", r.status, r.header.Get("Retry-After"), want.Statuses[0])
	}
	if err := cluster.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.awaitReady(t)
	b.DB.Reset() // of connections that died
	r = sendRaw(t, b.Addr, p.call(t, submits[1]))
	if r.status != want.Statuses[1] {
		t.Errorf("got %d %s, want %d", r.status, r.body, want.Statuses[1])
	}
	if n := p.created(t); n != *want.TasksCreated {
		t.Errorf("%d tasks, want %d", n, *want.TasksCreated)
	}
}

// C058: the fields that differ are named, their values are not shown.
func TestMismatchNamesFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := func(prompt string) string {
		return `{"kind":"llm.chat","input":{"model":"m","prompt":"` + prompt + `"}}`
	}
	b.submit(t, "m1", body("10"))
	r := b.submit(t, "m1", body("secretvalue"))
	checkProblem(t, r)
	if diff := cmp.Diff(r.problem.Mismatch, []string{"input.prompt"}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if strings.Contains(string(r.body), "secretvalue") {
		t.Errorf("the refusal shows what was sent: %s", r.body)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &raw); err != nil || raw["task_id"] == nil {
		t.Errorf("got %s, want the task's id in it", r.body)
	}
}
