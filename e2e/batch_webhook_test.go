package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// The destination named with a batch is told of its end once, signed, also where
// the first delivery is refused; and of its expiry with the results so far.
func TestBatchEndIsTold(t *testing.T) {
	t.Parallel()
	w := proc.New(t, &proc.Opts{Config: strings.Replace(proc.DefaultConfig, "repeat: safe,", "repeat: safe, tenants: [e2e],", 1), Answer: func(_ string, _ []byte, n int) int {
		if n == 1 {
			return 503
		}
		return 204
	}})
	front := w.API(t)
	w.Worker(t)
	cl := w.Client(t, front)
	if err := w.Model.Script("never", "latency=60s"); err != nil {
		t.Fatal(err)
	}
	ends := map[string]struct {
		models   []string
		deadline time.Duration
		counts   api.BatchCounts
	}{
		"batch.completed": {[]string{"fake:ok", "fake:status=400"}, 0, api.BatchCounts{Succeeded: 1, Failed: 1}},
		"batch.expired":   {[]string{"fake:ok", "never"}, 3 * time.Second, api.BatchCounts{Succeeded: 1, Failed: 1}},
	}
	for what, e := range ends {
		b, err := cl.UploadBatch(t.Context(), what, strings.NewReader(chatLines(e.models...)), &client.BatchOpts{Webhook: "crm", Deadline: e.deadline})
		if err != nil {
			t.Fatal(err)
		}
		if b, err = cl.WaitBatch(t.Context(), b.ID, nil); err != nil || b.Counts != e.counts || "batch."+string(b.State) != what {
			t.Errorf("%s: got %+v, %v", what, b, err)
		}
		if order, said := outputOf(t, cl, b.ID); len(order) != 2 || said["fake:ok"] != "hi" {
			t.Errorf("%s: the results are %v %v", what, order, said)
		}
	}
	proc.Until(t, "both ends told", func() bool {
		taken := 0
		for _, got := range w.Receiver.Received() {
			taken += got.Taken
		}
		return taken == len(ends)
	})
	for id, got := range w.Receiver.Received() {
		var told struct {
			Type string
			Data api.Batch
		}
		if err := json.Unmarshal(got.Body, &told); err != nil || got.Taken != 1 || got.Differ != 0 || told.Data.Counts != ends[told.Type].counts || told.Data.Key != told.Type {
			t.Errorf("%s: got %+v %s, %v", id, got, got.Body, err)
		}
	}
	if w.Receiver.Bad() != 0 {
		t.Error("a delivery had a wrong signature")
	}
}
