package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/outbox"
)

// TestSQLTypes: every value arrives as the column's type, with its digits.
func TestSQLTypes(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, `{name: save, type: sql, statement: "INSERT INTO v VALUES (@result.num, @result.text, @result.obj, @result.js, @result.list, @result.day, @result.at, @result.yes, @result.int, @result.none, @result.dec, @task_id, @outcome, @run, @input.n)"}`), outbox.Opts{})
	b.exec(`CREATE TABLE v (num numeric, txt text, obj jsonb, js jsonb, list json, day date, at timestamptz, yes boolean, n bigint, none text, numtext text, task uuid, outcome text, run integer, input numeric)`)
	r := b.insertTask(api.Succeeded, `{"num":12345678901234567890.1234500,"text":"a\"b'c\\ é😀 $1 @x","obj":{"b":1.10,"a":[null,"\u00e9"]},"list":[1,2.0],"day":"2026-02-28","at":"2026-02-28T10:00:00+02:00","js":"a\"b é","dec":1.50,"yes":true,"int":9007199254740993,"none":null}`)
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"num": "12345678901234567890.1234500", "txt": "a\"b'c\\ é😀 $1 @x", "obj": `{"a": [null, "é"], "b": 1.10}`,
		"js": `"a\"b é"`, "list": "[1,2.0]", "day": "2026-02-28", "at": "2026-02-28 08:00:00+00", "yes": "true",
		"n": "9007199254740993", "none": nil, "numtext": "1.50", "task": r.ID.String(),
		"outcome": "succeeded", "run": "1", "input": "1.10",
	}
	b.exec(`ALTER DATABASE ` + one[string](b, `SELECT current_database()`) + ` SET timezone = 'UTC'`)
	var raw string
	conn, err := pgx.Connect(t.Context(), b.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), `SELECT json_build_object('num', num::text, 'txt', txt, 'obj', obj::text, 'js', js::text, 'list', list::text,
	    'day', day::text, 'at', at::text, 'yes', yes::text, 'n', n::text, 'none', none, 'numtext', numtext, 'task', task::text,
	    'outcome', outcome, 'run', run::text, 'input', input::text)::text FROM v`).Scan(&raw); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(raw), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

const canary = "CANARY-77"

// sqlFailures are ways for a statement to fail, on a result that carries the canary.
var sqlFailures = []struct {
	name, setup, statement string
	permanent              bool
	tells                  string
}{
	{"missing table", ``, `INSERT INTO nowhere VALUES (@key)`, true, "nowhere"},
	{"missing column", `CREATE TABLE x (a text)`, `INSERT INTO x (b) VALUES (@key)`, true, `"b"`},
	{"wrong type", `CREATE TABLE x (a integer)`, `INSERT INTO x VALUES (@result.s)`, true, "22P02"},
	{"not null", `CREATE TABLE x (a text NOT NULL)`, `INSERT INTO x VALUES (@result.none)`, true, "null value"},
	{"check", `CREATE TABLE x (a text CONSTRAINT short CHECK (length(a) < 3))`, `INSERT INTO x VALUES (@result.s)`, true, "short"},
	{"unique", `CREATE TABLE x (a text CONSTRAINT one UNIQUE); INSERT INTO x VALUES ('` + canary + `')`, `INSERT INTO x VALUES (@result.s)`, true, "one"},
	{"deferred unique", `CREATE TABLE x (a text CONSTRAINT one UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO x VALUES ('` + canary + `')`, `INSERT INTO x VALUES (@result.s)`, true, "one"},
	{"deferred foreign key", `CREATE TABLE y (a text PRIMARY KEY); CREATE TABLE x (a text CONSTRAINT known REFERENCES y DEFERRABLE INITIALLY DEFERRED)`, `INSERT INTO x VALUES (@result.s)`, true, "known"},
	{"deferred trigger", `CREATE TABLE x (a text); CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'bad value %', NEW.a; END $$; CREATE CONSTRAINT TRIGGER late AFTER INSERT ON x DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()`, `INSERT INTO x VALUES (@result.s)`, true, "P0001"},
	{"division", ``, `SELECT 1 / (@result.zero)::integer`, true, "22012"},
	{"statement timeout", ``, `SELECT pg_sleep(60)`, false, "57014"},
	{"lock timeout", `CREATE TABLE held (a text)`, `INSERT INTO held VALUES (@key)`, false, "55P03"},
	{"serialization", `CREATE FUNCTION raise40001() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$`, `SELECT raise40001()`, false, "40001"},
	{"deadlock", `CREATE FUNCTION raise40p01() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END $$`, `SELECT raise40p01()`, false, "40P01"},
}

const failing = `{"s":"` + canary + `","none":null,"zero":0}`

// locked holds the table "held" while f runs.
func (b *bench) locked(f func()) {
	b.t.Helper()
	tx, err := b.pool.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(b.t.Context())) }()
	if _, err := tx.Exec(b.t.Context(), `LOCK TABLE held`); err != nil {
		b.t.Fatal(err)
	}
	f()
}

func failingBench(t *testing.T, i int, on string) *bench {
	t.Helper()
	c := sqlFailures[i]
	b := setup(t, withEffects(t, `{name: save, type: sql, on: `+on+`, statement: "`+c.statement+`"}`,
		`{name: notify, type: webhook, destination: safe, on: `+on+`}`),
		outbox.Opts{SQLLockTimeout: 200 * time.Millisecond, SQLTimeout: 500 * time.Millisecond})
	if c.setup != "" {
		b.exec(c.setup)
	}
	return b
}

