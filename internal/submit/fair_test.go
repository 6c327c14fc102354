package submit_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
)

// floodEnv says how many tasks a flooding tenant has; the tests' own number is
// small enough for every run.
const floodEnv = "ONEFOLD_FAIR_FLOOD"

func flood(t *testing.T, otherwise int) int {
	t.Helper()
	if s := os.Getenv(floodEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return otherwise
}

// fairProcess is a service with a clock of its own, whose exchanges the test makes.
type fairProcess struct {
	bundle
	clock *fair.Clock
}

func fairly(t *testing.T, db *pgtest.DB, weights map[string]int) fairProcess {
	t.Helper()
	cfg, pool := parse(t), db.Pool(t)
	book := kinds.New(cfg, config.Opts{SkipSecrets: true})
	if err := book.Store(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	for tenant, w := range weights {
		if err := auth.SetWeight(t.Context(), pool, tenant, w, "test", ""); err != nil {
			t.Fatal(err)
		}
	}
	clock, err := fair.New(t.Context(), fair.Opts{DB: pool, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	notifier := job.NewNotifier(pool, log)
	s := submit.New(submit.Config{
		Pool: pool, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log, Fair: clock,
	})
	t.Cleanup(func() {
		s.Close()
		notifier.Close()
	})
	return fairProcess{bundle{s, pool}, clock}
}

func (p fairProcess) exchange(t *testing.T) {
	t.Helper()
	if err := p.clock.Exchange(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (p fairProcess) many(t *testing.T, tenant, prefix string, n int, batch bool) {
	t.Helper()
	for done := 0; done < n; done += submit.MaxBulk {
		var all []submit.Request
		for i := done; i < min(n, done+submit.MaxBulk); i++ {
			r := request("k", fmt.Sprintf("%s-%d", prefix, i), `{"n":1}`)
			r.Tenant = tenant
			if batch {
				r.Batch = &fairBatch
			}
			all = append(all, r)
		}
		for _, o := range p.Many(context.Background(), all) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
		}
	}
}

var fairBatch = store.New{}.ID

// fetch takes the next wake-ups in River's order and returns whose they were.
func (p fairProcess) fetch(t *testing.T, n int) (tenants []string) {
	t.Helper()
	rows, err := p.pool.Query(t.Context(), `
WITH next AS (
    SELECT id, scheduled_at
    FROM onefold.river_job
    WHERE state = 'available' AND queue = 'p-p' AND scheduled_at <= now()
    ORDER BY priority, scheduled_at, id
    LIMIT $1
), gone AS (
    DELETE FROM onefold.river_job WHERE id IN (SELECT id FROM next) RETURNING id, args
)
SELECT t.tenant
FROM next
JOIN gone USING (id)
JOIN onefold.tasks AS t ON t.id = (gone.args ->> 'id')::uuid
ORDER BY next.scheduled_at, next.id`, n)
	if err != nil {
		t.Fatal(err)
	}
	if tenants, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	return tenants
}

// place is as which claim a tenant's first task comes.
func (p fairProcess) place(t *testing.T, tenant string) int {
	t.Helper()
	for i, got := range p.fetch(t, 50) {
		if got == tenant {
			return i + 1
		}
	}
	t.Fatalf("none of 50 claims was tenant %s's", tenant)
	return 0
}

// A tenant with a full queue does not delay another's first task by more than a
// few claims: whether it submitted through one process or three, in bulk or as
// batches, and whichever process the other comes to.
func TestFloodDelaysNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n := flood(t, 2000)
	var all []fairProcess
	for range 3 {
		all = append(all, fairly(t, db, nil))
	}
	for i, p := range all {
		p.many(t, "flood", fmt.Sprint("f", i), n/3, false)
		p.exchange(t)
	}
	all[0].many(t, "batch", "lines", n/10, true)
	all[0].fetch(t, n/4)
	for i, p := range all {
		p.exchange(t)
		tenant := fmt.Sprint("new", i)
		p.many(t, tenant, "first", 1, false)
		if at := p.place(t, tenant); at > 3+len(all) {
			t.Errorf("process %d: %s's first task is claim %d", i, tenant, at)
		}
	}
	fresh := fairly(t, db, nil) // one that has just started
	fresh.many(t, "late", "first", 1, false)
	if at := fresh.place(t, "late"); at > 6 {
		t.Errorf("through a fresh process: claim %d", at)
	}
}

// A flood whose insertion has not been committed is not one that was served:
// the queue is empty, and yet the next tenant's first task comes before it,
// through any process.
func TestFloodBeingInserted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	here, there := fairly(t, db, nil), fairly(t, db, nil)
	task := func(tenant string) *store.New {
		return &store.New{Provider: "p", Slot: store.Slot{Tenant: tenant}, Priority: 4}
	}
	flood := make([]*store.New, 500)
	for i := range flood {
		flood[i] = task("flood")
	}
	exchange := func() {
		for range 3 {
			here.exchange(t)
			there.exchange(t)
		}
	}
	ended := here.clock.Insert(flood)
	exchange()
	for _, p := range []fairProcess{here, there} {
		next := task("next")
		p.clock.PlaceAll([]*store.New{next})
		if !next.Virtual.Before(flood[3].Virtual) {
			t.Errorf("the next tenant's place is %v, the flood's are from %v to %v", next.Virtual, flood[0].Virtual, flood[499].Virtual)
		}
	}
	ended()
	exchange()
	for _, p := range []fairProcess{here, there} {
		later := task("later")
		p.clock.PlaceAll([]*store.New{later})
		if later.Virtual.Before(flood[499].Virtual) {
			t.Errorf("after all was served a place is %v, before %v", later.Virtual, flood[499].Virtual)
		}
	}
}

// Three tenants with weights 1:2:4 and a full backlog each get places 1:2:4, in
// every stretch of the queue.
func TestWeightsOverAFullBacklog(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	weights := map[string]int{"one": 100, "two": 200, "four": 400}
	n := flood(t, 1400)
	a, b := fairly(t, db, weights), fairly(t, db, weights)
	for name := range weights { // one tenant after the other, and from two processes
		a.many(t, name, "a", n/2, false)
		a.exchange(t)
		b.exchange(t)
		b.many(t, name, "b", n/2, false)
		b.exchange(t)
	}
	for range 5 {
		got := map[string]int{}
		for _, tenant := range a.fetch(t, 7*40) {
			got[tenant]++
		}
		for name, w := range weights {
			if want := 7 * 40 * w / 700; got[name] < want-6 || got[name] > want+6 {
				t.Errorf("weight %d got %d of 280 places, want %d: %v", w, got[name], want, got)
			}
		}
	}
}

// What runs again in a new run does not come before everybody else; what is
// inserted in a caller's own transaction is charged to its tenant.
func TestPlacesInTransactions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := fairly(t, db, nil)
	enqueued := func(tenant, prefix string, n int) {
		err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
			var all []submit.Request
			for i := range n {
				r := request("k", fmt.Sprint(prefix, i), `{"n":1}`)
				r.Tenant = tenant
				all = append(all, r)
			}
			_, _, err := submit.InTx(t.Context(), tx, submit.Rules{Newest: p.Kinds.Newest}, all)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		enqueued("flood", fmt.Sprint("f", i, "-"), 250)
	}
	enqueued("other", "o", 1)
	if at := p.place(t, "other"); at > 3 {
		t.Errorf("enqueued beside a flood: claim %d", at)
	}
	p.exchange(t)
	if n := p.count(t, `SELECT count(*) FROM onefold.flow_charges`); n != 0 {
		t.Errorf("%d charges are left", n)
	}
	p.many(t, "flood", "more", 10, false)
	p.many(t, "third", "t", 1, false)
	if at := p.place(t, "third"); at > 3 {
		t.Errorf("beside enqueued and submitted: claim %d", at)
	}
	last := p.count(t, `SELECT count(*) FROM onefold.tasks WHERE tenant = 'flood' AND key LIKE 'f%' AND virtual_at > (SELECT min(virtual_at) FROM onefold.tasks WHERE key LIKE 'more%')`)
	if last != 0 {
		t.Errorf("%d enqueued tasks come after what was submitted later", last)
	}
}

// What waited for its time comes back at its task's own place, whether upkeep or
// River's scheduler is first: at the time itself it would come last of all.
func TestDueAtItsPlace(t *testing.T) {
	t.Parallel()
	p := fairly(t, pgtest.New(t), nil)
	p.many(t, "early", "e", 2, false)
	p.many(t, "flood", "f", 100, false)
	p.exec(t, `INSERT INTO onefold.river_queue (name) VALUES ('p-p')`)
	p.exec(t, `
UPDATE onefold.river_job AS j
SET state = CASE WHEN t.key = 'e-0' THEN 'scheduled' ELSE 'available' END::onefold.river_job_state, scheduled_at = now() - interval '1 s'
FROM onefold.tasks AS t
WHERE t.job_id = j.id AND t.tenant = 'early'`)
	queues, err := store.DueWakes(t.Context(), p.pool, 100)
	if err != nil || len(queues) != 1 || queues[0] != "p-p" {
		t.Fatalf("got %v, %v", queues, err)
	}
	if got := p.fetch(t, 4); got[0] != "early" && got[1] != "early" {
		t.Errorf("the first claims are %v", got)
	}
	if n := p.count(t, `SELECT count(*) FROM onefold.river_job WHERE state <> 'available' OR scheduled_at > '2001-01-01'`); n != 0 {
		t.Errorf("%d wake-ups are not at their places", n)
	}
}
