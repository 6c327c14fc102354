package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// effect puts an effect of a task into a state, with one delivery under epoch 1.
func (b *bundle) effect(t *testing.T, taskID, name string, state api.EffectState, code string) (id string) {
	t.Helper()
	id = uuid.Must(uuid.NewV7()).String()
	finished := state == api.EffectUnknown || state == api.EffectDead || state == api.EffectDelivered || state == api.EffectDiscarded
	_, err := b.DB.Exec(t.Context(), `
INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, state, epoch, attempts, finished_at, error_code, error_message, body,
    owner, token)
SELECT $1, t.id, t.tenant, 1, $3, 'succeeded', 'webhook', 'crm', $4, 1, 1, CASE WHEN $5 THEN now() END, nullif($6, ''), nullif($6, ''), '{}',
       CASE WHEN $4 = 'delivering' THEN gen_random_uuid() END, CASE WHEN $4 = 'delivering' THEN gen_random_uuid() END
FROM onefold.tasks AS t
WHERE t.id = $2`, id, taskID, name, string(state), finished, code)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.DB.Exec(t.Context(), `
INSERT INTO onefold.deliveries (effect_id, epoch, number, incarnation, token, closed_at, outcome, status, code, reply, late_at, late_outcome, late_status)
VALUES ($1, 1, 1, gen_random_uuid(), gen_random_uuid(), now(), 'lost', 502, 'worker_lost', 'a reply', now(), 'delivered', 200)`, id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func ids(items []api.ReviewItem) (out []string) {
	for _, i := range items {
		out = append(out, i.ID)
	}
	return out
}

func (b *bundle) queue(t *testing.T, key string, o client.ReviewOpts) (out []api.ReviewItem) {
	t.Helper()
	for i, err := range b.client(t, key).Review(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, *i)
	}
	return out
}

// Who looks sees why each waits, what is known, and what can be done; a page at a
// time and whatever the filter.
func TestReviewQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(key string, state api.State) string {
		id := b.submit(t, key, chat).task.ID
		if state != "" {
			b.settle(t, id, state, nil)
		}
		return id
	}
	unknown, failed := post("unknown", api.Unknown), post("failed", api.Failed)
	post("cancelled", api.Cancelled)
	overdue := post("overdue", "")
	final := post("final", api.Failed)
	done := post("done", "")
	b.settle(t, done, api.Succeeded, []byte(`1`))
	dead, gone := b.effect(t, done, "dead", api.EffectDead, "not_found"), b.effect(t, done, "used up", api.EffectDead, "attempts_exhausted")
	lost := b.effect(t, done, "lost", api.EffectUnknown, "outcome_unknown")
	b.effect(t, done, "held", api.EffectHeld, "")
	b.effect(t, done, "fine", api.EffectDelivered, "")
	for _, sql := range []string{
		`UPDATE onefold.tasks SET error_permanent = true WHERE id = '` + final + `'`,
		`UPDATE onefold.tasks SET run_at = now() - interval '2 days', stuck_at = now(), stuck_for = now() - interval '2 days' WHERE id = '` + overdue + `'`,
		`UPDATE onefold.tasks SET finished_at = now() - interval '2 h' WHERE id = '` + unknown + `'`,
		`UPDATE onefold.effects SET finished_at = now() - interval '3 days' WHERE id = '` + dead + `'`,
		`INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, closed_at, outcome, phase, request_id, partial, kept_result, bytes, billed)
		 VALUES ('` + unknown + `', 1, 1, 1, gen_random_uuid(), gen_random_uuid(), 'openai', '', now(), 'unknown', 'first_token', 'req-1', 'half an', '1', 7, 'unknown')`,
	} {
		if _, err := b.DB.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}

	all := b.queue(t, b.Key, client.ReviewOpts{})
	if got, want := ids(all)[:2], []string{dead, unknown}; !slices.Equal(got, want) || len(all) != 6 {
		t.Fatalf("got %v, want the longest in the queue first, six in all", ids(all))
	}
	if paged := b.queue(t, b.Key, client.ReviewOpts{Limit: 1}); !slices.Equal(ids(paged), ids(all)) {
		t.Errorf("page by page: got %v, want %v", ids(paged), ids(all))
	}
	type view struct {
		Reason  api.ReviewReason
		Age     api.ReviewAge
		Actions []api.ReviewAction
	}
	got := map[string]view{}
	for _, i := range all {
		got[i.ID] = view{i.Reason, i.Age, i.Actions}
	}
	sent := []api.ReviewAction{api.ReviewRedeliver, api.ReviewDiscard}
	want := map[string]view{
		unknown: {api.ReviewUnknown, api.AgeDay, []api.ReviewAction{api.ReviewSucceeded, api.ReviewFailed, api.ReviewFinish, api.ReviewRetry, api.ReviewDiscard}},
		failed:  {api.ReviewExhausted, api.AgeHour, []api.ReviewAction{api.ReviewFailed, api.ReviewRetry, api.ReviewDiscard}},
		overdue: {api.ReviewOverdue, api.AgeHour, []api.ReviewAction{api.ReviewDiscard}},
		dead:    {api.ReviewDead, api.AgeOlder, sent},
		gone:    {api.ReviewExhausted, api.AgeHour, sent},
		lost:    {api.ReviewUnknown, api.AgeHour, append([]api.ReviewAction{api.ReviewDelivered}, sent...)},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	a := all[1].LastAttempt
	if a == nil || a.Phase != "first_token" || a.Bytes != 7 || a.PartialBytes != 7 || a.Partial != "" || a.RequestID != "req-1" {
		t.Errorf("got the evidence %+v", a)
	}
	if d := all[0].LastDelivery; d == nil || d.Status != 502 || d.LateOutcome != "delivered" || d.LateStatus != 200 || d.ReplyBytes != 7 {
		t.Errorf("got the evidence %+v", d)
	}
	for _, tt := range []struct {
		o    client.ReviewOpts
		want []string
	}{
		{client.ReviewOpts{What: api.ReviewTask, Reason: api.ReviewUnknown}, []string{unknown}},
		{client.ReviewOpts{What: api.ReviewEffect, Reason: api.ReviewUnknown}, []string{lost}},
		{client.ReviewOpts{Age: api.AgeOlder}, []string{dead}},
		{client.ReviewOpts{Age: api.AgeDay}, []string{unknown}},
		{client.ReviewOpts{Until: time.Now().Add(-time.Hour)}, []string{dead, unknown}},
		{client.ReviewOpts{Destination: "crm", Reason: api.ReviewDead}, []string{dead}},
		{client.ReviewOpts{Destination: "nosuch"}, nil},
		{client.ReviewOpts{Kind: "open"}, nil},
		{client.ReviewOpts{Kind: "llm.chat", Reason: api.ReviewOverdue}, []string{overdue}},
	} {
		if got := ids(b.queue(t, b.Key, tt.o)); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: got %v, want %v", tt.o, got, tt.want)
		}
	}
	n, err := b.client(t, b.Key).CountReview(t.Context(), client.ReviewOpts{})
	if err != nil || n.Total != 6 || n.AtLeast {
		t.Errorf("got %+v (%v), want six", n, err)
	}
	n, err = b.client(t, b.Key).CountReview(t.Context(), client.ReviewOpts{What: api.ReviewEffect, Kind: "llm.chat", Age: api.AgeHour})
	if err != nil || n.Total != 2 || len(n.Ages) != 2 {
		t.Errorf("got %+v (%v), want two effects", n, err)
	}
	item, err := b.client(t, b.Key).ReviewItem(t.Context(), dead)
	if err != nil || len(item.Deliveries) != 1 || item.Deliveries[0].Reply != "a reply" {
		t.Errorf("got %+v (%v), want the effect with its delivery", item, err)
	}
	// The mark of a task that has been tried since says nothing any more.
	if _, err := b.DB.Exec(t.Context(), `UPDATE onefold.tasks SET run_at = now() WHERE id = $1`, overdue); err != nil {
		t.Fatal(err)
	}
	if got := b.queue(t, b.Key, client.ReviewOpts{Reason: api.ReviewOverdue}); got != nil {
		t.Errorf("got %v, want the task out of the queue", ids(got))
	}
}

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