// TestBrokenSQLOfASuccess: the error says enough for the task to become finish_failed, and nothing of the data.
func TestBrokenSQLOfASuccess(t *testing.T) {
	t.Parallel()
	for i, c := range sqlFailures {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := failingBench(t, i, "succeeded")
			r := b.insertTask(api.Succeeded, failing)
			try := func() {
				var broken *outbox.EffectError
				if err := b.settle(r); !errors.As(err, &broken) {
					t.Fatalf("got %v, want an EffectError", err)
				}
				if broken.Name != "save" || broken.Code != outbox.CodeSQLFailed || broken.Permanent != c.permanent {
					t.Errorf("got %+v, want effect save, code sql_failed, permanent %t", broken, c.permanent)
				}
				if text := broken.Error(); strings.Contains(text, canary) || !strings.Contains(text, c.tells) {
					t.Errorf("got message %q, want one with %s and without the data", text, c.tells)
				}
			}
			if c.name == "lock timeout" {
				b.locked(try)
			} else {
				try()
			}
			if n := one[int](b, `SELECT count(*) FROM onefold.effects`); n != 0 {
				t.Errorf("got %d effects, want none", n)
			}
		})
	}
}

// TestBrokenSQLOfAnotherOutcome: the task moves all the same, the effect is dead and says why, the others leave.
func TestBrokenSQLOfAnotherOutcome(t *testing.T) {
	t.Parallel()
	for i, c := range sqlFailures {
		if strings.Contains(c.statement, "result") {
			continue // a failed task has none
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := failingBench(t, i, "failed")
			r := b.insertTask(api.Failed, "")
			try := func() {
				if err := b.settle(r); err != nil {
					t.Fatalf("the task did not move: %v", err)
				}
			}
			if c.name == "lock timeout" {
				b.locked(try)
			} else {
				try()
			}
			got := b.row("effects", "name = 'save'")
			if got["state"] != "dead" || got["error_code"] != outbox.CodeSQLFailed || !strings.Contains(got["error_message"].(string), c.tells) || got["body"] == nil {
				t.Errorf("got %v, want a dead effect with the reason and the statement", got)
			}
			if s := b.row("effects", "name = 'notify'")["state"]; s != "waiting" {
				t.Errorf("the other effect is %v, want waiting", s)
			}
			if s := b.row("tasks", "true")["state"]; s != "failed" {
				t.Errorf("the task is %v, want failed", s)
			}
		})
	}
}

// TestStatementThatEndsTheTransaction: no configuration lets one through; if one came, it is noticed.
func TestStatementThatEndsTheTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, notify), outbox.Opts{})
	for _, statement := range []string{"COMMIT", "ROLLBACK", "COMMIT AND CHAIN"} {
		tx, err := b.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = b.box.Statement(t.Context(), tx, &config.RenderedEffect{Statement: statement, Args: []byte("[]")})
		if err == nil || !strings.Contains(err.Error(), "ended the transaction") {
			t.Errorf("%s: got %v, want an error that says so", statement, err)
		}
		_ = tx.Rollback(t.Context())
	}
}

// TestLimitsAreOfTheStatementAlone: what follows in the transaction has the limits it had.
func TestLimitsAreOfTheStatementAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, notify), outbox.Opts{SQLLockTimeout: time.Second, SQLTimeout: 3 * time.Second})
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		show := func() (s string) {
			err := tx.QueryRow(t.Context(), `SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')`).Scan(&s)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '7s'; CREATE TABLE seen (v text)`); err != nil {
			return err
		}
		before := show()
		err := b.box.Statement(t.Context(), tx, &config.RenderedEffect{
			Statement: `INSERT INTO seen SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')`, Args: []byte("[]"),
		})
		if err != nil {
			return err
		}
		var during string
		if err := tx.QueryRow(t.Context(), `SELECT v FROM seen`).Scan(&during); err != nil {
			return err
		}
		if after := show(); during != "1s 3s" || after != before {
			t.Errorf("got limits %q during and %q after, want 1s 3s and %q", during, after, before)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCheckSQL reports every statement that cannot work, with its place.
func TestCheckSQL(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, save, `{name: b, type: sql, statement: "INSERT INTO missing VALUES (@key)"}`,
		`{name: c, type: sql, statement: "UPDATE invoices SET nope = @key"}`,
		`{name: d, type: sql, statement: "INSERT INTO invoices (key, total) VALUES (@key, (@key)::text || 1 +)"}`,
		`{name: e, type: sql, statement: "DELETE FROM invoices WHERE key = @key"}`), outbox.Opts{})
	b.exec(invoices)
	err := outbox.CheckSQL(t.Context(), b.pool, b.cfg)
	var found config.Errors
	if !errors.As(err, &found) {
		t.Fatalf("got %v, want config.Errors", err)
	}
	var got []string
	for _, e := range found {
		if e.File != "onefold.yaml" || e.Line == 0 || e.Fix == "" {
			t.Errorf("got %+v, want file, line and fix", e)
		}
		got = append(got, e.Path)
	}
	want := []string{"kinds.k.effects[1].statement", "kinds.k.effects[2].statement", "kinds.k.effects[3].statement"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := one[int](b, `SELECT count(*) FROM invoices`); n != 0 {
		t.Errorf("the check wrote %d rows", n)
	}
	b.exec(`DROP TABLE invoices`)
	if good := outbox.CheckSQL(t.Context(), b.pool, withEffects(t, notify)); good != nil {
		t.Errorf("got %v without sql effects, want nil", good)
	}
}
