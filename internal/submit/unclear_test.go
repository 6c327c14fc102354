package submit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/pg/proxytest"
	"github.com/onefold-dev/onefold/internal/submit"
)

// patience is far beyond what anything here takes.
const patience = 60 * time.Second

const inserting = "INSERT INTO onefold.tasks"

// cuttable is a service whose way to the database goes through a proxy, and one
// with a way of its own.
func cuttable(t *testing.T) (far, near bundle, p *proxytest.Proxy) {
	t.Helper()
	db, cfg := pgtest.New(t), parse(t)
	near = serve(t, cfg, db.Pool(t))
	p = proxytest.New(t, db.URL())
	pool, err := pgxpool.New(context.Background(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return serve(t, cfg, pool), near, p
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// answer is what a submit running beside the test came to.
type answer struct {
	submit.Answer
	err error
}

func (b bundle) start(r submit.Request) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		a, err := b.Submit(context.Background(), r)
		out <- answer{a, err}
	}()
	return out
}

func got(t *testing.T, c <-chan answer) answer {
	t.Helper()
	select {
	case a := <-c:
		return a
	case <-time.After(patience):
		t.Fatal("the submit was never answered")
		return answer{}
	}
}

// Whatever becomes of a COMMIT on its way, whoever's task it is hears that it is
// new, and there is one row with one wake-up.
func TestUnclearCommit(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]proxytest.Fate{
		"never arrived": proxytest.CutBefore, "reply lost": proxytest.DropReply, "cut while it commits": proxytest.CutDuring,
	} {
		for _, kind := range []string{"k", "o", "n"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				far, near, p := cuttable(t)
				f := p.AtCommit(inserting, 1, fate)
				a := got(t, far.start(request(kind, "x", `1`)))
				await(t, "the fault", f.Hit())
				if a.err != nil || !a.Created {
					t.Fatalf("got created %v, %v; want a new task", a.Created, a.err)
				}
				if kind != "n" {
					again, err := far.Submit(t.Context(), request(kind, "x", `1`))
					if err != nil || again.Created || again.Row.ID != a.Row.ID {
						t.Errorf("the next submit of the key: %+v, %v; want the same task", again, err)
					}
				}
				near.one(t, a)
			})
		}
	}
}

// one checks that a's task is the only one, with one wake-up.
func (b bundle) one(t *testing.T, a answer) {
	t.Helper()
	if got := b.count(t, `SELECT count(*) FROM onefold.tasks`); got != 1 {
		t.Errorf("%d tasks, want 1", got)
	}
	if got := b.count(t, `SELECT count(*) FROM onefold.river_job AS j JOIN onefold.tasks AS t ON t.job_id = j.id WHERE t.id = $1`, a.Row.ID); got != 1 {
		t.Errorf("%d wake-ups for the task, want 1", got)
	}
	if got := b.count(t, `SELECT count(*) FROM onefold.river_job`); got != 1 {
		t.Errorf("%d wake-ups, want 1", got)
	}
}

// A backend goes on committing after its client has lost the connection, and
// until it has done so nobody can read the row. Only the same insert again,
// which waits for the one in flight, learns what became of it.
func TestResolveWaitsForTheCommitInFlight(t *testing.T) {
	t.Parallel()
	for name, stands := range map[string]bool{"it stands in the end": true, "it is rolled back in the end": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near, p := cuttable(t)
			gate := near.holdCommits(t)
			f := p.AtCommit(inserting, 1, proxytest.CutDuring)
			answered := far.start(request("k", "x", `1`))
			await(t, "the cut", f.Hit())
			for waiting := false; !waiting; {
				select {
				case a := <-answered:
					t.Fatalf("answered %+v, %v while the commit was in flight", a.Answer, a.err)
				default:
				}
				waiting = near.count(t, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'transactionid'`) > 0
			}
			if stands {
				gate.open(t)
				await(t, "the commit", f.Landed())
			} else {
				near.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'advisory' AND query = 'commit'`)
				gate.open(t)
			}
			a := got(t, answered)
			if a.err != nil || !a.Created {
				t.Fatalf("got created %v, %v; want a new task", a.Created, a.err)
			}
			near.one(t, a)
		})
	}
}

// gate holds every commit of a task's insert until it is opened.
type gate struct{ conn *pgx.Conn }

