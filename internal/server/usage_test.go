package server_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

// A tenant's key sees its own calls only, whatever it asks to be told apart; an
// instance key sees all.
func TestUsage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	theirs := b.key(t, "b", api.ScopeSubmit, api.ScopeRead)
	ids := map[string]string{"a": b.submit(t, "k", chat).task.ID}
	ids["b"] = b.do(t, call{method: "POST", path: "/v1/tasks", key: theirs, idem: "k", body: chat}).task.ID
	for tenant, id := range ids {
		_, err := b.DB.Exec(context.Background(), `
INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, claimed_at, dispatched_at, closed_at, outcome, model,
    input_tokens, output_tokens, cost, billed)
VALUES ($1, 1, 1, 1, gen_random_uuid(), gen_random_uuid(), 'openai', '', '2026-03-01 23:59:59+00', now(), now(), 'succeeded', 'm-' || $2, 3, 4, 0.50, 'yes')`, id, tenant)
		if err != nil {
			t.Fatal(err)
		}
	}
	report := func(key, query string) []api.UsageRow {
		t.Helper()
		r := b.do(t, call{method: "GET", path: "/v1/usage?from=2026-03-01&to=2026-03-01" + query, key: key})
		var page api.List[api.UsageRow]
		if err := json.Unmarshal(r.body, &page); err != nil {
			t.Fatalf("%s: %v", r.body, err)
		}
		return page.Items
	}
	mine := api.UsageRow{Day: "2026-03-01", Tenant: "a", Kind: "llm.chat", Provider: "openai", Model: "m-a", Calls: 1, Succeeded: 1, InputTokens: 3, OutputTokens: 4, Cost: "0.5"}
	if diff := cmp.Diff(report("", "&by=tenant&by=model&by=day&by=kind&by=provider"), []api.UsageRow{mine}); diff != "" {
		t.Errorf("their own: -got +want:\n%s", diff)
	}
	if diff := cmp.Diff(report(theirs, ""), []api.UsageRow{{Calls: 1, Succeeded: 1, InputTokens: 3, OutputTokens: 4, Cost: "0.5"}}); diff != "" {
		t.Errorf("the other's: -got +want:\n%s", diff)
	}
	admin := b.key(t, "*", api.ScopeRead, api.ScopeAdmin)
	if diff := cmp.Diff(report(admin, ""), []api.UsageRow{{Calls: 2, Succeeded: 2, InputTokens: 6, OutputTokens: 8, Cost: "1"}}); diff != "" {
		t.Errorf("an instance key's: -got +want:\n%s", diff)
	}
	if got := report(admin, "&kind=other"); len(got) != 0 {
		t.Errorf("of another kind: %+v", got)
	}
	if got := b.do(t, call{method: "GET", path: "/v1/usage?from=2026-03-02&to=2026-03-02"}); string(got.body) != "{\"items\":[],\"next\":null}\n" {
		t.Errorf("of a day without calls: %s", got.body)
	}
}
