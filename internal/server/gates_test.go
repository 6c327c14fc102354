package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/internal/auth"
)

// operator is the key of an instance's operator.
func (b *bundle) operator(t *testing.T) string {
	t.Helper()
	secret, _, err := auth.Create(context.Background(), b.DB, auth.NewKey{Tenant: auth.AnyTenant, Name: "ops-" + uuid.NewString(), Scopes: []api.Scope{api.ScopeAdmin}, Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func (b *bundle) client(t *testing.T, key string) *client.Client {
	t.Helper()
	c, err := client.New(b.URL, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A tenant holds what is its own and nothing else; its submits are refused with
// the time to come back, while duplicates are answered; the operator sees it and
// takes it away.
func TestHoldsOverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	own, ops := b.client(t, b.Key), b.client(t, b.operator(t))
	before := b.submit(t, "before", chat)
	h, err := own.Hold(ctx, api.NewHold{Kind: "llm.chat", Stops: []api.Stop{api.StopSubmits}, Reason: "a test"})
	if err != nil || h.Tenant != "a" {
		t.Fatalf("got %+v, %v, want a hold of tenant a", h, err)
	}
	if r := b.submit(t, "after", chat); r.status != 503 || r.problem.Code != api.CodeHeld || r.header.Get("Retry-After") == "" {
		t.Errorf("a new submit: got %d %s, want 503 held with Retry-After", r.status, r.body)
	}
	if r := b.submit(t, "before", chat); r.status != 200 || r.task.ID != before.task.ID {
		t.Errorf("a duplicate: got %d %s, want its task", r.status, r.body)
	}
	if r := b.do(t, call{method: "POST", path: "/v1/tasks", key: b.key(t, "b", api.ScopeSubmit), idem: "x", body: chat}); r.status != 202 {
		t.Errorf("another tenant: got %d %s, want 202", r.status, r.body)
	}
	if _, err := own.Hold(ctx, api.NewHold{Tenant: "b", Reason: "not mine"}); err == nil {
		t.Error("a tenant held another")
	}
	other := b.client(t, b.key(t, "b", api.ScopeOperate))
	if all, err := other.Holds(ctx); err != nil || len(all) != 0 {
		t.Errorf("another tenant sees %v (%v)", all, err)
	}
	if _, err := other.Release(ctx, h.ID, "not mine"); err == nil {
		t.Error("a tenant released another's hold")
	}
	if all, err := ops.Holds(ctx); err != nil || len(all) != 1 || all[0].ID != h.ID || all[0].Reason != "a test" {
		t.Errorf("the operator sees %v (%v)", all, err)
	}
	if _, err := ops.Release(ctx, h.ID, "over"); err != nil {
		t.Fatal(err)
	}
	if r := b.submit(t, "after", chat); r.status != 202 {
		t.Errorf("after the release: got %d %s, want 202", r.status, r.body)
	}
}

// An operator closes and opens a provider; a tenant's key cannot even look.
func TestProvidersOverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	ops := b.client(t, b.operator(t))
	b.submit(t, "k", chat)
	if _, err := b.client(t, b.Key).Providers(ctx); err == nil {
		t.Error("a tenant's key sees the providers")
	}
	all, err := ops.Providers(ctx)
	if err != nil || len(all) != 1 || all[0].Name != "openai" || all[0].State != api.GateOpen || all[0].Waiting != 1 || all[0].Workers != 0 {
		t.Fatalf("got %+v (%v), want openai open with one task waiting and no worker", all, err)
	}
	if g, err := ops.HoldProvider(ctx, "openai", "it bills twice"); err != nil || g.State != api.GateHeld || g.Reason != "it bills twice" {
		t.Errorf("got %+v (%v), want it held", g, err)
	}
	if g, err := ops.ReleaseProvider(ctx, "openai", "mended"); err != nil || g.State != api.GateOpen {
		t.Errorf("got %+v (%v), want it open", g, err)
	}
	if _, err := ops.HoldProvider(ctx, "nosuch", "r"); err == nil {
		t.Error("a provider that is not there was held")
	}
}

func gateCalls(t *testing.T, b *bundle, w world) []specCall {
	t.Helper()
	const list, set, take = "GET /v1/holds", "POST /v1/holds", "DELETE /v1/holds/{id}"
	const providers, hold, release = "GET /v1/providers", "POST /v1/providers/{name}/hold", "POST /v1/providers/{name}/release"
	ops := b.operator(t)
	r := b.do(t, call{method: "POST", path: "/v1/holds", body: `{"kind":"nosuch","reason":"r"}`})
	var h api.Hold
	if err := json.Unmarshal(r.body, &h); err != nil {
		t.Fatal(err)
	}
	huge := `{"reason":"` + strings.Repeat("x", 17<<10) + `"}`
	plain := http.Header{"Content-Type": {"text/plain"}}
	calls := []specCall{
		{route: list, want: 200},
		{route: list, want: 401, key: "-"},
		{route: list, want: 403, key: w.submitter},
		{route: set, want: 201, body: `{"kind":"nosuch","stops":["retries"],"reason":"r"}`},
		{route: set, want: 400, body: `{"kind":"nosuch","stops":["all"],"reason":"r"}`},
		{route: set, want: 400, body: `{"kind":"nosuch"}`},
		{route: set, want: 400, body: `{"kind":"a","kind":"b","reason":"r"}`},
		{route: set, want: 403, body: `{"tenant":"b","reason":"r"}`},
		{route: set, want: 413, body: huge},
		{route: set, want: 415, body: `{"reason":"r"}`, header: plain},
		{route: set, want: 401, key: "-", body: `{"reason":"r"}`},
		{route: take, id: h.ID, want: 200},
		{route: take, id: h.ID, want: 404},
		{route: take, id: h.ID, want: 401, key: "-"},
		{route: take, id: h.ID, want: 403, key: w.submitter},
		{route: take, id: h.ID, query: "?nosuch=1", want: 400},
		{route: providers, want: 200, key: ops},
		{route: providers, want: 401, key: "-"},
		{route: providers, want: 403},
		{route: providers, want: 400, key: ops, query: "?nosuch=1"},
		{route: list, want: 400, query: "?nosuch=1"},
	}
	for _, route := range []string{hold, release} {
		calls = append(calls,
			specCall{route: route, id: "openai", want: 200, key: ops, body: `{"reason":"r"}`},
			specCall{route: route, id: "openai", want: 400, key: ops, body: `{"reason":1}`},
			specCall{route: route, id: "nosuch", want: 404, key: ops, body: `{"reason":"r"}`},
			specCall{route: route, id: "openai", want: 413, key: ops, body: huge},
			specCall{route: route, id: "openai", want: 415, key: ops, body: `{"reason":"r"}`, header: plain},
			specCall{route: route, id: "openai", want: 401, key: "-", body: `{"reason":"r"}`},
			specCall{route: route, id: "openai", want: 403, body: `{"reason":"r"}`},
		)
	}
	return calls
}
