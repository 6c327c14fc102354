package workerd_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

const oneProvider = `
providers:
  p: {type: openai, base_url: "URL", api_key_file: "DIR/key"}
kinds:
  k: {provider: p, output: text}
`

const alert = gate.MsgClosed

// lock lets in who has one of the keys; the others are answered with 401.
type lock struct {
	mu     sync.Mutex
	keys   map[string]bool
	turned int
	let    int
	after  int // the first key is good for so many calls; 0 = for all
}

func (l *lock) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		l.mu.Lock()
		good := l.keys[key]
		if good {
			l.let++
			if l.after > 0 && l.let == l.after {
				delete(l.keys, key)
			}
		} else {
			l.turned++
		}
		l.mu.Unlock()
		if !good {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (l *lock) admit(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key], l.after = true, 0
}

func (l *lock) refusals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turned
}

// A credential is refused in the middle of a run, under two workers: nothing is
// lost, nothing fails, there is one alert; after the release all of it runs.
func TestUnauthorizedInTheMiddle(t *testing.T) {
	t.Parallel()
	const n = 600
	l := &lock{keys: map[string]bool{"old": true}, after: 150}
	w := setup(t, oneProvider, l.wrap)
	w.put("a", "k", n)
	w.worker(32)
	w.worker(32)
	w.until("the gate is held and nothing runs", func() bool {
		return w.number(`SELECT count(*) FROM onefold.gates WHERE state = 'held' AND code = 'unauthorized'`) == 1 && w.tasks("k", "running") == 0
	})
	w.until("the queue is paused", func() bool {
		return w.number(`SELECT count(*) FROM onefold.river_queue WHERE name = 'p-p' AND paused_at IS NOT NULL`) == 1
	})
	w.until("all waits", func() bool {
		return w.tasks("k", "pending") == n-w.tasks("k", "succeeded") && w.tasks("k", "running") == 0
	})
	if got := w.tasks("k", "succeeded"); got != 150 {
		t.Errorf("%d succeeded with the old key, want 150", got)
	}
	if got := w.log.count(alert); got != 1 {
		t.Errorf("%d alerts, want 1", got)
	}
	if got := w.number(`SELECT count(*) FROM onefold.audit WHERE action = 'gate.held'`); got != 1 {
		t.Errorf("%d entries of it in the audit, want 1", got)
	}
	refused := l.refusals()
	if refused > 64 {
		t.Errorf("%d calls were made with a key that was refused; 64 can have been under way", refused)
	}
	l.admit("old") // the account was paid
	if _, err := w.board.Release(t.Context(), gate.Act{Gate: gate.Provider("p"), Actor: "t", Reason: "paid"}); err != nil {
		t.Fatal(err)
	}
	w.until("all succeeded", func() bool { return w.tasks("k", "succeeded") == n })
	if got := w.number(`SELECT count(*) FROM onefold.tasks WHERE attempts <> 1`); got != 0 {
		t.Errorf("%d tasks count another number of attempts than 1", got)
	}
	if got := l.refusals(); got != refused {
		t.Errorf("%d more calls were refused", got-refused)
	}
}

// A changed credential releases what was held for the old one, without an
// operator.
func TestChangedCredentialReleases(t *testing.T) {
	t.Parallel()
	l := &lock{keys: map[string]bool{"new": true}}
	w := setup(t, oneProvider, l.wrap)
	w.put("a", "k", 50)
	w.worker(8)
	w.worker(8)
	w.until("the gate is held", func() bool { return w.number(`SELECT count(*) FROM onefold.gates WHERE state = 'held'`) == 1 })
	w.secret("key", "new")
	w.until("all succeeded", func() bool { return w.tasks("k", "succeeded") == 50 })
	if got := w.number(`SELECT count(*) FROM onefold.audit WHERE action = 'gate.release' AND actor = 'onefold'`); got != 1 {
		t.Errorf("%d releases in the audit, want 1", got)
	}
}

