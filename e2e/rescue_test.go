package e2e

import (
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// TestRescueBelowTimeout: River takes a job that overruns its rescue for stuck
// and starts it a second time, so a worker does not start with a rescue that is
// below what a task may take.
func TestRescueBelowTimeout(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "e2e.TestRescueBelowTimeout") {
		w := proc.New(t, nil)
		_, err := w.Start(proc.WorkerSpec("--rescue-after", "1s"))
		if err == nil || !strings.Contains(err.Error(), "--rescue-after") {
			t.Errorf("%s: got %v, want a refusal that names the flag", c.ID, err)
		}
	}
}
