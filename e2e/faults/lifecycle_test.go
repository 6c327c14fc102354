package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/pg/proxytest"
)

// TestLifecycleCases plays the cases of the theme lifecycle: workers that are
// killed, stopped, replaced, overtaken.
func TestLifecycleCases(t *testing.T) {
	t.Parallel()
	play(t, "e2e/faults.TestLifecycleCases", map[string]func(*testing.T){
		"C256": killedInTheCall,
		"C257": restartDuringRecovery,
		"C258": rollingRestart,
		"C259": resultBetweenReadAndWrite,
		"C260": stoppedPastItsLease,
		"C262": cancelBetweenClaimAndStart,
		"C263": cancelAsTheResultCommits,
		"C264": stopWithCallsInFlight,
		"C265": getAtOnce,
	})
}

// lease is that of proc.World's workers.
const lease = 3 * time.Second

// recovery is within what time a task runs again whose worker was killed: a
// lease until the owner counts as dead, one until a fresh reaper judges, a round
// and the pause before a repeated call.
const recovery = 2*lease + 4*time.Second

func killedInTheCall(t *testing.T) {
	w := proc.New(t, nil)
	c := newCaller(w, w.API(t))
	first := w.Worker(t)
	id := c.accepted(t, "k", work("latency=60s;ok")).ID
	atWork(t, w, 1)
	first.Kill(t)
	start := time.Now()
	w.Worker(t)
	task := c.succeeded(t, id)
	within(t, "the recovery", start, recovery)
	if task.Attempts != 2 || task.Usage == nil || task.Usage.Billed != api.BilledUnknown {
		t.Errorf("got %d attempts, usage %+v; want 2, and that it is not known what was billed", task.Attempts, task.Usage)
	}
	drained(t, w)
	onceEach(t, w, 1)
}

func restartDuringRecovery(t *testing.T) {
	cluster := pgtest.Cluster(t)
	w := proc.New(t, &proc.Opts{Cluster: cluster})
	c := newCaller(w, w.API(t))
	first := w.Worker(t)
	const tasks = 20
	for i := range tasks {
		c.accepted(t, fmt.Sprint(i), work("latency=60s;ok"))
	}
	atWork(t, w, tasks)
	first.Kill(t)
	w.Worker(t)
	<-time.After(200 * time.Millisecond) // as the case has it
	if err := cluster.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Pool.Reset()
	drained(t, w)
	onceEach(t, w, tasks)
}

// fewAtATime is the default configuration with a provider that takes three calls
// of a process at a time.
const fewAtATime = `
providers:
  model: {type: openai, base_url: "{{FAKELLM}}", concurrency: 3, timeouts: {connect: 5s, first_byte: 60s, idle: 60s, total: 90s}}
destinations:
  crm: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
kinds:
  work:
    provider: model
    output: text
    request: {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}
    sample: {model: "fake:ok", text: "hello"}
    effects:
      - {name: notify, type: webhook, destination: crm, body: '{"text": {{json .result}}}'}
`

func rollingRestart(t *testing.T) {
	w := proc.New(t, &proc.Opts{Config: fewAtATime})
	c := newCaller(w, w.API(t))
	before := w.Worker(t)
	const tasks = 20
	for i := range tasks {
		c.accepted(t, fmt.Sprint(i), work("latency=1s"))
	}
	atWork(t, w, 3)
	if err := before.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.Worker(t)
	if code, err := before.Exit(); err != nil || code != 0 {
		t.Errorf("the old worker ended with %d, %v; want 0", code, err)
	}
	drained(t, w)
	onceEach(t, w, tasks)
	if calls := w.Model.Calls().Received; calls != tasks {
		t.Errorf("%d calls for %d tasks: a restart repeats none", calls, tasks)
	}
}