// The queue is found by its index, however many tasks and effects there are.
func TestReviewPlan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit(t, "k", chat).task.ID
	for _, sql := range []string{
		`INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, state, finished_at)
		 SELECT gen_random_uuid(), '` + id + `', 'a', 1, 'e' || n, 'succeeded', 'webhook', 'crm', CASE WHEN n % 1000 = 0 THEN 'dead' ELSE 'delivered' END, now()
		 FROM generate_series(1, 20000) AS n`,
		`ANALYZE onefold.effects`,
	} {
		if _, err := b.DB.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for tenant, index := range map[string]string{"": "effects_review", "e.tenant = 'a' AND": "effects_review_tenant"} {
		rows, err := b.DB.Query(t.Context(), `EXPLAIN SELECT * FROM onefold.effects AS e WHERE `+tenant+`
(e.state IN ('unknown', 'dead') OR (e.stuck_at IS NOT NULL AND e.finished_at IS NULL))
ORDER BY coalesce(e.finished_at, e.stuck_at), e.id LIMIT 10`)
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan.WriteString(line + "\n")
		}
		if !strings.Contains(plan.String(), index) || strings.Contains(plan.String(), "Sort") {
			t.Errorf("want the index %s and no sort, got\n%s", index, plan.String())
		}
	}
}

