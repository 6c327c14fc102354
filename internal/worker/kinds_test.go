package worker_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// The files before and after a change that is rolled out: k answers in another
// form, and there is a new kind with an effect type of the new program.
const (
	fileBefore = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  k: {provider: p, output: text, max_attempts: 1}
`
	fileAfter = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
  q: {type: fake, base_url: "http://127.0.0.1:2"}
destinations:
  d: {url: "https://d.example/", repeat: safe}
kinds:
  k: {provider: p, output: response, max_attempts: 2}
  new:
    provider: p
    output: text
    effects: [{name: say, type: http, destination: d, body: '{"n": 1}'}]
  elsewhere: {provider: q, output: text}
`
)

// wakeAfter is in how many seconds a task is woken, and how many wake-ups it has.
func (b *bundle) wakeAfter(id task.ID) (after, wakes int) {
	b.t.Helper()
	err := b.pool.QueryRow(context.Background(), `
SELECT coalesce(max(extract(epoch FROM j.scheduled_at - now()))::int, 0), count(*)
FROM onefold.river_job AS j WHERE (j.args->>'id')::uuid = $1`, id).Scan(&after, &wakes)
	if err != nil {
		b.t.Fatal(err)
	}
	return after, wakes
}

// While a change of the configuration rolls over the workers, each task runs
// under the version it was submitted under, whoever takes it; who can run it
// neither by name nor by hash leaves it to others; and none is lost.
func TestRollingChange(t *testing.T) {
	t.Parallel()
	old := setupWith(t, fileBefore, func(_ context.Context, _ int, r provider.Request) (*provider.Response, error) { return ok(r.Kind) })
	// The old program has no effects of type http.
	old = old.with(fileBefore, config.Opts{SkipSecrets: true, EffectTypes: map[string]bool{"webhook": true}})
	fresh := old.with(fileAfter, config.Opts{SkipSecrets: true})
	fresh.providers = map[string]provider.Provider{"p": old.script, "q": old.script}
	before, after := old.process(5*time.Second), fresh.process(5*time.Second)

	first := old.put("k", "before")
	second, unknown, elsewhere := fresh.put("k", "after"), fresh.put("new", "new"), fresh.put("elsewhere", "elsewhere")

	// The new worker takes the old one's task, and the other way round.
	after.Work(context.Background(), first)
	before.Work(context.Background(), second)
	for id, want := range map[task.ID]string{first: `"k"`, second: `{"text":"k"}`} {
		if r := old.row(id); r.State != api.Succeeded || string(r.Result) != want {
			t.Errorf("got %s %s, want %s", r.State, r.Result, want)
		}
	}
	// What the old one cannot run it leaves: for a while, and for longer when it
	// meets it again.
	for name, id := range map[string]task.ID{"a kind it cannot read": unknown, "a provider it has not": elsewhere} {
		for round, within := range [][2]int{{4, 15}, {64, 75}, {64, 75}} {
			before.Work(context.Background(), id)
			r := old.row(id)
			wait, wakes := old.wakeAfter(id)
			if r.State != api.Pending || r.Attempts != 0 || r.Epoch != 0 || wakes != 1 || wait < within[0] || wait > within[1] {
				t.Errorf("%s, round %d: %s, attempts %d, %d wake-ups, the next in %d s", name, round, r.State, r.Attempts, wakes, wait)
			}
		}
		after.Work(context.Background(), id)
		if r := old.row(id); r.State != api.Succeeded {
			t.Errorf("%s: the new worker left it %s", name, r.State)
		}
	}
	if old.script.calls != 4 {
		t.Errorf("%d calls for 4 tasks", old.script.calls)
	}
}

