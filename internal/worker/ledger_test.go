package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

const pricedConfig = `
providers:
  p:
    type: fake
    base_url: "http://127.0.0.1:1"
    prices:
      m: {input: "0.40", cached: "0.10", output: "1.60"}
      m-asked: {input: "3"}
kinds:
  k: {provider: p, output: text}
  own: {provider: p, output: text, prices: {m: {input: 1, output: "0.000000000001", reasoning: 2}}}
`

// What each call cost stands in the ledger, on the task and in the report, with
// all its digits; and the report stays the same when the tasks are purged.
func TestLedger(t *testing.T) {
	t.Parallel()
	tokens := provider.Usage{Known: true, InputTokens: 1003, CachedTokens: 3, OutputTokens: 7, ReasoningTokens: 2}
	reply := func(model string) *provider.Response {
		r, _ := ok("x")
		r.Model, r.Usage, r.RequestID = model, tokens, "req-1"
		return r
	}
	b := setupWith(t, pricedConfig, func(_ context.Context, _ int, r provider.Request) (*provider.Response, error) {
		switch r.Key {
		case "cut-then-good":
			if r.Attempt == 1 {
				return nil, cutStream()
			}
			return reply("m"), nil
		case "by-the-model-asked-for":
			return reply("m-asked-2026"), nil
		case "no-price":
			return reply("other"), nil
		case "refused", "not-sent":
			return nil, fails(map[string]provider.Class{"refused": provider.Refused, "not-sent": provider.NotSent}[r.Key], provider.PhaseHeaders)
		}
		return reply("m"), nil
	})
	p := b.process(5 * time.Second)
	ctx := context.Background()
	put := func(kind, key string) task.ID {
		t.Helper()
		asked := "m-asked"
		if key == "no-price" {
			asked = "m-unpriced"
		}
		a, err := b.submit.Submit(ctx, submit.Request{Tenant: "a", Key: key, KeySent: true, Body: fmt.Appendf(nil, `{"kind":%q,"input":{"model":%q}}`, kind, asked)})
		if err != nil {
			t.Fatal(err)
		}
		return a.Row.ID
	}
	for _, c := range []struct {
		kind, key, cost string
		attempts        []string
	}{
		// 1000 × 0.40 + 3 × 0.10 + 5 × 1.60 + 2 × 1.60, by a million
		{"k", "good", "0.0004115", []string{"succeeded m yes 1003 3 7 2 0.0004115"}},
		{"k", "by-the-model-asked-for", "0.003009", []string{"succeeded m-asked-2026 yes 1003 3 7 2 0.003009"}},
		{"k", "no-price", "", []string{"succeeded other yes 1003 3 7 2 -"}},
		{"own", "own", "0.001007000000000005", []string{"succeeded m yes 1003 3 7 2 0.001007000000000005"}},
		{"k", "cut-then-good", "0.0004115", []string{"unknown m-2 yes 0 0 2 0 -", "succeeded m yes 1003 3 7 2 0.0004115"}},
		{"k", "refused", "", []string{"refused m-asked no - - - - -"}},
		{"k", "not-sent", "", []string{"not_sent m-asked no - - - - -"}},
	} {
		id := put(c.kind, c.key)
		p.Work(ctx, id)
		if c.key == "cut-then-good" {
			b.due(id)
			p.Work(ctx, id)
		}
		got := b.strings(`
SELECT concat_ws(' ', outcome, model, billed, coalesce(input_tokens::text, '-'), coalesce(cached_tokens::text, '-'),
    coalesce(output_tokens::text, '-'), coalesce(reasoning_tokens::text, '-'), coalesce(cost::text, '-'))
FROM onefold.attempts WHERE task_id = $1 ORDER BY epoch`, id)
		if diff := cmp.Diff(got, c.attempts); diff != "" {
			t.Errorf("%s: -got +want:\n%s", c.key, diff)
		}
		if r := b.row(id); r.Usage.Cost != c.cost {
			t.Errorf("%s: the task cost %q, want %q", c.key, r.Usage.Cost, c.cost)
		}
	}
	for range 3 { // duplicates that are no calls
		put("k", "good")
	}
	for start := time.Now(); len(b.strings(`SELECT count::text FROM onefold.task_duplicates WHERE count = 3`)) == 0; { // they are counted in batches
		if time.Since(start) > patience {
			t.Fatal("the duplicates were not counted")
		}
	}
	want := []store.UsageRow{
		{Kind: "k", Model: "m", Calls: 2, Succeeded: 2, Regenerations: 1, Input: 2006, Cached: 6, Output: 14, Reasoning: 4, Cost: "0.000823", SavedCalls: 3, SavedInput: 3009, SavedOutput: 21, SavedCost: "0.0012345"},
		{Kind: "k", Model: "m-2", Calls: 1, Orphaned: 1, Output: 2},
		{Kind: "k", Model: "m-asked", Calls: 1},
		{Kind: "k", Model: "m-asked-2026", Calls: 1, Succeeded: 1, Input: 1003, Cached: 3, Output: 7, Reasoning: 2, Cost: "0.003009"},
		{Kind: "k", Model: "other", Calls: 1, Succeeded: 1, Input: 1003, Cached: 3, Output: 7, Reasoning: 2},
		{Kind: "own", Model: "m", Calls: 1, Succeeded: 1, Input: 1003, Cached: 3, Output: 7, Reasoning: 2, Cost: "0.001007000000000005"},
	}
	check := func(when string) {
		t.Helper()
		today := time.Now().UTC()
		got, err := store.Usage(ctx, b.pool, "a", "", today.AddDate(0, 0, -1), today.AddDate(0, 0, 1), store.UsageBy{Kind: true, Model: true}, 100)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: -got +want:\n%s", when, diff)
		}
		for _, elsewhere := range []struct {
			tenant string
			first  time.Time
		}{{"b", today}, {"a", today.AddDate(0, 0, 2)}} {
			none, err := store.Usage(ctx, b.pool, elsewhere.tenant, "", elsewhere.first, elsewhere.first, store.UsageBy{}, 100)
			if err != nil || len(none) != 0 {
				t.Errorf("%s: tenant %s has %+v, %v", when, elsewhere.tenant, none, err)
			}
		}
	}
	check("as the calls were made")
	if _, err := b.pool.Exec(ctx, `UPDATE onefold.tasks SET expires_at = now() - interval '1 s' WHERE expires_at IS NOT NULL`); err != nil {
		t.Fatal(err)
	}
	if _, err := p.purger.Round(ctx); err != nil {
		t.Fatal(err)
	}
	if left := b.strings(`SELECT key FROM onefold.tasks ORDER BY key`); !cmp.Equal(left, []string{"not-sent", "refused"}) {
		t.Fatalf("after the purge there are %v", left)
	}
	check("after the purge")
}

