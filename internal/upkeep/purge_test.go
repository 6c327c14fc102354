package upkeep_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

const purgeFile = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1", timeouts: {first_byte: 10s, idle: 5s, total: 30s}}
kinds:
  k: {provider: p, output: text, retention: 720h, payload_retention: 24h}
  long: {provider: p, output: text}
  o: {provider: p, output: text, dedupe: open, payload_retention: 1h}
`

type purging struct {
	t    *testing.T
	pool *pgxpool.Pool
	cfg  *config.Config
	*submit.Service
	*upkeep.Purger
}

func purgeSetup(t *testing.T) *purging {
	t.Helper()
	pool := pgtest.New(t).Pool(t)
	cfg, err := config.Parse("test.yaml", []byte(purgeFile), config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	book, log := kinds.New(cfg, config.Opts{SkipSecrets: true}), slog.New(slog.DiscardHandler)
	if err := book.Store(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	notifier := job.NewNotifier(pool, log)
	t.Cleanup(notifier.Close)
	s := submit.New(submit.Config{Pool: pool, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log})
	t.Cleanup(s.Close)
	p := &upkeep.Purger{Kinds: book, Log: log, Connect: func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.ConnectConfig(ctx, pool.Config().ConnConfig.Copy())
	}}
	return &purging{t: t, pool: pool, cfg: cfg, Service: s, Purger: p}
}

func (b *purging) submit(kind, key, input string) submit.Answer {
	b.t.Helper()
	a, err := b.Submit(context.Background(), submit.Request{Tenant: "a", Key: key, KeySent: true, Body: []byte(`{"kind":"` + kind + `","input":` + input + `}`)})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *purging) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *purging) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// ended puts a task into a final state as so long ago, with the retention given.
func (b *purging) ended(id uuid.UUID, state api.State, ago, retention time.Duration) {
	b.t.Helper()
	code, permanent := (*string)(nil), (*bool)(nil)
	if state == api.Failed {
		no, c := false, "attempts_exhausted"
		code, permanent = &c, &no
	}
	b.exec(`
UPDATE onefold.tasks
SET state = $2, finished_at = now() - $3::interval, expires_at = now() - $3::interval + $4::interval, error_code = $5, error_permanent = $6,
    result = CASE WHEN $2 = 'succeeded' THEN '"r"'::bytea END, result_hash = CASE WHEN $2 = 'succeeded' THEN sha256('"r"') END,
    slot = CASE WHEN dedupe = 'open' THEN id::text ELSE slot END
WHERE id = $1`, id, string(state), ago, retention, code, permanent)
}

func (b *purging) effect(id uuid.UUID, name, state string) {
	b.t.Helper()
	b.exec(`
INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, state, finished_at, headers, body)
VALUES (gen_random_uuid(), $1, 'a', 1, $2, 'succeeded', 'webhook', 'd', $3, CASE WHEN $3 NOT IN ('waiting', 'held') THEN now() END, 'h', 'b')`, id, name, state)
}

func (b *purging) purge() {
	b.t.Helper()
	for more := true; more; {
		var err error
		if more, err = b.Round(context.Background()); err != nil {
			b.t.Fatal(err)
		}
	}
}

const day = 24 * time.Hour

// What is past its retention goes, and a tombstone stays; all else stays.
func TestPurge(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	b.Batch = 2 // so that several batches are needed
	gone := map[string]uuid.UUID{}
	for i, state := range []api.State{api.Succeeded, api.Failed, api.Cancelled, api.Succeeded, api.Succeeded} {
		id := b.submit("k", fmt.Sprint("gone", i), `1`).Row.ID
		gone[fmt.Sprint("gone", i)] = id
		b.ended(id, state, 31*day, 30*day)
		b.exec(`INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, closed_at, outcome, reply)
		VALUES ($1, 1, 1, 1, gen_random_uuid(), gen_random_uuid(), 'p', '', now(), 'succeeded', 'r')`, id)
		b.effect(id, "n", "delivered")
	}
	stays := map[string]string{"in-time": "", "pending": "", "dead": "dead", "unknown-effect": "unknown", "held": "held", "waiting": "waiting"}
	for key, effect := range stays {
		id := b.submit("k", key, `1`).Row.ID
		switch {
		case key == "in-time":
			b.ended(id, api.Succeeded, 29*day, 30*day)
		case effect != "":
			b.ended(id, api.Succeeded, 31*day, 30*day)
			b.effect(id, "m", "delivered")
			b.effect(id, "n", effect)
		}
	}
	unknown := b.submit("k", "unknown", `1`).Row.ID
	b.exec(`UPDATE onefold.tasks SET state = 'unknown', error_code = 'cut', finished_at = now() - interval '99 d' WHERE id = $1`, unknown)
	b.purge()
	if got, want := b.count(`SELECT count(*) FROM onefold.tasks`), len(stays)+1; got != want {
		t.Errorf("%d tasks stay, want %d", got, want)
	}
	for key, id := range gone {
		if n := b.count(`SELECT count(*) FROM onefold.tombstones WHERE task_id = $1 AND tenant = 'a' AND kind = 'k' AND key = $2
			AND (state <> 'succeeded' OR result_hash = sha256('"r"'))`, id, key); n != 1 {
			t.Errorf("%s has %d tombstones", key, n)
		}
		for _, table := range []string{"attempts", "effects"} {
			if n := b.count(`SELECT count(*) FROM onefold.`+table+` WHERE task_id = $1`, id); n != 0 {
				t.Errorf("%s left %d %s", key, n, table)
			}
		}
		if n := b.count(`SELECT count(*) FROM onefold.river_job WHERE args->>'id' = $1::text`, id.String()); n != 0 {
			t.Errorf("%s left %d wake-ups", key, n)
		}
	}
	if n := b.count(`SELECT count(*) FROM onefold.effects WHERE name = 'm'`); n != 4 {
		t.Errorf("%d delivered effects of tasks that stay, want 4", n)
	}
	b.exec(`UPDATE onefold.tombstones SET purged_at = now() - interval '91 d' WHERE key = 'gone0'`)
	b.purge()
	if n := b.count(`SELECT count(*) FROM onefold.tombstones`); n != len(gone)-1 {
		t.Errorf("%d tombstones, want %d", n, len(gone)-1)
	}
}

// An expired key is a new intent although an effect of the old task is still in
// review; the old task stays for it.
func TestExpiredKeyWithAnEffectInReview(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	old := b.submit("k", "x", `1`).Row.ID
	b.ended(old, api.Succeeded, 31*day, 30*day)
	b.effect(old, "n", "dead")
	again := b.submit("k", "x", `2`)
	if !again.Created || again.Row.ID == old {
		t.Fatalf("got %+v, want a new task", again)
	}
	if n := b.count(`SELECT count(*) FROM onefold.effects WHERE task_id = $1`, old); n != 1 {
		t.Error("the effect in review is gone")
	}
	b.exec(`UPDATE onefold.effects SET state = 'discarded'`)
	b.purge()
	if n := b.count(`SELECT count(*) FROM onefold.tombstones WHERE task_id = $1`, old); n != 1 {
		t.Error("the old task was not purged once its effect was discarded")
	}
}

// A task reopened between the purge's look and its lock stays, effects and all,
// and so does one that is locked.
func TestPurgeMeetsAReopen(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	id := b.submit("k", "x", `1`).Row.ID
	b.ended(id, api.Failed, 31*day, 30*day)
	b.effect(id, "n", "delivered")
	locked := b.submit("k", "y", `1`).Row.ID
	b.ended(locked, api.Failed, 31*day, 30*day)
	ctx := context.Background()
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `SELECT FROM onefold.tasks WHERE id = $1 FOR UPDATE`, locked); err != nil {
		t.Fatal(err)
	}
	// A trigger moves the row as the purge has it: what was picked is not what is deleted.
	b.exec(`CREATE FUNCTION public.reopen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		UPDATE onefold.tasks SET state = 'pending', run = 2, finished_at = NULL, expires_at = NULL, error_code = NULL, error_permanent = NULL WHERE id = NEW.task_id;
		RETURN NULL; END $$`)
	b.exec(`CREATE TRIGGER reopen AFTER INSERT ON onefold.tombstones FOR EACH ROW EXECUTE FUNCTION public.reopen()`)
	b.purge()
	if n := b.count(`SELECT count(*) FROM onefold.tasks`); n != 2 {
		t.Errorf("%d tasks, want both", n)
	}
}

// Payloads go before keys, of tasks that cannot run again only.
func TestPurgePayloads(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	b.Batch = 2
	ended := func(kind, key string, state api.State, ago time.Duration) uuid.UUID {
		id := b.submit(kind, key, `{"secret":"`+key+`"}`).Row.ID
		b.ended(id, state, ago, 30*day)
		return id
	}
	purged := []uuid.UUID{
		ended("k", "succeeded", api.Succeeded, 25*time.Hour), ended("k", "cancelled", api.Cancelled, 25*time.Hour),
		ended("o", "open", api.Succeeded, 2*time.Hour), ended("k", "for-good", api.Failed, 25*time.Hour),
	}
	b.exec(`UPDATE onefold.tasks SET error_permanent = true WHERE id = $1`, purged[3])
	b.effect(purged[0], "n", "delivered")
	b.exec(`INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, closed_at, outcome, reply, partial)
	VALUES ($1, 1, 1, 1, gen_random_uuid(), gen_random_uuid(), 'p', '', now(), 'succeeded', 'r', 's')`, purged[0])
	kept := []uuid.UUID{
		ended("k", "fresh", api.Succeeded, 23*time.Hour), ended("long", "long", api.Succeeded, 9*day),
		ended("k", "may-be-reopened", api.Failed, 9*day), ended("k", "has-an-effect", api.Succeeded, 9*day),
	}
	b.effect(kept[3], "n", "dead")
	b.purge()
	for _, id := range purged {
		if n := b.count(`SELECT count(*) FROM onefold.tasks WHERE id = $1 AND payload_purged_at IS NOT NULL AND input IS NULL AND result IS NULL`, id); n != 1 {
			t.Errorf("the payload of %s stayed", id)
		}
	}
	for _, id := range kept {
		if n := b.count(`SELECT count(*) FROM onefold.tasks WHERE id = $1 AND payload_purged_at IS NULL AND input IS NOT NULL`, id); n != 1 {
			t.Errorf("the payload of %s went", id)
		}
	}
	if n := b.count(`SELECT count(*) FROM onefold.attempts WHERE num_nonnulls(reply, partial) > 0`); n != 0 {
		t.Error("an attempt kept its reply")
	}
	if n := b.count(`SELECT count(*) FROM onefold.effects WHERE body IS NOT NULL`); n != 1 {
		t.Errorf("%d effects have their bodies, want the dead one", n)
	}
	b.afterwards(purged[0], purged[3])
}

// afterwards checks what is answered once a payload is gone.
func (b *purging) afterwards(succeeded, failed uuid.UUID) {
	t := b.t
	t.Helper()
	again := b.submit("k", "succeeded", `{"secret":"succeeded"}`)
	if w := again.Row.Wire(); again.Created || w.ID != succeeded.String() || !w.ResultExpired || len(w.ResultHash) != 64 || w.Result != nil {
		t.Errorf("the replay is %+v", w)
	}
	_, err := b.Submit(context.Background(), submit.Request{Tenant: "a", Key: "succeeded", KeySent: true, Body: []byte(`{"kind":"k","input":2}`)})
	if e := asError(err); e == nil || e.Code != api.CodeKeyReused || e.Mismatch != nil {
		t.Errorf("another payload: %v", err)
	}
	epoch := int64(0)
	_, err = b.Retry(context.Background(), submit.Act{Tenant: "a", ID: failed, Actor: "t", Epoch: &epoch})
	if e := asError(err); e == nil || e.Code != api.CodeConflict || !strings.Contains(e.Message, "purged") {
		t.Errorf("a retry: %v", err)
	}
}

func asError(err error) *api.Error {
	e, _ := err.(*api.Error)
	return e
}

// Erasing takes everything but key and outcome, once, and is audited.
func TestErase(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	ctx := context.Background()
	id := b.submit("k", "x", `{"name":"Ada"}`).Row.ID
	act := submit.Act{Tenant: "a", ID: id, Actor: "op", Reason: "asked for"}
	if _, err := b.Erase(ctx, act); asError(err) == nil || asError(err).Code != api.CodeConflict {
		t.Errorf("a pending task: %v", err)
	}
	b.ended(id, api.Failed, time.Hour, 30*day)
	b.effect(id, "n", "waiting")
	b.exec(`UPDATE onefold.tasks SET metadata = '{"name":"Ada"}' WHERE id = $1`, id)
	if _, err := b.Erase(ctx, act); asError(err) == nil || asError(err).Code != api.CodeConflict {
		t.Errorf("an effect is still to go: %v", err)
	}
	b.exec(`UPDATE onefold.effects SET state = 'delivered', finished_at = now()`)
	if _, err := b.Erase(ctx, submit.Act{Tenant: "b", ID: id, Actor: "op"}); asError(err) == nil || asError(err).Code != api.CodeNotFound {
		t.Errorf("another tenant's: %v", err)
	}
	for range 2 {
		row, err := b.Erase(ctx, act)
		if err != nil || row.PayloadPurgedAt == nil || row.State != api.Failed || row.Key != "x" || row.Metadata != nil {
			t.Fatalf("got %+v, %v", row, err)
		}
	}
	if n := b.count(`SELECT count(*) FROM onefold.audit WHERE action = 'erase payload' AND target_id = $1 AND reason = 'asked for'`, id.String()); n != 1 {
		t.Errorf("%d entries in the audit, want 1", n)
	}
	if a := b.submit("k", "x", `{"name":"Ada"}`); a.Created || a.Reopened || a.Row.ID != id {
		t.Errorf("a duplicate gets %+v, want the task as it stands", a)
	}
}

// While a long backlog is purged, submits of fresh keys go through, and none
// waits for the purge's locks.
func TestPurgeBesideSubmits(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	b.Batch = 50
	b.submit("k", "first", `1`)
	b.exec(`
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, deadline, input, config_hash,
    state, finished_at, expires_at)
