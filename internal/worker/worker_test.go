package worker_test

import (
	"context"
	"errors"
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

func TestRunsOnceAndCommitsTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("hello") })
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { p.Work(context.Background(), id) })
	}
	wg.Wait()
	r := b.row(id)
	if r.State != api.Succeeded || string(r.Result) != `"hello"` || r.Attempts != 1 || r.Usage.OutputTokens != 5 || r.Usage.Billed != api.BilledYes {
		t.Errorf("got %s %s attempts %d usage %+v", r.State, r.Result, r.Attempts, r.Usage)
	}
	if b.script.calls != 1 {
		t.Errorf("%d calls", b.script.calls)
	}
	if diff := cmp.Diff(b.strings(wakes, id), []string(nil)); diff != "" {
		t.Errorf("wake-ups left: %s", diff)
	}
	if diff := cmp.Diff(b.strings(`SELECT name || ' ' || state || ' ' || convert_from(body, 'UTF8') FROM onefold.effects WHERE task_id = $1`, id),
		[]string{`tell waiting {"outcome": "succeeded", "n": 1}`}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(b.strings(`SELECT outcome || ' ' || billed FROM onefold.attempts WHERE task_id = $1`, id), []string{"succeeded yes"}); diff != "" {
		t.Error(diff)
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	fail := func(class provider.Class, permanent bool) error {
		return &provider.Error{Class: class, Code: "x", Message: "m", Permanent: permanent, Billed: provider.BilledUnknown, Phase: provider.PhaseWritten, RetryAfter: 7 * time.Second}
	}
	for _, c := range []struct {
		name, kind string
		err        error
		state      api.State
		code       string
		attempts   int32
		wakes      []string
	}{
		{"rejected", "k", fail(provider.Rejected, true), api.Failed, "rejected", 1, nil},
		{"refused", "k", fail(provider.Refused, false), api.Pending, "", 0, []string{"scheduled"}},
		{"not sent", "k", fail(provider.NotSent, false), api.Pending, "", 0, []string{"scheduled"}},
		{"unknown, retry", "k", fail(provider.Unknown, false), api.Pending, "", 1, []string{"scheduled"}},
		{"unknown, review", "r", fail(provider.Unknown, false), api.Unknown, "outcome_unknown", 1, nil},
		{"bad output", "r", fail(provider.BadOutput, false), api.Pending, "", 1, []string{"scheduled"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return nil, c.err })
			p := b.process(5 * time.Second)
			id := b.put(c.kind, "x")
			p.Work(context.Background(), id)
			r := b.row(id)
			if r.State != c.state || r.ErrorCode != c.code || r.Attempts != c.attempts {
				t.Errorf("got %s %q attempts %d, want %s %q %d", r.State, r.ErrorCode, r.Attempts, c.state, c.code, c.attempts)
			}
			if diff := cmp.Diff(b.strings(wakes, id), c.wakes); diff != "" {
				t.Errorf("wake-ups: %s", diff)
			}
		})
	}
}

func TestAttemptsRunOut(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) {
		return nil, &provider.Error{Class: provider.Unknown, Code: "x", Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
	})
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	for range 5 {
		p.Work(context.Background(), id)
		b.due(id)
	}
	r := b.row(id)
	if r.State != api.Failed || r.ErrorCode != "attempts_exhausted" || r.Permanent() || b.script.calls != 3 || r.Usage.Billed != api.BilledUnknown {
		t.Errorf("got %s %s permanent %v after %d calls, billed %s", r.State, r.ErrorCode, r.Permanent(), b.script.calls, r.Usage.Billed)
	}
	if diff := cmp.Diff(b.strings(`SELECT number || ' ' || regeneration FROM onefold.attempts WHERE task_id = $1 ORDER BY epoch`, id), []string{"1 false", "2 true", "3 true"}); diff != "" {
		t.Error(diff)
	}
	if got := b.strings(`SELECT outcome FROM onefold.effects WHERE task_id = $1`, id); len(got) != 1 || got[0] != "failed" {
		t.Errorf("effects %v, want one for failed", got)
	}
}

