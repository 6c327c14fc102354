package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// withKinds is a configuration of kind k with these effects, and of kinds that can follow.
func withKinds(t *testing.T, effects ...string) *bench {
	t.Helper()
	cfg := parse(t, `destinations:
  safe: {url: "http://127.0.0.1:1/", repeat: safe, allow_private: true, tenants: [acme]}
  closed: {url: "http://127.0.0.1:1/", allow_private: true}
  mail: {url: "smtp://127.0.0.1:1", allow_private: true, from: a@b.c, tenants: ['*']}
kinds:
  next: {provider: p}
  each: {provider: p, dedupe: none}
  open: {provider: p, dedupe: open}
  llm.chat: {provider: p}
  k:
    provider: p
    output: json
    effects:
      - `+strings.Join(append(effects, "{name: own, type: webhook, destination: safe, on: unknown}"), "\n      - ")+"\n")
	return setup(t, cfg, outbox.Opts{Senders: senders(answers(200))})
}

// children reads the follow-up tasks of a task.
func (b *bench) children(parent task.ID) []string {
	b.t.Helper()
	return one[[]string](b, `SELECT coalesce(array_agg(t.kind || ' ' || convert_from(input, 'UTF8') || ' ' || t.state || CASE WHEN j.id IS NULL THEN ' asleep' ELSE '' END ORDER BY t.kind, input), '{}')
	FROM onefold.tasks AS t LEFT JOIN onefold.river_job AS j ON j.id = t.job_id WHERE parent_id = $1`, parent)
}

// TestFollowUp: a task that follows is there with the outcome, woken, under a key that no caller can send; the effect is
// delivered and names it.
func TestFollowUp(t *testing.T) {
	t.Parallel()
	b := withKinds(t, `{name: a, type: task, kind: next, input: {n: "{{json .result.n}}", id: "{{.task.id}}"}}`, `{name: b, type: task, kind: each, input: "1"}`)
	r := b.insertTask(api.Succeeded, `{"n":1.10}`)
	r.Priority, r.TraceID = 7, "trace-1"
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	expect(t, "children", b.children(r.ID), []string{"each 1 pending", `next {"n":1.10,"id":"` + r.ID.String() + `"} pending`})
	expect(t, "effects", one[[]string](b, `SELECT array_agg(e.name || ' ' || e.state || ' ' || t.kind ORDER BY e.name) FROM onefold.effects AS e JOIN onefold.tasks AS t ON t.id::text = e.reference`),
		[]string{"a delivered next", "b delivered each"})
	key := one[string](b, `SELECT key FROM onefold.tasks WHERE kind = 'next'`)
	if key != canon.ChildKey(r.ID.String(), 1, "a") || canon.CheckKey(key) == nil {
		t.Errorf("got the key %s, want one a caller cannot send", key)
	}
	expect(t, "inherited", one[string](b, `SELECT priority || ' ' || trace_id || ' ' || tenant FROM onefold.tasks WHERE kind = 'next'`), "7 trace-1 acme")
}

