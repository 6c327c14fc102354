package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/seal"
)

// ring seals in all test servers.
var ring = seal.NewKey("test")

const doorBody = `{"url":"https://93.184.216.34/hook?token=s3cret","tenants":["a"],"repeat":"safe"}`

// An operator makes a destination, whose secret is told once; a tenant's submit may name it at once; it is rotated, held,
// released and deleted. A tenant's key cannot even look.
func TestDestinationsOverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	ops := b.client(t, b.operator(t))
	if _, err := b.client(t, b.Key).Destinations(ctx); !errors.Is(err, api.ErrForbidden) {
		t.Errorf("a tenant's key: got %v, want forbidden", err)
	}
	const url = "https://93.184.216.34/hook?token=s3cret"
	put, err := ops.PutDestination(ctx, "hook", api.PutDestination{URL: url, Tenants: []string{"a"}})
	if err != nil || !put.Created || !strings.HasPrefix(put.Secret, "whsec_") {
		t.Fatalf("got %+v (%v), want it made, with a secret", put, err)
	}
	const withEffect = `{"kind":"llm.chat","input":{"model":"m"},"effects":[{"name":"tell","type":"webhook","destination":"hook"}]}`
	if r := b.submit(t, "k", withEffect); r.status != 202 {
		t.Errorf("a submit that names it: got %d %s", r.status, r.body)
	}
	if r := b.do(t, call{method: "POST", path: "/v1/tasks", key: b.key(t, "b", api.ScopeSubmit), idem: "k", body: withEffect}); r.status != 400 {
		t.Errorf("another tenant's submit: got %d %s, want 400", r.status, r.body)
	}
	d, err := ops.Destination(ctx, "hook")
	if err != nil || d.Source != api.SourceStored || d.State != api.GateOpen || strings.Contains(d.URL, "s3cret") || len(d.Secrets) != 1 {
		t.Errorf("got %+v (%v)", d, err)
	}
	rotated, err := ops.RotateSecret(ctx, "hook", api.RotateSecret{Reason: "yearly"})
	if err != nil || rotated.Overlap != "168h0m0s" || rotated.Secret == put.Secret || rotated.Secret == "" {
		t.Errorf("got %+v (%v), want a new secret and 7 days", rotated, err)
	}
	if g, err := ops.HoldDestination(ctx, "hook", "duplicates"); err != nil || g.State != api.GateHeld {
		t.Errorf("hold: %+v (%v)", g, err)
	}
	if g, err := ops.ReleaseDestination(ctx, "hook", "mended"); err != nil || g.State != api.GateOpen {
		t.Errorf("release: %+v (%v)", g, err)
	}
	if _, err := ops.TestDestination(ctx, "hook", ""); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("a test without a worker: got %v, want unavailable", err)
	}
	if all, err := ops.Destinations(ctx); err != nil || len(all) != 2 || len(all[1].Secrets) != 2 || all[1].Secrets[1].RetiresAt == nil {
		t.Errorf("got %+v (%v), want two secrets, one of which retires", all, err)
	}
	if err := ops.DeleteDestination(ctx, "hook"); err != nil {
		t.Error(err)
	}
	if _, err := ops.Destination(ctx, "hook"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("after it was deleted: got %v", err)
	}
	if log := b.Log.String(); strings.Contains(log, "s3cret") || strings.Contains(log, put.Secret) {
		t.Error("the log tells a secret")
	}
}

// answerTests says of every test that it was accepted, as a worker would, until t ends.
func (b *bundle) answerTests(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = b.DB.Exec(ctx, `UPDATE onefold.destination_tests SET started_at = now(), finished_at = now(), class = 'answered', status = 200 WHERE started_at IS NULL`)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func destinationCalls(t *testing.T, b *bundle) []specCall {
	t.Helper()
	const list, one = "GET /v1/destinations", "/v1/destinations/{name}"
	const put, get, del, rotate, test = "PUT " + one, "GET " + one, "DELETE " + one, "POST " + one + "/rotate", "POST " + one + "/test"
	ops := b.operator(t)
	b.answerTests(t)
	huge := `{"url":"` + strings.Repeat("x", 65<<10) + `"}`
	hugeAct := `{"reason":"` + strings.Repeat("x", 17<<10) + `"}`
	plain := http.Header{"Content-Type": {"text/plain"}}
	calls := []specCall{
		{route: put, id: "hook", want: 201, key: ops, body: doorBody},
		{route: put, id: "hook", want: 200, key: ops, body: doorBody},
		{route: put, id: "hook", want: 400, key: ops, body: `{"url":"http://127.0.0.1/"}`},
		{route: put, id: "filed", want: 409, key: ops, body: doorBody},
		{route: put, id: "hook", want: 413, key: ops, body: huge},
		{route: put, id: "hook", want: 415, key: ops, body: doorBody, header: plain},
		{route: put, id: "hook", want: 401, key: "-", body: doorBody},
		{route: put, id: "hook", want: 403, body: doorBody},
		{route: list, want: 200, key: ops},
		{route: list, want: 401, key: "-"},
		{route: list, want: 403},
		{route: list, want: 400, key: ops, query: "?nosuch=1"},
		{route: get, id: "hook", want: 200, key: ops},
		{route: get, id: "nosuch", want: 404, key: ops},
		{route: get, id: "hook", want: 401, key: "-"},
		{route: get, id: "hook", want: 403},
		{route: get, id: "hook", want: 400, key: ops, query: "?nosuch=1"},
		{route: rotate, id: "hook", want: 200, key: ops, body: `{"reason":"r","overlap":"1h"}`},
		{route: rotate, id: "hook", want: 400, key: ops, body: `{"overlap":"-1h"}`},
		{route: rotate, id: "hook", want: 400, key: ops, body: `{"overlap":"soon"}`},
		{route: rotate, id: "filed", want: 409, key: ops, body: `{}`},
		{route: test, id: "hook", want: 200, key: ops, body: `{}`},
		{route: test, id: "hook", want: 400, key: ops, body: `{"to":"a@b.example"}`},
	}
	for _, route := range []string{"POST " + one + "/hold", "POST " + one + "/release"} {
		calls = append(calls,
			specCall{route: route, id: "hook", want: 200, key: ops, body: `{"reason":"r"}`},
			specCall{route: route, id: "hook", want: 400, key: ops, body: `{"reason":1}`},
		)
	}
	for _, route := range []string{rotate, test, "POST " + one + "/hold", "POST " + one + "/release"} {
		calls = append(calls,
			specCall{route: route, id: "nosuch", want: 404, key: ops, body: `{}`},
			specCall{route: route, id: "hook", want: 413, key: ops, body: hugeAct},
			specCall{route: route, id: "hook", want: 415, key: ops, body: `{}`, header: plain},
			specCall{route: route, id: "hook", want: 401, key: "-", body: `{}`},
			specCall{route: route, id: "hook", want: 403, body: `{}`},
		)
	}
	for i := range calls {
		if calls[i].id == "nosuch" && strings.HasSuffix(calls[i].route, "hold") {
			calls[i].body = `{"reason":"r"}`
		}
	}
	return append(calls,
		specCall{route: del, id: "filed", want: 409, key: ops}, specCall{route: del, id: "nosuch", want: 404, key: ops},
		specCall{route: del, id: "hook", want: 401, key: "-"}, specCall{route: del, id: "hook", want: 403}, specCall{route: del, id: "hook", want: 400, key: ops, query: "?nosuch=1"},
		specCall{route: del, id: "hook", want: 204, key: ops})
}
