package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// background is a provider that works in the background, as a test decides.
type background struct {
	*script
	mu      sync.Mutex
	starts  int
	polled  []string
	stopped []string
	start   func(n int) error                                                        // after the n-th job was started
	poll    func(ctx context.Context, n int, job string) (*provider.Response, error) // the n-th poll
}

func (g *background) Start(context.Context, provider.Request) (string, error) {
	g.mu.Lock()
	g.starts++
	n := g.starts
	g.mu.Unlock()
	if g.start != nil {
		if err := g.start(n); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("job-%d", n), nil
}

func (g *background) Poll(ctx context.Context, _ provider.Request, job string) (*provider.Response, error) {
	g.mu.Lock()
	g.polled = append(g.polled, job)
	n := len(g.polled)
	g.mu.Unlock()
	return g.poll(ctx, n, job)
}

func (g *background) Stop(_ context.Context, _ provider.Request, job string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = append(g.stopped, job)
	return nil
}

func setupJobs(t *testing.T, poll func(ctx context.Context, n int, job string) (*provider.Response, error)) (*bundle, *background) {
	t.Helper()
	b := setup(t, nil)
	g := &background{script: b.script, poll: poll}
	b.providers = map[string]provider.Provider{"p": g}
	return b, g
}

// ledger is the attempts of a task in words.
func (b *bundle) ledger(id task.ID) []string {
	b.t.Helper()
	return b.strings(`
SELECT outcome || ' billed ' || billed || CASE WHEN dispatched_at IS NULL THEN '' ELSE ' sent' END ||
    CASE WHEN regeneration THEN ' again' ELSE '' END || coalesce(' ' || provider_job, '') || CASE WHEN job_over THEN ' over' ELSE '' END
FROM onefold.attempts WHERE task_id = $1 ORDER BY epoch`, id)
}

func TestJobIsStoredBeforeItIsWaitedFor(t *testing.T) {
	t.Parallel()
	var b *bundle
	var stored []string
	b, g := setupJobs(t, func(context.Context, int, string) (*provider.Response, error) {
		stored = b.strings(`SELECT provider_job FROM onefold.attempts WHERE closed_at IS NULL AND dispatched_at IS NOT NULL`)
		return ok("hello")
	})
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	p.Work(context.Background(), id)
	if r := b.row(id); r.State != api.Succeeded || r.Usage.Billed != api.BilledYes {
		t.Errorf("got %s, billed %s", r.State, r.Usage.Billed)
	}
	if diff := cmp.Diff(stored, []string{"job-1"}); diff != "" {
		t.Errorf("stored while polling: %s", diff)
	}
	if diff := cmp.Diff(b.ledger(id), []string{"succeeded billed yes sent job-1 over"}); diff != "" {
		t.Error(diff)
	}
	if g.starts != 1 || len(g.stopped) != 0 {
		t.Errorf("%d starts, stopped %v", g.starts, g.stopped)
	}
}

// A worker that dies, or is taken for dead, while a job runs: the next one polls
// the job. Nothing is sent twice, not even for a kind that may be repeated, and
// a kind that may not be needs no person.
func TestLostJobIsPolledOn(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"k", "r"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inPoll, proceed := make(chan struct{}, 2), make(chan struct{})
			b, g := setupJobs(t, func(_ context.Context, n int, _ string) (*provider.Response, error) {
				if n < 3 {
					inPoll <- struct{}{}
					<-proceed
				}
				return ok(fmt.Sprint("poll ", n))
			})
			id := b.put(kind, "x")
			var wg sync.WaitGroup
			for epoch := int64(1); epoch <= 3; epoch += 2 { // two workers are lost in a row
				p := b.process(5 * time.Second)
				wg.Go(func() { p.Work(context.Background(), id) })
				<-inPoll
				p.up.Reap(context.Background(), map[task.ID]int64{id: epoch})
				if r := b.row(id); r.State != api.Pending || r.Attempts != 0 || !r.Unclear || r.Usage.Billed != api.BilledNo {
					t.Fatalf("after the reaper: %s, attempts %d, unclear %v, billed %s", r.State, r.Attempts, r.Unclear, r.Usage.Billed)
				}
			}
			b.process(5*time.Second).Work(context.Background(), id)
			close(proceed)
			wg.Wait()
			r := b.row(id)
			if r.State != api.Succeeded || string(r.Result) != `"poll 3"` || r.Attempts != 1 || r.Usage.Billed != api.BilledYes {
				t.Errorf("got %s %s, attempts %d, billed %s", r.State, r.Result, r.Attempts, r.Usage.Billed)
			}
			if diff := cmp.Diff(g.polled, []string{"job-1", "job-1", "job-1"}); diff != "" || g.starts != 1 || len(g.stopped) != 0 {
				t.Errorf("%d starts, stopped %v, polled %s", g.starts, g.stopped, diff)
			}
			want := []string{"lost billed no sent job-1 over", "lost billed no job-1 over", "succeeded billed yes job-1 over"}
			if diff := cmp.Diff(b.ledger(id), want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A stop leaves the job to another worker at once, whatever the kind says of
// calls.
func TestDrainLeavesTheJob(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"k", "r"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inPoll := make(chan struct{}, 1)
			b, g := setupJobs(t, func(ctx context.Context, n int, _ string) (*provider.Response, error) {
				if n == 1 {
					inPoll <- struct{}{}
					<-ctx.Done()
					return nil, provider.New(provider.CodeCancelled, "ended")
				}
				return ok("hello")
			})
			p := b.process(5 * time.Second)
			id := b.put(kind, "x")
			done := make(chan struct{})
			go func() {
				p.Work(context.Background(), id)
				close(done)
			}()
			<-inPoll
			p.Drain(time.Millisecond)
			<-done
			if r := b.row(id); r.State != api.Pending || r.Attempts != 0 || r.Usage.Billed != api.BilledNo {
				t.Fatalf("after the stop: %s, attempts %d, billed %s", r.State, r.Attempts, r.Usage.Billed)
			}
			b.process(5*time.Second).Work(context.Background(), id)
			if r := b.row(id); r.State != api.Succeeded || g.starts != 1 || len(g.stopped) != 0 {
				t.Errorf("got %s after %d starts, stopped %v", r.State, g.starts, g.stopped)
			}
			want := []string{"released billed no sent job-1 over", "succeeded billed yes job-1 over"}
			if diff := cmp.Diff(b.ledger(id), want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a poll says decides whether the job is asked again or sent anew.
func TestJobThatBringsNothing(t *testing.T) {
	t.Parallel()
	fail := func(code string, over bool) *provider.Error {
		f := provider.New(code, "m")
		f.JobOver, f.Phase = over, provider.PhaseHeaders
		return f
	}
	for name, c := range map[string]struct {
		kind   string
		err    *provider.Error
		state  api.State
		code   string
		starts int
		polled []string
	}{
		"failed":               {"k", fail(provider.CodeUpstreamError, true), api.Succeeded, "", 2, []string{"job-1", "job-2"}},
		"gone":                 {"k", fail(provider.CodeJobGone, true), api.Succeeded, "", 2, []string{"job-1", "job-2"}},
		"gone, reviewed":       {"r", fail(provider.CodeJobGone, true), api.Unknown, "outcome_unknown", 1, []string{"job-1"}},
		"still runs":           {"k", fail(provider.CodeTotalTimeout, false), api.Succeeded, "", 1, []string{"job-1", "job-1"}},
		"still runs, reviewed": {"r", fail(provider.CodeTotalTimeout, false), api.Succeeded, "", 1, []string{"job-1", "job-1"}},
		"credential":           {"r", fail(provider.CodeUnauthorized, false), api.Succeeded, "", 1, []string{"job-1", "job-1"}},
		"rejected":             {"k", fail(provider.CodeContentFiltered, true), api.Failed, "content_filtered", 1, []string{"job-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, g := setupJobs(t, func(_ context.Context, n int, _ string) (*provider.Response, error) {
				if n == 1 {
					return nil, c.err
				}
				return ok("hello")
			})
			p := b.process(5 * time.Second)
			id := b.put(c.kind, "x")
			for range 2 {
				p.Work(context.Background(), id)
				b.due(id)
			}
			r := b.row(id)
			if r.State != c.state || r.ErrorCode != c.code || g.starts != c.starts {
				t.Errorf("got %s %s after %d starts, want %s %s after %d", r.State, r.ErrorCode, g.starts, c.state, c.code, c.starts)
			}
			if diff := cmp.Diff(g.polled, c.polled); diff != "" {
				t.Errorf("polled: %s", diff)
			}
		})
	}
}

// A worker that is fenced between the start and the storing waits for nothing:
// nobody would know the job, so it is stopped.
func TestFencedJobIsStopped(t *testing.T) {
	t.Parallel()
	var b *bundle
	var p *process
	var id task.ID
	b, g := setupJobs(t, func(context.Context, int, string) (*provider.Response, error) { return ok("hello") })
	p = b.process(5 * time.Second)
	id = b.put("r", "x")
	g.start = func(int) error {
		p.up.Reap(context.Background(), map[task.ID]int64{id: 1})
		return nil
	}
	p.Work(context.Background(), id)
	if r := b.row(id); r.State != api.Unknown || r.ErrorCode != "outcome_unknown" {
		t.Errorf("got %s %s", r.State, r.ErrorCode)
	}
	if diff := cmp.Diff(g.stopped, []string{"job-1"}); diff != "" || len(g.polled) != 0 {
		t.Errorf("stopped %s, polled %v", diff, g.polled)
	}
}

func TestCancelStopsTheJob(t *testing.T) {
	t.Parallel()
	inPoll := make(chan struct{}, 1)
	b, g := setupJobs(t, func(ctx context.Context, _ int, _ string) (*provider.Response, error) {
		inPoll <- struct{}{}
		<-ctx.Done()
		return nil, provider.New(provider.CodeCancelled, "ended")
	})
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	done := make(chan struct{})
	go func() {
		p.Work(context.Background(), id)
		close(done)
	}()
	<-inPoll
	if _, err := b.submit.Cancel(context.Background(), submit.Act{Tenant: "a", ID: id, Actor: "t"}); err != nil {
		t.Fatal(err)
	}
	b.beat(p)
	<-done
	if r := b.row(id); r.State != api.Cancelled {
		t.Errorf("got %s", r.State)
	}
	if diff := cmp.Diff(g.stopped, []string{"job-1"}); diff != "" {
		t.Errorf("stopped: %s", diff)
	}
}

// A budget is charged for a job once, however often it is polled, and one that
// is used up does not keep a result from being fetched.
func TestPollingCostsNoBudget(t *testing.T) {
	t.Parallel()
	inPoll := make(chan struct{}, 1)
	b, g := setupJobs(t, func(ctx context.Context, n int, _ string) (*provider.Response, error) {
		if n == 1 {
			inPoll <- struct{}{}
			<-ctx.Done()
			return nil, provider.New(provider.CodeCancelled, "ended")
		}
		return ok("hello")
	})
	p := b.process(5 * time.Second)
	id := b.mustPut("r", "x", "run-1", 1)
	done := make(chan struct{})
	go func() {
		p.Work(context.Background(), id)
		close(done)
	}()
	<-inPoll
	p.Drain(time.Millisecond)
	<-done
	b.process(5*time.Second).Work(context.Background(), id)
	if r := b.row(id); r.State != api.Succeeded || g.starts != 1 {
		t.Errorf("got %s %s after %d starts", r.State, r.ErrorCode, g.starts)
	}
	if got := b.budget("run-1"); got != "1 of 1" {
		t.Errorf("budget %s", got)
	}
}
