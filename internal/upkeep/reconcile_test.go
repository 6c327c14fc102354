package upkeep_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/upkeep"
)

const testConfig = `
providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1"}
destinations:
  crm: {url: "https://crm.example/", secret_env: S, repeat: safe}
kinds:
  plain: {provider: p}
  paid: {provider: p, value: high}
`

const lease = time.Minute

// bundle is an Upkeep whose clock stands still between its rounds, which are ten
// minutes apart.
type bundle struct {
	t        *testing.T
	pool     *pgxpool.Pool
	submit   *submit.Service
	up       *upkeep.Upkeep
	now      atomic.Int64
	reviewed []string
}

func setup(t *testing.T) *bundle {
	t.Helper()
	db := pgtest.New(t)
	b := &bundle{t: t, pool: db.Pool(t)}
	cfg, err := config.Parse("test.yaml", []byte(testConfig), config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	book := kinds.New(cfg, config.Opts{})
	if err := book.Store(t.Context(), b.pool); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	notify := job.NewNotifier(b.pool, log)
	box := outbox.New(outbox.Opts{Config: cfg})
	b.submit = submit.New(submit.Config{Pool: b.pool, Kinds: book, Outbox: box, Notifier: notify, Log: log})
	t.Cleanup(func() {
		b.submit.Close()
		notify.Close()
	})
	b.up = upkeep.New(upkeep.Config{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, db.URL()) },
		Kinds:   book, Outbox: box, Notifier: notify, Lease: lease, Longest: time.Minute, Log: log,
		Clock: func() time.Duration { return time.Duration(b.now.Load()) },
		Reviewed: func(what api.ReviewWhat, reason api.ReviewReason, n int) {
			b.reviewed = append(b.reviewed, fmt.Sprint(what, " ", reason, " ", n))
		},
	})
	b.round() // the first round only begins to look
	return b
}

