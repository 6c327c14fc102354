package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/pg/proxytest"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/task"
)

// patience is far beyond what anything here takes.
const patience = 60 * time.Second

// Statements by which a test knows a transaction.
const (
	claiming = "INSERT INTO onefold.attempts"
	marking  = "SET dispatched_at = clock_timestamp()"
	ending   = "SET closed_at = now(),\n    outcome"
)

// through has processes made after it claim and finish through a proxy.
func (b *bundle) through() *proxytest.Proxy {
	b.t.Helper()
	p := proxytest.New(b.t, b.db.URL())
	pool, err := pgxpool.New(context.Background(), p.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	b.work = pool
	return p
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

var fates = map[string]proxytest.Fate{
	"never arrived": proxytest.CutBefore, "reply lost": proxytest.DropReply, "cut while it commits": proxytest.CutDuring,
}

// Whatever becomes of the COMMIT of a claim, a mark or a finish on its way, the
// model is called once, the task has one result, and the outcome's effects are
// there once.
func TestUnclearCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, kind, match string }{
		{"claim", "k", claiming},
		{"claim, reviewed", "r", claiming},
		{"finish", "k", ending},
		{"finish alone", "s", ending},
		{"finish, reviewed", "r", ending},
	} {
		for name, fate := range fates {
			t.Run(c.name+" "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok(`{"total": 7.50}`) })
				proxy := b.through()
				p := b.process(time.Minute)
				id := b.put(c.kind, "x")
				f := proxy.AtCommit(c.match, 1, fate)
				p.Work(context.Background(), id)
				await(t, "the fault", f.Hit())
				b.once(id, c.kind)
			})
		}
	}
}

// once checks that a task ran once and succeeded, and what it left behind.
func (b *bundle) once(id task.ID, kind string) {
	b.t.Helper()
	r := b.row(id)
	if r.State != api.Succeeded || r.Attempts != 1 || r.Epoch != 1 || b.script.calls != 1 {
		b.t.Errorf("got %s, %d attempts, epoch %d, %d calls; want succeeded and one of each", r.State, r.Attempts, r.Epoch, b.script.calls)
	}
	want := map[string][]string{"k": {"tell waiting"}, "s": {"save delivered"}}[kind]
	if diff := cmp.Diff(b.strings(`SELECT name || ' ' || state FROM onefold.effects WHERE task_id = $1`, id), want); diff != "" {
		b.t.Errorf("effects: -got +want:\n%s", diff)
	}
	if got := len(b.strings(`SELECT key FROM public.saved`)); kind == "s" && got != 1 {
		b.t.Errorf("the sql effect left %d rows, want 1", got)
	}
	if diff := cmp.Diff(b.strings(`SELECT outcome || ' ' || billed || ' ' || coalesce(late_at::text, '') FROM onefold.attempts WHERE task_id = $1`, id),
		[]string{"succeeded yes "}); diff != "" {
		b.t.Errorf("attempts: -got +want:\n%s", diff)
	}
	if diff := cmp.Diff(b.strings(wakes, id), []string(nil)); diff != "" {
		b.t.Errorf("wake-ups of the task: -got +want:\n%s", diff)
	}
}

// The claim or the finish is still being committed when its worker asks again:
// it waits for it and does nothing twice.
func TestResolveWaitsForTheCommitInFlight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, kind, match, event string }{
		{"claim", "k", claiming, "INSERT"},
		{"finish", "k", ending, "UPDATE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok(`{"total": 7.50}`) })
			proxy := b.through()
			p := b.process(time.Minute)
			id := b.put(c.kind, "x")
			open := b.holdCommits(c.event)
			f := proxy.AtCommit(c.match, 1, proxytest.CutDuring)
			done := make(chan struct{})
			go func() {
				p.Work(context.Background(), id)
				close(done)
			}()
			await(t, "the cut", f.Hit())
			for waiting := false; !waiting; {
				select {
				case <-done:
					t.Fatal("the worker gave up while the commit was in flight")
				default:
				}
				waiting = len(b.strings(`SELECT 'x' FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'`)) > 0
			}
			open()
			await(t, "the worker", done)
			b.once(id, c.kind)
		})
	}
}

// holdCommits holds every commit that inserts or updates an attempt until it is
// opened.
func (b *bundle) holdCommits(event string) (open func()) {
	b.t.Helper()
	const lock = 77
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, b.db.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(ctx) })
	for _, sql := range []string{
		fmt.Sprintf(`SELECT pg_advisory_lock(%d)`, lock),
		fmt.Sprintf(`CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN NULL; END $$`, lock),
		`CREATE CONSTRAINT TRIGGER hold AFTER ` + event + ` ON onefold.attempts DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION public.hold()`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			b.t.Fatal(err)
		}
	}
	return func() {
		if _, err := conn.Exec(ctx, fmt.Sprintf(`SELECT pg_advisory_unlock(%d)`, lock)); err != nil {
			b.t.Error(err)
		}
	}
}

// An unclear mark sends nothing: the attempt goes back whole, and the next one
// makes the one call.
func TestUnclearMark(t *testing.T) {
	t.Parallel()
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
			proxy := b.through()
			p := b.process(time.Minute)
			id := b.put("r", "x")
			f := proxy.AtCommit(marking, 1, fate)
			p.Work(context.Background(), id)
			await(t, "the fault", f.Hit())
			if r := b.row(id); r.State != api.Pending || r.Attempts != 0 || b.script.calls != 0 {
				t.Fatalf("got %s, %d attempts, %d calls; want it pending and whole", r.State, r.Attempts, b.script.calls)
			}
			b.due(id)
			p.Work(context.Background(), id)
			if r := b.row(id); r.State != api.Succeeded || b.script.calls != 1 {
				t.Errorf("got %s after %d calls", r.State, b.script.calls)
			}
			if diff := cmp.Diff(b.strings(`SELECT outcome || ' ' || billed FROM onefold.attempts WHERE task_id = $1 ORDER BY epoch`, id),
				[]string{"not_sent no", "succeeded yes"}); diff != "" {
				t.Errorf("attempts: -got +want:\n%s", diff)
			}
		})
	}
}

// A retry that was committed unheard has put the task back once, with one
// wake-up, and the next attempt is the second.
func TestUnclearRequeue(t *testing.T) {
	t.Parallel()
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
				if n == 1 {
					return nil, &provider.Error{Class: provider.Unknown, Code: "x", Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
				}
				return ok("x")
			})
			proxy := b.through()
			p := b.process(time.Minute)
			id := b.put("k", "x")
			f := proxy.AtCommit(ending, 1, fate)
			p.Work(context.Background(), id)
			await(t, "the fault", f.Hit())
			if r := b.row(id); r.State != api.Pending || r.Attempts != 1 || !r.Unclear {
				t.Fatalf("got %s, %d attempts, unclear %v", r.State, r.Attempts, r.Unclear)
			}
			if diff := cmp.Diff(b.strings(wakes, id), []string{"scheduled"}); diff != "" {
				t.Errorf("wake-ups: -got +want:\n%s", diff)
			}
			b.due(id)
			p.Work(context.Background(), id)
			if r := b.row(id); r.State != api.Succeeded || r.Attempts != 2 || b.script.calls != 2 {
				t.Errorf("got %s, %d attempts, %d calls", r.State, r.Attempts, b.script.calls)
			}
		})
	}
}
