package server_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

// While the database is away every route that needs it says so, with a time to
// come back, and the process lives on; afterwards all is as before.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Cluster(t)
	b := start(t, pgtest.NewIn(t, cluster))
	unseen := b.key(t, "unseen", api.ScopeSubmit, api.ScopeRead) // not in the cache of keys
	id := b.submit(t, "k", chat).task.ID
	s := readSpec(t, b)
	if err := cluster.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		route string
		call
	}{
		{"/v1/tasks", call{method: "POST", idem: "k", body: chat}},
		{"/v1/tasks", call{method: "POST", idem: "new", body: chat}},
		{"/v1/tasks", call{method: "POST", idem: "new", body: chat, key: unseen}},
		{"/v1/tasks", call{method: "GET"}},
		{"/v1/tasks/{id}", call{method: "GET"}},
		{"/v1/tasks/{id}", call{method: "GET", path: "?wait=60s"}},
		{"/v1/tasks/{id}/input", call{method: "GET"}},
		{"/v1/tasks/{id}/result", call{method: "GET"}},
		{"/v1/tasks/{id}/effects", call{method: "GET"}},
		{"/v1/tasks/{id}/cancel", call{method: "POST"}},
		{"/v1/tasks/{id}/retry", call{method: "POST", body: `{"epoch":1}`}},
		{"/v1/tasks/{id}/resolve", call{method: "POST", body: `{"action":"failed","epoch":1,"reason":"r"}`}},
		{"/readyz", call{method: "GET", key: "-"}},
	} {
		c.path = strings.ReplaceAll(c.route, "{id}", id) + c.path
		r := b.do(t, c.call)
		s.check(t, c.method, c.route, r)
		checkProblem(t, r)
		if n, err := strconv.Atoi(r.header.Get("Retry-After")); r.status != 503 || err != nil || n < 1 {
			t.Errorf("%s %s: got %d, Retry-After %q: %s", c.method, c.path, r.status, r.header.Get("Retry-After"), r.body)
		}
	}
	if r := b.do(t, call{method: "GET", path: "/healthz", key: "-"}); r.status != 200 {
		t.Errorf("healthz: got %d, want 200: the process lives", r.status)
	}
	if err := cluster.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.awaitReady(t)
	if r := b.patiently(t, call{method: "POST", path: "/v1/tasks", idem: "k", body: chat}); r.status != 200 || r.task.ID != id {
		t.Errorf("the task from before: got %d %s", r.status, r.body)
	}
	if r := b.patiently(t, call{method: "POST", path: "/v1/tasks", idem: "new", body: chat}); r.status != 202 {
		t.Errorf("a new task: got %d %s, want 202: nothing was stored before", r.status, r.body)
	}
}

// patiently sends a request again while the answer is 503, as a caller does:
// connections that died with the server are found one by one.
func (b *bundle) patiently(t *testing.T, c call) reply {
	t.Helper()
	for look := time.NewTicker(10 * time.Millisecond); ; <-look.C {
		if r := b.do(t, c); r.status != 503 {
			return r
		}
	}
}

// Those who wait while the database restarts get their result afterwards.
func TestWaitOverARestart(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Cluster(t)
	b := start(t, pgtest.NewIn(t, cluster))
	id := b.submit(t, "k", chat).task.ID
	got := make(chan reply, 1)
	go func() { got <- b.do(t, call{method: "GET", path: "/v1/tasks/" + id + "?wait=60s"}) }()
	b.awaitWaiter(t)
	if err := cluster.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.DB.Reset()
	b.settle(t, id, api.Succeeded, []byte("1"))
	if r := <-got; r.status != 200 || r.task.State != api.Succeeded {
		t.Errorf("got %d %s", r.status, r.body)
	}
}
