package e2e

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// before is the commit whose programs must work beside today's: the schema only
// grew since. It moves on when the schema contracts, which is when nothing that
// old may run any more.
const before = "a139d3087518682a553844f83d2422e74c5e0b96"

// During a rolling upgrade the schema is today's and programs of before and of
// today serve one database. A key means one task whichever api it reaches, each
// worker does what the other's api took in, and one of before that is killed is
// replaced by one of today.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	if !proc.HasCommit(before) {
		t.Skipf("the history here does not reach back to %.7s: clone it whole (git fetch --unshallow)", before)
	}
	w := proc.New(t, nil)
	old := proc.Bin(t, proc.Build{Commit: before})
	start := func(s proc.Spec, bin string) *proc.Process {
		t.Helper()
		s.Bin = bin
		p, err := w.Start(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	oldAPI, oldWorker := start(proc.APISpec(), old), start(proc.WorkerSpec(), old)
	const keys, each = 30, 12
	storm := func(prefix string, s *senders) {
		t.Helper()
		var shots []*shot
		for i := range keys * each {
			k := strconv.Itoa(i % keys)
			shots = append(shots, &shot{key: prefix + k, body: work("fake:latency=100ms", prefix+k)})
		}
		s.fire(t, shots)
		statuses, ids := tally(shots)
		if diff := cmp.Diff(statuses, map[int]int{202: keys, 200: keys * (each - 1)}); diff != "" || len(ids) != keys {
			t.Errorf("%s: got %d ids; statuses: -got +want:\n%s", prefix, len(ids), diff)
		}
	}
	storm("old-only", newSenders(t, w, oldAPI))
	newAPI := w.API(t)
	storm("new-api-old-worker", newSenders(t, w, oldAPI, newAPI))
	w.Worker(t)
	both := newSenders(t, w, oldAPI, newAPI)
	storm("both", both)
	oldWorker.Kill(t) // with what it had claimed
	storm("old-api-new-worker", newSenders(t, w, oldAPI))
	oldAPI.Stop(t)
	storm("new-only", newSenders(t, w, newAPI))
	drained(t, w)
	all := 5 * keys
	if n := w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE state = $1`, string(api.Succeeded)); n != all {
		t.Errorf("%d tasks succeeded, want %d", n, all)
	}
	if n := w.Count(t, `SELECT count(*) FROM onefold.effects WHERE state = 'delivered'`); n != all {
		t.Errorf("%d effects delivered, want %d", n, all)
	}
}
