package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// A worker is stopped in the middle of its calls until its lease is over and
// another one has made them again; the replies reach it while it is stopped.
// When it goes on it changes no task, no result and no effect, however its calls
// end: the results are those of the worker that owns the tasks now.
func TestFencedWorkerChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const tasks = 20
	stopped, second := make(chan struct{}), make(chan struct{})
	s.up.answer("slow", func(a *answering) {
		if s.nth(a) == 1 {
			<-stopped
			a.say("from the stopped worker")
			return
		}
		<-second
		a.say("from the owner")
	})
	old := s.Worker(t)
	for i := range tasks {
		s.submit(t, "free", fmt.Sprint("fenced-", i), "slow")
	}
	s.up.await(t, "slow", tasks)
	old.Pause(t)
	close(stopped)
	s.Worker(t)
	s.up.await(t, "slow", 2*tasks)
	owned := s.owned(t)
	old.Resume(t)
	proc.Until(t, "the stopped worker done with its calls", func() bool {
		return strings.Count(old.Log(), `"msg":"attempt"`) == tasks
	})
	if now := s.owned(t); now != owned || strings.Count(now, "running") != tasks {
		t.Errorf("the fenced worker moved tasks: before\n%s\nafter\n%s", owned, now)
	}
	if n := strings.Count(old.Log(), `"fenced":true`); n == 0 {
		t.Error("the stopped worker never tried to write: nothing was tested")
	}
	close(second)
	drained(t, s.World)
	for i := range tasks {
		got, err := s.Client(t, s.front).Find(t.Context(), "free", fmt.Sprint("fenced-", i))
		if err != nil || got.State != api.Succeeded || contentOf(t, got.Result) != "from the owner" {
			t.Errorf("got %+v, %v; want the owner's result", got, err)
		}
	}
	if n := s.Count(t, `SELECT count(*) FROM onefold.attempts WHERE outcome = 'lost'`); n != tasks {
		t.Errorf("got %d lost attempts, want %d", n, tasks)
	}
	if n := s.Count(t, `SELECT count(*) FROM onefold.effects`); n != tasks {
		t.Errorf("got %d effects, want %d", n, tasks)
	}
}

// owned says who owns which task.
func (s *stage) owned(t *testing.T) (all string) {
	t.Helper()
	err := s.Pool.QueryRow(t.Context(), `
SELECT string_agg(concat_ws(' ', key, state, epoch, token), E'\n' ORDER BY key)
FROM onefold.tasks`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
