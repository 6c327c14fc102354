package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/task"
)

// asked is a provider that can be asked what became of its calls.
type asked struct {
	*script
	mu      sync.Mutex
	numbers []int // up to which call each check asked
	status  func(n int) provider.Status
}

func (s *asked) Status(_ context.Context, r provider.Request) provider.Status {
	s.mu.Lock()
	s.numbers = append(s.numbers, r.Number)
	n := len(s.numbers)
	s.mu.Unlock()
	return s.status(n)
}

func done(text string) provider.Status {
	resp, _ := ok(text)
	return provider.Status{Known: provider.Done, Response: resp}
}

// A call without a known outcome is asked about before on_unknown decides.
func TestStatusDecidesBeforeOnUnknown(t *testing.T) {
	t.Parallel()
	known := func(k provider.Known) func(int) provider.Status {
		return func(int) provider.Status { return provider.Status{Known: k} }
	}
	for name, c := range map[string]struct {
		kind    string
		status  func(int) provider.Status
		state   api.State
		code    string
		result  string
		calls   int
		numbers []int
	}{
		"done": {"asks.review", func(int) provider.Status { return done("asked") }, api.Succeeded, "", `"asked"`, 1, []int{1}},
		"done and failed": {"asks", func(int) provider.Status {
			return provider.Status{Known: provider.Done, Err: provider.New(provider.CodeContentFiltered, "no")}
		}, api.Failed, "content_filtered", "", 1, []int{1}},
		"not done":            {"asks.review", known(provider.NotDone), api.Succeeded, "", `"second"`, 2, []int{1}},
		"cannot tell":         {"asks", known(provider.CannotTell), api.Succeeded, "", `"second"`, 2, []int{1, 1}},
		"cannot tell, review": {"asks.review", known(provider.CannotTell), api.Unknown, "outcome_unknown", "", 1, []int{1}},
		"at work": {"asks.review", func(n int) provider.Status {
			if n < 3 {
				return provider.Status{Known: provider.Working, After: time.Second}
			}
			return done("asked")
		}, api.Succeeded, "", `"asked"`, 1, []int{1, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
				if n == 1 {
					return nil, provider.New(provider.CodeConnectionLost, "lost")
				}
				return ok("second")
			})
			s := &asked{script: b.script, status: c.status}
			b.providers = map[string]provider.Provider{"q": s}
			p := b.process(5 * time.Second)
			id := b.put(c.kind, "x")
			for range 4 {
				p.Work(context.Background(), id)
				b.due(id)
			}
			r := b.row(id)
			if r.State != c.state || r.ErrorCode != c.code || string(r.Result) != c.result || b.script.calls != c.calls {
				t.Errorf("got %s %s %s after %d calls, want %s %s %s after %d", r.State, r.ErrorCode, r.Result, b.script.calls, c.state, c.code, c.result, c.calls)
			}
			if diff := cmp.Diff(s.numbers, c.numbers); diff != "" {
				t.Errorf("checks: %s", diff)
			}
		})
	}
}

// After a crash the check comes before anything is sent, also for a kind that
// a person would otherwise have to look at.
func TestStatusAfterACrash(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status provider.Status
		state  api.State
		code   string
		result string
		calls  int
		ledger []string
	}{
		"done": {done("asked"), api.Succeeded, "", `"asked"`, 1, []string{"lost billed unknown sent", "succeeded billed yes again"}},
		"not done": {
			provider.Status{Known: provider.NotDone},
			api.Succeeded, "", `"second"`, 2,
			[]string{"lost billed unknown sent", "succeeded billed yes sent again"},
		},
		"cannot tell": {
			provider.Status{Known: provider.CannotTell},
			api.Unknown, "outcome_unknown", "", 1,
			[]string{"lost billed unknown sent", "unknown billed unknown again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCall, proceed := make(chan struct{}), make(chan struct{})
			b := setup(t, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
				if n == 1 {
					close(inCall)
					<-proceed
				}
				return ok("second")
			})
			s := &asked{script: b.script, status: func(int) provider.Status { return c.status }}
			b.providers = map[string]provider.Provider{"q": s}
			stale, fresh := b.process(5*time.Second), b.process(5*time.Second)
			id := b.put("asks.review", "x")
			gone := make(chan struct{})
			go func() {
				stale.Work(context.Background(), id)
				close(gone)
			}()
			<-inCall
			fresh.up.Reap(context.Background(), map[task.ID]int64{id: 1})
			if r := b.row(id); r.State != api.Pending || r.Attempts != 0 {
				t.Fatalf("after the reaper: %s, attempts %d", r.State, r.Attempts)
			}
			fresh.Work(context.Background(), id)
			r := b.row(id)
			if r.State != c.state || r.ErrorCode != c.code || string(r.Result) != c.result || b.script.calls != c.calls {
				t.Errorf("got %s %s %s after %d calls", r.State, r.ErrorCode, r.Result, b.script.calls)
			}
			if diff := cmp.Diff(b.ledger(id), c.ledger); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(s.numbers, []int{1}); diff != "" {
				t.Errorf("checks: %s", diff)
			}
			close(proceed)
			<-gone
		})
	}
}
