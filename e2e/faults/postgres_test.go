package faults

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/pg/proxytest"
)

// TestPostgresCases plays the cases of the theme postgres_fault: lost replies,
// failovers, conflicts, small pools, a silent LISTEN, a full disk.
func TestPostgresCases(t *testing.T) {
	t.Parallel()
	play(t, "e2e/faults.TestPostgresCases", map[string]func(*testing.T){
		"C266": lostReplyToASubmit,
		"C267": lostReplyToAResult,
		"C268": primaryBecomesReadOnly,
		"C269": conflicts,
		"C270": oppositeOrder,
		"C271": poolOfOne,
		"C272": slowModelSmallPool,
		"C273": silentListen,
		"C275": simpleProtocol,
		"C276": diskFull,
	})
}

// Statements by which a transaction is known.
const (
	inserting = "INSERT INTO onefold.tasks"
	claiming  = "INSERT INTO onefold.attempts"
	ending    = "SET closed_at = now(),\n    outcome"
	marking   = "INSERT INTO onefold.deliveries"
	delivered = "UPDATE onefold.deliveries"
)

var fates = []proxytest.Fate{proxytest.DropReply, proxytest.CutDuring, proxytest.CutBefore}

// lostReplyToASubmit: the caller is answered as if nothing had been; and where
// the api dies with the reply, its next try finds the same task.
func lostReplyToASubmit(t *testing.T) {
	w := proc.New(t, nil)
	p := proxytest.New(t, w.Database)
	dying := w.API(t, "--database-url", p.URL())
	c, other := newCaller(w, dying), newCaller(w, w.API(t))
	for i, fate := range fates {
		p.AtCommit(inserting, 1, fate)
		first := c.accepted(t, fmt.Sprint(i), work("ok"))
		if again := c.submit(fmt.Sprint(i), work("ok")); again.status != http.StatusOK || again.task.ID != first.ID {
			t.Errorf("fate %d, again: got %d for %s, want 200 for %s", fate, again.status, again.task.ID, first.ID)
		}
	}
	killed := make(chan error, 1)
	f := p.AtCommit(inserting, 1, proxytest.DropReply, func() { killed <- dying.End() })
	if a := c.submit("killed", work("ok")); a.status != 0 {
		t.Errorf("got %d from an api that was killed", a.status)
	}
	await(t, "the commit", f.Landed())
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := other.submit("killed", work("ok")); a.status != http.StatusOK {
			t.Errorf("the caller's next try: got %d %s, want 200: the task is there", a.status, a.body)
		}
	}
	if got, want := w.Count(t, `SELECT count(*) FROM onefold.tasks`), len(fates)+1; got != want {
		t.Errorf("%d tasks, want %d", got, want)
	}
}

// lostReplyToAResult: each commit of a task's way, claim to delivery, loses its
// reply once in each manner.
func lostReplyToAResult(t *testing.T) {
	w := proc.New(t, nil)
	c := newCaller(w, w.API(t))
	p := proxytest.New(t, w.Database)
	w.Worker(t, "--database-url", p.URL())
	n := 0
	for _, match := range []string{claiming, ending, marking, delivered} {
		for _, fate := range fates {
			f := p.AtCommit(match, 1, fate)
			n++
			task := c.succeeded(t, c.accepted(t, fmt.Sprint(n), work("ok")).ID)
			await(t, "the fault", f.Hit())
			if task.Attempts != 1 {
				t.Errorf("%s, fate %d: %d attempts, want 1", match, fate, task.Attempts)
			}
		}
	}
	drained(t, w)
	onceEach(t, w, n)
	if calls := w.Model.Calls().Received; calls != n {
		t.Errorf("%d calls for %d tasks, want one each", calls, n)
	}
	for id, r := range w.Receiver.Received() {
		if r.Count != 1 {
			t.Errorf("webhook %s was sent %d times, want once", id, r.Count)
		}
	}
}

