package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// backgroundConfig has a kind whose calls may be repeated and one whose may not,
// both of a provider that works in the background.
const backgroundConfig = `
retention: {tasks: 720h}
providers:
  jobs: {type: openai, base_url: "{{FAKELLM}}", api: responses, mode: background, timeouts: {connect: 5s, first_byte: 60s, idle: 60s, total: 90s}}
kinds:
  free: {provider: jobs, on_unknown: retry, output: text}
  careful: {provider: jobs, on_unknown: review, output: text}
`

// A worker is killed, stopped or told to end while it waits for jobs that it
// started. Another one asks for the same jobs: nothing is submitted a second
// time, and what may not be repeated needs no person.
func TestBackgroundAfterSignals(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGSTOP": syscall.SIGSTOP, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := proc.New(t, &proc.Opts{Config: backgroundConfig})
			front := w.API(t)
			cl := w.Client(t, front)
			var ids []string
			for i, kind := range []string{"free", "free", "careful", "careful"} {
				input := fmt.Appendf(nil, `{"model":"fake:stall=1","input":"work %d"}`, i)
				got, err := cl.Submit(t.Context(), fmt.Sprint("job-", i), api.Submit{Kind: kind, Input: input}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, got.ID)
			}
			first := w.Worker(t, "--grace", "1s")
			proc.Until(t, "all jobs are stored", func() bool {
				return w.Count(t, `SELECT count(*) FROM onefold.attempts WHERE provider_job IS NOT NULL`) == len(ids)
			})
			if err := first.Signal(signal); err != nil {
				t.Fatal(err)
			}
			w.Worker(t)
			proc.Until(t, "another worker waits for the jobs", func() bool {
				return w.Count(t, `SELECT count(*) FROM onefold.attempts WHERE closed_at IS NULL AND provider_job IS NOT NULL AND epoch > 1`) == len(ids)
			})
			w.Model.EndJobs()
			drained(t, w)
			if signal == syscall.SIGSTOP {
				first.Resume(t)
				proc.Until(t, "the stopped worker knows that its lease is lost", func() bool {
					return w.Count(t, `SELECT count(*) FROM onefold.workers WHERE stopped_at IS NULL AND expires_at > now()`) >= 2
				})
			}
			calls := w.Model.Calls()
			for i, id := range ids {
				got, err := cl.Get(t.Context(), id, nil)
				if err != nil || got.State != api.Succeeded || string(got.Result) != fmt.Sprintf(`"work %d"`, i) || got.Attempts != 1 || got.Usage.Billed != api.BilledYes {
					t.Errorf("task %d: got %+v, %v; want it succeeded with one attempt used", i, got, err)
				}
				if n := calls.ByTask[id]; n != 1 {
					t.Errorf("task %d was submitted %d times, want once", i, n)
				}
				all, err := cl.Attempts(t.Context(), id)
				if err != nil || len(all) < 2 {
					t.Errorf("task %d: %d attempts, %v; want 2", i, len(all), err)
					continue
				}
				a, b := all[0], all[len(all)-1]
				if a.Billed != api.BilledNo || a.Sends != 1 || b.Outcome != "succeeded" || b.Sends != 0 || b.Billed != api.BilledYes || b.Regeneration {
					t.Errorf("task %d: the ledger says %+v, then %+v", i, a, b)
				}
			}
			if calls.Received != len(ids) || calls.Completed != len(ids) {
				t.Errorf("the provider counts %+v", calls)
			}
		})
	}
}