// Three different tasks turned away in a row without a word why: the
// credential is at fault, whatever the status says.
func TestThreeInARow(t *testing.T) {
	t.Parallel()
	w := setup(t, oneProvider, nil)
	if err := w.llm.Script("", "status=403,code=nobody_knows"); err != nil {
		t.Fatal(err)
	}
	w.put("a", "k", 40)
	w.worker(1)
	w.until("the gate is held", func() bool {
		return w.number(`SELECT count(*) FROM onefold.gates WHERE state = 'held' AND code = 'unauthorized'`) == 1
	})
	w.until("nothing runs", func() bool { return w.tasks("k", "running") == 0 })
	if failed, waiting := w.tasks("k", "failed"), w.tasks("k", "pending"); failed > 3 || failed+waiting != 40 {
		t.Errorf("%d failed before the gate closed, %d wait", failed, waiting)
	}
}

const twoProviders = `
providers:
  a: {type: openai, base_url: "URL"}
  b: {type: openai, base_url: "URL"}
kinds:
  ka: {provider: a, output: text}
  kb: {provider: b, output: text}
`

// Thousands wait behind a closed gate; those of another provider run as if they
// were not there.
func TestGatedProviderDelaysNobody(t *testing.T) {
	t.Parallel()
	const many, few = 3000, 200
	w := setup(t, twoProviders, nil)
	if err := w.llm.Script("", "latency=20ms"); err != nil {
		t.Fatal(err)
	}
	w.put("t", "ka", many)
	w.worker(64)
	w.worker(64)
	w.until("some of a ran", func() bool { return w.tasks("ka", "succeeded") > 100 })
	if _, err := w.board.Hold(t.Context(), gate.Act{Gate: gate.Provider("a"), Actor: "t", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	w.put("t", "kb", few)
	w.until("all of b ran", func() bool { return w.tasks("kb", "succeeded") == few })
	w.until("none of a runs", func() bool { return w.tasks("ka", "running") == 0 })
	done := w.tasks("ka", "succeeded")
	if done == many {
		t.Fatal("all of a ran before its gate closed: this test shows nothing")
	}
	w.put("t2", "kb", few)
	w.until("more of b ran", func() bool { return w.tasks("kb", "succeeded") == 2*few })
	if got := w.tasks("ka", "succeeded"); got != done {
		t.Errorf("%d of a ran behind a closed gate", got-done)
	}
	if _, err := w.board.Release(t.Context(), gate.Act{Gate: gate.Provider("a"), Actor: "t"}); err != nil {
		t.Fatal(err)
	}
	w.until("all of a ran", func() bool { return w.tasks("ka", "succeeded") == many })
	if got := w.number(`SELECT count(*) FROM onefold.tasks WHERE attempts <> 1`); got != 0 {
		t.Errorf("%d tasks were tried more than once", got)
	}
}

// 429 closes the gate until Retry-After, and costs no attempt.
func TestRefusedUsesNoAttempt(t *testing.T) {
	t.Parallel()
	w := setup(t, twoProviders, nil)
	if err := w.llm.Script("", "5*status=429,retry_after=1;ok"); err != nil {
		t.Fatal(err)
	}
	w.put("t", "ka", 4)
	w.worker(8)
	w.until("all succeeded", func() bool { return w.tasks("ka", "succeeded") == 4 })
	if got := w.number(`SELECT count(*) FROM onefold.tasks WHERE attempts <> 1`); got != 0 {
		t.Errorf("%d tasks count another number of attempts than 1", got)
	}
	if got := w.number(`SELECT count(*) FROM onefold.attempts WHERE outcome = 'refused'`); got != 20 {
		t.Errorf("%d sends were refused, want 5 a task", got)
	}
	if got := w.number(`SELECT count(*) FROM onefold.gates WHERE name = 'a' AND epoch > 0`); got != 1 {
		t.Error("the gate never closed")
	}
}

// inFlight counts how many calls are under way, by what the prompt begins with.
type inFlight struct {
	now, most atomic.Int64
}

func (f *inFlight) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := f.now.Add(1)
		defer f.now.Add(-1)
		for m := f.most.Load(); n > m && !f.most.CompareAndSwap(m, n); m = f.most.Load() {
		}
		next.ServeHTTP(w, r)
	})
}

