package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
)

func (b *bundle) act(t *testing.T, id, what, body string) reply {
	t.Helper()
	return b.do(t, call{method: "POST", path: "/v1/tasks/" + id + "/" + what, body: body})
}

// claim makes a task run, as a worker's claim would.
func (b *bundle) claim(t *testing.T, id string) {
	t.Helper()
	_, err := b.DB.Exec(context.Background(), `
UPDATE onefold.tasks
SET state = 'running', epoch = epoch + 1, owner = gen_random_uuid(), token = gen_random_uuid(), attempts = 1, total_attempts = 1, started_at = now()
WHERE id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "pending", chat).task.ID
	if r := b.act(t, id, "cancel", ""); r.status != 200 || r.task.State != api.Cancelled || r.task.Cancel == nil || r.task.Cancel.Asked || r.task.Cancel.MayStillBill {
		t.Errorf("pending: got %d %s", r.status, r.body)
	}
	if r := b.get(t, id); r.task.Cancel != nil {
		t.Errorf("reading it later says %s", r.body)
	}
	if r := b.act(t, id, "cancel", `{"reason": "again"}`); r.status != 200 {
		t.Errorf("again: got %d %s", r.status, r.body)
	}
	id = b.submit(t, "running", chat).task.ID
	b.claim(t, id)
	if r := b.act(t, id, "cancel", `{"reason": "not needed"}`); r.status != 202 || r.task.State != api.Running || !r.task.CancelAsked || !r.task.Cancel.Asked || !r.task.Cancel.MayStillBill {
		t.Errorf("running: got %d %s", r.status, r.body)
	}
	id = b.submit(t, "unknown", chat).task.ID
	b.settle(t, id, api.Unknown, nil)
	if _, err := b.DB.Exec(context.Background(), `UPDATE onefold.tasks SET unclear = true WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if r := b.act(t, id, "cancel", ""); r.status != 200 || r.task.State != api.Cancelled || !r.task.Cancel.MayStillBill {
		t.Errorf("unknown: got %d %s", r.status, r.body)
	}
	id = b.submit(t, "done", chat).task.ID
	b.settle(t, id, api.Succeeded, []byte("1"))
	r := b.act(t, id, "cancel", "")
	checkProblem(t, r)
	if r.status != 409 || r.problem.TaskID != id || !strings.Contains(r.problem.Message, "billed") {
		t.Errorf("succeeded: got %d %s", r.status, r.body)
	}
}

func TestRetryAndResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", `{"kind":"review","input":1}`).task.ID
	b.settle(t, id, api.Unknown, nil)
	task := b.get(t, id).task
	if r := b.act(t, id, "retry", fmt.Sprintf(`{"epoch": %d}`, task.Epoch+1)); r.status != 409 {
		t.Errorf("another epoch: got %d %s, want 409", r.status, r.body)
	}
	r := b.act(t, id, "retry", fmt.Sprintf(`{"epoch": %d, "reason": "it was not sent"}`, task.Epoch))
	if r.status != 200 || r.task.State != api.Pending || r.task.Run != 2 {
		t.Errorf("retry: got %d %s", r.status, r.body)
	}
	b.settle(t, id, api.Unknown, nil)
	epoch := b.get(t, id).task.Epoch
	r = b.act(t, id, "resolve", fmt.Sprintf(`{"action":"succeeded","epoch":%d,"reason":"seen in their console","result":%s}`, epoch, `{ "n": 1.0 }`))
	if r.status != 200 || r.task.State != api.Succeeded || string(r.task.Result) != `{ "n": 1.0 }` {
		t.Errorf("resolve: got %d %s", r.status, r.body)
	}
	id = b.submit(t, "k2", `{"kind":"review","input":1}`).task.ID
	b.settle(t, id, api.Unknown, nil)
	epoch = b.get(t, id).task.Epoch
	r = b.act(t, id, "resolve", fmt.Sprintf(`{"action":"failed","epoch":%d,"reason":"asked them","message":"they never got it"}`, epoch))
	if r.status != 200 || r.task.State != api.Failed || r.task.Error == nil || !r.task.Error.Permanent || r.task.Error.Message != "they never got it" {
		t.Errorf("resolve as failed: got %d %s", r.status, r.body)
	}
	var acts int
	err := b.DB.QueryRow(context.Background(), `SELECT count(*) FROM onefold.audit WHERE target_type = 'task' AND actor LIKE 'key:%' AND request_id <> ''`).Scan(&acts)
	if err != nil || acts != 3 {
		t.Errorf("%d acts stand in the audit, %v, want 3", acts, err)
	}
}

