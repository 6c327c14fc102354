package store_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// explained passes statements on, and looks first how the planner would answer
// them: one that reads a whole table of those that grow is an error.
type explained struct {
	*pgxpool.Pool
	t    *testing.T
	name string
}

var whole = regexp.MustCompile(`Seq Scan on (tasks|attempts|effects|deliveries|task_duplicates|task_submits|audit|tombstones|batches|batch_lines)\b.*`)

func (e explained) look(ctx context.Context, sql string, args []any) {
	e.t.Helper()
	rows, err := e.Pool.Query(ctx, "EXPLAIN "+sql, args...)
	if err != nil {
		e.t.Errorf("%s: explain: %v", e.name, err)
		return
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Errorf("%s: explain: %v\n%s", e.name, err, sql)
		return
	}
	if text := strings.Join(plan, "\n"); whole.MatchString(text) {
		e.t.Errorf("%s: %s\n%s", e.name, whole.FindString(text), text)
	}
}

func (e explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	e.look(ctx, sql, args)
	return e.Pool.Query(ctx, sql, args...)
}

func (e explained) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	e.look(ctx, sql, args)
	return e.Pool.QueryRow(ctx, sql, args...)
}

// Every list and everything a timeline is made of is answered by an index: as
// the planner chooses by itself, and as it does on our connections, which do
// without sequential scans. ONEFOLD_PLAN_TASKS=1000000 looks at a million tasks.
func TestPlans(t *testing.T) {
	t.Parallel()
	n := 20_000
	if s := os.Getenv("ONEFOLD_PLAN_TASKS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	db := pgtest.New(t)
	pool := db.Pool(t)
	fillPlans(t, pool, n)
	for _, seqscan := range []string{"on", "off"} {
		cfg, err := pgxpool.ParseConfig(db.URL())
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnConfig.RuntimeParams["enable_seqscan"] = seqscan
		p, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		read(t, p, "enable_seqscan="+seqscan)
		p.Close()
	}
}

// fillPlans fills the tables that grow: n tasks of a week, two thirds of them one
// tenant's, most of them done.
func fillPlans(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	ctx := t.Context()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		`SET session_replication_role = replica`, // rows are made consistent by hand
		`SET statement_timeout = 0`,
		fmt.Sprintf(`CREATE TEMP TABLE s AS
SELECT i, i %% 100 AS r, now() - (%[1]d - i) * interval '7 days' / %[1]d AS at
FROM generate_series(1, %[1]d) AS i`, n),
		`ALTER TABLE s ADD id uuid`,
		`UPDATE s SET id = (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(i & 4095), 3, '0') || '8' || lpad(to_hex(i), 15, '0'))::uuid`,
		`INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, created_at, trace_id, batch_id,
    deadline_after, deadline, metadata, input, config_hash, state, epoch, run_at, owner, token, attempts, total_attempts, started_at, finished_at, expires_at,
    error_code, error_permanent, result_hash, result, origin)
SELECT id, CASE WHEN i % 3 < 2 THEN 'big' ELSE 't' || i % 97 END, 'k' || i % 5, 'key-' || i, 'key', 'p' || i % 3, sha256(i::text::bytea), 1,
    sha256((i % 1000)::text::bytea), at, md5((i / 2)::text), CASE WHEN i % 5 = 0 THEN md5((i / 1000)::text)::uuid END, '1 d', at + interval '1 d',
    '{"customer":"c"}', '1', 'h', s.state, 1, at, CASE WHEN s.state = 'running' THEN id END, CASE WHEN s.state = 'running' THEN id END, 1, 1, at,
    CASE WHEN s.state NOT IN ('pending', 'running') THEN at + interval '1 s' END,
    CASE WHEN s.state IN ('succeeded', 'failed', 'cancelled') THEN at + interval '30 d' END,
    CASE WHEN s.state IN ('failed', 'unknown') THEN 'code' END, CASE WHEN s.state = 'failed' THEN r % 2 = 0 END,
    CASE WHEN s.state = 'succeeded' THEN sha256('1') END, CASE WHEN s.state = 'succeeded' THEN '1'::bytea END, '{}'
FROM (SELECT *, CASE WHEN r < 90 THEN 'succeeded' WHEN r < 93 THEN 'failed' WHEN r = 93 THEN 'unknown' WHEN r < 96 THEN 'cancelled'
      WHEN r < 99 THEN 'pending' ELSE 'running' END AS state FROM s) AS s`,
		`INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, claimed_at, closed_at, outcome)
SELECT id, 1, 1, 1, gen_random_uuid(), gen_random_uuid(), 'p', 'h', at, CASE WHEN r < 99 THEN at + interval '1 s' END, CASE WHEN r < 99 THEN 'succeeded' END FROM s`,
		`INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, created_at, state, next_at, finished_at)
SELECT id, id, CASE WHEN i % 3 < 2 THEN 'big' ELSE 't' || i % 97 END, 1, 'e', 'succeeded', 'webhook', 'd' || i % 3, at,
    CASE WHEN r < 86 THEN 'delivered' WHEN r = 86 THEN 'dead' WHEN r = 87 THEN 'unknown' WHEN r = 88 THEN 'held' ELSE 'waiting' END, at,
    CASE WHEN r < 88 THEN at END FROM s WHERE r < 90`,
		`INSERT INTO onefold.deliveries (effect_id, epoch, number, incarnation, token, started_at, closed_at, outcome)
SELECT id, 1, 1, gen_random_uuid(), gen_random_uuid(), at, at, 'delivered' FROM s WHERE r < 88`,
		`INSERT INTO onefold.task_duplicates (task_id, count) SELECT id, 2 FROM s WHERE i % 10 = 0`,
		`INSERT INTO onefold.task_submits (task_id, at, what) SELECT id, at, 'folded' FROM s WHERE i % 10 = 0`,
		`INSERT INTO onefold.audit (at, tenant, actor, action, target_type, target_id) SELECT at, 'big', 'a', 'task.retry', 'task', id::text FROM s WHERE i % 20 = 0`,
		`INSERT INTO onefold.audit (at, actor, action, target_type, target_id) SELECT at, 'a', 'gate.cooling', 'provider', 'p1' FROM s WHERE i % 1000 = 0`,
		`INSERT INTO onefold.tombstones (task_id, tenant, kind, key, state, created_at, finished_at, purged_at)
SELECT gen_random_uuid(), 'big', 'k0', 'old-' || i, 'succeeded', at, at, at FROM s WHERE i % 4 = 0`,
		`INSERT INTO onefold.batches (id, tenant, key, kind, deadline_after, options_hash, form, state, hash, lines, started_at, deadline, ended_at, expires_at)
SELECT md5((i / 10)::text)::uuid, 'big', 'b' || i / 10, 'k0', interval '1 d', sha256('1'), 'onefold', 'completed', sha256('1'), 200, at, at, at, now() + interval '30 d'
FROM s WHERE i % 10 = 0
UNION ALL SELECT md5('0')::uuid, 'big', 'b0', 'k0', interval '1 d', sha256('1'), 'onefold', 'completed', sha256('1'), 200, now(), now(), now(), now() + interval '30 d'`,
		`INSERT INTO onefold.batch_lines (batch_id, number, line_id, kind, task_id, state, finished)
SELECT md5((i / 1000)::text)::uuid, i, 'l' || i, 'k0', id, 'succeeded', i FROM s WHERE i % 5 = 0`,
		`VACUUM ANALYZE`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
	if _, err := conn.Exec(ctx, `RESET ALL`); err != nil {
		t.Fatal(err)
	}
}

// read makes every call that lists tasks or tells of one.
func read(t *testing.T, pool *pgxpool.Pool, how string) {
	t.Helper()
	ctx := t.Context()
	var raw [16]byte
	if err := pool.QueryRow(ctx, `SELECT id FROM onefold.tasks WHERE tenant = 'big' AND batch_id IS NOT NULL AND state = 'succeeded' ORDER BY id DESC OFFSET 500 LIMIT 1`).Scan(&raw); err != nil {
		t.Fatal(err)
	}
	id := task.ID(raw)
	row, err := store.Task(ctx, pool, "big", id)
	if err != nil || row == nil {
		t.Fatalf("read a task: %v", err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	db := explained{Pool: pool, t: t}
	tasks := func(f store.TaskFilter) func() error {
		return func() error { _, _, err := store.Tasks(ctx, db, f, 50); return err }
	}
	effects := []task.ID{id}
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"tasks", tasks(store.TaskFilter{Tenant: "big"})},
		{"tasks of all tenants", tasks(store.TaskFilter{})},
		{"tasks of a small tenant", tasks(store.TaskFilter{Tenant: "t5"})},
		{"tasks of nobody", tasks(store.TaskFilter{Tenant: "nobody"})},
		{"tasks, next page", tasks(store.TaskFilter{Tenant: "big", Before: &id})},
		{"tasks by state", tasks(store.TaskFilter{Tenant: "big", States: []api.State{api.Unknown}})},
		{"tasks by kind", tasks(store.TaskFilter{Tenant: "big", Kind: "k1"})},
		{"tasks by key", tasks(store.TaskFilter{Tenant: "big", Kind: row.Kind, Key: row.Key})},
		{"tasks by key of all tenants", tasks(store.TaskFilter{Kind: row.Kind, Key: row.Key})},
		{"tasks by batch", tasks(store.TaskFilter{Tenant: "big", Batch: row.BatchID})},
		{"tasks by trace", tasks(store.TaskFilter{Tenant: "big", TraceID: row.TraceID})},
		{"tasks by a trace there is not", tasks(store.TaskFilter{Tenant: "big", TraceID: "none"})},
		{"tasks by input hash", tasks(store.TaskFilter{Tenant: "big", InputHash: row.InputHash})},
		{"tasks by metadata", tasks(store.TaskFilter{Tenant: "big", Metadata: map[string]string{"customer": "none"}})},
		{"tasks by time", tasks(store.TaskFilter{Tenant: "big", CreatedAfter: &yesterday, CreatedBefore: ptr(time.Now())})},
		{"task", func() error { _, err := store.Task(ctx, db, "big", id); return err }},
		{"tasks by id", func() error { _, err := store.TasksByID(ctx, db, effects); return err }},
		{"tasks waited for", func() error { _, err := store.TasksWaited(ctx, db, effects); return err }},
		{"newest by key", func() error { _, err := store.NewestByKey(ctx, db, "big", row.Kind, row.Key); return err }},
		{"by slot", func() error {
			_, err := store.TasksBySlot(ctx, db, []store.Slot{{Tenant: "big", Kind: row.Kind, Key: row.Key}})
			return err
		}},
		{"input", func() error { _, _, err := store.TaskInput(ctx, db, "big", id); return err }},
		{"tombstone", func() error { _, err := store.TombstoneOf(ctx, db, "big", id); return err }},
		{"latency", func() error { _, err := store.TaskLatency(ctx, db, "big", "k1"); return err }},
		{"place in the queue", func() error { _, _, err := store.QueuePlace(ctx, db, row); return err }},
		{"batches", func() error { _, err := store.Batches(ctx, db, "big", "", nil, 50); return err }},
		{"batch by key", func() error { _, err := store.Batches(ctx, db, "big", "b1", nil, 50); return err }},
		{"batch", func() error { _, err := store.BatchByID(ctx, db, "big", *row.BatchID); return err }},
		{"bad lines", func() error { _, err := store.BadLines(ctx, db, *row.BatchID, 50); return err }},
		{"review: tasks", func() error {
			_, _, err := store.ReviewTasks(ctx, db, store.ReviewFilter{Tenant: "big"}, 50)
			return err
		}},
		{"review: effects", func() error {
			_, _, err := store.ReviewEffects(ctx, db, store.ReviewFilter{Tenant: "big"}, 50)
			return err
		}},
		{"review of all: tasks", func() error {
			_, _, err := store.ReviewTasks(ctx, db, store.ReviewFilter{Reason: api.ReviewUnknown}, 50)
			return err
		}},
		{"review of all: effects", func() error {
			_, _, err := store.ReviewEffects(ctx, db, store.ReviewFilter{Destination: "d1"}, 50)
			return err
		}},
		{"review: counts", func() error { _, _, err := store.CountReview(ctx, db, store.ReviewFilter{Tenant: "big"}); return err }},
		{"timeline: origin", func() error { _, _, _, _, err := store.Origin(ctx, db, "big", id); return err }},
		{"timeline: submits", func() error { _, err := store.Submits(ctx, db, "big", id); return err }},
		{"timeline: attempts", func() error { _, err := store.Attempts(ctx, db, "big", id, 0); return err }},
		{"timeline: effects", func() error { _, err := store.EffectsOfTask(ctx, db, "big", id); return err }},
		{"timeline: deliveries", func() error { _, err := store.DeliveriesOfTask(ctx, db, "big", id); return err }},
		{"timeline: audit", func() error {
			_, err := store.AuditAround(ctx, db, id, effects, "p1", []string{"d1"}, yesterday, time.Now())
			return err
		}},
		{"timeline: acts", func() error { _, err := store.Acts(ctx, db, "task", id.String()); return err }},
		{"diagnosis: neighbours", func() error { _, err := store.Neighbours(ctx, db, row); return err }},
		{"deliveries", func() error { _, err := store.Deliveries(ctx, db, effects, 10); return err }},
		{"effect", func() error { _, err := store.EffectByID(ctx, db, "big", id); return err }},
	} {
		db.name = how + ", " + c.name
		began := time.Now()
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", db.name, err)
		}
		t.Logf("%-52s %7.1f ms", db.name, float64(time.Since(began).Microseconds())/1000)
	}
}

func ptr[T any](v T) *T { return &v }
