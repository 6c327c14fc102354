package outbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

const lease = 15 * time.Second

// bench is a database with a configuration and an outbox on it.
type bench struct {
	t    *testing.T
	pool *pgxpool.Pool
	cfg  *config.Config
	box  *outbox.Outbox
	me   task.ID // the outbox's incarnation
}

const secret = "whsec_YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcywgb2s="

// head is what every configuration needs; destinations and effects follow.
const head = `providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1"}
`

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("onefold.yaml", []byte(head+text), config.Opts{Getenv: func(string) string { return secret }})
	if err != nil {
		t.Fatalf("parse the configuration:\n%v", err)
	}
	return c
}

// withEffects is a configuration of one kind, k, with these effects, and two destinations.
func withEffects(t *testing.T, effects ...string) *config.Config {
	t.Helper()
	return parse(t, `destinations:
  safe: {url: "http://127.0.0.1:1/", secret_env: S, repeat: safe, allow_private: true}
  once: {url: "http://127.0.0.1:1/", secret_env: S, allow_private: true}
kinds:
  k:
    provider: p
    output: json
    effects:
      - `+strings.Join(effects, "\n      - ")+"\n")
}

func setup(t *testing.T, cfg *config.Config, opts outbox.Opts) *bench {
	t.Helper()
	return setupOn(t, pgtest.New(t).Pool(t), cfg, opts)
}

func setupOn(t *testing.T, pool *pgxpool.Pool, cfg *config.Config, opts outbox.Opts) *bench {
	t.Helper()
	b := &bench{t: t, pool: pool, cfg: cfg}
	b.box, b.me = b.another(opts)
	for name, k := range cfg.Kinds {
		b.exec(`INSERT INTO onefold.kind_configs (hash, kind, body) VALUES ($1, $2, $3)`, k.Hash(), name, k.Body())
	}
	return b
}