// A worker that lost its lease changes nothing; what came back is kept.
func TestFencedFinish(t *testing.T) {
	t.Parallel()
	inCall, proceed := make(chan struct{}), make(chan struct{})
	b := setup(t, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
		if n == 1 {
			close(inCall)
			<-proceed
			return ok("late")
		}
		return ok("second")
	})
	stale, fresh := b.process(5*time.Second), b.process(5*time.Second)
	id := b.put("k", "x")
	done := make(chan struct{})
	go func() {
		stale.Work(context.Background(), id)
		close(done)
	}()
	<-inCall
	fresh.up.Reap(context.Background(), map[task.ID]int64{id: 1})
	if r := b.row(id); r.State != api.Pending || !r.Unclear {
		t.Fatalf("after the reaper: %s unclear %v", r.State, r.Unclear)
	}
	b.due(id)
	fresh.Work(context.Background(), id)
	close(proceed)
	<-done
	r := b.row(id)
	if r.State != api.Succeeded || string(r.Result) != `"second"` {
		t.Errorf("got %s %s", r.State, r.Result)
	}
	if diff := cmp.Diff(b.strings(`SELECT outcome || ' ' || billed || ' ' || coalesce(convert_from(late_result, 'UTF8'), '') FROM onefold.attempts WHERE task_id = $1 ORDER BY epoch`, id),
		[]string{`lost yes {"text":"late"}`, "succeeded yes "}); diff != "" {
		t.Error(diff)
	}
	if got := b.strings(`SELECT outcome FROM onefold.effects WHERE task_id = $1`, id); len(got) != 1 {
		t.Errorf("%d effects, want 1", len(got))
	}
}

// While the next owner is at work the state alone would let a stale finish in:
// it is epoch and token that refuse it.
func TestFencedWhileTheNextOwnerRuns(t *testing.T) {
	t.Parallel()
	inCall := make(chan int, 2)
	proceed := []chan struct{}{make(chan struct{}), make(chan struct{})}
	b := setup(t, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
		inCall <- n
		<-proceed[n-1]
		return ok(fmt.Sprintf("call %d", n))
	})
	stale, fresh := b.process(5*time.Second), b.process(5*time.Second)
	id := b.put("k", "x")
	work := func(p *process) chan struct{} {
		done := make(chan struct{})
		go func() {
			p.Work(context.Background(), id)
			close(done)
		}()
		<-inCall
		return done
	}
	first := work(stale)
	fresh.up.Reap(context.Background(), map[task.ID]int64{id: 1})
	b.due(id)
	second := work(fresh)
	close(proceed[0])
	<-first
	if r := b.row(id); r.State != api.Running || r.Result != nil {
		t.Errorf("after the stale finish: %s %s", r.State, r.Result)
	}
	close(proceed[1])
	<-second
	if r := b.row(id); r.State != api.Succeeded || string(r.Result) != `"call 2"` {
		t.Errorf("got %s %s", r.State, r.Result)
	}
}

func TestReviewedKindIsNotRepeatedOnceMarked(t *testing.T) {
	t.Parallel()
	inCall, proceed := make(chan struct{}), make(chan struct{})
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) {
		close(inCall)
		<-proceed
		return ok("late")
	})
	stale, fresh := b.process(5*time.Second), b.process(5*time.Second)
	id := b.put("r", "x")
	done := make(chan struct{})
	go func() {
		stale.Work(context.Background(), id)
		close(done)
	}()
	<-inCall
	fresh.up.Reap(context.Background(), map[task.ID]int64{id: 1})
	if r := b.row(id); r.State != api.Unknown || r.ErrorCode != "outcome_unknown" {
		t.Fatalf("after the reaper: %s %s", r.State, r.ErrorCode)
	}
	close(proceed)
	<-done
	if r := b.row(id); r.State != api.Unknown || b.script.calls != 1 {
		t.Errorf("got %s after %d calls", r.State, b.script.calls)
	}
}