// A provider's concurrency holds over all workers.
func TestProviderConcurrency(t *testing.T) {
	t.Parallel()
	f := &inFlight{}
	w := setup(t, `
providers:
  p: {type: openai, base_url: "URL", concurrency: 5}
kinds:
  k: {provider: p, output: text}
`, f.wrap)
	if err := w.llm.Script("", "latency=10ms"); err != nil {
		t.Fatal(err)
	}
	w.put("a", "k", 300)
	for range 3 {
		w.worker(64)
	}
	w.until("all succeeded", func() bool { return w.tasks("k", "succeeded") == 300 })
	if got := f.most.Load(); got > 5 {
		t.Errorf("%d calls at once, 5 may be", got)
	}
}

// A kind's concurrency holds over all workers, and what is beyond it is in
// nobody's way.
func TestKindConcurrency(t *testing.T) {
	t.Parallel()
	w := setup(t, `
providers:
  p: {type: openai, base_url: "URL"}
kinds:
  slow: {provider: p, output: text, concurrency: 2}
  fast: {provider: p, output: text}
`, nil)
	if err := w.llm.Script("", "latency=5ms"); err != nil {
		t.Fatal(err)
	}
	w.put("a", "slow", 200)
	w.put("b", "slow", 20)
	w.put("a", "fast", 100)
	w.worker(16)
	w.worker(16)
	most := 0
	w.until("all succeeded", func() bool {
		most = max(most, w.tasks("slow", "running"))
		return w.tasks("slow", "succeeded") == 220 && w.tasks("fast", "succeeded") == 100
	})
	if most > 2 {
		t.Errorf("%d of the bounded kind ran at once, 2 may", most)
	}
}

// An operator stops one tenant's tasks: they wait without a wake-up, their
// deadlines and cancels still apply, and afterwards the rest runs.
func TestTenantIsHeld(t *testing.T) {
	t.Parallel()
	w := setup(t, twoProviders, nil)
	h := w.hold(store.Hold{Tenant: "held", Stops: []api.Stop{api.StopClaims}})
	ids := w.put("held", "ka", 60)
	w.put("free", "ka", 60)
	w.worker(16)
	w.until("the others' ran", func() bool {
		return w.number(`SELECT count(*) FROM onefold.tasks WHERE tenant = 'free' AND state = 'succeeded'`) == 60
	})
	w.until("all held ones are parked", func() bool {
		return w.number(`SELECT count(*) FROM onefold.tasks WHERE tenant = 'held' AND state = 'pending' AND job_id IS NULL`) == 60
	})
	if got := w.number(`SELECT count(*) FROM onefold.river_job WHERE queue = 'p-a' AND state IN ('available', 'scheduled', 'running')`); got != 0 {
		t.Errorf("%d wake-ups of held tasks", got)
	}
	if _, err := w.pool.Exec(t.Context(), `UPDATE onefold.tasks SET deadline = now() WHERE id = $1`, ids[0]); err != nil {
		t.Fatal(err)
	}
	if row, err := w.submit.Cancel(t.Context(), submit.Act{Tenant: "held", ID: ids[1], Actor: "t"}); err != nil || row.State != api.Cancelled {
		t.Errorf("cancel of a held task: %+v, %v", row, err)
	}
	w.until("the deadline applied", func() bool {
		return w.number(`SELECT count(*) FROM onefold.tasks WHERE id = $1 AND state = 'failed' AND error_code = 'deadline'`, ids[0]) == 1
	})
	w.unhold(h)
	w.until("the rest ran", func() bool {
		return w.number(`SELECT count(*) FROM onefold.tasks WHERE tenant = 'held' AND state = 'succeeded'`) == 58
	})
}