// round lets a minute and more pass, without a gap in what upkeep sees, and works
// a round.
func (b *bundle) round() {
	b.t.Helper()
	for range 5 {
		b.now.Add(int64(lease / 3))
		if err := b.up.Round(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bundle) put(kind, key string) string {
	b.t.Helper()
	a, err := b.submit.Submit(b.t.Context(), submit.Request{Tenant: "a", Key: key, KeySent: true, Body: []byte(`{"kind":"` + kind + `","input":{"model":"m"}}`)})
	if err != nil {
		b.t.Fatal(err)
	}
	return a.Row.ID.String()
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) text(sql string, args ...any) (s string) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// effect is a waiting effect of a task, due for some hours.
func (b *bundle) effect(taskID, state, ago string) (id string) {
	b.t.Helper()
	id = uuid.Must(uuid.NewV7()).String()
	b.exec(`INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, state, next_at)
VALUES ($1, $2, 'a', 1, $1::uuid::text, 'succeeded', 'webhook', 'crm', $3, now() - $4::text::interval)`, id, taskID, state, ago)
	return id
}

const astray = `UPDATE onefold.river_job SET queue = 'p-nosuch', state = 'available', scheduled_at = now() WHERE args ->> 'id' = $1`

// A wake-up that lies where nobody fetches it is replaced, three times for one due
// time; then a person hears of it, once.
func TestReconcileDrift(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.put("plain", "k")
	effect := b.effect(id, "waiting", "2 h")
	b.exec(`UPDATE onefold.tasks SET run_at = now() - interval '2 h' WHERE id = $1`, id)
	state := func() string {
		return b.text(`
SELECT t.compensations || ' ' || (t.stuck_at IS NOT NULL) || ' ' || (SELECT count(*) FROM onefold.river_job AS j WHERE j.id = t.job_id AND j.queue = 'p-p')
FROM onefold.tasks AS t WHERE id = $1`, id)
	}
	b.round()
	if got := state(); got != "0 false 1" {
		t.Fatalf("a task whose wake-up waits in its queue: got %s, want it left alone", got)
	}
	for n := 1; n <= 3; n++ {
		b.exec(astray, id)
		b.exec(astray, effect)
		b.round()
		if got, want := state(), fmt.Sprintf("%d false 1", n); got != want {
			t.Errorf("compensation %d: got %s, want %s", n, got, want)
		}
	}
	for range 2 {
		b.exec(astray, id)
		b.exec(astray, effect)
		b.round()
	}
	if got := state(); got != "3 true 0" {
		t.Errorf("after three: got %s, want it in review and not woken again", got)
	}
	if got := b.text(`SELECT compensations || ' ' || (stuck_at IS NOT NULL) FROM onefold.effects WHERE id = $1`, effect); got != "3 true" {
		t.Errorf("the effect after three: got %s, want it in review", got)
	}
	if got, want := strings.Join(b.reviewed, ", "), "task stuck 1, effect stuck 1"; got != want {
		t.Errorf("told: got %s, want %s", got, want)
	}
}

// What is due for longer than the compensation window is a person's, whatever it
// waits for; what has moved since it was found is left alone.
func TestReconcileOverdue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, young := b.put("plain", "old"), b.put("paid", "young")
	held, fresh := b.effect(old, "held", "30 h"), b.effect(old, "held", "3 h")
	b.exec(`UPDATE onefold.tasks SET run_at = now() - interval '30 h', deadline = now() + interval '1 h' WHERE id = $1`, old)
	b.exec(`UPDATE onefold.tasks SET run_at = now() - interval '3 h' WHERE id = $1`, young)
	b.exec(`INSERT INTO onefold.gates (scope, name, salt, state, code) VALUES ('destination', 'crm', sha256('x'), 'held', 'operator')`)
	b.round()
	b.round()
	for id, want := range map[string]string{old: "true", young: "false"} {
		if got := b.text(`SELECT (stuck_at IS NOT NULL)::text FROM onefold.tasks WHERE id = $1`, id); got != want {
			t.Errorf("task: in review %s, want %s", got, want)
		}
	}
	for id, want := range map[string]string{held: "true", fresh: "false"} {
		if got := b.text(`SELECT (stuck_at IS NOT NULL)::text FROM onefold.effects WHERE id = $1`, id); got != want {
			t.Errorf("effect: in review %s, want %s", got, want)
		}
	}
	if got, want := strings.Join(b.reviewed, ", "), "task overdue 1, effect overdue 1"; got != want {
		t.Errorf("told: got %s, want %s", got, want)
	}
}

// A run does a thousand rows, those of high value first.
func TestReconcileHighValueFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	paid := b.put("paid", "paid")
	plain := b.put("plain", "plain")
	b.exec(`
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, input, config_hash, run_at, deadline, job_id)
SELECT gen_random_uuid(), 'a', 'plain', 'k' || n, 'key', 'p', t.fingerprint, 1, t.input_hash, '1 day', t.input, t.config_hash, now() - interval '30 h', now() + interval '1 h',
       nextval('onefold.river_job_id_seq')
FROM onefold.tasks AS t, generate_series(1, 1200) AS n
WHERE t.id = $1`, plain)
	b.exec(`UPDATE onefold.tasks SET run_at = now() - interval '26 h', deadline = now() + interval '1 h' WHERE id = $1`, paid)
	// As many rounds as it takes for the first run.
	for len(b.reviewed) == 0 {
		b.now.Add(int64(lease / 3))
		if err := b.up.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.reviewed[0]; got != "task overdue 1000" {
		t.Errorf("the first run: got %s, want a thousand", got)
	}
	if got := b.text(`SELECT (stuck_at IS NOT NULL)::text FROM onefold.tasks WHERE id = $1`, paid); got != "true" {
		t.Errorf("the youngest, of high value, is in review: %s, want true", got)
	}
	for range 3 {
		b.round()
	}
	if got := b.text(`SELECT count(*)::text FROM onefold.tasks WHERE stuck_at IS NOT NULL`); got != "1201" {
		t.Errorf("after all runs: got %s in review, want 1201", got)
	}
}

// Wake-ups of nothing go; attempts and deliveries that nobody works on are closed.
func TestReconcileOrphans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.put("plain", "k")
	effect := b.effect(id, "waiting", "2 h")
	b.exec(`UPDATE onefold.effects SET state = 'dead', finished_at = now() WHERE id = $1`, effect)
	for _, of := range []string{id, uuid.NewString()} { // a second one, and one of nothing
		b.exec(`INSERT INTO onefold.river_job (state, max_attempts, scheduled_at, args, kind, queue, created_at)
VALUES ('available', 1000, now(), jsonb_build_object('id', $1::text), 'task', 'p-p', now() - interval '2 h')`, of)
	}
	b.exec(`INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, claimed_at)
VALUES ($1, 7, 1, 1, gen_random_uuid(), gen_random_uuid(), 'p', '', now() - interval '2 h')`, id)
	b.exec(`INSERT INTO onefold.deliveries (effect_id, epoch, number, incarnation, token, started_at)
VALUES ($1, 7, 1, gen_random_uuid(), gen_random_uuid(), now() - interval '2 h')`, effect)
	b.round()
	if got := b.text(`SELECT count(*)::text FROM onefold.river_job WHERE kind = 'task'`); got != "1" {
		t.Errorf("got %s wake-ups, want the one that the task names", got)
	}
	if got := b.text(`SELECT outcome FROM onefold.attempts`); got != "lost" {
		t.Errorf("the attempt: got %s, want lost", got)
	}
	if got := b.text(`SELECT outcome FROM onefold.deliveries`); got != "lost" {
		t.Errorf("the delivery: got %s, want lost", got)
	}
}