// another is an outbox of another process on the same database.
func (b *bench) another(opts outbox.Opts) (*outbox.Outbox, task.ID) {
	b.t.Helper()
	me := task.NewToken()
	opts.Log = telemetry.New(b.t.Output(), nil)
	opts.Notify = job.NewNotifier(b.pool, opts.Log)
	b.t.Cleanup(opts.Notify.Close) // after the outbox's own
	opts.Config, opts.Pool, opts.Incarnation = b.cfg, b.pool, func() task.ID { return me }
	box := outbox.New(opts)
	b.t.Cleanup(box.Close)
	w := store.Worker{Incarnation: me, Process: task.NewToken(), Instance: "i", Host: "h", PID: 1, Version: "v", Providers: []string{}}
	if err := store.RegisterWorker(b.t.Context(), b.pool, w, time.Hour); err != nil {
		b.t.Fatal(err)
	}
	return box, me
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// one reads one value.
func one[T any](b *bench, sql string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// row reads a row as JSON, without the columns named.
func (b *bench) row(table, where string, args ...any) map[string]any {
	b.t.Helper()
	text := one[string](b, `SELECT coalesce((SELECT to_jsonb(x)::text FROM onefold.`+table+` AS x WHERE `+where+`), 'null')`, args...)
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// insertTask inserts a running task of kind k and returns its row as it stands after a move to state.
func (b *bench) insertTask(state api.State, result string) *task.Row {
	b.t.Helper()
	return b.insertKeyed(state, result, "key-"+task.NewToken().String())
}

func (b *bench) insertKeyed(state api.State, result, key string) *task.Row {
	b.t.Helper()
	r := &task.Row{
		ID: task.NewID(), Tenant: "acme", Kind: "k", Key: key, State: state, Run: 1, Input: []byte(`{"text":"hello","n":1.10}`),
	}
	if state == api.Succeeded {
		r.Result = []byte(result)
	} else {
		r.ErrorCode, r.ErrorMessage = "deadline", "too late"
	}
	sum := sha256.Sum256([]byte(r.ID.String()))
	b.exec(`INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash,
	    deadline_after, input, config_hash, deadline, state, owner, token)
	VALUES ($1, 'acme', 'k', $2, 'key', 'p', $3, 1, $3, interval '1 h', $4, $5, now() + interval '1 h', 'running', $1, $1)`,
		r.ID, r.Key, sum[:], r.Input, b.cfg.Kinds["k"].Hash())
	return r
}

// move is the caller's part of the settling transaction: the task's own row.
func move(ctx context.Context, tx pgx.Tx, r *task.Row) error {
	sum := sha256.Sum256(r.Result)
	_, err := tx.Exec(ctx, `UPDATE onefold.tasks
	SET state = $2, owner = NULL, token = NULL, finished_at = now(),
	    result = $3, result_hash = CASE WHEN $3::bytea IS NOT NULL THEN $4::bytea END,
	    error_code = CASE WHEN $2 IN ('failed', 'unknown') THEN 'deadline' END,
	    error_permanent = CASE WHEN $2 = 'failed' THEN false END
	WHERE id = $1`, r.ID, r.State, r.Result, sum[:])
	return err
}

// settle moves tasks and makes their effects in one transaction.
func (b *bench) settle(rows ...*task.Row) error {
	return pgx.BeginTxFunc(b.t.Context(), b.pool, store.ReadCommitted, func(tx pgx.Tx) error {
		var settled []outbox.Settled
		for _, r := range rows {
			if err := move(b.t.Context(), tx, r); err != nil {
				return fmt.Errorf("move: %w", err)
			}
			settled = append(settled, outbox.Settled{Row: r, Kind: b.cfg.Kinds["k"]})
		}
		_, err := b.box.Settle(b.t.Context(), tx, settled)
		return err
	})
}

// effect settles a fresh task and returns its only effect.
func (b *bench) effect() task.ID {
	b.t.Helper()
	r := b.insertTask(api.Succeeded, `{"n":1}`)
	if err := b.settle(r); err != nil {
		b.t.Fatal(err)
	}
	return one[task.ID](b, `SELECT id FROM onefold.effects WHERE task_id = $1`, r.ID)
}

// mark marks an effect on a box.
func (b *bench) mark(box *outbox.Outbox, id task.ID) *outbox.Marked {
	b.t.Helper()
	m, err := box.Mark(b.t.Context(), id)
	if err != nil || m[0] == nil {
		b.t.Fatalf("mark: got %v, %v", m, err)
	}
	return m[0]
}

// upkeep runs one round in a transaction.
func (b *bench) upkeep(round func(context.Context, pgx.Tx, time.Duration) (outbox.Round, error)) outbox.Round {
	b.t.Helper()
	var r outbox.Round
	err := pgx.BeginTxFunc(b.t.Context(), b.pool, store.ReadCommitted, func(tx pgx.Tx) (err error) {
		r, err = round(b.t.Context(), tx, lease)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// wakes counts the River rows that name an effect.
func (b *bench) wakes(id task.ID) int {
	b.t.Helper()
	return one[int](b, `SELECT count(*) FROM onefold.river_job WHERE kind = 'effect' AND args->>'id' = $1`, id.String())
}

// hasOneWake checks that an effect has exactly the River row it names, in that state.
func (b *bench) hasOneWake(id task.ID, state string) {
	b.t.Helper()
	if n := b.wakes(id); n != 1 {
		b.t.Errorf("got %d wake-ups of the effect, want 1", n)
	}
	got := one[string](b, `SELECT coalesce(max(j.state::text), 'none') FROM onefold.effects AS e JOIN onefold.river_job AS j ON j.id = e.job_id WHERE e.id = $1`, id)
	if got != state {
		b.t.Errorf("got a wake-up that is %s, want %s", got, state)
	}
}

// scripted is a sender that does what its channel says, for what no receiver can be made to do.
type scripted func(ctx context.Context, d outbox.Delivery) outbox.Outcome

func (s scripted) Send(ctx context.Context, d outbox.Delivery) outbox.Outcome { return s(ctx, d) }

func answers(status int) scripted {
	return func(context.Context, outbox.Delivery) outbox.Outcome {
		return outbox.Outcome{Class: outbox.Answered, Status: status}
	}
}

func senders(s outbox.Sender) map[string]outbox.Sender { return map[string]outbox.Sender{"webhook": s} }
