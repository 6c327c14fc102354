//go:build failpoints

package failpoints

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/failpoint"
)

func TestMain(m *testing.M) {
	// Scenarios wait more than they work: for leases, pauses, stalls.
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	proc.Main(m)
}

// Which process is brought to a point.
const (
	atAPI    = "api"
	atWorker = "worker"
	atCLI    = "onefold" // an operator's command; nothing else is armed then
)

// plan is how a process is brought to a point. The usual work of a run reaches
// most of them; the others name what more it takes.
type plan struct {
	process string
	// nth is which hit counts; the first if 0.
	nth int
	// also arms other points, as in "name=error".
	also string
	// before is done before the armed worker starts.
	before func(*run)
	// answer is the receiver's, which otherwise takes everything.
	answer func(id string, body []byte, n int) int
	// bound gives the destinations a bound on what is under way.
	bound bool
	// bring is done beside the usual work.
	bring func(*run)
}

var plans = map[failpoint.Point]plan{
	failpoint.SubmitBeforeInsert:  {process: atAPI},
	failpoint.SubmitAfterInsert:   {process: atAPI},
	failpoint.SubmitAfterCommit:   {process: atAPI},
	failpoint.SubmitBeforeNotify:  {process: atAPI},
	failpoint.ReopenBeforeCommit:  {process: atAPI, bring: (*run).reopen},
	failpoint.CancelBeforeCommit:  {process: atAPI, bring: (*run).cancel},
	failpoint.ResolveBeforeCommit: {process: atAPI, bring: (*run).resolve},
	failpoint.EraseBeforeCommit:   {process: atAPI, bring: (*run).erase},
	failpoint.ActAfterCommit:      {process: atAPI, bring: (*run).resolve},

	failpoint.EffectActBeforeCommit: {process: atAPI, answer: rejectFirst, bring: (*run).redeliver},
	failpoint.EffectActAfterCommit:  {process: atAPI, answer: rejectFirst, bring: (*run).redeliver},

	failpoint.WorkFetched:          {process: atWorker},
	failpoint.ClaimBeforeUpdate:    {process: atWorker},
	failpoint.ClaimBeforeCommit:    {process: atWorker},
	failpoint.ClaimAfterCommit:     {process: atWorker},
	failpoint.DispatchBeforeMark:   {process: atWorker},
	failpoint.DispatchAfterMark:    {process: atWorker},
	failpoint.JobStarted:           {process: atWorker},
	failpoint.JobBeforeStore:       {process: atWorker},
	failpoint.JobAfterStore:        {process: atWorker},
	failpoint.CallAfter:            {process: atWorker},
	failpoint.FinishBeforeUpdate:   {process: atWorker},
	failpoint.FinishAfterUpdate:    {process: atWorker},
	failpoint.FinishAfterEffects:   {process: atWorker},
	failpoint.FinishAfterCommit:    {process: atWorker},
	failpoint.RequeueBeforeCommit:  {process: atWorker},
	failpoint.HeartbeatBefore:      {process: atWorker},
	failpoint.IncarnationRegisters: {process: atWorker, nth: 2, bring: (*run).loseTheLease},
	failpoint.LateBeforeKeep:       {process: atWorker, also: callReturned + "=stall:4s@all", bring: (*run).overtake},
	failpoint.SignOffBefore:        {process: atWorker, bring: (*run).stopGracefully},

	failpoint.ReapBeforeCommit:         {process: atWorker, before: (*run).leaveATaskBehind},
	failpoint.ReapAfterCommit:          {process: atWorker, before: (*run).leaveATaskBehind},
	failpoint.SweepBeforeCommit:        {process: atWorker, also: "worker.fetched=error"},
	failpoint.PurgeBeforeCommit:        {process: atWorker, bring: (*run).expireAKey},
	failpoint.PurgePayloadBeforeCommit: {process: atWorker, bring: (*run).expireAPayload},
	failpoint.ExpireBeforeCommit:       {process: atWorker, bring: (*run).missADeadline},
	failpoint.EffectsBeforeCommit:      {process: atWorker, also: "outbox.fetched=error"},

	failpoint.ReconcileBeforeCommit: {process: atWorker, before: (*run).strayWake},

	failpoint.UnparkBeforeCommit: {process: atWorker, before: (*run).holdAKind, bring: (*run).letItGo},

	failpoint.GateMoved:           {process: atWorker, answer: refuseFirst},
	failpoint.ShareBeforeCommit:   {process: atWorker, bound: true},
	failpoint.GateActBeforeCommit: {process: atCLI, bring: (*run).holdAndRelease},

	failpoint.BatchStageBeforeCommit:   {process: atAPI, bring: (*run).batches},
	failpoint.BatchStartBeforeCommit:   {process: atAPI, bring: (*run).batches},
	failpoint.BatchStartAfterCommit:    {process: atAPI, bring: (*run).batches},
	failpoint.BatchReleaseBeforeCommit: {process: atAPI, bring: (*run).batches},
	failpoint.BatchReleaseAfterCommit:  {process: atAPI, bring: (*run).batches},
	failpoint.BatchCollectBeforeCommit: {process: atAPI, bring: (*run).batches},
	failpoint.BatchEndBeforeCommit:     {process: atWorker, bring: (*run).batches},

	failpoint.SQLEffectAfter:      {process: atWorker},
	failpoint.EffectFetched:       {process: atWorker},
	failpoint.MarkBeforeCommit:    {process: atWorker},
	failpoint.MarkAfterCommit:     {process: atWorker},
	failpoint.SendBefore:          {process: atWorker},
	failpoint.SendAfter:           {process: atWorker},
	failpoint.OutcomeBeforeCommit: {process: atWorker},
	failpoint.OutcomeAfterCommit:  {process: atWorker},
}