SELECT gen_random_uuid(), 'a', 'k', 'old' || i, 'key', 'p', sha256(''), 1, sha256(''), '1 h', now(), '1', config_hash, 'cancelled', now() - interval '31 d', now() - interval '1 d'
FROM onefold.tasks, generate_series(1, 2000) AS i`)
	blocked := make(chan struct{})
	b.exec(`CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.key = 'old7' THEN PERFORM pg_advisory_xact_lock(4711); END IF; RETURN NEW; END $$`)
	b.exec(`CREATE TRIGGER slow BEFORE INSERT ON onefold.tombstones FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	conn, err := b.pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(context.Background(), `SELECT pg_advisory_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { b.purge() })
	go func() { // with one batch of the purge held open, submits go through
		defer close(blocked)
		for i := range 50 {
			b.submit("k", fmt.Sprint("new", i), `1`)
		}
	}()
	select {
	case <-blocked:
	case <-time.After(time.Minute):
		t.Fatal("submits wait for the purge")
	}
	if _, err := conn.Exec(context.Background(), `SELECT pg_advisory_unlock(4711)`); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if n := b.count(`SELECT count(*) FROM onefold.tasks WHERE key LIKE 'old%'`); n != 0 {
		t.Errorf("%d expired tasks are left", n)
	}
	if n := b.count(`SELECT count(*) FROM onefold.tasks WHERE key LIKE 'new%'`); n != 50 {
		t.Errorf("%d new tasks, want 50", n)
	}
}

// The longest time between a submit and its duplicate is kept as a number.
func TestSpanOfDuplicates(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	id := b.submit("k", "x", `1`).Row.ID
	b.exec(`UPDATE onefold.tasks SET created_at = now() - interval '50 h' WHERE id = $1`, id)
	b.submit("k", "y", `1`)
	b.submit("k", "y", `1`)
	b.submit("k", "x", `1`)
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		if b.count(`SELECT count(*) FROM onefold.duplicate_spans WHERE kind = 'k' AND tenant = 'a' AND longest BETWEEN '50 h' AND '51 h'`) == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the span was not noted")
		}
	}
}

// Counts of what secrets verified are kept for ninety days.
func TestSecretUsesForgotten(t *testing.T) {
	t.Parallel()
	b := purgeSetup(t)
	b.exec(`
INSERT INTO onefold.source_secrets (source, secret, hour, count)
SELECT 's', 'x', date_trunc('hour', now()) - make_interval(days => d), 1 FROM unnest(ARRAY[0, 1, 89, 91, 400]) AS d`)
	if _, err := b.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(`SELECT count(*) FROM onefold.source_secrets`); n != 3 {
		t.Errorf("%d hours are left, want 3", n)
	}
}