func TestCancelWinsOverAResult(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, func(_ context.Context, _ int, r provider.Request) (*provider.Response, error) {
		id, err := task.ParseID(r.TaskID)
		if err != nil {
			return nil, err
		}
		row, err := b.submit.Cancel(context.Background(), submit.Act{Tenant: "a", ID: id, Actor: "t"})
		if err != nil || row.State != api.Running || !row.CancelRequested {
			b.t.Errorf("cancel of a running task: %+v, %v", row, err)
		}
		return ok("too late")
	})
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	p.Work(context.Background(), id)
	r := b.row(id)
	if r.State != api.Cancelled || r.Result != nil || r.ErrorCode != "" {
		t.Errorf("got %s %s %s", r.State, r.Result, r.ErrorCode)
	}
	if diff := cmp.Diff(b.strings(`SELECT outcome FROM onefold.effects WHERE task_id = $1`, id), []string{"cancelled"}); diff != "" {
		t.Error(diff)
	}
}

// Result and sql effect are there together, or the reply is kept and finished
// later without another call.
func TestFinishFailedKeepsTheReply(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) {
		return ok(`{"total": 1000.50}`)
	})
	p := b.process(5 * time.Second)
	id := b.put("s", "x")
	p.Work(context.Background(), id)
	r := b.row(id)
	if r.State != api.Unknown || r.ErrorCode != "finish_failed" {
		t.Fatalf("got %s %s %s", r.State, r.ErrorCode, r.ErrorMessage)
	}
	act := submit.Act{Tenant: "a", ID: id, Epoch: &r.Epoch, Actor: "t", Reason: "limit raised"}
	if _, err := b.submit.Resolve(context.Background(), act, submit.Resolution{Action: "finish"}); !errors.Is(err, api.ErrConflict) {
		t.Errorf("finish while the effect still fails: %v", err)
	}
	if _, err := b.pool.Exec(context.Background(), `ALTER TABLE public.saved DROP CONSTRAINT saved_total_check`); err != nil {
		t.Fatal(err)
	}
	row, err := b.submit.Resolve(context.Background(), act, submit.Resolution{Action: "finish"})
	if err != nil || row.State != api.Succeeded || string(row.Result) != `{"total": 1000.50}` || b.script.calls != 1 {
		t.Errorf("got %+v, %v after %d calls", row, err, b.script.calls)
	}
	if diff := cmp.Diff(b.strings(`SELECT key || ' ' || total FROM public.saved`), []string{"x 1000.50"}); diff != "" {
		t.Error(diff)
	}
}

// A row that River fetched and nobody claimed, and one that is gone, are found.
func TestSweepWakesTheSleepless(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	p := b.process(4 * time.Second)
	fetched, gone, fine := b.put("k", "1"), b.put("k", "2"), b.put("k", "3")
	for _, sql := range []string{
		`UPDATE onefold.river_job SET state = 'running', attempted_at = now() - interval '10 s' WHERE (args->>'id')::uuid = $1`,
		`DELETE FROM onefold.river_job WHERE (args->>'id')::uuid = $1`,
	} {
		id := fetched
		if sql[0] == 'D' {
			id = gone
		}
		if _, err := b.pool.Exec(context.Background(), sql, id); err != nil {
			t.Fatal(err)
		}
	}
	before := b.strings(`SELECT j.id::text FROM onefold.river_job j WHERE (j.args->>'id')::uuid = $1`, fine)
	if err := p.up.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []task.ID{fetched, gone} {
		if diff := cmp.Diff(b.strings(wakes, id), []string{"available"}); diff != "" {
			t.Errorf("wake-ups of %s: %s", id, diff)
		}
	}
	if diff := cmp.Diff(b.strings(`SELECT j.id::text FROM onefold.river_job j WHERE (j.args->>'id')::uuid = $1`, fine), before); diff != "" {
		t.Errorf("a live wake-up was replaced: %s", diff)
	}
}

func TestDeadlineOfAWaitingTask(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	p := b.process(4 * time.Second)
	id := b.put("k", "x")
	if _, err := b.pool.Exec(context.Background(), `UPDATE onefold.tasks SET deadline = now() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if err := p.up.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := b.row(id); r.State != api.Failed || r.ErrorCode != "deadline" || r.Permanent() {
		t.Errorf("got %s %s", r.State, r.ErrorCode)
	}
	if got := b.strings(`SELECT outcome FROM onefold.effects WHERE task_id = $1`, id); len(got) != 1 || got[0] != "failed" {
		t.Errorf("effects %v: the sweep's outcome has its effects, too", got)
	}
}