// refuseFirst fails the first delivery of each effect, where a repeat is safe.
func refuseFirst(_ string, body []byte, n int) int {
	if n == 1 && bytes.Contains(body, []byte(`"to": "crm"`)) {
		return http.StatusInternalServerError
	}
	return http.StatusNoContent
}

// rejectFirst does not take what it is told of failed tasks before a person has it
// sent again.
func rejectFirst(_ string, body []byte, n int) int {
	if n == 1 && bytes.Contains(body, []byte(`"outcome": "failed"`)) {
		return http.StatusBadRequest
	}
	return http.StatusNoContent
}

// modes are what a point does. A stall outlasts what a transaction may sit idle
// and, in a worker, its lease.
var modes = map[string]map[string]string{
	"kill":  {atAPI: "kill", atWorker: "kill", atCLI: "kill"},
	"error": {atAPI: "error", atWorker: "error", atCLI: "error"},
	"stall": {atAPI: "stall:6s", atWorker: "stall:4s", atCLI: "stall:1s"},
}

// TestPoints plays each point in each mode: work is submitted while a process is
// armed, the point is hit, what died is started again, all work is done, and
// then every promise holds. A point that is not reached fails.
func TestPoints(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	hit := map[failpoint.Point]int{}
	t.Run("play", func(t *testing.T) {
		for _, point := range failpoint.Points {
			for mode, does := range modes {
				plan, known := plans[point]
				if !known {
					continue
				}
				t.Run(string(point)+"/"+mode, func(t *testing.T) {
					t.Parallel()
					play(t, point, plan, does[plan.process])
					mu.Lock()
					defer mu.Unlock()
					hit[point]++
				})
			}
		}
	})
	if flag.Lookup("test.run").Value.String() != "" {
		return // some of them only
	}
	for _, point := range failpoint.Points {
		switch _, known := plans[point]; {
		case !known:
			t.Errorf("%s has no plan", point)
		case hit[point] != len(modes):
			t.Errorf("%s was hit in %d of %d modes", point, hit[point], len(modes))
		}
	}
}

func play(t *testing.T, point failpoint.Point, p plan, does string) {
	r := newRun(t, point, p, does)
	r.start()
	r.usual()
	if p.bring != nil {
		p.bring(r)
	}
	r.hit()
	r.finish()
}

// hit waits until the point was hit and starts again what died of it.
func (r *run) hit() {
	r.t.Helper()
	proc.Until(r.t, string(r.point)+" is reached", r.struck)
	if r.does != "kill" || r.plan.process == atCLI {
		return
	}
	if code, err := r.armed.Exit(); err != nil || code != -1 {
		r.t.Fatalf("the killed process ended with %d, %v", code, err)
	}
	r.replace()
}

// gone says whether the armed process is gone.
func (r *run) gone() bool {
	select {
	case <-r.armed.Done():
		return true
	default:
		return false
	}
}

// leaveATaskBehind has another worker be killed in the middle of a call.
func (r *run) leaveATaskBehind() {
	first := r.w.Worker(r.t)
	r.submit("left", "plain", "fake:latency=20s,stamp;stamp")
	proc.Until(r.t, "a call under way", func() bool { return r.w.Model.Calls().Running > 0 })
	first.Kill(r.t)
}

// loseTheLease stops the worker until its lease has run out.
func (r *run) loseTheLease() {
	r.armed.Pause(r.t)
	proc.Until(r.t, "the lease runs out", func() bool {
		return r.w.Count(r.t, `SELECT count(*) FROM onefold.workers WHERE expires_at > now()`) == 0
	})
	r.armed.Resume(r.t)
}

// callReturned is where a worker has a reply in its hands.
const callReturned = string(failpoint.CallAfter)

// badCalls are the calls of the usual work that bring no reply.
const badCalls = 3

// overtake stops the worker with a reply in its hands, until all that it ran has
// been taken from it. What it then writes is refused.
func (r *run) overtake() {
	proc.Until(r.t, "a reply", func() bool {
		raw, err := os.ReadFile(r.log)
		return err == nil && strings.Count(string(raw), callReturned+" stall\n") > badCalls
	})
	r.armed.Pause(r.t)
	r.w.Worker(r.t)
	proc.Until(r.t, "its tasks are taken", func() bool {
		return r.w.Count(r.t, `
SELECT count(*) FROM onefold.tasks AS t JOIN onefold.workers AS w ON w.incarnation = t.owner WHERE w.expires_at <= now()`) == 0 &&
			r.w.Count(r.t, `SELECT count(*) FROM onefold.attempts WHERE outcome = 'lost'`) > 0
	})
	r.armed.Resume(r.t)
}

// stopGracefully asks the worker to stop; another one goes on.
func (r *run) stopGracefully() {
	r.w.Worker(r.t)
	if err := r.armed.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
}
