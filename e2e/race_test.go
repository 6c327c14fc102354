package e2e

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// TestRaceCases plays the cases of idempotency_race, which are told in words:
// one function for each.
func TestRaceCases(t *testing.T) {
	t.Parallel()
	plays := map[string]func(*testing.T, casetest.Case){"C024": parallelSame, "C025": parallelTwoBodies, "C027": duringTheCall}
	for _, c := range casetest.Claimed(t, "e2e.TestRaceCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			play := plays[c.ID]
			if play == nil {
				t.Fatalf("nobody plays %s: %s", c.ID, c.Input)
			}
			play(t, c)
		})
	}
}

// raceAnswer is what the cases of this theme expect; statuses are words.
type raceAnswer struct {
	TasksCreated  int    `json:"tasks_created"`
	Statuses      string `json:"statuses"`
	UpstreamCalls int    `json:"upstream_calls"`
	SecondStatus  int    `json:"second_status"`
	LatencyMsMax  int    `json:"latency_ms_max"`
}

func parallelSame(t *testing.T, c casetest.Case) {
	var want raceAnswer
	c.Expect(t, &want)
	w := proc.New(t, nil)
	s := newSenders(t, w, w.API(t), w.API(t))
	w.Worker(t)
	shots := repeat(50, "c024", chat("fake:ok", "hi"))
	s.fire(t, shots)
	statuses, ids := tally(shots)
	if diff := cmp.Diff(statuses, map[int]int{202: 1, 200: 49}); diff != "" || len(ids) != 1 {
		t.Errorf("want %s; got %d ids; -got +want:\n%s", want.Statuses, len(ids), diff)
	}
	drained(t, w)
	if tasks, calls := w.Count(t, `SELECT count(*) FROM onefold.tasks`), w.Model.Calls().Received; tasks != want.TasksCreated || calls != want.UpstreamCalls {
		t.Errorf("got %d tasks and %d calls, want %d and %d", tasks, calls, want.TasksCreated, want.UpstreamCalls)
	}
}

func parallelTwoBodies(t *testing.T, c casetest.Case) {
	var want raceAnswer
	c.Expect(t, &want)
	w := proc.New(t, nil)
	s := newSenders(t, w, w.API(t), w.API(t))
	shots := make([]*shot, 50)
	for i := range shots {
		shots[i] = &shot{key: "c025", body: chat("fake:ok", []string{"A", "B"}[i%2])}
	}
	s.fire(t, shots)
	winner := ""
	for _, sh := range shots {
		if sh.status == 202 {
			winner = sh.body
		}
	}
	statuses, ids := tally(shots)
	if diff := cmp.Diff(statuses, map[int]int{202: 1, 200: 24, 422: 25}); diff != "" || len(ids) != 1 {
		t.Errorf("want %s; got %d ids; -got +want:\n%s", want.Statuses, len(ids), diff)
	}
	for _, sh := range shots {
		if (sh.status == 422) == (sh.body == winner) {
			t.Errorf("got %d for the body %s; the winner's is %s", sh.status, sh.body, winner)
		}
	}
	if tasks := w.Count(t, `SELECT count(*) FROM onefold.tasks`); tasks != want.TasksCreated {
		t.Errorf("got %d tasks, want %d", tasks, want.TasksCreated)
	}
}

// duringTheCall: a duplicate is answered at once while the model is at work. The
// case's bound is a guard and taken times five.
func duringTheCall(t *testing.T, c casetest.Case) {
	var want raceAnswer
	c.Expect(t, &want)
	w := proc.New(t, nil)
	s := newSenders(t, w, w.API(t))
	w.Worker(t)
	shots := repeat(2, "c027", chat("fake:latency=60s", "hi"))
	s.fire(t, shots[:1])
	proc.Until(t, "the model at work", func() bool { return w.Model.Calls().Running == 1 })
	start := time.Now()
	s.fire(t, shots[1:])
	took := time.Since(start)
	if shots[0].status != 202 || shots[1].status != want.SecondStatus || shots[0].task.ID != shots[1].task.ID {
		t.Errorf("got %d for %s, then %d for %s; want 202, %d, one task", shots[0].status, shots[0].task.ID,
			shots[1].status, shots[1].task.ID, want.SecondStatus)
	}
	if most := 5 * time.Duration(want.LatencyMsMax) * time.Millisecond; took > most {
		t.Errorf("the duplicate was answered after %s, want at most %s", took, most)
	}
	if calls := w.Model.Calls().Received; calls != 1 {
		t.Errorf("got %d calls, want 1", calls)
	}
}
