package server_test

import (
	"bytes"
	"testing"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/auth"
)

// Another tenant's task is answered like one that does not exist, byte for byte
// but for the request's id, on every route.
func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine := b.submit(t, "shared", chat).task
	b.settle(t, mine.ID, api.Unknown, nil)
	other := b.key(t, "b", api.ScopeSubmit, api.ScopeRead, api.ScopeOperate)
	theirs := b.do(t, call{method: "POST", path: "/v1/tasks", key: other, idem: "shared", body: chat})
	if theirs.status != 202 || theirs.task.ID == mine.ID {
		t.Errorf("the same key in two tenants: got %d %s, want a task of its own", theirs.status, theirs.body)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""},
		{"GET", "?wait=30s", ""},
		{"GET", "?include=queue", ""},
		{"GET", "/input", ""},
		{"GET", "/result", ""},
		{"GET", "/effects", ""},
		{"GET", "/attempts", ""},
		{"GET", "/attempts/1/reply", ""},
		{"POST", "/cancel", ""},
		{"POST", "/retry", `{"epoch":1}`},
		{"POST", "/retry", `{"epoch":77}`},
		{"POST", "/resolve", `{"action":"failed","epoch":1,"reason":"r"}`},
	} {
		ask := func(id string) reply {
			r := b.do(t, call{method: c.method, path: "/v1/tasks/" + id + c.path, key: other, body: c.body})
			checkProblem(t, r)
			r.body = bytes.ReplaceAll(r.body, []byte(r.problem.RequestID), []byte("ID"))
			return r
		}
		foreign := ask(mine.ID)
		if foreign.status != 404 {
			t.Errorf("%s %s: got %d %s, want 404", c.method, c.path, foreign.status, foreign.body)
		}
		for name, id := range map[string]string{"unknown": uuid.Must(uuid.NewV7()).String(), "malformed": "nosuch", "cut": mine.ID[:35], "with braces": "%7B" + mine.ID + "%7D"} {
			if r := ask(id); !bytes.Equal(r.body, foreign.body) || r.status != foreign.status {
				t.Errorf("%s %s: an %s id gives %s, a foreign one %s", c.method, c.path, name, r.body, foreign.body)
			}
		}
	}
	if p := b.list(t, other, ""); len(p.Items) != 1 || p.Items[0].ID != theirs.task.ID {
		t.Errorf("got the list %v, want only their own", p.Items)
	}
	if p := b.list(t, other, "kind=llm.chat&key=shared"); len(p.Items) != 1 || p.Items[0].ID != theirs.task.ID {
		t.Errorf("by key: got %v, want only their own", p.Items)
	}
	if got := b.get(t, mine.ID).task; got.State != api.Unknown || got.Epoch != 1 {
		t.Errorf("got %s at epoch %d, want it untouched", got.State, got.Epoch)
	}
}

// An instance key sees and operates every tenant's tasks.
func TestInstanceKeySeesAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	b.settle(t, id, api.Unknown, nil)
	admin := b.key(t, auth.AnyTenant, api.ScopeAdmin)
	for _, path := range []string{"/v1/tasks/" + id, "/v1/tasks/" + id + "?wait=5s", "/v1/tasks/" + id + "/input", "/v1/tasks/" + id + "/effects"} {
		if r := b.do(t, call{method: "GET", path: path, key: admin}); r.status != 200 {
			t.Errorf("%s: got %d %s", path, r.status, r.body)
		}
	}
	if p := b.list(t, admin, ""); len(p.Items) != 1 {
		t.Errorf("got %d tasks, want 1", len(p.Items))
	}
	if r := b.do(t, call{method: "POST", path: "/v1/tasks/" + id + "/retry", key: admin, body: `{"epoch":1}`}); r.status != 200 {
		t.Errorf("retry: got %d %s", r.status, r.body)
	}
	if r := b.do(t, call{method: "POST", path: "/v1/tasks/" + id + "/cancel", key: admin}); r.status != 200 {
		t.Errorf("cancel: got %d %s", r.status, r.body)
	}
}
