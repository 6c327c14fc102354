package server_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// An act is done once, however often it comes, and never on what was not seen.
func TestEffectActs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cl := b.client(t, b.Key)
	taskID := b.submit(t, "k", chat).task.ID
	b.settle(t, taskID, api.Succeeded, []byte(`1`))
	count := func(what string, args ...any) (n int) {
		t.Helper()
		if err := b.DB.QueryRow(t.Context(), what, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	dead := b.effect(t, taskID, "dead", api.EffectDead, "not_found")
	for range 2 {
		e, err := cl.Redeliver(t.Context(), dead, 1, "the address is mended")
		if err != nil || e.ID != dead || e.State != api.EffectWaiting || e.Attempts != 0 || e.Epoch != 2 {
			t.Fatalf("got %+v (%v), want it waiting under the same id", e, err)
		}
	}
	if n := count(`SELECT count(*) FROM onefold.river_job WHERE kind = 'effect' AND args ->> 'id' = $1`, dead); n != 1 {
		t.Errorf("got %d wake-ups, want 1", n)
	}
	if _, err := cl.Discard(t.Context(), dead, 1, "r"); err == nil {
		t.Error("another act on the state that is gone was taken")
	}
	if e, err := cl.Discard(t.Context(), dead, 2, "r"); err != nil || e.State != api.EffectDiscarded {
		t.Errorf("got %+v (%v), want it discarded", e, err)
	}
	if n := count(`SELECT count(*) FROM onefold.river_job WHERE kind = 'effect'`); n != 0 {
		t.Errorf("got %d wake-ups of a discarded effect, want none", n)
	}
	if n := count(`SELECT count(*) FROM onefold.audit WHERE target_type = 'effect' AND target_id = $1 AND actor LIKE 'key:%'`, dead); n != 2 {
		t.Errorf("got %d entries in the audit, want one an act", n)
	}
	lost := b.effect(t, taskID, "lost", api.EffectUnknown, "outcome_unknown")
	for range 2 {
		if e, err := cl.ResolveDelivered(t.Context(), lost, 1, "their log has it"); err != nil || e.State != api.EffectDelivered || e.Error != nil {
			t.Errorf("got %+v (%v), want it delivered", e, err)
		}
	}
	for _, tt := range []struct {
		state api.EffectState
		act   func(id string) (*api.Effect, error)
	}{
		{api.EffectDelivering, func(id string) (*api.Effect, error) { return cl.Discard(t.Context(), id, 1, "r") }},
		{api.EffectDelivered, func(id string) (*api.Effect, error) { return cl.Redeliver(t.Context(), id, 1, "r") }},
		{api.EffectDead, func(id string) (*api.Effect, error) { return cl.ResolveDelivered(t.Context(), id, 1, "r") }},
		{api.EffectHeld, func(id string) (*api.Effect, error) { return cl.Redeliver(t.Context(), id, 1, "r") }},
	} {
		id := b.effect(t, taskID, "a "+string(tt.state), tt.state, "x")
		if e, err := tt.act(id); err == nil {
			t.Errorf("an act that does not fit a %s effect gave %+v", tt.state, e)
		}
	}
	all, err := cl.Effects(t.Context(), taskID)
	if err != nil || len(all) != 6 || len(all[0].Deliveries) != 1 || all[0].Deliveries[0].LateOutcome != "delivered" {
		t.Errorf("got %+v (%v), want six effects, each with its delivery and what it said too late", all, err)
	}
}

// Effects of one order stand still behind one that nobody takes, and go on once a
// person has decided about it.
func TestDiscardLetsTheNextGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	taskID := b.submit(t, "k", chat).task.ID
	b.settle(t, taskID, api.Succeeded, []byte(`1`))
	first, next := b.effect(t, taskID, "first", api.EffectDead, "rejected"), b.effect(t, taskID, "next", api.EffectWaiting, "")
	for _, sql := range []string{
		`INSERT INTO onefold.effect_orders VALUES ('a', 'crm', 'o', 2)`,
		`UPDATE onefold.effects SET order_key = 'o', order_seq = CASE name WHEN 'first' THEN 1 ELSE 2 END, next_at = CASE name WHEN 'next' THEN 'infinity' ELSE next_at END`,
	} {
		if _, err := b.DB.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if q := b.queue(t, b.Key, client.ReviewOpts{}); len(q) != 1 || q[0].Behind != 1 {
		t.Errorf("got %+v, want one with one behind it", q)
	}
	if _, err := b.client(t, b.Key).Discard(t.Context(), first, 1, "r"); err != nil {
		t.Fatal(err)
	}
	var woken bool
	err := b.DB.QueryRow(t.Context(), `SELECT job_id IS NOT NULL AND next_at <= now() FROM onefold.effects WHERE id = $1`, next).Scan(&woken)
	if err != nil || !woken {
		t.Errorf("the next one is awake: %t (%v), want true", woken, err)
	}
}

// Tasks by the same rule: an act for the same epoch is answered the same, and who
// decided otherwise is told.
func TestTaskActsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	unknown, failed, other := b.submit(t, "u", chat).task.ID, b.submit(t, "f", chat).task.ID, b.submit(t, "o", chat).task.ID
	for _, id := range []string{unknown, other} {
		b.settle(t, id, api.Unknown, nil)
	}
	b.settle(t, failed, api.Failed, nil)
	do := func(id, what, body string) reply { return b.act(t, id, what, body) }
	for range 2 {
		if r := do(unknown, "resolve", `{"action":"succeeded","epoch":1,"reason":"r","result":{"n":1}}`); r.status != 200 || r.task.State != api.Succeeded {
			t.Errorf("got %d %s, want it succeeded", r.status, r.body)
		}
		if r := do(other, "retry", `{"epoch":1}`); r.status != 200 || r.task.Run != 2 {
			t.Errorf("got %d %s, want run 2", r.status, r.body)
		}
		if r := do(failed, "resolve", `{"action":"failed","epoch":1,"reason":"let it be"}`); r.status != 200 || !r.task.Error.Permanent {
			t.Errorf("got %d %s, want it failed for good", r.status, r.body)
		}
	}
	if r := do(unknown, "resolve", `{"action":"succeeded","epoch":1,"reason":"r","result":{"n":2}}`); r.status != 409 {
		t.Errorf("another result for the same epoch: got %d, want 409", r.status)
	}
	if r := do(other, "resolve", `{"action":"failed","epoch":1,"reason":"r"}`); r.status != 409 {
		t.Errorf("another decision about the same epoch: got %d, want 409", r.status)
	}
	if r := b.submit(t, "f", chat); r.status != 200 || r.task.State != api.Failed {
		t.Errorf("a duplicate of what failed for good: got %d %s, want the failure", r.status, r.body)
	}
}