// What had come of a reply that was cut when the task was another's already is
// kept, and is no late reply: it is not whole.
func TestLatePart(t *testing.T) {
	t.Parallel()
	inCall, proceed := make(chan struct{}), make(chan struct{})
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) {
		close(inCall)
		<-proceed
		return nil, cutStream()
	})
	stale, fresh := b.process(5*time.Second), b.process(5*time.Second)
	id := b.put("r", "x")
	done := make(chan struct{})
	go func() {
		stale.Work(context.Background(), id)
		close(done)
	}()
	<-inCall
	fresh.up.Reap(context.Background(), map[task.ID]int64{id: 1})
	close(proceed)
	<-done
	if a := b.attempts(id)[0]; a.Outcome != "lost" || string(a.Partial) != "half an" || a.LateAt != nil || a.Billed != api.BilledYes {
		t.Errorf("got %+v", a)
	}
	if r := b.row(id); r.State != api.Unknown || r.Result != nil {
		t.Errorf("the task is %s with %s", r.State, r.Result)
	}
}

// A reply that came when the task was another's is in the ledger with what it
// cost, and on no result.
func TestLateReplyIsPaidFor(t *testing.T) {
	t.Parallel()
	inCall, proceed := make(chan struct{}), make(chan struct{})
	b := setupWith(t, pricedConfig, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
		r, _ := ok("first")
		r.Usage = provider.Usage{Known: true, InputTokens: 10}
		if n == 1 {
			close(inCall)
			<-proceed
		}
		return r, nil
	})
	stale, fresh := b.process(5*time.Second), b.process(5*time.Second)
	id := b.put("k", "x")
	done := make(chan struct{})
	go func() {
		stale.Work(context.Background(), id)
		close(done)
	}()
	<-inCall
	fresh.up.Reap(context.Background(), map[task.ID]int64{id: 1})
	if a := b.attempts(id)[0]; a.Outcome != "lost" || a.Billed != api.BilledUnknown || !a.Orphaned || a.Usage != nil || a.Sends != 1 {
		t.Errorf("once it was lost: %+v", a)
	}
	close(proceed)
	<-done
	a := b.attempts(id)[0]
	if a.Outcome != "lost" || a.Billed != api.BilledYes || a.LateAt == nil || a.Usage == nil || a.Usage.InputTokens != 10 || a.Usage.Cost != "0.000004" {
		t.Errorf("once it had come: %+v, usage %+v", a, a.Usage)
	}
	if r := b.row(id); r.State != api.Pending || r.Result != nil {
		t.Errorf("the task is %s with %s", r.State, r.Result)
	}
}
