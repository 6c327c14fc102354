package server_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
)

// unseen are declared answers that TestSpec does not bring about.
var unseen = map[string]string{
	"500": "what it is for does not happen",
	"503": "TestDatabaseAway brings it about",
	"408": "TestSlowBody brings it about",
}

// TestSpec checks every route and every answer it declares against the
// description that is served.
func TestSpec(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := readSpec(t, b)
	w := newWorld(t, b)
	for _, c := range slices.Concat(submitCalls(w), bulkCalls(w), batchCalls(t, b, w), readCalls(w), actCalls(w), usageCalls(w), ingestCalls(t), gateCalls(t, b, w), reviewCalls(t, b, w), destinationCalls(t, b), serviceCalls()) {
		method, route, _ := strings.Cut(c.route, " ")
		path := strings.NewReplacer("{id}", c.id, "{source}", c.id, "{name}", c.id, "{epoch}", "1", "{part}", cmp.Or(c.part, "partial")).Replace(route) + c.query
		r := b.do(t, call{method: method, path: path, key: c.key, idem: c.idem, body: c.body, header: c.header})
		if r.status != c.want {
			t.Errorf("%s %s: got %d %s, want %d", method, path, r.status, r.body, c.want)
		}
		s.check(t, method, route, r)
	}
	for _, declared := range s.responses() {
		status := declared[strings.LastIndexByte(declared, ' ')+1:]
		if !s.seen[declared] && unseen[status] == "" {
			t.Errorf("%s is declared, but this test never got it", declared)
		}
	}
}

// specCall is one request of TestSpec and the status it must give.
type specCall struct {
	route, query string // "GET /v1/tasks/{id}", "?wait=1s"
	id, part     string
	want         int
	key, idem    string
	body         string
	header       http.Header
}

// world are tasks in every situation.
type world struct {
	pending, running, succeeded, failed, unknown, cancelled, gone, retried string
	reader, submitter                                                      string // API keys
}

