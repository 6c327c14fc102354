package e2e

import (
	"net/http/httptest"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/seal"
)

// A destination made through the API while api and worker run: a test reaches
// its receiver signed, a submit's effect goes there, and both are signed by the
// secret that was given, through a rotation.
func TestDestinationMadeWhileRunning(t *testing.T) {
	t.Parallel()
	w := proc.New(t, &proc.Opts{Env: []string{"ONEFOLD_SEAL_KEYS=" + seal.NewKey("k")}})
	hooks := httptest.NewServer(w.Receiver)
	t.Cleanup(hooks.Close)
	a := w.API(t)
	w.Worker(t)
	key, _, err := auth.Create(t.Context(), w.Pool, auth.NewKey{Tenant: auth.AnyTenant, Name: "ops", Scopes: []api.Scope{api.ScopeAdmin}, Actor: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := client.New(a.URL(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, err = ops.PutDestination(ctx, "late", api.PutDestination{URL: hooks.URL, AllowPrivate: true, Tenants: []string{"e2e"}, Repeat: "safe", Secret: proc.Secret})
	if err != nil {
		t.Fatal(err)
	}
	tested, err := ops.TestDestination(ctx, "late", "")
	if err != nil || !tested.Accepted || len(tested.SignedBy) != 1 {
		t.Fatalf("got %+v (%v), want it accepted, signed once", tested, err)
	}
	if _, err := ops.RotateSecret(ctx, "late", api.RotateSecret{}); err != nil {
		t.Fatal(err)
	}
	task, err := w.Client(t, a).Submit(ctx, "k", api.Submit{
		Kind: "llm.chat", Input: []byte(`{"model":"fake:ok","messages":[{"role":"user","content":"hi"}]}`),
		Effects: []byte(`[{"name":"tell","type":"webhook","destination":"late"}]`),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	proc.Until(t, "the effect is delivered", func() bool {
		return w.Count(t, `SELECT count(*) FROM onefold.effects WHERE task_id = $1 AND state = 'delivered'`, task.ID) == 1
	})
	if n := w.Receiver.Bad(); n != 0 {
		t.Errorf("%d deliveries did not verify with the secret from before the rotation", n)
	}
	if got := len(w.Receiver.Received()); got != 2 {
		t.Errorf("%d ids came, want that of the test and that of the effect", got)
	}
}
