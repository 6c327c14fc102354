package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

const (
	save   = `{name: save, type: sql, statement: "INSERT INTO invoices (key, number, total) VALUES (@key, @result.number, @result.total)"}`
	notify = `{name: notify, type: webhook, destination: safe, body: '{"invoice": {{json .result.number}}}'}`
	alarm  = `{name: alarm, type: webhook, destination: once, on: failed}`
)

const invoices = `CREATE TABLE invoices (key text PRIMARY KEY, number text NOT NULL, total numeric CHECK (total >= 0))`

func TestSettle(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, save, notify, alarm), outbox.Opts{})
	b.exec(invoices)
	r := b.insertTask(api.Succeeded, `{"number":"A-<1>","total":10.50}`)
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	if got, want := one[string](b, `SELECT key || ' ' || number || ' ' || total FROM invoices`), r.Key+" A-<1> 10.50"; got != want {
		t.Errorf("got row %q, want %q", got, want)
	}
	effects, err := store.EffectsOfTask(t.Context(), b.pool, "acme", r.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range effects {
		got = append(got, e.Name+" "+e.Type+" "+string(e.State)+" "+string(e.Outcome))
	}
	if diff := cmp.Diff([]string{"save sql delivered succeeded", "notify webhook waiting succeeded"}, got); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
	if body := one[string](b, `SELECT convert_from(body, 'UTF8') FROM onefold.effects WHERE name = 'notify'`); body != `{"invoice": "A-<1>"}` {
		t.Errorf("got body %s", body)
	}
	b.hasOneWake(effects[1].ID, "available")
	if n := one[int](b, `SELECT count(*) FROM onefold.river_job`); n != 1 {
		t.Errorf("got %d wake-ups, want 1: what was done in the transaction needs none", n)
	}
	if foreign, err := store.EffectsOfTask(t.Context(), b.pool, "other", r.ID); err != nil || len(foreign) != 0 {
		t.Errorf("another tenant got %d effects, %v", len(foreign), err)
	}
}

// TestSettleTogether: many tasks of different outcomes in one transaction, each with the effects of its own.
func TestSettleTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, notify, alarm, `{name: last, type: webhook, destination: safe, on: final}`), outbox.Opts{})
	var rows []*task.Row
	for range 20 {
		rows = append(rows, b.insertTask(api.Succeeded, `{"number":"1"}`), b.insertTask(api.Failed, ""), b.insertTask(api.Cancelled, ""), b.insertTask(api.Unknown, ""))
	}
	if err := b.settle(rows...); err != nil {
		t.Fatal(err)
	}
	got := one[string](b, `SELECT string_agg(o, '; ' ORDER BY o) FROM (SELECT outcome || ' ' || name || ' ' || count(*) AS o FROM onefold.effects GROUP BY outcome, name) AS x`)
	if want := "cancelled last 20; failed alarm 20; failed last 20; succeeded last 20; succeeded notify 20"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestEffectOnce: the same outcome twice fails and leaves nothing of the second, the operator's row included.
func TestEffectOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, `{name: save, type: sql, statement: "INSERT INTO log (key) VALUES (@key)"}`, notify), outbox.Opts{})
	b.exec(`CREATE TABLE log (key text)`)
	r := b.insertTask(api.Succeeded, `{"number":"1"}`)
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	err := b.settle(r)
	if store.Constraint(err) != "effects_once" {
		t.Errorf("got %v, want a violation of effects_once", err)
	}
	if n := one[int](b, `SELECT count(*) FROM log`); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
	if n := one[int](b, `SELECT count(*) FROM onefold.effects`); n != 2 {
		t.Errorf("got %d effects, want 2", n)
	}
}

func TestSettleRolledBackLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, save, notify), outbox.Opts{})
	b.exec(invoices)
	r := b.insertTask(api.Succeeded, `{"number":"1","total":1}`)
	gone := errors.New("the process is killed here")
	err := pgx.BeginTxFunc(t.Context(), b.pool, store.ReadCommitted, func(tx pgx.Tx) error {
		if err := move(t.Context(), tx, r); err != nil {
			return err
		}
		if _, err := b.box.Settle(t.Context(), tx, []outbox.Settled{{Row: r, Kind: b.cfg.Kinds["k"]}}); err != nil {
			return err
		}
		return gone
	})
	if !errors.Is(err, gone) {
		t.Fatal(err)
	}
	got := one[int](b, `SELECT (SELECT count(*) FROM onefold.effects) + (SELECT count(*) FROM onefold.river_job) + (SELECT count(*) FROM invoices)`)
	if got != 0 {
		t.Errorf("got %d rows, want none", got)
	}
}

func TestSettleRefusesWhatIsNotSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, notify), outbox.Opts{})
	r := b.insertTask(api.Succeeded, `{}`)
	for name, s := range map[string]outbox.Settled{
		"running": {Row: &task.Row{ID: r.ID, State: api.Running}, Kind: b.cfg.Kinds["k"]}, "no configuration": {Row: r},
	} {
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := b.box.Settle(t.Context(), tx, []outbox.Settled{s})
			return err
		})
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestHasEffectsAndAlone(t *testing.T) {
	t.Parallel()
	k := withEffects(t, save, notify, alarm).Kinds["k"]
	type answer struct{ Has, Alone bool }
	want := map[api.State]answer{api.Succeeded: {true, true}, api.Failed: {true, false}, api.Unknown: {}, api.Cancelled: {}}
	got := map[api.State]answer{}
	for s := range want {
		got[s] = answer{outbox.HasEffects(k, s, &task.Row{}) && outbox.NeedsInput(k, s, &task.Row{}), outbox.Alone(k, s, &task.Row{}, nil)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestBrokenTemplate: a missing field stops a success and no other outcome.
func TestBrokenTemplate(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, `{name: bad, type: webhook, destination: safe, on: final, body: '{"x": {{json .input.missing}}}'}`,
		`{name: good, type: webhook, destination: safe, on: final}`), outbox.Opts{})
	var broken *outbox.EffectError
	if err := b.settle(b.insertTask(api.Succeeded, `{}`)); !errors.As(err, &broken) {
		t.Fatalf("got %v, want an EffectError", err)
	}
	if broken.Name != "bad" || broken.Code != "render_failed" || !broken.Permanent || !strings.Contains(broken.Message, "missing") {
		t.Errorf("got %+v", broken)
	}
	if err := b.settle(b.insertTask(api.Cancelled, "")); err != nil {
		t.Fatal(err)
	}
	got := one[string](b, `SELECT string_agg(name || ' ' || state || ' ' || coalesce(error_code, ''), '; ' ORDER BY name) FROM onefold.effects`)
	if want := "bad dead render_failed; good waiting "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestConnectionLostInsideAStatement: no outcome is settled on a connection that is gone.
func TestConnectionLostInsideAStatement(t *testing.T) {
	t.Parallel()
	for _, state := range []api.State{api.Succeeded, api.Failed} {
		b := setup(t, withEffects(t, `{name: save, type: sql, on: final, statement: "SELECT pg_terminate_backend(pg_backend_pid())"}`), outbox.Opts{})
		var broken *outbox.EffectError
		if err := b.settle(b.insertTask(state, `{}`)); !errors.As(err, &broken) || broken.Permanent {
			t.Errorf("%s: got %v, want an EffectError that is not permanent", state, err)
		}
		if n := one[int](b, `SELECT count(*) FROM onefold.effects`); n != 0 {
			t.Errorf("%s: got %d effects, want none", state, n)
		}
	}
}