func newWorld(t *testing.T, b *bundle) world {
	t.Helper()
	post := func(key string) string { return b.submit(t, key, chat).task.ID }
	w := world{
		pending: post("pending"), running: post("running"), succeeded: post("succeeded"), failed: post("failed"),
		unknown: post("unknown"), cancelled: post("cancelled"), gone: post("gone"), retried: post("retried"),
		reader: b.key(t, "a", api.ScopeRead), submitter: b.key(t, "a", api.ScopeSubmit),
	}
	b.claim(t, w.running)
	b.settle(t, w.succeeded, api.Succeeded, []byte(odd))
	b.settle(t, w.failed, api.Failed, nil)
	b.settle(t, w.unknown, api.Unknown, nil)
	b.act(t, w.cancelled, "cancel", "")
	b.settle(t, w.gone, api.Failed, nil)
	b.settle(t, w.retried, api.Failed, nil)
	ctx := context.Background()
	if _, err := b.DB.Exec(ctx, `UPDATE onefold.tasks SET expires_at = now() WHERE id = $1`, w.gone); err != nil {
		t.Fatal(err)
	}
	_, err := b.DB.Exec(ctx, `
INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, state, finished_at)
VALUES ($1, $2, 'a', 1, 'save', 'succeeded', 'sql', NULL, 'delivered', now()), ($3, $2, 'a', 1, 'notify', 'succeeded', 'webhook', 'crm', 'waiting', NULL)`,
		uuid.Must(uuid.NewV7()), w.succeeded, uuid.Must(uuid.NewV7()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.DB.Exec(ctx, `
INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, closed_at, outcome, code, phase, request_id, partial, input_tokens, billed)
VALUES ($1, 1, 1, 1, gen_random_uuid(), gen_random_uuid(), 'openai', '', now(), 'unknown', 'stream_cut', 'first_token', 'req-1', 'half an', 3, 'yes')`, w.unknown)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func submitCalls(w world) []specCall {
	const route = "POST /v1/tasks"
	huge := `{"kind":"llm.chat","input":"` + strings.Repeat("x", 9<<20) + `"}`
	return []specCall{
		{route: route, want: 202, idem: "new", body: chat},
		{route: route, want: 200, idem: "new", body: chat},
		{route: route, want: 202, idem: "new2", body: chat, header: http.Header{"Prefer": {"wait=1"}}},
		{route: route, want: 200, idem: "succeeded", body: chat},
		{route: route, want: 200, idem: "unknown", body: chat},
		{route: route, want: 200, idem: "failed", body: chat}, // reopened
		{route: route, want: 400, body: chat},
		{route: route, want: 422, idem: "new", body: `{"kind":"llm.chat","input":{"model":"other"}}`},
		{route: route, want: 413, idem: "x", body: huge},
		{route: route, want: 415, idem: "x", body: chat, header: http.Header{"Content-Type": {"text/plain"}}},
		{route: route, want: 401, key: "-", idem: "x", body: chat},
		{route: route, want: 403, key: w.reader, idem: "x", body: chat},
	}
}

func bulkCalls(w world) (calls []specCall) {
	const submit, wait = "POST /v1/tasks/bulk", "POST /v1/tasks/wait"
	bodies := map[string]string{submit: `{"tasks":[{"kind":"none"}]}`, wait: `{"ids":["` + w.pending + `"]}`}
	wrong := map[string]string{submit: w.reader, wait: w.submitter}
	for _, route := range []string{submit, wait} {
		good := bodies[route]
		calls = append(calls,
			specCall{route: route, want: 200, body: good},
			specCall{route: route, want: 400, body: `{}`},
			specCall{route: route, want: 413, body: `{"tasks":["` + strings.Repeat("x", 9<<20) + `"]}`},
			specCall{route: route, want: 415, body: good, header: http.Header{"Content-Type": {"text/plain"}}},
			specCall{route: route, want: 401, body: good, key: "-"},
			specCall{route: route, want: 403, body: good, key: wrong[route]},
		)
	}
	return append(calls,
		specCall{route: submit, want: 200, body: `{"tasks":[{"key":"bulk","kind":"free","input":1},{"key":"bulk","kind":"free"}]}`},
		specCall{route: wait, want: 200, body: `{"ids":["` + w.pending + `","` + w.succeeded + `"]}`},
		specCall{route: wait, want: 404, body: `{"ids":["nosuch"]}`},
		specCall{route: wait, want: 410, body: `{"ids":["` + w.gone + `"]}`},
	)
}

func readCalls(w world) (calls []specCall) {
	const one, input, result, effects, list = "GET /v1/tasks/{id}", "GET /v1/tasks/{id}/input", "GET /v1/tasks/{id}/result", "GET /v1/tasks/{id}/effects", "GET /v1/tasks"
	const attempts, part = "GET /v1/tasks/{id}/attempts", "GET /v1/tasks/{id}/attempts/{epoch}/{part}"
	const timeline, diagnosis = "GET /v1/tasks/{id}/timeline", "GET /v1/tasks/{id}/diagnosis"
	unchanged := http.Header{"If-None-Match": {"*"}}
	for _, id := range []string{w.pending, w.running, w.succeeded, w.failed, w.unknown, w.cancelled} {
		calls = append(calls, specCall{route: one, id: id, want: 200}, specCall{route: one, id: id, want: 304, header: unchanged})
	}
	calls = append(calls,
		specCall{route: one, id: w.pending, query: "?include=queue", want: 200},
		specCall{route: one, id: w.pending, query: "?wait=x", want: 400},
		specCall{route: input, id: w.pending, want: 200},
		specCall{route: input, id: w.pending, want: 304, header: unchanged},
		specCall{route: result, id: w.succeeded, want: 200},
		specCall{route: result, id: w.succeeded, want: 304, header: unchanged},
		specCall{route: result, id: w.pending, want: 409},
		specCall{route: effects, id: w.succeeded, want: 200},
		specCall{route: list, want: 200},
		specCall{route: list, query: "?limit=1", want: 200},
		specCall{route: list, query: "?limit=0", want: 400},
		specCall{route: list, want: 401, key: "-"},
		specCall{route: list, want: 403, key: w.submitter},
	)
	calls = append(calls,
		specCall{route: attempts, id: w.unknown, want: 200},
		specCall{route: timeline, id: w.unknown, want: 200},
		specCall{route: diagnosis, id: w.unknown, want: 200},
		specCall{route: part, id: w.unknown, want: 200},
		specCall{route: part, id: w.unknown, part: "reply", want: 404},
		specCall{route: part, id: w.unknown, part: "nosuch", want: 400},
	)
	for _, route := range []string{one, input, result, effects, attempts, part, timeline, diagnosis} {
		calls = append(calls,
			specCall{route: route, id: "nosuch", want: 404},
			specCall{route: route, id: w.gone, want: 410},
			specCall{route: route, id: w.pending, query: "?nosuch=1", want: 400},
			specCall{route: route, id: w.pending, want: 401, key: "-"},
			specCall{route: route, id: w.pending, want: 403, key: w.submitter},
		)
	}
	return calls
}

func actCalls(w world) (calls []specCall) {
	const cancel, retry, resolve = "POST /v1/tasks/{id}/cancel", "POST /v1/tasks/{id}/retry", "POST /v1/tasks/{id}/resolve"
	bodies := map[string]string{cancel: `{"reason":"r"}`, retry: `{"epoch":1}`, resolve: `{"action":"failed","epoch":1,"reason":"r"}`}
	for _, route := range []string{cancel, retry, resolve} {
		good := bodies[route]
		calls = append(calls,
			specCall{route: route, id: w.succeeded, want: 409, body: good},
			specCall{route: route, id: "nosuch", want: 404, body: good},
			specCall{route: route, id: w.gone, want: 410, body: good},
			specCall{route: route, id: w.unknown, want: 400, body: `{"nosuch":1}`},
			specCall{route: route, id: w.unknown, want: 415, body: good, header: http.Header{"Content-Type": {"text/plain"}}},
			specCall{route: route, id: w.unknown, want: 413, body: `{"reason":"` + strings.Repeat("x", 9<<20) + `"}`},
			specCall{route: route, id: w.unknown, want: 401, body: good, key: "-"},
			specCall{route: route, id: w.unknown, want: 403, body: good, key: w.reader},
		)
	}
	const erase = "DELETE /v1/tasks/{id}/payload"
	return append(calls,
		specCall{route: erase, id: w.pending, want: 409},
		specCall{route: erase, id: w.succeeded, want: 409}, // an effect waits
		specCall{route: erase, id: w.cancelled, want: 200, query: "?reason=asked+for"},
		specCall{route: erase, id: w.cancelled, want: 400, query: "?reason=%00"},
		specCall{route: erase, id: "nosuch", want: 404},
		specCall{route: erase, id: w.gone, want: 410},
		specCall{route: erase, id: w.cancelled, want: 401, key: "-"},
		specCall{route: erase, id: w.cancelled, want: 403, key: w.submitter},
		specCall{route: resolve, id: w.unknown, want: 200, body: fmt.Sprintf(`{"action":"succeeded","epoch":1,"reason":"r","result":%s}`, `{"n": 1.0}`)},
		specCall{route: retry, id: w.retried, want: 200, body: `{"epoch":1}`},
		specCall{route: retry, id: w.failed, want: 409, body: `{"epoch":1}`}, // reopened before
		specCall{route: cancel, id: w.failed, want: 200},
		specCall{route: cancel, id: w.running, want: 202},
		specCall{route: cancel, id: w.pending, want: 200, body: `{"reason":"r"}`},
	)
}

func usageCalls(w world) []specCall {
	const route = "GET /v1/usage"
	return []specCall{
		{route: route, want: 200},
		{route: route, want: 200, query: "?by=day&by=kind&by=model&by=tenant&by=provider&from=2026-01-01&to=2026-01-31"},
		{route: route, want: 400, query: "?by=nosuch"},
		{route: route, want: 400, query: "?from=2024-01-01&to=2026-01-01"},
		{route: route, want: 400, query: "?from=2026-01-02&to=2026-01-01"},
		{route: route, want: 400, query: "?from=yesterday"},
		{route: route, want: 401, key: "-"},
		{route: route, want: 403, key: w.submitter},
	}
}

func serviceCalls() (calls []specCall) {
	for _, route := range []string{"GET /healthz", "GET /readyz", "GET /openapi.yaml", "GET /openapi.json", "GET /docs"} {
		calls = append(calls, specCall{route: route, want: 200, key: "-"}, specCall{route: route, query: "?nosuch=1", want: 400, key: "-"})
	}
	return calls
}

// The page loads nothing from anywhere, and names every operation.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.do(t, call{method: "GET", path: "/docs", key: "-"})
	page := string(r.body)
	if !strings.Contains(r.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("got the policy %q", r.header.Get("Content-Security-Policy"))
	}
	for _, not := range []string{"http://", "https://", "<script", "src=", "@import", "url("} {
		if strings.Contains(page, not) {
			t.Errorf("the page holds %s", not)
		}
	}
	for _, declared := range readSpec(t, b).responses() {
		if path := strings.Fields(declared)[1]; !strings.Contains(page, path) {
			t.Errorf("the page does not name %s", path)
		}
	}
}
