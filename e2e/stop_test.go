package e2e

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// stopConfig has a kind whose calls may be repeated and one whose may not.
const stopConfig = `
retention: {tasks: 720h}
providers:
  model: {type: openai, base_url: "{{UPSTREAM}}", timeouts: {connect: 5s, first_byte: 60s, idle: 60s, total: 90s}}
destinations:
  crm: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
kinds:
  free:
    provider: model
    max_attempts: 2
    on_unknown: retry
    effects: [{name: notify, type: webhook, destination: crm, body: '{"key": {{json .task.key}}}'}]
  careful:
    provider: model
    on_unknown: review
    effects: [{name: notify, type: webhook, destination: crm, body: '{"key": {{json .task.key}}}'}]
  short:
    provider: model
    on_unknown: review
    timeouts: {first_byte: 4s, idle: 4s, total: 4s}
`

// stage is a world whose upstream remembers the calls of each task.
type stage struct {
	*proc.World
	up    *upstream
	front *proc.Process
	mu    sync.Mutex
	tasks map[string]int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{up: newUpstream(t), tasks: map[string]int{}}
	s.World = proc.New(t, &proc.Opts{Config: strings.ReplaceAll(stopConfig, "{{UPSTREAM}}", s.up.URL+"/v1")})
	s.front = s.API(t)
	return s
}

// nth counts a call of its task in and returns its number.
func (s *stage) nth(a *answering) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := a.r.Header.Get("Onefold-Task")
	s.tasks[id]++
	return s.tasks[id]
}

func (s *stage) submit(t *testing.T, kind, key, model string) string {
	t.Helper()
	got, err := s.Client(t, s.front).Submit(t.Context(), key, api.Submit{Kind: kind, Input: chatInput(model)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID
}

// A worker is stopped while it makes many calls. What may be called again goes
// back at once and is run by another worker; what may not is finished by the
// one that stops; nothing is lost, nothing is counted that was given back, and
// every effect leaves once.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	gate := make(chan struct{})
	s.up.answer("slow", func(a *answering) {
		if s.nth(a) == 1 {
			<-a.r.Context().Done() // only a cut ends the first call
			return
		}
		a.say("second call")
	})
	s.up.answer("careful", func(a *answering) { s.nth(a); <-gate; a.say("only call") })
	first := s.Worker(t, "--grace", "1s")
	const slow, careful = 40, 10
	for i := range slow {
		s.submit(t, "free", fmt.Sprint("slow-", i), "slow")
	}
	for i := range careful {
		s.submit(t, "careful", fmt.Sprint("careful-", i), "careful")
	}
	s.up.await(t, "slow", slow)
	s.up.await(t, "careful", careful)
	second := s.Worker(t)
	if err := first.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.up.await(t, "slow", 2*slow)
	close(gate)
	if code, err := first.Exit(); code != 0 || err != nil {
		t.Errorf("the stopped worker ended with %d, %v; want 0", code, err)
	}
	drained(t, s.World)
	second.Stop(t)
	s.ledger(t, []string{
		fmt.Sprint("careful succeeded attempts=1: succeeded/yes: ", careful),
		fmt.Sprint("free succeeded attempts=1: released/unknown succeeded/yes: ", slow),
	})
	if open := s.Count(t, `SELECT count(*) FROM onefold.workers WHERE stopped_at IS NULL`); open != 0 {
		t.Errorf("%d incarnations were not signed off", open)
	}
	got := s.Receiver.Received()
	if len(got) != slow+careful {
		t.Errorf("got %d effects, want %d", len(got), slow+careful)
	}
	for id, r := range got {
		if r.Count != 1 {
			t.Errorf("effect %s came %d times", id, r.Count)
		}
	}
}

// ledger compares how tasks stand and what their attempts came to, counted.
func (s *stage) ledger(t *testing.T, want []string) {
	t.Helper()
	rows, err := s.Pool.Query(t.Context(), `
SELECT line || count(*)
FROM (
    SELECT t.kind || ' ' || t.state || ' attempts=' || t.attempts || ': ' ||
           string_agg(coalesce(a.outcome, 'open') || '/' || a.billed, ' ' ORDER BY a.epoch) || ': ' AS line
    FROM onefold.tasks AS t
    JOIN onefold.attempts AS a ON a.task_id = t.id
    GROUP BY t.id
) AS each
GROUP BY line
ORDER BY line`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("the ledger: -got +want:\n%s", diff)
	}
}

// Stops give an attempt back as often as the kind has attempts; from then on
// each counts, so that a task which no worker ever finishes ends.
func TestStopsAgainAndAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.up.answer("slow", func(a *answering) { <-a.r.Context().Done() })
	id := s.submit(t, "free", "again", "slow")
	const maxAttempts = 2
	for n := range 2 * maxAttempts {
		back := s.Worker(t, "--grace", "100ms")
		s.up.await(t, "slow", n+1)
		back.Stop(t)
	}
	got, err := s.Client(t, s.front).Get(t.Context(), id, nil)
	if err != nil || got.State != api.Failed || got.Error.Code != string(api.CodeAttemptsExhaust) || got.Error.Permanent {
		t.Errorf("got %+v, %v; want it failed, its attempts used up, not by its own fault", got, err)
	}
	if n := s.up.calls("slow"); n != 2*maxAttempts {
		t.Errorf("got %d calls, want %d", n, 2*maxAttempts)
	}
}

// A second signal ends the worker at once. That is a crash, and another worker
// takes over when the lease has run out.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.up.answer("slow", func(a *answering) {
		if s.nth(a) == 1 {
			<-a.r.Context().Done()
			return
		}
		a.say("second call")
	})
	back := s.Worker(t, "--grace", "10m")
	s.submit(t, "free", "twice", "slow")
	s.up.await(t, "slow", 1)
	if err := back.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	back.AwaitLog(t, `"stopping"`)
	if err := back.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := back.Exit(); code != -1 || err != nil {
		t.Errorf("got the exit code %d, %v; want an end by the signal", code, err)
	}
	s.Worker(t)
	drained(t, s.World)
	s.ledger(t, []string{"free succeeded attempts=2: lost/unknown succeeded/yes: 1"})
}

// A call that may not be repeated outlasts the grace time, and when its own time
// is over the worker ends, too: nobody waits for ever, and nothing is called
// again.
func TestStopOutlastsGrace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.up.answer("dead", func(a *answering) { <-a.r.Context().Done() })
	back := s.Worker(t, "--grace", "100ms")
	id := s.submit(t, "short", "once", "dead")
	s.up.await(t, "dead", 1)
	back.Stop(t)
	got, err := s.Client(t, s.front).Get(t.Context(), id, nil)
	if err != nil || got.State != api.Unknown || got.Error.Code != string(api.CodeOutcomeUnknown) {
		t.Errorf("got %+v, %v; want its outcome unknown", got, err)
	}
	if n := s.up.calls("dead"); n != 1 {
		t.Errorf("got %d calls, want 1", n)
	}
}