// resultBetweenReadAndWrite: the owner's heartbeats do not get through, so the
// database says that it is dead; a reaper has read that when the owner's result
// commits, and writes afterwards.
func resultBetweenReadAndWrite(t *testing.T) {
	answer, never := make(chan struct{}), make(chan struct{})
	called := make(chan string, 10)
	var decoys atomic.Int32
	config := upstream(t, func(_, model string) {
		called <- model
		switch {
		case model == "fake:gated":
			<-answer
		case decoys.Add(1) == 1:
			<-never
		}
	})
	t.Cleanup(func() { close(never); close(answer) })
	w := proc.New(t, &proc.Opts{Config: config("")})
	c := newCaller(w, w.API(t))

	// A decoy tells when the reaper judges: it has to read for a lease before.
	dead := w.Worker(t)
	decoy := c.accepted(t, "decoy", work("decoy")).ID
	<-called
	dead.Kill(t)

	toOwner, toReaper := proxytest.New(t, w.Database), proxytest.New(t, w.Database)
	toOwner.Silence("pg_try_advisory_xact_lock") // the owner itself reaps nothing
	const lease = "15s"                          // the owner lives on for two thirds of it
	w.Worker(t, "--lease", lease, "--database-url", toOwner.URL())
	id := c.accepted(t, "k", work("gated")).ID
	<-called
	reaper := w.Worker(t, "--lease", lease, "--database-url", toReaper.URL())
	c.succeeded(t, decoy)

	hold := toReaper.HoldAt("FOR UPDATE OF t SKIP LOCKED")
	toOwner.Silence("SET expires_at = now() +")
	if _, err := w.Pool.Exec(t.Context(), `
UPDATE onefold.workers AS w SET expires_at = now() - interval '1 s' FROM onefold.tasks AS t WHERE t.id = $1 AND w.incarnation = t.owner`, id); err != nil {
		t.Fatal(err)
	}
	await(t, "the reaper's read", hold.Reached())
	answer <- struct{}{}
	before := c.succeeded(t, id)
	hold.Release()
	reaper.Stop(t) // the round under way ends first
	after := c.get(id).task
	if after.State != api.Succeeded || after.Epoch != before.Epoch || after.Attempts != 1 || string(after.Result) != string(before.Result) {
		t.Errorf("the reaper's write changed %s at epoch %d into %s at epoch %d, %d attempts", before.State, before.Epoch,
			after.State, after.Epoch, after.Attempts)
	}
}

func stoppedPastItsLease(t *testing.T) {
	w := proc.New(t, nil)
	c := newCaller(w, w.API(t))
	first := w.Worker(t)
	id := c.accepted(t, "k", work("latency=1s,text=first;text=second")).ID
	atWork(t, w, 1)
	first.Pause(t)
	w.Worker(t)
	won := c.succeeded(t, id)
	first.Resume(t)
	first.AwaitLog(t, `"fenced":true`)
	if again := c.get(id); string(again.task.Result) != `"second"` || string(won.Result) != `"second"` || again.task.State != api.Succeeded {
		t.Errorf("got %s, then %s %s; want the second worker's result both times", won.Result, again.task.State, again.task.Result)
	}
	drained(t, w)
	onceEach(t, w, 1)
}

const reviewed = `
providers:
  model: {type: openai, base_url: "{{FAKELLM}}", timeouts: {connect: 5s, first_byte: 60s, idle: 60s, total: 90s}}
destinations:
  crm: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
kinds:
  work:
    provider: model
    output: text
    on_unknown: review
    request: {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}
    sample: {model: "fake:ok", text: "hello"}
    effects:
      - {name: notify, type: webhook, destination: crm, on: final, body: '{"outcome": {{json .outcome}}}'}
`