// The old worker cannot judge what it cannot read: sweep and reaper leave it.
func TestRollingChangeUpkeep(t *testing.T) {
	t.Parallel()
	old := setupWith(t, fileBefore, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	old = old.with(fileBefore, config.Opts{SkipSecrets: true, EffectTypes: map[string]bool{"webhook": true}})
	fresh := old.with(fileAfter, config.Opts{SkipSecrets: true})
	before, after := old.process(5*time.Second), fresh.process(5*time.Second)
	id := fresh.put("new", "x")
	if _, err := old.pool.Exec(context.Background(), `UPDATE onefold.tasks SET deadline = now() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if err := before.up.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := old.row(id); r.State != api.Pending {
		t.Errorf("the old worker's sweep made it %s", r.State)
	}
	if err := after.up.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := old.row(id); r.State != api.Failed || r.ErrorCode != "deadline" {
		t.Errorf("the new worker's sweep left it %s %s", r.State, r.ErrorCode)
	}
}

// A task runs again for a duplicate as often as its kind allows, after failures
// of the system, and under the kind as it is then.
func TestRuns(t *testing.T) {
	t.Parallel()
	const file = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  k: {provider: p, output: text, max_attempts: 2, max_runs: 3}
  once: {provider: p, output: text, max_attempts: 1, reopen_failed: false}
`
	for _, c := range []struct {
		kind               string
		class              provider.Class
		permanent          bool
		runs, calls        int
		attemptsOfEachCall []string
	}{
		{"k", provider.Unknown, false, 3, 6, []string{"1 1", "1 2", "2 1", "2 2", "3 1", "3 2"}},
		{"k", provider.Rejected, true, 1, 1, []string{"1 1"}},
		{"k", provider.Rejected, false, 3, 3, []string{"1 1", "2 1", "3 1"}},
		{"once", provider.Unknown, false, 1, 1, []string{"1 1"}},
	} {
		t.Run(c.kind+" "+string(c.class)+" "+strconv.FormatBool(c.permanent), func(t *testing.T) {
			t.Parallel()
			var seen []string
			b := setupWith(t, file, func(_ context.Context, _ int, r provider.Request) (*provider.Response, error) {
				seen = append(seen, strconv.Itoa(r.Run)+" "+strconv.Itoa(r.Attempt))
				return nil, &provider.Error{Class: c.class, Code: "x", Permanent: c.permanent, Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
			})
			p := b.process(5 * time.Second)
			id := b.put(c.kind, "x")
			for range 6 {
				for range 4 {
					p.Work(context.Background(), id)
					b.due(id)
				}
				if again := b.put(c.kind, "x"); again != id {
					t.Fatalf("the key met another task")
				}
			}
			r := b.row(id)
			if r.State != api.Failed || int(r.Run) != c.runs || b.script.calls != c.calls {
				t.Errorf("got %s in run %d after %d calls, want failed in run %d after %d", r.State, r.Run, b.script.calls, c.runs, c.calls)
			}
			if diff := cmp.Diff(seen, c.attemptsOfEachCall); diff != "" {
				t.Errorf("runs and attempts: -got +want:\n%s", diff)
			}
		})
	}
}

// The kind's deadline holds where a submit names none, from when it may run.
func TestDefaultDeadline(t *testing.T) {
	t.Parallel()
	const file = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  k: {provider: p, output: text}
  hour: {provider: p, output: text, deadline: 1h}
`
	b := setupWith(t, file, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	at := time.Now().Add(10 * time.Hour).UTC().Truncate(time.Second)
	for i, c := range []struct {
		kind, more string
		want       time.Duration // from run_at
	}{
		{"k", "", 24 * time.Hour},
		{"hour", "", time.Hour},
		{"hour", `,"run_at":"` + at.Format(time.RFC3339) + `"`, time.Hour},
		{"hour", `,"run_at":"` + at.Format(time.RFC3339) + `","deadline":"` + at.Add(2*time.Hour).Format(time.RFC3339) + `"`, 2 * time.Hour},
	} {
		a, err := b.submit.Submit(context.Background(), submit.Request{Tenant: "a", Key: strconv.Itoa(i), KeySent: true, Body: []byte(`{"kind":"` + c.kind + `","input":1` + c.more + `}`)})
		if err != nil {
			t.Fatal(err)
		}
		r := b.row(a.Row.ID)
		if got := r.Deadline.Sub(r.RunAt); got != c.want {
			t.Errorf("%s %s: %v after it may run, want %v", c.kind, c.more, got, c.want)
		}
	}
}
