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