func reviewCalls(t *testing.T, b *bundle, w world) (calls []specCall) {
	t.Helper()
	const list, one, acts = "GET /v1/review", "GET /v1/review/{id}", "POST /v1/review/acts"
	dead := func(name string) string { return b.effect(t, w.succeeded, name, api.EffectDead, "rejected") }
	plain := http.Header{"Content-Type": {"text/plain"}}
	huge := `{"reason":"` + strings.Repeat("x", 9<<20) + `"}`
	seen := dead("seen")
	items, err := json.Marshal(api.ReviewActs{Action: api.ReviewDiscard, Reason: "r", Items: []api.ReviewSeen{{ID: dead("in bulk"), Epoch: 1}, {ID: "nosuch"}}})
	if err != nil {
		t.Fatal(err)
	}
	calls = []specCall{
		{route: list, want: 200, query: "?count=true"},
		{route: list, want: 200, query: "?what=effect&reason=dead&age=1h&limit=1"},
		{route: list, want: 400, query: "?reason=nosuch"},
		{route: list, want: 400, query: "?cursor=x"},
		{route: list, want: 401, key: "-"},
		{route: list, want: 403, key: w.submitter},
		{route: one, id: seen, want: 200},
		{route: one, id: w.pending, want: 404},
		{route: one, id: "nosuch", want: 404},
		{route: one, id: seen, want: 400, query: "?nosuch=1"},
		{route: one, id: seen, want: 401, key: "-"},
		{route: one, id: seen, want: 403, key: w.submitter},
		{route: acts, want: 200, body: string(items)},
		{route: acts, want: 400, body: `{"action":"succeeded","reason":"r","items":[{"id":"x","epoch":1}]}`},
		{route: acts, want: 400, body: `{"action":"discard","reason":"r","items":[]}`},
		{route: acts, want: 400, body: `{"action":"discard","items":[{"id":"x","epoch":1}]}`},
		{route: acts, want: 400, body: `{"action":"discard","reason":"r","items":[{"id":"x","epoch":1,"more":1}]}`},
		{route: acts, want: 413, body: huge},
		{route: acts, want: 415, body: string(items), header: plain},
		{route: acts, want: 401, key: "-", body: string(items)},
		{route: acts, want: 403, key: w.reader, body: string(items)},
	}
	const mark = "POST /v1/tasks/{id}/mark-duplicate"
	good := `{"of":"` + w.succeeded + `","reason":"r"}`
	calls = append(calls,
		specCall{route: mark, id: w.cancelled, want: 200, body: good},
		specCall{route: mark, id: w.cancelled, want: 200, body: good},
		specCall{route: mark, id: w.cancelled, want: 409, body: `{"of":"` + w.unknown + `","reason":"r"}`},
		specCall{route: mark, id: w.unknown, want: 409, body: `{"of":"` + w.cancelled + `","reason":"r"}`},
		specCall{route: mark, id: w.succeeded, want: 400, body: good},
		specCall{route: mark, id: w.cancelled, want: 400, body: `{"of":"nosuch","reason":"r"}`},
		specCall{route: mark, id: w.cancelled, want: 400, body: `{"of":"` + w.succeeded + `"}`},
		specCall{route: mark, id: "nosuch", want: 404, body: good},
		specCall{route: mark, id: w.gone, want: 410, body: good},
		specCall{route: mark, id: w.cancelled, want: 413, body: huge},
		specCall{route: mark, id: w.cancelled, want: 415, body: good, header: plain},
		specCall{route: mark, id: w.cancelled, want: 401, key: "-", body: good},
		specCall{route: mark, id: w.cancelled, want: 403, key: w.reader, body: good},
	)
	for _, act := range []string{"redeliver", "discard", "resolve"} {
		route, state, more := "POST /v1/effects/{id}/"+act, api.EffectDead, ""
		if act == "resolve" {
			state, more = api.EffectUnknown, `"action":"delivered",`
		}
		id := b.effect(t, w.succeeded, "to "+act, state, "x")
		good := fmt.Sprintf(`{%s"epoch":1,"reason":"r"}`, more)
		calls = append(calls,
			specCall{route: route, id: id, want: 200, body: good},
			specCall{route: route, id: id, want: 409, body: strings.ReplaceAll(good, "1", "7")},
			specCall{route: route, id: id, want: 400, body: `{"epoch":1}`},
			specCall{route: route, id: "nosuch", want: 404, body: good},
			specCall{route: route, id: uuid.Must(uuid.NewV7()).String(), want: 404, body: good},
			specCall{route: route, id: id, want: 413, body: huge},
			specCall{route: route, id: id, want: 415, body: good, header: plain},
			specCall{route: route, id: id, want: 401, key: "-", body: good},
			specCall{route: route, id: id, want: 403, key: w.reader, body: good},
		)
	}
	return calls
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
