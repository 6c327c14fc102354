//go:build failpoints

package failpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/e2e/promises"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/failpoint"
)

// patience bounds what follows a fault: the third step of the effects' schedule
// and the wait for a delivery that may not be repeated among it.
const patience = 4 * time.Minute

// run is one scenario.
type run struct {
	t     *testing.T
	w     *proc.World
	point failpoint.Point
	plan  plan
	does  string
	after func() // what more is to be seen after the point was hit
	log   string // where the armed process writes which points it reached

	armed   *proc.Process // the process that is brought to the point
	other   *proc.Process // the one of the other sort
	stop    context.CancelFunc
	ctx     context.Context
	asking  sync.WaitGroup // callers that want an answer
	polling sync.WaitGroup

	mu       sync.Mutex
	api      *proc.Process
	pages    []*page
	mistakes []string
}

// page is what callers were told of one key.
type page struct {
	key  string
	body api.Submit
	last promises.Sight
	gone bool // past its retention: nobody is promised anything any more
}

func newRun(t *testing.T, point failpoint.Point, p plan, does string) *run {
	t.Helper()
	config := promises.Config
	if p.bound {
		config = strings.ReplaceAll(config, "allow_private: true", "allow_private: true, concurrency: 3")
	}
	w := proc.New(t, &proc.Opts{Config: config, Build: proc.Build{Tags: "failpoints"}, Answer: p.answer})
	if _, err := w.Pool.Exec(t.Context(), promises.Table); err != nil {
		t.Fatal(err)
	}
	key, _, err := auth.Create(t.Context(), w.Pool, auth.NewKey{
		Tenant: "e2e", Name: "all", Actor: "e2e", Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead, api.ScopeOperate},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Key = key
	r := &run{t: t, w: w, point: point, plan: p, does: does, log: filepath.Join(w.Dir, "reached")}
	r.ctx, r.stop = context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() {
		r.stop()
		r.asking.Wait()
		r.polling.Wait()
		for _, m := range r.mistakes {
			t.Error(m)
		}
	})
	return r
}

// spec is the process of a sort, armed or not.
func (r *run) spec(process string, armed bool) proc.Spec {
	s := proc.APISpec()
	if process == atWorker {
		s = proc.WorkerSpec("--grace", "1s")
	}
	if armed {
		s.Env = append(s.Env, r.arms()...)
	}
	return s
}

// arms is the environment of a process that is to come to the point.
func (r *run) arms() []string {
	arms := fmt.Sprintf("%s=%s@%d", r.point, r.does, max(1, r.plan.nth))
	if r.plan.also != "" {
		arms += ";" + r.plan.also
	}
	return []string{"ONEFOLD_FAILPOINTS=" + arms, "ONEFOLD_FAILPOINTS_LOG=" + r.log}
}

func (r *run) launch(process string, armed bool) *proc.Process {
	r.t.Helper()
	p, err := r.w.Start(r.spec(process, armed))
	if err != nil && !(armed && r.struck()) { // the point may stand before a process is ready
		r.t.Fatal(err)
	}
	if process == atAPI {
		r.mu.Lock()
		r.api = p
		r.mu.Unlock()
	}
	return p
}

// start starts both processes, one of them armed, and the polling.
func (r *run) start() {
	r.t.Helper()
	if r.plan.process == atAPI {
		r.other = r.launch(atWorker, false)
		r.armed = r.launch(atAPI, true)
	} else {
		r.other = r.launch(atAPI, false)
		if r.plan.before != nil {
			r.plan.before(r)
		}
		r.armed = r.launch(atWorker, r.plan.process == atWorker)
	}
	r.polling.Go(r.poll)
}

// replace starts a successor of the armed process that is not armed.
func (r *run) replace() {
	r.t.Helper()
	r.armed = r.launch(r.plan.process, false)
}

// struck says whether the point was hit.
func (r *run) struck() bool {
	mode, _, _ := strings.Cut(r.does, ":")
	return r.logged(string(r.point) + " " + mode)
}

// logged says whether the armed process has written a line about its points.
func (r *run) logged(line string) bool {
	raw, err := os.ReadFile(r.log)
	return err == nil && strings.Contains(string(raw), line+"\n")
}

// usual is the work of every run: each kind, good and bad calls.
func (r *run) usual() {
	for i, script := range []string{
		"fake:stamp", "fake:latency=300ms,stamp", "fake:status=500;stamp", "fake:status=429,retry_after=1;stamp", "fake:cut=300,stamp;stamp",
	} {
		r.submit(fmt.Sprint("plain-", i), "plain", script)
	}
	r.submit("saved-0", "saved", "fake:stamp")
	r.submit("saved-1", "saved", "fake:latency=200ms,stamp")
	r.submit("careful", "careful", "fake:stamp")
	r.submit("posted", "posted", "fake:latency=300ms,stamp")
}

