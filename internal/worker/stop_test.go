package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// cutCall is a provider that answers only when its call is cut.
func cutCall(inCall chan<- struct{}) func(context.Context, int, provider.Request) (*provider.Response, error) {
	return func(ctx context.Context, _ int, _ provider.Request) (*provider.Response, error) {
		inCall <- struct{}{}
		<-ctx.Done()
		return nil, &provider.Error{Class: provider.Unknown, Code: "cancelled", Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
	}
}

// A stop gives a call that may be repeated back at once: the attempt does not
// count, and the ledger keeps the send.
func TestDrainReleases(t *testing.T) {
	t.Parallel()
	inCall := make(chan struct{}, 1)
	b := setup(t, cutCall(inCall))
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	done := make(chan struct{})
	go func() {
		p.Work(context.Background(), id)
		close(done)
	}()
	<-inCall
	p.Drain(time.Millisecond)
	<-done
	r := b.row(id)
	if r.State != api.Pending || r.Attempts != 0 || r.Released != 1 || !r.Unclear || r.Usage.Billed != api.BilledUnknown {
		t.Errorf("got %s, attempts %d, released %d, unclear %v, billed %s", r.State, r.Attempts, r.Released, r.Unclear, r.Usage.Billed)
	}
	if diff := cmp.Diff(b.strings(wakes, id), []string{"available"}); diff != "" {
		t.Errorf("wake-ups: %s", diff)
	}
	if diff := cmp.Diff(b.strings(`SELECT outcome || ' ' || billed FROM onefold.attempts WHERE task_id = $1`, id), []string{"released unknown"}); diff != "" {
		t.Error(diff)
	}
	p.Work(context.Background(), id)
	if r := b.row(id); r.State != api.Pending || r.Epoch != 1 {
		t.Errorf("a stopped worker claimed: %s at epoch %d", r.State, r.Epoch)
	}
}

// What ends a call at the task's deadline is a timeout, and a timeout is not a
// failure where a person has to look.
func TestDeadlineCutsACall(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][2]string{"k": {"failed", "deadline"}, "r": {"unknown", "outcome_unknown"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := setup(t, cutCall(make(chan struct{}, 1)))
			p := b.process(5 * time.Second)
			id := b.put(kind, "x")
			if _, err := b.pool.Exec(context.Background(), `UPDATE onefold.tasks SET deadline = now() + interval '300 ms' WHERE id = $1`, id); err != nil {
				t.Fatal(err)
			}
			p.Work(context.Background(), id)
			r := b.row(id)
			if diff := cmp.Diff([2]string{string(r.State), r.ErrorCode}, want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The reaper takes what it judged and nothing else: a task that has moved since
// and runs again, under a living owner, stays with it.
func TestReaperLeavesALaterEpochAlone(t *testing.T) {
	t.Parallel()
	inCall := make(chan struct{}, 1)
	b := setup(t, cutCall(inCall))
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	done := make(chan struct{})
	go func() {
		p.Work(context.Background(), id)
		close(done)
	}()
	<-inCall
	p.up.Reap(context.Background(), map[task.ID]int64{id: 0})
	if r := b.row(id); r.State != api.Running || r.Epoch != 1 {
		t.Fatalf("got %s at epoch %d", r.State, r.Epoch)
	}
	if _, err := b.submit.Cancel(context.Background(), submit.Act{Tenant: "a", ID: id, Actor: "t"}); err != nil {
		t.Fatal(err)
	}
	b.beat(p) // the heartbeat tells the call that its task was cancelled
	<-done
	if r := b.row(id); r.State != api.Cancelled {
		t.Errorf("got %s", r.State)
	}
}

// beat does what follows a heartbeat.
func (b *bundle) beat(p *process) {
	b.t.Helper()
	conn, err := b.pool.Acquire(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Release()
	p.OnBeat(context.Background(), conn.Conn(), p.lease.Current().ID)
}

// A claim that committed and whose answer was lost is owned and not held; seen
// twice, it goes by the reaper's rule.
func TestStrayIsTakenBack(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	owner, token := p.lease.Current().ID, task.NewToken()
	for _, sql := range []string{
		`UPDATE onefold.tasks SET state = 'running', epoch = 1, owner = $2, token = $3, attempts = 1, total_attempts = 1 WHERE id = $1`,
		`INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash) VALUES ($1, 1, 1, 1, $2, $3, 'p', '')`,
	} {
		if _, err := b.pool.Exec(context.Background(), sql, id, owner, token); err != nil {
			t.Fatal(err)
		}
	}
	b.beat(p)
	if r := b.row(id); r.State != api.Running {
		t.Errorf("taken at first sight: %s", r.State)
	}
	b.beat(p)
	if r := b.row(id); r.State != api.Pending || r.Lost != 1 {
		t.Errorf("got %s, lost %d", r.State, r.Lost)
	}
}