const gateLock = 77

func (b bundle) holdCommits(t *testing.T) gate {
	t.Helper()
	b.exec(t, fmt.Sprintf(`CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN NULL; END $$`, gateLock))
	b.exec(t, `CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON onefold.tasks DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION public.hold()`)
	conn, err := pgx.ConnectConfig(context.Background(), b.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	g := gate{conn}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(context.Background(), `SELECT pg_advisory_lock($1)`, gateLock); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g gate) open(t *testing.T) {
	t.Helper()
	if _, err := g.conn.Exec(context.Background(), `SELECT pg_advisory_unlock($1)`, gateLock); err != nil {
		t.Fatal(err)
	}
}

// The task of an unclear commit may have run to its end, and its open key may be
// somebody else's, before the commit is resolved. It is still the one that was
// asked for: it is looked for by its own id first, and the same insert again
// must not stumble over that id.
func TestResolveFindsAFinishedTask(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"its key is free again": false, "its key is another's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near, p := cuttable(t)
			f := p.AtCommit(inserting, 1, proxytest.DropReply, p.Freeze)
			answered := far.start(request("o", "x", `1`))
			await(t, "the lost reply", f.Hit())
			near.exec(t, `UPDATE onefold.tasks SET state = 'cancelled', slot = id::text, finished_at = now(), expires_at = now() + interval '1 h'`)
			want := 1
			if taken {
				if _, err := near.Submit(t.Context(), request("o", "x", `2`)); err != nil {
					t.Fatal(err)
				}
				want = 2
			}
			p.Thaw()
			a := got(t, answered)
			if a.err != nil || !a.Created {
				t.Fatalf("got created %v, %v; want the caller's own task", a.Created, a.err)
			}
			if got := near.count(t, `SELECT count(*) FROM onefold.tasks`); got != want {
				t.Errorf("%d tasks, want %d", got, want)
			}
		})
	}
}

// Many callers, many keys, and every few commits go wrong: each key is new to
// one caller and known to all others.
func TestStormOverUnclearCommits(t *testing.T) {
	t.Parallel()
	far, near, p := cuttable(t)
	fates := []proxytest.Fate{proxytest.DropReply, proxytest.CutDuring, proxytest.CutBefore}
	for i := range 6 {
		p.AtCommit(inserting, 1+i/3, fates[i%3])
	}
	const keys, each = 30, 8
	var mu sync.Mutex
	created, ids := map[int]int{}, map[int]map[string]bool{}
	var all sync.WaitGroup
	for i := range keys * each {
		all.Go(func() {
			k := i % keys
			a, err := []bundle{far, far, near}[i%3].Submit(context.Background(), request("k", fmt.Sprint(k), `1`))
			if err != nil {
				t.Errorf("key %d: %v", k, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if a.Created {
				created[k]++
			}
			if ids[k] == nil {
				ids[k] = map[string]bool{}
			}
			ids[k][a.Row.ID.String()] = true
		})
	}
	all.Wait()
	for k := range keys {
		if created[k] != 1 || len(ids[k]) != 1 {
			t.Errorf("key %d: new to %d callers, %d tasks; want 1 and 1", k, created[k], len(ids[k]))
		}
	}
	if got := near.count(t, `SELECT count(*) FROM onefold.river_job AS j JOIN onefold.tasks AS t ON t.job_id = j.id`); got != keys {
		t.Errorf("%d wake-ups for %d tasks", got, keys)
	}
}

// A COMMIT that is never answered is given up in the end, and asking again finds
// out: here the server ends the silent transaction and says so.
func TestStalledCommit(t *testing.T) {
	t.Parallel()
	far, near, p := cuttable(t)
	near.exec(t, `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET idle_in_transaction_session_timeout = 300'; END $$`)
	far.pool.Reset()
	f := p.AtCommit(inserting, 1, proxytest.Stall)
	a := got(t, far.start(request("k", "x", `1`)))
	await(t, "the stall", f.Hit())
	if a.err == nil && !a.Created {
		t.Error("a stalled commit was answered as a duplicate")
	}
	again := got(t, far.start(request("k", "x", `1`)))
	if again.err != nil || a.err == nil && again.Row.ID != a.Row.ID {
		t.Fatalf("asked again: %+v, %v", again.Answer, again.err)
	}
	near.one(t, again)
}