// Automatic retries are stopped: what was not tried before runs, what was
// waits; afterwards it is tried again.
func TestRetriesAreHeld(t *testing.T) {
	t.Parallel()
	w := setup(t, twoProviders, nil)
	h := w.hold(store.Hold{Kind: "ka", Stops: []api.Stop{api.StopRetries}})
	if err := w.llm.Script("", "50%status=500|ok;ok"); err != nil {
		t.Fatal(err)
	}
	w.put("t", "ka", 40)
	w.worker(16)
	w.until("each was tried once, and those that failed are parked", func() bool {
		return w.number(`SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded' OR state = 'pending' AND attempts = 1 AND job_id IS NULL`) == 40
	})
	waits := w.tasks("ka", "pending")
	if waits == 0 || waits == 40 {
		t.Fatalf("%d of 40 failed: this test shows nothing", waits)
	}
	if got := w.number(`SELECT count(*) FROM onefold.attempts`); got != 40 {
		t.Errorf("%d attempts, want 40", got)
	}
	w.unhold(h)
	w.until("all succeeded", func() bool { return w.tasks("ka", "succeeded") == 40 })
}

// An operator stops new tasks: they are refused and nothing is stored, while
// duplicates are answered.
func TestSubmitsAreHeld(t *testing.T) {
	t.Parallel()
	w := setup(t, twoProviders, nil)
	submitted := func(tenant, key string) (submit.Answer, error) {
		return w.submit.Submit(t.Context(), submit.Request{
			Tenant: tenant, Key: key, KeySent: true, Body: []byte(`{"kind":"ka","input":{"model":"m","messages":[]}}`),
		})
	}
	first, err := submitted("held", "first")
	if err != nil {
		t.Fatal(err)
	}
	h, err := w.board.SetHold(t.Context(), store.Hold{Tenant: "held", Kind: "ka", Stops: []api.Stop{api.StopSubmits}, Reason: "duplicates", Actor: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var refused *api.Error
	if _, err := submitted("held", "second"); !errors.As(err, &refused) || refused.Code != api.CodeHeld || refused.Status != 503 || refused.RetryAfter <= 0 {
		t.Errorf("a new task: %v", err)
	}
	if again, err := submitted("held", "first"); err != nil || again.Created || again.Row.ID != first.Row.ID {
		t.Errorf("a duplicate: %+v, %v", again, err)
	}
	if other, err := submitted("free", "second"); err != nil || !other.Created {
		t.Errorf("another tenant's: %v", err)
	}
	if got := w.number(`SELECT count(*) FROM onefold.tasks WHERE tenant = 'held'`); got != 1 {
		t.Errorf("%d tasks are stored, want 1", got)
	}
	if _, err := w.board.TakeHold(t.Context(), "free", h.ID, "t", ""); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("another tenant took the hold away: %v", err)
	}
	if _, err := w.board.TakeHold(t.Context(), "held", h.ID, "t", "mended"); err != nil {
		t.Fatal(err)
	}
	if a, err := submitted("held", "second"); err != nil || !a.Created {
		t.Errorf("afterwards: %v", err)
	}
	if got := w.number(`SELECT count(*) FROM onefold.audit WHERE target_type = 'hold'`); got != 2 {
		t.Errorf("%d entries in the audit, want 2", got)
	}
}

func (w *world) hold(h store.Hold) task.ID {
	w.t.Helper()
	h.ID, h.Reason, h.Actor = task.NewID(), "test", "t"
	made, err := store.PutHold(context.Background(), w.pool, h)
	if err != nil {
		w.t.Fatal(err)
	}
	return made.ID
}

func (w *world) unhold(id task.ID) {
	w.t.Helper()
	if _, err := store.DeleteHold(context.Background(), w.pool, "", id); err != nil {
		w.t.Fatal(err)
	}
}
