package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

const budgetConfig = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  k: {provider: p, output: text, max_attempts: 5}
  r: {provider: p, output: text, on_unknown: review}
  alone:
    provider: p
    output: text
    effects:
      - {name: save, type: sql, on: failed, statement: "INSERT INTO public.saved (key) VALUES (@error.code)"}
`

func (b *bundle) putBudget(kind, key, id string, sends int) (task.ID, error) {
	body := fmt.Sprintf(`{"kind":%q,"input":{"n":1},"budget":{"id":%q,"sends":%d}}`, kind, id, sends)
	a, err := b.submit.Submit(context.Background(), submit.Request{Tenant: "a", Key: key, KeySent: true, Body: []byte(body)})
	if err != nil {
		return task.ID{}, err
	}
	return a.Row.ID, nil
}

func (b *bundle) mustPut(kind, key, id string, sends int) task.ID {
	b.t.Helper()
	made, err := b.putBudget(kind, key, id, sends)
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

func (b *bundle) budget(id string) string {
	b.t.Helper()
	got := b.strings(`SELECT used || ' of ' || sends FROM onefold.budgets WHERE tenant = 'a' AND id = $1`, id)
	if len(got) != 1 {
		b.t.Fatalf("%d budgets %s", len(got), id)
	}
	return got[0]
}

func fails(class provider.Class, phase provider.Phase) error {
	billed := provider.BilledUnknown
	if class == provider.NotSent || class == provider.Refused {
		billed = provider.BilledNo
	}
	return &provider.Error{Class: class, Code: "x", Billed: billed, Phase: phase}
}

// Many tasks of two processes at once never send more than their budget has,
// and what is left over fails without a call.
func TestBudgetIsSharedByAllTasks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	remaining := map[int]int{}
	b := setupWith(t, budgetConfig, func(_ context.Context, _ int, r provider.Request) (*provider.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		remaining[r.BudgetRemaining]++
		return nil, fails(provider.Unknown, provider.PhaseWritten)
	})
	one, two := b.process(5*time.Second), b.process(5*time.Second)
	var ids []task.ID
	for i := range 10 {
		ids = append(ids, b.mustPut("k", fmt.Sprint(i), "run-7", 4))
	}
	for range 6 {
		var wg sync.WaitGroup
		for _, id := range ids {
			for _, p := range []*process{one, two} {
				wg.Go(func() { p.Work(context.Background(), id) })
			}
		}
		wg.Wait()
		for _, id := range ids {
			b.due(id)
		}
	}
	if b.script.calls != 4 || b.budget("run-7") != "4 of 4" {
		t.Errorf("%d calls, %s", b.script.calls, b.budget("run-7"))
	}
	if diff := cmp.Diff(remaining, map[int]int{3: 1, 2: 1, 1: 1, 0: 1}); diff != "" {
		t.Errorf("told to be left: -got +want:\n%s", diff)
	}
	for _, id := range ids {
		r := b.row(id)
		if r.State != api.Failed || r.ErrorCode != "budget_exhausted" || r.Permanent() || !strings.Contains(r.ErrorMessage, "run-7") {
			t.Errorf("got %s %s %q", r.State, r.ErrorCode, r.ErrorMessage)
		}
	}
}

// Only what may have been carried out costs the budget something, and a service
// that does the work counts its own sends down.
func TestBudgetCountsSends(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		call     func() (*provider.Response, error)
		used     string
		attempts int32
		reported int32
		sends    int32
	}{
		{"success", func() (*provider.Response, error) { return ok("x") }, "1 of 9", 1, 0, 1},
		{"not sent", func() (*provider.Response, error) { return nil, fails(provider.NotSent, provider.PhaseDialing) }, "0 of 9", 0, 0, 0},
		{"refused", func() (*provider.Response, error) { return nil, fails(provider.Refused, provider.PhaseHeaders) }, "0 of 9", 0, 0, 0},
		{"rejected", func() (*provider.Response, error) { return nil, fails(provider.Rejected, provider.PhaseHeaders) }, "1 of 9", 1, 0, 1},
		{"unknown", func() (*provider.Response, error) { return nil, fails(provider.Unknown, provider.PhaseWritten) }, "1 of 9", 1, 0, 1},
		{"a service's success", func() (*provider.Response, error) {
			r, _ := ok("x")
			r.SendsUsed = 3
			return r, nil
		}, "4 of 9", 1, 3, 4},
		{"a service's failure", func() (*provider.Response, error) {
			return nil, &provider.Error{Class: provider.BadOutput, Code: "bad_output", SendsUsed: 2, Phase: provider.PhaseDone}
		}, "3 of 9", 1, 2, 3},
		{"a service that miscounts", func() (*provider.Response, error) {
			return nil, &provider.Error{Class: provider.BadOutput, Code: "bad_output", SendsUsed: -2, Phase: provider.PhaseDone}
		}, "1 of 9", 1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setupWith(t, budgetConfig, func(context.Context, int, provider.Request) (*provider.Response, error) { return c.call() })
			p := b.process(5 * time.Second)
			id := b.mustPut("k", "x", "run", 9)
			p.Work(context.Background(), id)
			r := b.row(id)
			if got := b.budget("run"); got != c.used || r.Attempts != c.attempts || r.Reported != c.reported {
				t.Errorf("budget %s, attempts %d, reported %d; want %s, %d, %d", got, r.Attempts, r.Reported, c.used, c.attempts, c.reported)
			}
			if got := b.attempts(id)[0].Sends; got != c.sends {
				t.Errorf("the ledger says %d sends, want %d", got, c.sends)
			}
		})
	}
}

// What a service sent on its own counts against the task's attempts, too.
func TestReportedSendsUseAttempts(t *testing.T) {
	t.Parallel()
	var left []int
	b := setupWith(t, budgetConfig, func(_ context.Context, _ int, r provider.Request) (*provider.Response, error) {
		left = append(left, r.BudgetRemaining)
		return nil, &provider.Error{Class: provider.BadOutput, Code: "bad_output", Message: fmt.Sprint(len(left)), SendsUsed: 1, Phase: provider.PhaseDone}
	})
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	for range 6 {
		p.Work(context.Background(), id)
		b.due(id)
	}
	if r := b.row(id); r.State != api.Failed || b.script.calls != 3 {
		t.Errorf("got %s after %d calls, want failed after 3: 5 attempts, of which each call used two", r.State, b.script.calls)
	}
	if diff := cmp.Diff(left, []int{4, 2, 0}); diff != "" {
		t.Errorf("told to be left: -got +want:\n%s", diff)
	}
}

// The reaper gives back what was counted at the claim and certainly not sent,
// and nothing else.
func TestBudgetOfALostWorker(t *testing.T) {
	t.Parallel()
	inCall, proceed := make(chan struct{}), make(chan struct{})
	b := setupWith(t, budgetConfig, func(context.Context, int, provider.Request) (*provider.Response, error) {
		close(inCall)
		<-proceed
		return ok("late")
	})
	p, other := b.process(5*time.Second), b.process(5*time.Second)
	unsent, sent := b.mustPut("r", "1", "run", 9), b.mustPut("r", "2", "run", 9)
	done := make(chan struct{})
	go func() {
		p.Work(context.Background(), sent)
		close(done)
	}()
	<-inCall
	// A claim whose process died before its mark: the row as it stands then.
	ctx := context.Background()
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := store.LockTasks(ctx, tx, []task.ID{unsent}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.ClaimTasks(ctx, tx, []store.Claim{{Row: rows[0], Owner: task.NewToken(), Token: task.NewToken()}}); err != nil {
		t.Fatal(err)
	}
	if err := store.AddToBudgets(ctx, tx, map[store.BudgetKey]int32{{Tenant: "a", ID: "run"}: 1}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got := b.budget("run"); got != "2 of 9" {
		t.Fatalf("before: %s", got)
	}
	other.up.Reap(ctx, map[task.ID]int64{unsent: 1, sent: 1})
	if got := b.budget("run"); got != "1 of 9" {
		t.Errorf("after: %s, want the one that was sent", got)
	}
	if r := b.row(unsent); r.State != api.Pending || r.Attempts != 0 {
		t.Errorf("not sent: %s, attempts %d", r.State, r.Attempts)
	}
	if r := b.row(sent); r.State != api.Unknown {
		t.Errorf("sent: %s", r.State)
	}
	close(proceed)
	<-done
}

func TestBudgetNumberIsOne(t *testing.T) {
	t.Parallel()
	b := setupWith(t, budgetConfig, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	first := b.mustPut("k", "1", "run", 5)
	if _, err := b.putBudget("k", "2", "run", 4); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), "has 5 sends") {
		t.Errorf("another number: %v", err)
	}
	if again, err := b.putBudget("k", "1", "run", 4); err != nil || again != first {
		t.Errorf("a duplicate: %v, %v; want the task as it stands", again, err)
	}
	if got := b.strings(`SELECT id::text FROM onefold.tasks`); len(got) != 1 {
		t.Errorf("%d tasks, want 1", len(got))
	}
	other, err := b.submit.Submit(context.Background(), submit.Request{Tenant: "b", Key: "1", KeySent: true, Body: []byte(`{"kind":"k","input":1,"budget":{"id":"run","sends":4}}`)})
	if err != nil || !other.Created {
		t.Errorf("another tenant's budget of that name: %+v, %v", other, err)
	}
}

// A task whose failure runs statements is settled in a transaction of its own.
func TestBudgetExhaustedRunsEffectsAlone(t *testing.T) {
	t.Parallel()
	b := setupWith(t, budgetConfig, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	p := b.process(5 * time.Second)
	used, over := b.mustPut("k", "1", "run", 1), b.mustPut("alone", "2", "run", 1)
	p.Work(context.Background(), used)
	p.Work(context.Background(), over)
	if r := b.row(over); r.State != api.Failed || r.ErrorCode != "budget_exhausted" || b.script.calls != 1 {
		t.Errorf("got %s %s after %d calls", r.State, r.ErrorCode, b.script.calls)
	}
	if diff := cmp.Diff(b.strings(`SELECT key FROM public.saved`), []string{"budget_exhausted"}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(b.strings(wakes, over), []string(nil)); diff != "" {
		t.Errorf("wake-ups left: %s", diff)
	}
}

// The purge forgets a budget that nobody names any more.
func TestBudgetIsForgotten(t *testing.T) {
	t.Parallel()
	b := setupWith(t, budgetConfig, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	b.mustPut("k", "1", "named", 1)
	ctx := context.Background()
	for _, sql := range []string{
		`INSERT INTO onefold.budgets (tenant, id, sends) VALUES ('a', 'old', 1), ('a', 'young', 1)`,
		`UPDATE onefold.budgets SET used_at = now() - interval '10 days' WHERE id <> 'young'`,
	} {
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.ForgetBudgets(ctx, b.pool, 24*time.Hour, 100); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.strings(`SELECT id FROM onefold.budgets ORDER BY id`), []string{"named", "young"}); diff != "" {
		t.Error(diff)
	}
}