// submit hands a task over, again and again until it is acknowledged, beside
// everything else.
func (r *run) submit(key, kind, script string) *page {
	input, _ := json.Marshal(map[string]string{"model": script, "text": "the work of " + key})
	p := &page{key: key, body: api.Submit{Kind: kind, Input: input}}
	r.mu.Lock()
	r.pages = append(r.pages, p)
	r.mu.Unlock()
	r.asking.Go(func() { r.resubmit(p) })
	return p
}

func (r *run) resubmit(p *page) {
	r.told(p, "submit", func(c *client.Client) (*api.Task, error) { return c.Submit(r.ctx, p.key, p.body, nil) })
}

// told asks until there is an answer and enters it.
func (r *run) told(p *page, how string, ask func(*client.Client) (*api.Task, error)) {
	for {
		before := r.seen(p)
		t, err := ask(r.client())
		switch {
		case err == nil:
			r.saw(p, before, t, how)
			return
		case r.ctx.Err() != nil:
			return
		case errors.Is(err, api.ErrConflict):
			return // an earlier try had done it
		case !errors.Is(err, api.ErrUnavailable):
			r.mistake("%s: %s was refused: %v", p.key, how, err)
			return
		}
		r.pause()
	}
}

func (r *run) pause() {
	select {
	case <-r.ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// client is one of the api that runs now, without tries of its own.
func (r *run) client() *client.Client {
	r.mu.Lock()
	url := r.api.URL()
	r.mu.Unlock()
	c, err := client.New(url, r.w.Key, &client.Opts{MaxRetries: -1, Timeout: 15 * time.Second})
	if err != nil {
		panic(err) // an address that we made ourselves
	}
	return c
}

func (r *run) seen(p *page) promises.Sight {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.last
}

func (r *run) saw(p *page, before promises.Sight, t *api.Task, how string) {
	now := promises.See(t)
	if what := promises.Wrong(before, now); what != "" {
		r.mistake("%s: %s: %s was told of %s, after %s had been told", p.key, what, how, now, before)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if promises.Later(p.last, now) {
		p.last = now
	}
}

func (r *run) mistake(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mistakes = append(r.mistakes, fmt.Sprintf(format, args...))
}

func (r *run) known() []*page {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*page
	for _, p := range r.pages {
		if p.last.ID != "" && !p.gone {
			out = append(out, p)
		}
	}
	return out
}

// poll reads all tasks in turn until the run ends.
func (r *run) poll() {
	for r.ctx.Err() == nil {
		c := r.client()
		for _, p := range r.known() {
			before := r.seen(p)
			t, err := c.Get(r.ctx, before.ID, nil)
			if err == nil {
				r.saw(p, before, t, "a poll")
			} else if !errors.Is(err, api.ErrUnavailable) && r.ctx.Err() == nil && !r.expired(p) {
				r.mistake("%s: a poll was refused: %v", p.key, err)
			}
		}
		r.pause()
	}
}

func (r *run) expired(p *page) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.gone
}

// await waits for what becomes of a page, and starts again what dies meanwhile.
func (r *run) await(p *page, what string, ok func() bool) {
	r.t.Helper()
	proc.Until(r.t, p.key+": "+what, func() bool {
		if r.does == "kill" && r.struck() && r.gone() {
			r.replace()
		}
		return ok()
	})
}

const undone = `
SELECT (SELECT count(*) FROM onefold.tasks WHERE finished_at IS NULL) + (SELECT count(*) FROM onefold.effects WHERE finished_at IS NULL)`

// finish lets all work be done, asks for every key once more, and checks the
// promises.
func (r *run) finish() {
	r.t.Helper()
	if r.gone() { // of an error at its start, or because it was asked to
		r.replace()
	}
	if r.after != nil {
		r.after()
	}
	r.asking.Wait() // each for an answer, or until patience ends
	for {
		var left int
		err := r.w.Pool.QueryRow(r.ctx, undone).Scan(&left)
		if err == nil && left == 0 {
			break
		}
		if r.ctx.Err() != nil {
			r.t.Fatalf("after %s %d tasks and effects are not done; %v", patience, left, err)
		}
		r.pause()
	}
	for _, p := range r.known() {
		r.told(p, "a last poll", func(c *client.Client) (*api.Task, error) { return c.Get(r.ctx, r.seen(p).ID, nil) })
		if last := r.seen(p); last.State == api.Failed && !last.Permanent {
			continue // it would be reopened
		}
		r.resubmit(p)
	}
	r.stop()
	r.polling.Wait()
	told := map[string]promises.Told{}
	for _, p := range r.pages {
		if p.gone {
			continue
		}
		if p.last.ID == "" {
			r.mistake("%s: never acknowledged", p.key)
			continue
		}
		told[p.last.ID] = promises.Told{Key: p.key, Last: p.last}
		if !p.last.State.Settled() {
			r.mistake("%s: at the end callers are told of %s", p.key, p.last)
		}
	}
	for _, m := range promises.Gather(r.t, r.w, told).Check() {
		r.mistake("%s: %s", m.Key, m.What)
	}
}
