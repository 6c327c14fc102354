package server_test

import (
	"context"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// TestTTLCases takes the cases of retention. Time is the database's: the rows
// are put where the steps say they are by then.
func TestTTLCases(t *testing.T) {
	t.Parallel()
	steps := map[string]func(*testing.T, *bundle, casetest.Case){"C028": longerThanItsKey, "C029": clockAhead, "C030": aroundTheEnd}
	for _, c := range casetest.Claimed(t, "internal/server.TestTTLCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			steps[c.ID](t, setup(t), c)
		})
	}
}

type ttlExpected struct {
	TasksCreated int  `json:"tasks_created"`
	SameTaskID   bool `json:"same_task_id"`
	First        string
	Second       string
}

func (b *bundle) ttl(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.DB.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) tasks(t *testing.T) (n int) {
	t.Helper()
	if err := b.DB.QueryRow(context.Background(), `SELECT count(*) FROM onefold.tasks`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// longerThanItsKey: a task waits and runs for longer than keys are kept. Its key
// is counted from its end, so it holds all the while.
func longerThanItsKey(t *testing.T, b *bundle, c casetest.Case) {
	var want ttlExpected
	c.Expect(t, &want)
	id := b.submit(t, "k", chat).task.ID
	b.ttl(t, `UPDATE onefold.tasks SET created_at = now() - interval '90 min', deadline = now() + interval '30 min' WHERE id = $1`, id)
	for _, when := range []string{"pending", "running"} {
		if when == "running" {
			b.claim(t, id)
		}
		r := b.do(t, call{method: "POST", path: "/v1/tasks", idem: "k", body: chat})
		if same := r.task.ID == id; r.status != 200 || same != want.SameTaskID || b.tasks(t) != want.TasksCreated {
			t.Errorf("while %s: got %d %s, %d tasks", when, r.status, r.body, b.tasks(t))
		}
	}
	b.ttl(t, `UPDATE onefold.tasks SET state = 'pending', owner = NULL, token = NULL WHERE id = $1`, id)
	b.settle(t, id, api.Succeeded, []byte("1"))
	if r := b.get(t, id); r.task.ExpiresAt == nil || r.task.FinishedAt == nil || !r.task.ExpiresAt.After(*r.task.FinishedAt) {
		t.Errorf("once final it is kept until %v, from %v", r.task.ExpiresAt, r.task.FinishedAt)
	}
}

// clockAhead: no time of the program's own decides anything. The submit of a
// program an hour ahead is a row an hour old by its own clock at once.
func clockAhead(t *testing.T, b *bundle, c casetest.Case) {
	var want ttlExpected
	c.Expect(t, &want)
	id := b.submit(t, "k", chat).task.ID
	// What the program's clock says an hour ahead is what the database's says an
	// hour behind.
	b.ttl(t, `UPDATE onefold.tasks SET created_at = created_at - interval '1 h', run_at = run_at - interval '1 h', virtual_at = virtual_at - interval '1 h' WHERE id = $1`, id)
	r := b.do(t, call{method: "POST", path: "/v1/tasks", idem: "k", body: chat})
	if r.status != 200 || r.task.ID != id || b.tasks(t) != want.TasksCreated {
		t.Errorf("got %d %s, %d tasks, want %d", r.status, r.body, b.tasks(t), want.TasksCreated)
	}
}

// aroundTheEnd: a second before its retention ends the key is the old task's, a
// second after it a new intent.
func aroundTheEnd(t *testing.T, b *bundle, c casetest.Case) {
	var want ttlExpected
	c.Expect(t, &want)
	says := map[bool]string{true: "same task", false: "new task"}
	// The hour stands for the second: the test must not depend on how fast it is.
	for _, when := range []struct {
		expires string
		want    string
	}{{"1 h", want.First}, {"-1 s", want.Second}} {
		key := "k" + when.expires[:1]
		id := b.submit(t, key, chat).task.ID
		b.settle(t, id, api.Succeeded, []byte("1"))
		b.ttl(t, `UPDATE onefold.tasks SET finished_at = now() - interval '720 h' + $2::interval, expires_at = now() + $2::interval WHERE id = $1`, id, when.expires)
		r := b.do(t, call{method: "POST", path: "/v1/tasks", idem: key, body: chat})
		if got := says[r.task.ID == id]; got != when.want {
			t.Errorf("expires in %s: got %s, want %s (%d %s)", when.expires, got, when.want, r.status, r.body)
		}
	}
}