func TestActsRefuse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	b.settle(t, id, api.Unknown, nil)
	for _, c := range []struct {
		what, body string
		want       api.Code
		field      string
	}{
		{"cancel", `{"why": 1}`, api.CodeUnknownField, "why"},
		{"cancel", `nonsense`, api.CodeInvalidJSON, ""},
		{"cancel", `{"reason": 1}`, api.CodeInvalidField, "reason"},
		{"retry", ``, api.CodeInvalidField, "epoch"},
		{"retry", `{}`, api.CodeInvalidField, "epoch"},
		{"retry", `{"epoch": "1"}`, api.CodeInvalidField, "epoch"},
		{"retry", `{"epoch": 1.0}`, api.CodeInvalidField, "epoch"},
		{"retry", `{"epoch": 1, "epoch": 1}`, api.CodeDuplicateMember, "epoch"},
		{"resolve", `{"action":"failed","epoch":1}`, api.CodeInvalidField, "reason"},
		{"resolve", `{"action":"won","epoch":1,"reason":"r"}`, api.CodeInvalidField, "action"},
		{"resolve", `{"action":"succeeded","epoch":1,"reason":"r"}`, api.CodeInvalidField, "result"},
		{"resolve", `{"action":"finish","epoch":1,"reason":"r"}`, api.CodeConflict, ""},
		{"resolve", `{"action":"failed","reason":"r"}`, api.CodeInvalidField, "epoch"},
	} {
		r := b.act(t, id, c.what, c.body)
		checkProblem(t, r)
		if r.problem.Code != c.want || c.field != "" && r.problem.Field != c.field {
			t.Errorf("%s %s: got %s about %q, want %s about %q: %s", c.what, c.body, r.problem.Code, r.problem.Field, c.want, c.field, r.body)
		}
	}
	if got := b.get(t, id).task; got.State != api.Unknown || got.Epoch != 1 {
		t.Errorf("got %s at epoch %d, want nothing changed", got.State, got.Epoch)
	}
}

func TestEffects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	b.settle(t, id, api.Succeeded, []byte("1"))
	if r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "/effects"}); string(r.body) != "{\"items\":[],\"next\":null}\n" {
		t.Errorf("none: got %s", r.body)
	}
	first, second := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	_, err := b.DB.Exec(context.Background(), `
INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, state, finished_at, error_code, error_message)
VALUES ($1, $3, 'a', 1, 'save', 'succeeded', 'sql', NULL, 'delivered', now(), NULL, NULL),
       ($2, $3, 'a', 1, 'notify', 'succeeded', 'webhook', 'crm', 'dead', now(), 'rejected', 'answered 400')`, first, second, id)
	if err != nil {
		t.Fatal(err)
	}
	r := b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "/effects"})
	var got api.List[api.Effect]
	if err := json.Unmarshal(r.body, &got); err != nil {
		t.Fatal(err)
	}
	for i := range got.Items {
		got.Items[i].CreatedAt, got.Items[i].FinishedAt = got.Items[i].CreatedAt.Truncate(0), nil
	}
	want := []api.Effect{
		{ID: first.String(), TaskID: id, Run: 1, Name: "save", Type: "sql", State: api.EffectDelivered},
		{
			ID: second.String(), TaskID: id, Run: 1, Name: "notify", Type: "webhook", Destination: "crm", State: api.EffectDead,
			Error: &api.TaskError{Code: "rejected", Message: "answered 400", Permanent: true, Fix: api.EffectCodes[api.CodeRejected].Fix},
		},
	}
	for i := range want {
		want[i].CreatedAt = got.Items[i].CreatedAt
	}
	if diff := cmp.Diff(got.Items, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}
