package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// cutStream is a reply that broke off after "half an".
func cutStream() error {
	return &provider.Error{
		Class: provider.Unknown, Code: provider.CodeStreamCut, Message: "the stream broke off", Billed: provider.BilledYes,
		Phase: provider.PhaseFirstToken, Bytes: 90, RequestID: "req-9",
		Partial: &provider.Response{
			Reply: []byte(`{"text":"half an"}`), Text: "half an", Model: "m-2", Usage: provider.Usage{OutputTokens: 2},
		},
		Phases: provider.Phases{FirstByte: 20 * time.Millisecond, Total: 50 * time.Millisecond},
	}
}

// attempts are the ledger's entries of a task as the API reads them.
func (b *bundle) attempts(id task.ID) []store.Attempt {
	b.t.Helper()
	all, err := store.Attempts(context.Background(), b.pool, "a", id, 1<<10)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// What follows a cut reply is the kind's to say, and what came of it is kept.
func TestCutReply(t *testing.T) {
	t.Parallel()
	const file = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  again: {provider: p, output: text}
  keep: {provider: p, output: text, on_cut: keep}
  keep.response: {provider: p, on_cut: keep}
  review: {provider: p, output: text, on_cut: review}
  careful: {provider: p, output: text, on_unknown: review}
  careful.again: {provider: p, output: text, on_unknown: review, on_cut: regenerate}
`
	for _, c := range []struct {
		kind   string
		state  api.State
		code   string
		result string
		calls  int
	}{
		{"again", api.Succeeded, "", `"whole"`, 2},
		{"keep", api.Succeeded, "", `"half an"`, 1},
		{"keep.response", api.Succeeded, "", `{"text":"half an"}`, 1},
		{"review", api.Unknown, "cut", "", 1},
		{"careful", api.Unknown, "cut", "", 1},
		{"careful.again", api.Succeeded, "", `"whole"`, 2},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			b := setupWith(t, file, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
				if n == 1 {
					return nil, cutStream()
				}
				return ok("whole")
			})
			p := b.process(5 * time.Second)
			id := b.put(c.kind, "x")
			p.Work(context.Background(), id)
			b.due(id)
			p.Work(context.Background(), id)
			r := b.row(id)
			kept := c.result != "" && c.calls == 1
			if r.State != c.state || r.ErrorCode != c.code || string(r.Result) != c.result || b.script.calls != c.calls || r.Truncated != kept {
				t.Errorf("got %s %s %s after %d calls, truncated %t", r.State, r.ErrorCode, r.Result, b.script.calls, r.Truncated)
			}
			all := b.attempts(id)
			first := all[0]
			if string(first.Partial) != "half an" || first.Phase != "first_token" || first.Bytes != 90 || first.RequestID != "req-9" ||
				first.Billed != api.BilledYes || first.Usage == nil || first.Usage.OutputTokens != 2 || first.Usage.Cost != "" || !first.Orphaned || first.Code != "stream_cut" {
				t.Errorf("evidence %+v, usage %+v", first, first.Usage)
			}
			if len(all) != c.calls || all[len(all)-1].Regeneration != (c.calls == 2) {
				t.Errorf("%d attempts, want %d, the second marked as a regeneration", len(all), c.calls)
			}
		})
	}
}

// An unknown task is what a person says it is: on the epoch they saw, with a
// reason, once, and written down.
func TestResolve(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		how   submit.Resolution
		state api.State
		code  string
		run   int32
		calls int
	}{
		{submit.Resolution{Action: "succeeded", Result: []byte(`"by hand"`)}, api.Succeeded, "", 1, 1},
		{submit.Resolution{Action: "failed", Message: "never done"}, api.Failed, "resolved_failed", 1, 1},
		{submit.Resolution{Action: "retry"}, api.Succeeded, "", 2, 2},
	} {
		t.Run(c.how.Action, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) {
				if n == 1 {
					return nil, &provider.Error{Class: provider.Unknown, Code: "total_timeout", Billed: provider.BilledUnknown, Phase: provider.PhaseWritten}
				}
				return ok("second")
			})
			p := b.process(5 * time.Second)
			id := b.put("r", "x")
			act := submit.Act{Tenant: "a", ID: id, Actor: "key:k", Reason: "looked it up", RequestID: "req-1"}
			refused := func(a submit.Act, how submit.Resolution, want error) {
				t.Helper()
				if _, err := b.submit.Resolve(context.Background(), a, how); !errors.Is(err, want) {
					t.Errorf("resolve %+v: got %v, want %v", a, err, want)
				}
			}
			zero, wrong := int64(0), int64(7)
			pending := act
			pending.Epoch = &zero
			refused(pending, c.how, api.ErrConflict) // it is pending
			p.Work(context.Background(), id)
			r := b.row(id)
			if r.State != api.Unknown || r.ErrorCode != "outcome_unknown" || !r.Unclear {
				t.Fatalf("got %s %s", r.State, r.ErrorCode)
			}
			act.Epoch = &r.Epoch
			silent, other, foreign := act, act, act
			silent.Reason, other.Epoch, foreign.Tenant = "", &wrong, "b"
			refused(silent, c.how, api.ErrInvalid)
			refused(other, c.how, api.ErrConflict)
			refused(foreign, c.how, api.ErrNotFound)
			refused(act, submit.Resolution{Action: "finish"}, api.ErrConflict) // nothing was kept
			if c.how.Action == "succeeded" {
				refused(act, submit.Resolution{Action: "succeeded", Result: []byte(`{"no": "text"}`)}, api.ErrInvalid)
				refused(act, submit.Resolution{Action: "succeeded", Result: []byte(`{"a":1,"a":2}`)}, api.ErrInvalid)
			}
			if _, err := b.submit.Resolve(context.Background(), act, c.how); err != nil {
				t.Fatal(err)
			}
			if _, err := b.submit.Resolve(context.Background(), act, c.how); err != nil { // the reply was lost
				t.Errorf("the same act again: %v", err)
			}
			refused(act, submit.Resolution{Action: "finish"}, api.ErrConflict)
			p.Work(context.Background(), id)
			r = b.row(id)
			if r.State != c.state || r.ErrorCode != c.code || r.Run != c.run || b.script.calls != c.calls || r.Epoch <= *act.Epoch || r.Unclear {
				t.Errorf("got %s %q run %d epoch %d after %d calls", r.State, r.ErrorCode, r.Run, r.Epoch, b.script.calls)
			}
			audit := b.strings(`SELECT action || ' ' || actor || ' ' || reason || ' ' || request_id || ' ' || tenant FROM onefold.audit WHERE target_id = $1`, id.String())
			if diff := cmp.Diff(audit, []string{"resolve " + c.how.Action + " key:k looked it up req-1 a"}); diff != "" {
				t.Errorf("audit: %s", diff)
			}
		})
	}
}

// resolve speaks of unknown tasks only; retry is what runs a failed one again.
func TestResolveLeavesAFailedTaskAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) {
		return nil, &provider.Error{Class: provider.Rejected, Code: "invalid_request", Permanent: true, Billed: provider.BilledNo, Phase: provider.PhaseHeaders}
	})
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	p.Work(context.Background(), id)
	r := b.row(id)
	act := submit.Act{Tenant: "a", ID: id, Epoch: &r.Epoch, Actor: "t", Reason: "r"}
	for _, action := range []string{"succeeded", "failed", "retry", "finish"} {
		if _, err := b.submit.Resolve(context.Background(), act, submit.Resolution{Action: action, Result: []byte(`"x"`)}); !errors.Is(err, api.ErrConflict) {
			t.Errorf("resolve %s of a failed task: %v", action, err)
		}
	}
	if row, err := b.submit.Retry(context.Background(), act); err != nil || row.State != api.Pending || row.Run != 2 {
		t.Errorf("retry: %+v, %v", row, err)
	}
}

// A reply that came after a cancel is kept apart, and is nobody's result.
func TestCancelKeepsTheLateResult(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, func(_ context.Context, _ int, r provider.Request) (*provider.Response, error) {
		id, _ := task.ParseID(r.TaskID)
		if _, err := b.submit.Cancel(context.Background(), submit.Act{Tenant: "a", ID: id, Actor: "t"}); err != nil {
			b.t.Error(err)
		}
		return ok("too late")
	})
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	p.Work(context.Background(), id)
	r := b.row(id)
	if r.State != api.Cancelled || r.Result != nil || r.ResultHash != nil || r.Usage.Billed != api.BilledYes || r.Usage.OutputTokens != 5 {
		t.Errorf("got %s %s, usage %+v", r.State, r.Result, r.Usage)
	}
	a := b.attempts(id)[0]
	late, err := store.AttemptPart(context.Background(), b.pool, "a", id, a.Epoch, "late_result")
	if err != nil || string(late) != `{"text":"too late"}` || a.Outcome != "cancelled" || a.LateAt == nil || !a.Orphaned || a.Billed != api.BilledYes {
		t.Errorf("late result %s, %v; attempt %+v", late, err, a)
	}
	_, err = b.submit.Cancel(context.Background(), submit.Act{Tenant: "a", ID: id, Actor: "t"})
	if err != nil {
		t.Errorf("cancelled again: %v", err)
	}
}

// Too late is told as such, with what is known of the money.
func TestCancelTooLate(t *testing.T) {
	t.Parallel()
	b := setup(t, func(context.Context, int, provider.Request) (*provider.Response, error) { return ok("x") })
	p := b.process(5 * time.Second)
	id := b.put("k", "x")
	p.Work(context.Background(), id)
	_, err := b.submit.Cancel(context.Background(), submit.Act{Tenant: "a", ID: id, Actor: "t"})
	if !errors.Is(err, api.ErrConflict) || !strings.Contains(fmt.Sprint(err), "its calls were billed") {
		t.Errorf("got %v", err)
	}
}

// The same answer three times in a row is no accident: no more calls.
func TestThreeEqualAnswersStop(t *testing.T) {
	t.Parallel()
	const file = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  k: {provider: p, output: json, max_attempts: 10, schema: {type: object, required: [total]}}
  r: {provider: p, output: text, on_unknown: retry, max_attempts: 10}
`
	conflict := &provider.Error{Class: provider.Unknown, Code: "conflict", Message: "busy", Status: 409, Billed: provider.BilledUnknown, Phase: provider.PhaseHeaders}
	down := &provider.Error{Class: provider.Unknown, Code: "bad_gateway", Message: "down", Status: 502, Billed: provider.BilledUnknown, Phase: provider.PhaseHeaders}
	for _, c := range []struct {
		name, kind string
		call       func(n int) (*provider.Response, error)
		calls      int
		code       string
	}{
		{"schema", "k", func(int) (*provider.Response, error) { return ok(`{"sum": 1}`) }, 3, "bad_output"},
		{"schema, other places", "k", func(n int) (*provider.Response, error) { return ok([]string{`1`, `[]`, `{}`, `"x"`}[n%4]) }, 10, "bad_output"},
		{"409", "r", func(int) (*provider.Response, error) { return nil, conflict }, 3, "attempts_exhausted"},
		{"409, not in a row", "r", func(n int) (*provider.Response, error) {
			if n%3 == 0 {
				return nil, down
			}
			return nil, conflict
		}, 10, "attempts_exhausted"},
		{"502", "r", func(int) (*provider.Response, error) { return nil, down }, 10, "attempts_exhausted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setupWith(t, file, func(_ context.Context, n int, _ provider.Request) (*provider.Response, error) { return c.call(n) })
			p := b.process(5 * time.Second)
			id := b.put(c.kind, "x")
			for range 12 {
				p.Work(context.Background(), id)
				b.due(id)
			}
			r := b.row(id)
			if r.State != api.Failed || r.Permanent() || r.ErrorCode != c.code || b.script.calls != c.calls {
				t.Errorf("got %s %s %q after %d calls, want %s after %d", r.State, r.ErrorCode, r.ErrorMessage, b.script.calls, c.code, c.calls)
			}
			if c.name == "schema" && !strings.Contains(r.ErrorMessage, "at /: missing total") {
				t.Errorf("message %q does not name the place", r.ErrorMessage)
			}
		})
	}
}
