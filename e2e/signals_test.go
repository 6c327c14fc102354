package e2e

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// breakOff answers the first call of each task up to a phase and then says
// nothing more; the next one it answers.
func (s *stage) breakOff(phase string) {
	s.up.answer(phase, func(a *answering) {
		if s.nth(a) > 1 {
			a.say("again")
			return
		}
		if phase != "written" {
			a.Header().Set("Content-Type", "text/event-stream")
			a.WriteHeader(http.StatusOK)
			if phase == "token" {
				_, _ = a.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half an\"}}]}\n\n"))
			}
			_ = http.NewResponseController(a.ResponseWriter).Flush()
		}
		<-a.r.Context().Done()
	})
}

// A worker is killed, stopped or told to end while its calls are in each of
// their phases. No task is lost, none is called more often than it may be, and
// where a second call may do harm there is none.
func TestSignalsInEachPhase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		ended  string // how the ledger says the first attempt ended
		used   int    // attempts that the repeated tasks used
	}{
		{"SIGKILL", syscall.SIGKILL, "lost", 2},
		{"SIGSTOP", syscall.SIGSTOP, "lost", 2},
		{"SIGTERM", syscall.SIGTERM, "released", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			phases := []string{"written", "headers", "token"}
			first := s.Worker(t, "--grace", "1s")
			for _, phase := range phases {
				s.breakOff(phase)
				s.submit(t, "free", "free-"+phase, phase)
			}
			s.submit(t, "short", "careful", "written") // reviewed, with a short total timeout
			for _, phase := range phases {
				n := 1
				if phase == "written" {
					n = 2
				}
				s.up.await(t, phase, n)
			}
			if err := first.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			s.Worker(t)
			drained(t, s.World)
			s.judge(t, phases, c.ended, c.used)
			if c.signal == syscall.SIGSTOP {
				first.Resume(t)
				proc.Until(t, "the stopped worker knows that its lease is lost", func() bool {
					return s.Count(t, `SELECT count(*) FROM onefold.workers WHERE stopped_at IS NULL AND expires_at > now()`) >= 2
				})
				s.judge(t, phases, c.ended, c.used)
			}
		})
	}
}

// judge checks what became of the tasks.
func (s *stage) judge(t *testing.T, phases []string, ended string, used int) {
	t.Helper()
	cl := s.Client(t, s.front)
	for _, phase := range phases {
		got, err := cl.Find(t.Context(), "free", "free-"+phase)
		if err != nil || got.State != api.Succeeded || contentOf(t, got.Result) != "again" || got.Attempts != used {
			t.Errorf("%s: got %+v, %v; want it succeeded with %d attempts used", phase, got, err, used)
			continue
		}
		all, err := cl.Attempts(t.Context(), got.ID)
		if err != nil || len(all) != 2 {
			t.Errorf("%s: %d attempts, %v; want 2", phase, len(all), err)
			continue
		}
		if a, b := all[0], all[1]; a.Outcome != ended || a.Billed == api.BilledNo || !a.Orphaned || a.Sends != 1 || b.Outcome != "succeeded" || !b.Regeneration {
			t.Errorf("%s: the ledger says %+v, then %+v", phase, a, b)
		}
	}
	got, err := cl.Find(t.Context(), "short", "careful")
	if err != nil || got.State != api.Unknown || got.Error == nil || got.Error.Code != "outcome_unknown" || got.Usage == nil || got.Usage.Billed != api.BilledUnknown {
		t.Errorf("reviewed: got %+v, %v; want it unknown", got, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.tasks {
		if most := map[bool]int{true: 1, false: 2}[got != nil && id == got.ID]; n != most {
			t.Errorf("task %s was called for %d times, want %s", id, n, fmt.Sprint(most))
		}
	}
}