// cancelBetweenClaimAndStart: the worker has claimed and stands before its call
// when the cancel comes. It says that it is asked for, and the task is cancelled
// only when nobody calls any more.
func cancelBetweenClaimAndStart(t *testing.T) {
	w := proc.New(t, &proc.Opts{Config: reviewed})
	c := newCaller(w, w.API(t))
	p := proxytest.New(t, w.Database)
	w.Worker(t, "--lease", "15s", "--database-url", p.URL()) // a lease that allows for holding a transaction
	hold := p.HoldAt("SET dispatched_at = clock_timestamp()")
	id := c.accepted(t, "k", work("latency=60s,abort")).ID
	await(t, "the claim", hold.Reached())
	asked := c.cancel(id)
	hold.Release()
	if asked.status != http.StatusAccepted || asked.task.State != api.Running || !asked.task.CancelAsked {
		t.Errorf("got %d, %s; want 202 and that the cancel was asked for", asked.status, asked.task.State)
	}
	task := c.settled(t, id)
	if running := w.Model.Calls().Running; task.State != api.Cancelled || running != 0 {
		t.Errorf("got %s with %d calls under way, want cancelled and none", task.State, running)
	}
	drained(t, w)
	for _, r := range w.Receiver.Received() {
		if string(r.Body) != `{"outcome": "cancelled"}` {
			t.Errorf("received %s", r.Body)
		}
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(proc.Patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// cancelAsTheResultCommits: whoever cancels hears what the task then is, for
// good, and a cancelled task never tells anyone of a result.
func cancelAsTheResultCommits(t *testing.T) {
	const tasks = 1000
	type reply struct {
		id string
		answer
	}
	replies := make(chan reply, tasks)
	var c *caller
	config := upstream(t, func(id, _ string) {
		go func() {
			<-time.After(rand.N(20 * time.Millisecond)) // about the time a result takes to commit
			replies <- reply{id, c.cancel(id)}
		}()
	})
	w := proc.New(t, &proc.Opts{Config: config(strings.ReplaceAll(reviewed, "on_unknown: review", "on_unknown: retry"))})
	c = newCaller(w, w.API(t))
	w.Worker(t)
	var all sync.WaitGroup
	for g := range 20 {
		all.Go(func() {
			for i := range tasks / 20 {
				if a := c.submit(fmt.Sprintf("%d-%d", g, i), work("ok")); a.status != http.StatusAccepted {
					t.Errorf("submit: %d %s", a.status, a.body)
				}
			}
		})
	}
	all.Wait()
	drained(t, w)
	states := map[api.State]int{}
	for range tasks {
		r := <-replies
		now := c.get(r.id).task
		states[now.State]++
		want := api.Succeeded // 409: there is a result
		if r.status == http.StatusOK || r.status == http.StatusAccepted {
			want = api.Cancelled
		} else if r.status != http.StatusConflict {
			t.Fatalf("cancel: got %d %s", r.status, r.body)
		}
		if now.State != want || (now.Result != nil) != (want == api.Succeeded) {
			t.Errorf("cancel answered %d, the task is %s with result %s; want %s", r.status, now.State, now.Result, want)
		}
	}
	if states[api.Succeeded] == 0 || states[api.Cancelled] == 0 {
		t.Errorf("got %v: no race was run", states)
	}
	told := map[api.State]int{}
	for _, r := range w.Receiver.Received() {
		var hook struct{ Outcome api.State }
		if err := json.Unmarshal(r.Body, &hook); err != nil {
			t.Fatal(err)
		}
		told[hook.Outcome]++
	}
	if diff := cmp.Diff(told, states); diff != "" {
		t.Errorf("webhooks by outcome against tasks by state: -got +want:\n%s", diff)
	}
}

// stopWithCallsInFlight: what a stop cuts off costs no attempt.
func stopWithCallsInFlight(t *testing.T) {
	w := proc.New(t, nil)
	c := newCaller(w, w.API(t))
	worker := w.Worker(t, "--grace", "5s")
	const tasks = 10
	var ids []string
	for i := range tasks {
		ids = append(ids, c.accepted(t, fmt.Sprint(i), work("latency=30s;ok")).ID)
	}
	atWork(t, w, tasks)
	worker.Stop(t)
	for _, id := range ids {
		if a := c.get(id); a.task.State != api.Pending || a.task.Attempts != 0 {
			t.Errorf("after the stop: %s, %d attempts; want pending and none", a.task.State, a.task.Attempts)
		}
	}
	if got := w.Count(t, `SELECT count(*) FROM onefold.attempts WHERE outcome = 'released' AND billed = 'unknown'`); got != tasks {
		t.Errorf("the ledger has %d sends that were cut, want %d", got, tasks)
	}
	worker.Restart(t)
	for _, id := range ids {
		if task := c.succeeded(t, id); task.Attempts != 1 {
			t.Errorf("%d attempts consumed, want the one that succeeded", task.Attempts)
		}
	}
	drained(t, w)
	onceEach(t, w, tasks)
}

func getAtOnce(t *testing.T) {
	w := proc.New(t, nil)
	in, out := newCaller(w, w.API(t)), newCaller(w, w.API(t))
	var all sync.WaitGroup
	for g := range 20 {
		all.Go(func() {
			for i := range 50 {
				a := in.submit(fmt.Sprintf("%d-%d", g, i), work("ok"))
				if a.status != http.StatusAccepted {
					t.Errorf("submit: %d %s", a.status, a.body)
					return
				}
				for _, c := range []*caller{in, out} {
					if got := c.get(a.task.ID); got.status != http.StatusOK || got.task.ID != a.task.ID {
						t.Errorf("a task just submitted: got %d %s", got.status, got.body)
					}
				}
			}
		})
	}
	all.Wait()
}