// primaryBecomesReadOnly: the connections of before are to a server that takes no
// writes any more, new ones to one that does, as after a failover.
func primaryBecomesReadOnly(t *testing.T) {
	cluster := pgtest.Cluster(t)
	w := proc.New(t, &proc.Opts{Cluster: cluster})
	c := newCaller(w, w.API(t))
	w.Worker(t)
	const tasks = 40
	var all sync.WaitGroup
	for i := range tasks { // so that the pools are full
		all.Go(func() {
			if a := c.submit(fmt.Sprint("before-", i), work("latency=500ms")); a.status != http.StatusAccepted {
				t.Errorf("submit: %d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	atWork(t, w, 1)
	admin := statements(t, cluster.URL("postgres"))
	name := w.Pool.Config().ConnConfig.Database
	admin(`ALTER DATABASE ` + name + ` SET default_transaction_read_only = off`) // for new connections
	admin(`ALTER SYSTEM SET default_transaction_read_only = on`)
	t.Cleanup(func() { // or nobody could drop the database
		later := statements(t, with(t, cluster.URL("postgres"), "default_transaction_read_only", "off"))
		later(`ALTER SYSTEM RESET default_transaction_read_only`)
		later(`SELECT pg_reload_conf()`)
	})
	start := time.Now()
	admin(`SELECT pg_reload_conf()`)
	proc.Until(t, "a submit is taken again", func() bool {
		a := c.submit("after", work("ok"))
		if a.status >= 500 && a.status != http.StatusServiceUnavailable {
			t.Fatalf("submit: %d %s", a.status, a.body)
		}
		return a.status == http.StatusAccepted || a.status == http.StatusOK
	})
	within(t, "the recovery", start, 30*time.Second)
	w.Pool.Reset()
	drained(t, w)
	within(t, "all work", start, 30*time.Second)
	if got := w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE state <> 'succeeded'`); got != 0 {
		t.Errorf("%d tasks did not succeed", got)
	}
	onceEach(t, w, tasks+1)
	proc.Until(t, "the connections of before are gone", func() bool { // but for those that only listen
		return w.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'onefold-%'
		AND backend_start < pg_conf_load_time() AND query NOT LIKE 'LISTEN%'`) == 0
	})
}

// conflicts: Postgres refuses two of three inserts and results for a conflict of
// which nobody outside hears.
func conflicts(t *testing.T) {
	w := proc.New(t, nil)
	for _, sql := range []string{
		`CREATE SEQUENCE public.turns`,
		`CREATE FUNCTION public.conflict() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE n bigint := nextval('public.turns');
		BEGIN
			IF n % 3 = 0 THEN RAISE EXCEPTION 'made up' USING ERRCODE = '40001'; END IF;
			IF n % 3 = 1 THEN RAISE EXCEPTION 'made up' USING ERRCODE = '40P01'; END IF;
			RETURN NEW;
		END $$`,
		`CREATE TRIGGER a BEFORE INSERT ON onefold.tasks FOR EACH STATEMENT EXECUTE FUNCTION public.conflict()`,
		`CREATE TRIGGER b BEFORE UPDATE ON onefold.tasks FOR EACH ROW WHEN (NEW.state = 'succeeded') EXECUTE FUNCTION public.conflict()`,
	} {
		if _, err := w.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	c := newCaller(w, w.API(t))
	w.Worker(t)
	const tasks = 20
	for i := range tasks {
		c.accepted(t, fmt.Sprint(i), work("ok"))
	}
	drained(t, w)
	onceEach(t, w, tasks)
	if calls := w.Model.Calls().Received; calls != tasks {
		t.Errorf("%d calls for %d tasks", calls, tasks)
	}
}

// oppositeOrder: two processes get the same keys at once, in opposite order.
func oppositeOrder(t *testing.T) {
	w := proc.New(t, nil)
	apis := []*caller{newCaller(w, w.API(t)), newCaller(w, w.API(t))}
	keys := make([]string, 300)
	for i := range keys {
		keys[i] = fmt.Sprintf("%03d", i)
	}
	orders := [][]string{keys, slices.Clone(keys)}
	slices.Reverse(orders[1])
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i, c := range apis {
		for _, key := range orders[i] {
			all.Go(func() {
				<-begin
				if a := c.submit(key, work("ok")); a.status != http.StatusOK && a.status != http.StatusAccepted {
					t.Errorf("key %s: got %d %s", key, a.status, a.body)
				}
			})
		}
	}
	close(begin)
	all.Wait()
	if got := w.Count(t, `SELECT count(*) FROM onefold.tasks`); got != len(keys) {
		t.Errorf("%d tasks for %d keys", got, len(keys))
	}
	if got := w.Count(t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); got != 0 {
		t.Errorf("%d deadlocks, want none: flushes are sorted", got)
	}
}

// with adds a parameter to a database URL.
func with(t *testing.T, database, name, value string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func poolOfOne(t *testing.T) {
	w := proc.New(t, nil)
	one := with(t, w.Database, "pool_max_conns", "1")
	c := newCaller(w, w.API(t, "--database-url", one))
	w.Worker(t, "--database-url", one)
	const tasks = 20
	var all sync.WaitGroup
	for i := range tasks {
		all.Go(func() {
			if a := c.submit(fmt.Sprint(i), work("ok")); a.status != http.StatusAccepted {
				t.Errorf("submit: %d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	drained(t, w)
	onceEach(t, w, tasks)
}

// slowModelSmallPool: calls hold no connection, so that submits find one.
func slowModelSmallPool(t *testing.T) {
	w := proc.New(t, nil)
	few := with(t, w.Database, "pool_max_conns", "5")
	c := newCaller(w, w.API(t, "--database-url", few))
	w.Worker(t, "--database-url", few)
	const calls = 50
	for i := range calls {
		c.accepted(t, fmt.Sprint("slow-", i), work("latency=60s,abort"))
	}
	atWork(t, w, calls)
	for i := range 20 {
		start := time.Now()
		c.accepted(t, fmt.Sprint("more-", i), work("ok"))
		within(t, "a submit", start, time.Second)
	}
	start := time.Now()
	c.succeeded(t, c.accepted(t, "last", work("ok")).ID)
	within(t, "a task beside them", start, time.Second)
	proc.Until(t, "no transaction open during the calls", func() bool {
		return w.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`) == 0
	})
	if running := w.Model.Calls().Running; running < calls {
		t.Errorf("%d calls are under way, want still %d", running, calls)
	}
}

// silentListen: notifications no longer come, and everything is found by polling.
func silentListen(t *testing.T) {
	w := proc.New(t, nil)
	p := proxytest.New(t, w.Database)
	c := newCaller(w, w.API(t, "--database-url", p.URL()))
	w.Worker(t, "--database-url", p.URL())
	c.succeeded(t, c.accepted(t, "before", work("ok")).ID)
	proc.Until(t, "both listen", func() bool { return p.Clients("LISTEN") >= 2 })
	p.Silence("LISTEN")
	start := time.Now()
	c.accepted(t, "k", work("ok"))
	atLeast(t, w, 2)
	within(t, "the pickup", start, time.Second) // River looks every 150 ms
	id := c.accepted(t, "waited", work("latency=1s")).ID
	start = time.Now()
	a := c.do(http.MethodGet, "/v1/tasks/"+id+"?wait=60s", "", nil)
	if a.status != http.StatusOK || a.task.State != api.Succeeded {
		t.Errorf("the waiting caller: got %d %s", a.status, a.body)
	}
	within(t, "the waiting caller's answer", start, 4*time.Second) // a second's call, and waiters look every 2 s
}

// atLeast waits until the model has had n calls.
func atLeast(t *testing.T, w *proc.World, n int) {
	t.Helper()
	proc.Until(t, fmt.Sprintf("%d calls", n), func() bool { return w.Model.Calls().Received >= n })
}

const sqlToo = `
      - {name: save, type: sql, statement: "INSERT INTO public.saved (key, text) VALUES (@key, @result)"}
`

// simpleProtocol: the whole way in the simple protocol, where the server tells no
// types.
func simpleProtocol(t *testing.T) {
	w := proc.New(t, &proc.Opts{Config: proc.DefaultConfig + sqlToo})
	if _, err := w.Pool.Exec(t.Context(), `CREATE TABLE public.saved (key text, text text)`); err != nil {
		t.Fatal(err)
	}
	simple := with(t, w.Database, "default_query_exec_mode", "simple_protocol")
	c := newCaller(w, w.API(t, "--database-url", simple))
	worker := w.Worker(t, "--database-url", simple)
	const tasks = 10
	for i := range tasks {
		c.accepted(t, fmt.Sprint(i), work("status=500;ok")) // with a retry each
	}
	drained(t, w)
	if got := w.Count(t, `SELECT count(*) FROM public.saved WHERE text = 'hello'`); got != tasks {
		t.Errorf("%d rows saved, want %d", got, tasks)
	}
	if got := len(w.Receiver.Received()); got != tasks {
		t.Errorf("%d webhooks, want %d", got, tasks)
	}
	worker.Stop(t)
	id := c.accepted(t, "cancelled", work("ok")).ID
	if a := c.cancel(id); a.status != http.StatusOK || a.task.State != api.Cancelled {
		t.Errorf("cancel: %d %s", a.status, a.body)
	}
	if a := c.submit("0", work("other")); a.status != http.StatusUnprocessableEntity {
		t.Errorf("a reused key: %d %s", a.status, a.body)
	}
	if a := c.do(http.MethodGet, "/v1/tasks?state=succeeded&limit=5", "", nil); a.status != http.StatusOK {
		t.Errorf("list: %d %s", a.status, a.body)
	}
	id = c.accepted(t, "killed", work("latency=60s;ok")).ID
	worker.Restart(t)
	atWork(t, w, 1)
	worker.Kill(t)
	worker.Restart(t)
	c.succeeded(t, id)
}

// diskFull: an insert that finds no room is answered as such, the key is not
// used up, and all goes on by itself once there is room.
func diskFull(t *testing.T) {
	w := proc.New(t, nil)
	c := newCaller(w, w.API(t))
	w.Worker(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := w.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`)
	exec(`CREATE TRIGGER f BEFORE INSERT ON onefold.tasks FOR EACH STATEMENT EXECUTE FUNCTION public.full()`)
	for range 3 {
		if a := c.submit("k", work("ok")); a.status != http.StatusServiceUnavailable || a.problem.Code != string(api.CodeUnavailable) ||
			strings.Contains(a.body, "No space") {
			t.Errorf("got %d %s, want 503 unavailable and no word of Postgres", a.status, a.body)
		}
	}
	exec(`DROP TRIGGER f ON onefold.tasks`)
	c.succeeded(t, c.accepted(t, "k", work("ok")).ID)

	// The same where results are stored.
	exec(`CREATE TRIGGER f BEFORE UPDATE ON onefold.attempts FOR EACH ROW WHEN (NEW.closed_at IS NOT NULL) EXECUTE FUNCTION public.full()`)
	id := c.accepted(t, "result", work("ok")).ID
	atLeast(t, w, 2)
	exec(`DROP TRIGGER f ON onefold.attempts`)
	c.succeeded(t, id)
	drained(t, w)
	onceEach(t, w, 2)
}

// statements executes SQL on a connection of its own.
func statements(t *testing.T, database string) func(sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), database) // also while the test is being cleaned up
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return func(sql string) {
		t.Helper()
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}