// One decision about many: each for itself, tenants apart, and again the same.
func TestReviewActs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.key(t, "b", api.ScopeSubmit, api.ScopeRead, api.ScopeOperate)
	taskID, unknown := b.submit(t, "k", chat).task.ID, b.submit(t, "u", chat).task.ID
	b.settle(t, taskID, api.Failed, nil)
	b.settle(t, unknown, api.Unknown, nil)
	dead := b.effect(t, taskID, "dead", api.EffectDead, "rejected")
	acts := api.ReviewActs{Action: api.ReviewDiscard, Reason: "they were tests", Items: []api.ReviewSeen{
		{ID: dead, Epoch: 1}, {ID: taskID, Epoch: 1}, {ID: unknown, Epoch: 1}, {ID: dead, Epoch: 7}, {ID: "nosuch", Epoch: 1},
	}}
	foreign, err := b.client(t, other).ReviewAct(t.Context(), acts)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range foreign {
		if a.Error == nil || a.Error.Code != api.CodeNotFound {
			t.Errorf("another tenant's: got %+v, want not found", a)
		}
	}
	if q := b.queue(t, other, client.ReviewOpts{}); q != nil {
		t.Errorf("another tenant sees %v", ids(q))
	}
	for range 2 {
		got, err := b.client(t, b.Key).ReviewAct(t.Context(), acts)
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for _, a := range got {
			if a.Error != nil {
				a.State = string(a.Error.Code)
			}
			states = append(states, a.State)
		}
		if want := []string{"discarded", "failed", "cancelled", "conflict", "not_found"}; !slices.Equal(states, want) {
			t.Errorf("got %v, want %v", states, want)
		}
	}
	if q := b.queue(t, b.Key, client.ReviewOpts{}); q != nil {
		t.Errorf("got %v left, want none", ids(q))
	}
	if q := b.queue(t, b.operator(t), client.ReviewOpts{Tenant: "a"}); q != nil {
		t.Errorf("got %v left, want none", ids(q))
	}
	if r := b.do(t, call{method: "GET", path: "/v1/review?tenant=b"}); r.status != 403 {
		t.Errorf("another tenant's queue: got %d, want 403", r.status)
	}
}

// A statement that failed with its outcome is run when a person says so, once,
// and not at all while it fails still.
func TestRedeliverSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cl := b.client(t, b.Key)
	taskID := b.submit(t, "k", chat).task.ID
	b.settle(t, taskID, api.Failed, nil)
	id := uuid.Must(uuid.NewV7()).String()
	_, err := b.DB.Exec(t.Context(), `
INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, state, finished_at, error_code, body)
VALUES ($1, $2, 'a', 1, 'save', 'failed', 'sql', 'dead', now(), 'sql_failed', $3)`,
		id, taskID, []byte(`{"statement": "INSERT INTO public.saved (n) VALUES ($1)", "args": [7]}`))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := cl.Redeliver(t.Context(), id, 0, "the table is there"); err == nil {
		t.Errorf("without the table: got %+v, want it refused", e)
	}
	if _, err := b.DB.Exec(t.Context(), `CREATE TABLE public.saved (n int)`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if e, err := cl.Redeliver(t.Context(), id, 0, "the table is there"); err != nil || e.State != api.EffectDelivered {
			t.Errorf("got %+v (%v), want it delivered", e, err)
		}
	}
	var n int
	if err := b.DB.QueryRow(t.Context(), `SELECT count(*) FROM public.saved WHERE n = 7`).Scan(&n); err != nil || n != 1 {
		t.Errorf("got %d rows (%v), want 1", n, err)
	}
}
