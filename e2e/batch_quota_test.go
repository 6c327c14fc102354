package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
)

// The provider's quota runs out under a batch: its lines wait until an operator
// has seen to it, also those whose calls were turned away, and none fails.
func TestBatchWaitsForQuota(t *testing.T) {
	t.Parallel()
	w := proc.New(t, nil)
	if err := w.Model.Script("m", "status=429,code=insufficient_quota"); err != nil {
		t.Fatal(err)
	}
	front := w.API(t)
	w.Worker(t)
	cl := w.Client(t, front)
	var file strings.Builder
	for i := range 60 {
		file.WriteString(strings.Replace(chatLines("m"), `"custom_id":"m"`, fmt.Sprintf(`"custom_id":"row-%d"`, i), 1))
	}
	b, err := cl.UploadBatch(t.Context(), "nightly", strings.NewReader(file.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	proc.Until(t, "the provider held, and all its calls taken back", func() bool {
		return w.Count(t, `SELECT count(*) FROM onefold.gates WHERE state = 'held' AND code = 'quota_exhausted'`) == 1 &&
			w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE state = 'pending'`) == 60
	})
	if b, err = cl.Batch(t.Context(), b.ID); err != nil || b.State != api.BatchRunning || b.Counts.Settled() != 0 {
		t.Errorf("got %+v, %v; want all lines to wait", b, err)
	}
	if err := w.Model.Script("m", "ok"); err != nil {
		t.Fatal(err)
	}
	refused := w.Model.Calls().Received
	key, _, err := auth.Create(t.Context(), w.Pool, auth.NewKey{Tenant: auth.AnyTenant, Name: "operator", Actor: "e2e", Scopes: []api.Scope{api.ScopeAdmin}})
	if err != nil {
		t.Fatal(err)
	}
	operator, err := client.New(front.URL(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.ReleaseProvider(t.Context(), "model", "paid the bill"); err != nil {
		t.Fatal(err)
	}
	if b, err = cl.WaitBatch(t.Context(), b.ID, nil); err != nil || b.Counts != (api.BatchCounts{Succeeded: 60}) {
		t.Errorf("got %+v, %v", b, err)
	}
	if n := w.Model.Calls().Received - refused; n != 60 {
		t.Errorf("%d calls once there was quota again, want one a line", n)
	}
	if n := w.Count(t, `SELECT coalesce(max(attempts), 0) FROM onefold.tasks`); n != 1 {
		t.Errorf("a line used %d attempts, want what was turned away not to count", n)
	}
}