// TestFollowUpOnce: with a key of its own, one task for each value, whichever parents ask for it at once; asked for
// something else under it, nothing is made and the reply is kept by the caller.
func TestFollowUpOnce(t *testing.T) {
	t.Parallel()
	b := withKinds(t, `{name: a, type: task, kind: next, key: "{{.result.day}}", input: {n: "{{json .result.n}}"}}`)
	var all sync.WaitGroup
	for range 6 {
		r := b.insertTask(api.Succeeded, `{"day":"2026-03-01","n":1}`)
		all.Go(func() {
			if err := b.settle(r); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
	}
	all.Wait()
	if n := one[int](b, `SELECT count(*) FROM onefold.tasks WHERE kind = 'next'`); n != 1 {
		t.Errorf("got %d follow-up tasks of one key, want 1", n)
	}
	if n := one[int](b, `SELECT count(DISTINCT reference) FROM onefold.effects`); n != 1 {
		t.Errorf("the effects name %d tasks, want 1", n)
	}
	err := b.settle(b.insertTask(api.Succeeded, `{"day":"2026-03-01","n":2}`))
	var broken *outbox.EffectError
	if !errors.As(err, &broken) || broken.Name != "a" || broken.Code != outbox.CodeFollowFailed || !broken.Permanent || strings.Contains(broken.Message, "2026") {
		t.Errorf("got %v, want a permanent effect error that tells no data", err)
	}
	failed := b.insertTask(api.Succeeded, `{"day":"2026-03-02","n":1}`)
	if err := b.settle(failed); err != nil {
		t.Errorf("another day: %v", err)
	}
}

// TestFollowUpAfterExpiry: a key whose task is past its retention stands for a new one.
func TestFollowUpAfterExpiry(t *testing.T) {
	t.Parallel()
	b := withKinds(t, `{name: a, type: task, kind: next, key: one, input: "1"}`)
	if err := b.settle(b.insertTask(api.Succeeded, `{}`)); err != nil {
		t.Fatal(err)
	}
	first := one[string](b, `SELECT id::text FROM onefold.tasks WHERE kind = 'next'`)
	b.exec(`UPDATE onefold.tasks SET state = 'cancelled', finished_at = now(), expires_at = now() WHERE kind = 'next'`)
	if err := b.settle(b.insertTask(api.Succeeded, `{}`)); err != nil {
		t.Fatal(err)
	}
	if second := one[string](b, `SELECT id::text FROM onefold.tasks WHERE kind = 'next'`); second == first {
		t.Error("the expired task stands for the new one")
	}
}

// TestFollowUpRefused: what cannot follow fails the finish of a success, and is dead beside any other outcome.
func TestFollowUpRefused(t *testing.T) {
	t.Parallel()
	for effect, want := range map[string]string{
		`{name: a, type: task, kind: "{{.result.kind}}"}`:                       "no kind",
		`{name: a, type: task, kind: llm.chat, input: {messages: []}}`:          "its input",
		`{name: a, type: task, kind: next, input: "{{json .result.no}}"}`:       "missing",
		`{name: a, type: task, kind: next, input: {x: "{{json .result.big}}"}}`: "8 MiB",
	} {
		b := withKinds(t, effect)
		result := `{"kind":"none","big":"` + strings.Repeat("x", 8<<20) + `"}`
		err := b.settle(b.insertTask(api.Succeeded, result))
		var broken *outbox.EffectError
		if !errors.As(err, &broken) || !broken.Permanent || !strings.Contains(broken.Message, want) {
			t.Errorf("%s: got %v, want %q", effect, err, want)
		}
		if n := one[int](b, `SELECT count(*) FROM onefold.effects`); n != 0 {
			t.Errorf("%s: got %d effects", effect, n)
		}
	}
	b := withKinds(t, `{name: a, type: task, kind: "{{.task.key}}", on: failed}`, `{name: b, type: task, kind: next, on: failed, input: "1"}`)
	r := b.insertTask(api.Failed, "")
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	expect(t, "effects", one[[]string](b, `SELECT array_agg(name || ' ' || state || ' ' || coalesce(error_code, '') ORDER BY name) FROM onefold.effects`),
		[]string{"a dead follow_up_failed", "b delivered "})
	expect(t, "children", b.children(r.ID), []string{"next 1 pending"})
}

// TestChainsEnd: tasks that follow each other for ever stop at a length.
func TestChainsEnd(t *testing.T) {
	t.Parallel()
	b := withKinds(t, `{name: a, type: task, kind: k, on: failed, input: "1"}`)
	r := b.insertTask(api.Failed, "")
	for n := 1; ; n++ {
		if err := b.settle(r); err != nil {
			t.Fatal(err)
		}
		child := one[*task.ID](b, `SELECT max(id::text)::uuid FROM onefold.tasks WHERE parent_id = $1`, r.ID)
		if child == nil {
			if n != 32 {
				t.Errorf("the chain ended after %d, want 32", n)
			}
			break
		}
		b.exec(`UPDATE onefold.tasks SET state = 'running', owner = id, token = id WHERE id = $1`, *child)
		r = &task.Row{ID: *child, Tenant: "acme", Kind: "k", State: api.Failed, Run: 1, Input: []byte("1"), ErrorCode: "deadline"}
		if n > 40 {
			t.Fatal("the chain does not end")
		}
	}
	expect(t, "the last", one[string](b, `SELECT state || ' ' || error_code FROM onefold.effects WHERE task_id = $1`, r.ID), "dead follow_up_failed")
}

// TestSubmittedEffectsLeave: those of the submit are rendered with the outcome; what the tenant may no longer use is dead
// beside it; a name the kind has taken meanwhile gets a suffix.
func TestSubmittedEffectsLeave(t *testing.T) {
	t.Parallel()
	b := withKinds(t, `{name: x, type: webhook, destination: closed}`)
	r := b.insertTask(api.Succeeded, `{"n":1.10}`)
	r.Effects = []byte(`[{"name":"x","type":"webhook","destination":"safe","body":{"n":"{{json .result.n}}","in":"{{json .input.n}}"}},
	  {"name":"y","type":"webhook","destination":"closed"},{"name":"z","type":"webhook","destination":"nowhere","on":"final"},
	  {"name":"m","type":"email","destination":"mail","to":"a@b.c","subject":"{{.task.key}}","body":"hello"},
	  {"name":"f","type":"webhook","destination":"safe","on":"failed"},{"name":"t","type":"task","kind":"next","input":{"a":"{{json .result}}"}}]`)
	if !outbox.Alone(b.cfg.Kinds["k"], api.Succeeded, r, nil) || outbox.Alone(b.cfg.Kinds["k"], api.Failed, r, nil) {
		t.Error("a follow-up task of a submit is not settled alone")
	}
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	got := one[[]string](b, `SELECT array_agg(name || ' ' || state || ' ' || coalesce(error_code, '') || ' ' || coalesce(convert_from(body, 'UTF8'), '') ORDER BY name)
	FROM onefold.effects WHERE type <> 'task' AND destination <> 'mail' AND name <> 'x'`)
	expect(t, "effects", got, []string{`x-submitted waiting  {"n":1.10,"in":1.10}`, `y dead destination_not_allowed {"type":"task.succeeded","data":{"task_id":"` + r.ID.String() +
		`","kind":"k","key":"` + r.Key + `","run":1,"outcome":"succeeded","result":{"n":1.10}}}`, got[2]})
	if !strings.HasPrefix(got[2], "z dead destination_not_allowed ") {
		t.Errorf("got %s", got[2])
	}
	expect(t, "mail", one[string](b, `SELECT convert_from(headers, 'UTF8') FROM onefold.effects WHERE type = 'email'`), `{"Subject":"`+r.Key+`","To":"a@b.c"}`)
	expect(t, "children", b.children(r.ID), []string{`next {"a":{"n":1.10}} pending`})
}

// TestSubmittedTemplateFails: the finish of a success fails and says which effect and why.
func TestSubmittedTemplateFails(t *testing.T) {
	t.Parallel()
	b := withKinds(t)
	r := b.insertTask(api.Succeeded, `{"n":1}`)
	r.Effects = []byte(`[{"name":"x","type":"webhook","destination":"safe","body":{"n":"{{.result.gone}}"}}]`)
	err := b.settle(r)
	var broken *outbox.EffectError
	if !errors.As(err, &broken) || broken.Name != "x" || !broken.Permanent || !strings.Contains(broken.Message, "missing") {
		t.Errorf("got %v", err)
	}
	failed := b.insertTask(api.Failed, "")
	failed.Effects = []byte(`[{"name":"x","type":"webhook","destination":"safe","on":"final","body":{"n":"{{.result.gone}}"}}]`)
	if err := b.settle(failed); err != nil {
		t.Fatal(err)
	}
	expect(t, "beside a failure", one[string](b, `SELECT state || ' ' || error_code FROM onefold.effects WHERE task_id = $1`, failed.ID), "dead render_failed")
}

// TestAnsweredEffects: what a service asked for leaves with its result, as it stands.
func TestAnsweredEffects(t *testing.T) {
	t.Parallel()
	b := withKinds(t)
	settle := func(r *task.Row, answered string) error {
		return pgx.BeginTxFunc(t.Context(), b.pool, store.ReadCommitted, func(tx pgx.Tx) error {
			if err := move(t.Context(), tx, r); err != nil {
				return err
			}
			_, err := b.box.Settle(t.Context(), tx, []outbox.Settled{{Row: r, Kind: b.cfg.Kinds["k"], Answered: []byte(answered)}})
			return err
		})
	}
	r := b.insertTask(api.Succeeded, `{}`)
	if err := settle(r, `[{"name":"own","type":"http","destination":"safe","path":"/x","body":{"t":"{{.result}}"}}]`); err != nil {
		t.Fatal(err)
	}
	expect(t, "effect", one[string](b, `SELECT name || ' ' || path || ' ' || convert_from(body, 'UTF8') FROM onefold.effects WHERE task_id = $1`, r.ID),
		`own-answered /x {"t":"{{.result}}"}`)
	var broken *outbox.EffectError
	if err := settle(b.insertTask(api.Succeeded, `{}`), `[{"name":"a"}]`); !errors.As(err, &broken) || !broken.Permanent {
		t.Errorf("effects that are none: got %v, want the finish to fail", err)
	}
}

// TestCheckSubmitted: what a submit may ask for.
func TestCheckSubmitted(t *testing.T) {
	t.Parallel()
	b := withKinds(t)
	got := map[string]string{}
	for _, raw := range []string{
		`[{"name":"a","type":"webhook","destination":"safe"}]`, `[{"name":"a","type":"webhook","destination":"closed"}]`,
		`[{"name":"a","type":"webhook","destination":"none"}]`, `[{"name":"a","type":"webhook","destination":"mail"}]`,
		`[{"name":"a","type":"email","destination":"mail","to":"x","subject":"y","body":"z"}]`,
		`[{"name":"own","type":"webhook","destination":"safe"}]`, `[{"name":"a","type":"task","kind":"next"}]`,
		`[{"name":"a","type":"task","kind":"no"}]`, `[{"name":"a","type":"task","kind":"{{.task.kind}}"}]`,
	} {
		err := b.box.CheckSubmitted(t.Context(), "acme", b.cfg.Kinds["k"], []byte(raw))
		var e *api.Error
		if err != nil && (!errors.As(err, &e) || e.Code != api.CodeInvalidField || e.Field != "effects[0]") {
			t.Errorf("%s: got %v", raw, err)
		}
		got[raw] = fmt.Sprint(err != nil)
	}
	want := map[string]string{}
	i := 0
	for raw := range got {
		want[raw] = fmt.Sprint(!(strings.Contains(raw, `"safe"`) && strings.Contains(raw, `"a"`) || strings.Contains(raw, "email") || strings.Contains(raw, `"next"`)))
		i++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if err := b.box.CheckSubmitted(t.Context(), "other", b.cfg.Kinds["k"], []byte(`[{"name":"a","type":"webhook","destination":"safe"}]`)); err == nil {
		t.Error("another tenant may use the destination")
	}
}
