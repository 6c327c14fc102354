package contract

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

var tests = map[string]func(*testing.T, *server){
	"fold": fold, "mismatch": mismatch, "outcomes": outcomes, "reopen": reopen, "unknown": unknown, "cancel": cancel,
	"wait": wait, "etag": etag, "raw": raw, "list": list, "bulk": bulk, "wait any": waitAny, "dedupe": dedupe,
	"later": later, "refusals": refusals, "statuses": statuses,
	"batches": batches, "batch refusals": batchRefusals, "batch acts": batchActs, "batch forms": batchForms,
}

func fold(t *testing.T, s *server) {
	k := key(t, "a")
	first, err := s.Submit(t.Context(), k, work("work", works, "one"), nil)
	if err != nil || first.Created == nil || !*first.Created || first.Run != 1 || first.Key != k || first.Kind != "work" {
		t.Fatalf("got %+v, %v", first, err)
	}
	done, err := s.Wait(t.Context(), first.ID)
	if err != nil || done.State != api.Succeeded || string(done.Result) != `"one"` || done.StartedAt == nil || done.FinishedAt == nil || done.ExpiresAt == nil || done.Attempts != 1 {
		t.Fatalf("got %+v, %v", done, err)
	}
	same, err := s.Submit(t.Context(), k, api.Submit{Kind: "work", Input: json.RawMessage(`{"text" : "one", "model":"fake:ok"}`)}, nil)
	if err != nil || same.ID != first.ID || *same.Created || same.Reopened || string(same.Result) != `"one"` || same.InputHash != first.InputHash {
		t.Errorf("the same again: %+v, %v", same, err)
	}
	other, err := s.Submit(t.Context(), k, work("careful", works, "one"), nil)
	if err != nil || other.ID == first.ID {
		t.Errorf("the key under another kind: %+v, %v", other, err)
	}
}

func mismatch(t *testing.T, s *server) {
	in := func(text string) api.Submit {
		return api.Submit{Kind: "work", Input: json.RawMessage(`{"model":"fake:ok","text":"x","more":` + text + `}`)}
	}
	first, err := s.Submit(t.Context(), key(t, "a"), in(`{"n":1.0,"list":[1,2],"gone":true}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := s.Submit(t.Context(), key(t, "a"), in(`{"gone":true,"list":[1,2],"n":10e-1}`), nil); err != nil || same.ID != first.ID {
		t.Errorf("another spelling: %+v, %v", same, err)
	}
	_, err = s.Submit(t.Context(), key(t, "a"), in(`{"n":2,"list":[1,3,4]}`), nil)
	var e *api.Error
	if !errors.Is(err, api.ErrKeyReused) || !errors.As(err, &e) || e.TaskID != first.ID {
		t.Fatalf("got %v", err)
	}
	want := []string{"input.more.gone", "input.more.list[1]", "input.more.list[2]", "input.more.n"}
	if diff := cmp.Diff(e.Mismatch, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func outcomes(t *testing.T, s *server) {
	got, err := s.Do(t.Context(), key(t, "ok"), work("work", works, "x"))
	if err != nil || got.Error != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = s.Do(t.Context(), key(t, "refused"), work("work", refuses, "x"))
	if !errors.Is(err, api.ErrFailed) || !errors.Is(err, &api.Error{Code: api.CodeRejected}) || got.State != api.Failed || !got.Error.Permanent || got.Result != nil {
		t.Errorf("a refusal: %+v, %v", got, err)
	}
	again, err := s.Submit(t.Context(), key(t, "refused"), work("work", refuses, "x"), nil)
	if err != nil || again.ID != got.ID || again.Run != 1 || again.Reopened || again.Epoch != got.Epoch {
		t.Errorf("a duplicate of what was refused: %+v, %v", again, err)
	}
}

func reopen(t *testing.T, s *server) {
	k := key(t, "a")
	got, err := s.Do(t.Context(), k, work("work", mends, "x"))
	if !errors.Is(err, api.ErrFailed) || got.Error.Code != string(api.CodeAttemptsExhaust) || got.Error.Permanent {
		t.Fatalf("got %+v, %v", got, err)
	}
	again, err := s.Submit(t.Context(), k, work("work", mends, "x"), nil)
	if err != nil || again.ID != got.ID || !again.Reopened || *again.Created || again.Run != 2 {
		t.Fatalf("a duplicate: %+v, %v", again, err)
	}
	if got, err = s.Wait(t.Context(), got.ID); err != nil || got.State != api.Succeeded || got.Run != 2 || got.Epoch < again.Epoch {
		t.Errorf("got %+v, %v", got, err)
	}
	k = key(t, "thrice")
	for run := 1; run <= 4; run++ {
		got, err = s.Do(t.Context(), k, work("work", breaks, "x"))
		if !errors.Is(err, api.ErrFailed) || got.Run != min(run, 3) {
			t.Errorf("submit %d: %+v, %v", run, got, err)
		}
	}
	got, err = s.Retry(t.Context(), got.ID, got.Epoch, "a person wants it")
	if err != nil || got.Run != 4 {
		t.Errorf("a retry: %+v, %v", got, err)
	}
}

func unknown(t *testing.T, s *server) {
	park := func(name string) *api.Task {
		t.Helper()
		got, err := s.Do(t.Context(), key(t, name), work("careful", breaks, "x"))
		if !errors.Is(err, api.ErrUnknown) || got == nil || got.State != api.Unknown || got.Error == nil || got.Error.Code != string(api.CodeOutcomeUnknown) {
			t.Fatalf("got %+v, %v", got, err)
		}
		return got
	}
	a := park("a")
	if same, err := s.Submit(t.Context(), key(t, "a"), work("careful", breaks, "x"), nil); err != nil || same.State != api.Unknown || same.Run != 1 {
		t.Errorf("a duplicate: %+v, %v", same, err)
	}
	if _, err := s.Resolve(t.Context(), a.ID, api.Resolve{Action: api.ResolveFailed, Epoch: a.Epoch + 1, Reason: "r"}); !errors.Is(err, api.ErrConflict) {
		t.Errorf("another epoch: %v", err)
	}
	for name, r := range map[string]api.Resolve{
		"no reason": {Action: api.ResolveFailed, Epoch: a.Epoch}, "no result": {Action: api.ResolveSucceeded, Epoch: a.Epoch, Reason: "r"},
		"no action": {Epoch: a.Epoch, Reason: "r"},
	} {
		if _, err := s.Resolve(t.Context(), a.ID, r); !errors.Is(err, api.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := s.Resolve(t.Context(), a.ID, api.Resolve{Action: api.ResolveSucceeded, Epoch: a.Epoch, Reason: "it is there", Result: json.RawMessage(`"by hand"`)})
	if err != nil || got.State != api.Succeeded || string(got.Result) != `"by hand"` || got.Error != nil || got.Epoch <= a.Epoch {
		t.Errorf("resolved: %+v, %v", got, err)
	}
	b := park("b")
	got, err = s.Resolve(t.Context(), b.ID, api.Resolve{Action: api.ResolveFailed, Epoch: b.Epoch, Reason: "r", Message: "it never came"})
	if err != nil || got.State != api.Failed || !got.Error.Permanent || got.Error.Code != string(api.CodeRefusedByPerson) || got.Error.Message != "it never came" {
		t.Errorf("resolved as failed: %+v, %v", got, err)
	}
	c := park("c")
	if got, err = s.Resolve(t.Context(), c.ID, api.Resolve{Action: api.ResolveRetry, Epoch: c.Epoch, Reason: "r"}); err != nil || got.Run != 2 || got.State.Settled() {
		t.Errorf("resolved as to be run again: %+v, %v", got, err)
	}
	d := park("d")
	if got, err = s.Cancel(t.Context(), d.ID); err != nil || got.State != api.Cancelled {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	if _, err := s.Resolve(t.Context(), d.ID, api.Resolve{Action: api.ResolveFailed, Epoch: got.Epoch, Reason: "r"}); !errors.Is(err, api.ErrConflict) {
		t.Errorf("nothing to resolve: %v", err)
	}
}

func cancel(t *testing.T, s *server) {
	at := time.Now().Add(time.Hour)
	late := work("work", works, "x")
	late.RunAt = &at
	waiting, err := s.Submit(t.Context(), key(t, "waiting"), late, nil)
	if err != nil || waiting.State != api.Pending {
		t.Fatalf("got %+v, %v", waiting, err)
	}
	got, err := s.Cancel(t.Context(), waiting.ID)
	if err != nil || got.State != api.Cancelled || got.Cancel == nil || got.Cancel.Asked || got.Cancel.MayStillBill || got.FinishedAt == nil {
		t.Errorf("of what waits: %+v, %v", got, err)
	}
	if again, err := s.Cancel(t.Context(), waiting.ID); err != nil || again.State != api.Cancelled || again.Epoch != got.Epoch {
		t.Errorf("twice: %+v, %v", again, err)
	}
	if dup, err := s.Submit(t.Context(), key(t, "waiting"), late, nil); err != nil || dup.State != api.Cancelled || dup.Run != 1 {
		t.Errorf("a duplicate of it: %+v, %v", dup, err)
	}
	if _, err := s.Retry(t.Context(), got.ID, got.Epoch, "r"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a retry of it: %v", err)
	}
	running := s.running(t, key(t, "running"))
	if got, err = s.Cancel(t.Context(), running.ID); err != nil || got.State != api.Running || !got.CancelAsked || !got.Cancel.Asked || !got.Cancel.MayStillBill {
		t.Errorf("of what runs: %+v, %v", got, err)
	}
	if got, err = s.Wait(t.Context(), running.ID); !errors.Is(err, api.ErrFailed) || got.State != api.Cancelled || got.Result != nil || got.CancelAsked {
		t.Errorf("its end: %+v, %v", got, err)
	}
	done, err := s.Do(t.Context(), key(t, "done"), work("work", works, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(t.Context(), done.ID); !errors.Is(err, api.ErrConflict) {
		t.Errorf("of what is done: %v", err)
	}
}

// running submits a task and returns it once it runs.
func (s *server) running(t *testing.T, k string) *api.Task {
	t.Helper()
	got, err := s.Submit(t.Context(), k, work("work", slow, "x"), nil)
	for look := time.NewTicker(20 * time.Millisecond); err == nil && got.State != api.Running; <-look.C {
		got, err = s.Get(t.Context(), got.ID, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wait(t *testing.T, s *server) {
	got, err := s.Submit(t.Context(), key(t, "a"), work("work", works, "x"), &client.SubmitOpts{Wait: 60 * time.Second})
	if err != nil || got.State != api.Succeeded || !*got.Created {
		t.Errorf("a submit that waits: %+v, %v", got, err)
	}
	running := s.running(t, key(t, "slow"))
	if got, err = s.Get(t.Context(), running.ID, &client.GetOpts{Wait: time.Second}); err != nil || got.State != api.Running {
		t.Errorf("a wait that is over first: %+v, %v", got, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if got, err = s.Wait(ctx, running.ID); !errors.Is(err, api.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that has no time: %+v, %v", got, err)
	}
}

func etag(t *testing.T, s *server) {
	got, err := s.Do(t.Context(), key(t, "a"), work("work", works, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err = s.Get(t.Context(), got.ID, nil); err != nil || got.ETag == "" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if _, err := s.Submit(t.Context(), key(t, "a"), work("work", works, "x"), nil); err != nil { // duplicates change no tag
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), got.ID, &client.GetOpts{ETag: got.ETag}); !errors.Is(err, client.ErrNotModified) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Get(t.Context(), got.ID, &client.GetOpts{ETag: `W/"other"`}); err != nil {
		t.Errorf("another tag: %v", err)
	}
}

func raw(t *testing.T, s *server) {
	in := `{ "model":"fake:ok",  "text":"a\u00e9<b>", "n": 1.0e2 }`
	got, err := s.Do(t.Context(), key(t, "a"), api.Submit{Kind: "work", Input: json.RawMessage(in)})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Input(t.Context(), got.ID); err != nil || string(b) != in {
		t.Errorf("the input is %s, %v", b, err)
	}
	if b, err := s.Result(t.Context(), got.ID); err != nil || string(b) != string(got.Result) {
		t.Errorf("the result is %s, %v; in the task it is %s", b, err, got.Result)
	}
	failed, _ := s.Do(t.Context(), key(t, "failed"), work("work", refuses, "x"))
	if _, err := s.Result(t.Context(), failed.ID); !errors.Is(err, api.ErrConflict) {
		t.Errorf("the result of what failed: %v", err)
	}
}

func list(t *testing.T, s *server) {
	var want []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		in := work("work", works, name)
		in.Metadata = json.RawMessage(`{"list":"` + key(t, "") + `","name":"` + name + `"}`)
		got, err := s.Do(t.Context(), key(t, name), in)
		if err != nil {
			t.Fatal(err)
		}
		want = append([]string{got.ID}, want...)
	}
	mine := map[string]string{"list": key(t, "")}
	ids := func(o client.ListOpts) (out []string) {
		t.Helper()
		for got, err := range s.List(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			if got.Result != nil {
				t.Errorf("a list has the result %s", got.Result)
			}
			out = append(out, got.ID)
		}
		return out
	}
	if diff := cmp.Diff(ids(client.ListOpts{Metadata: mine, Limit: 2}), want); diff != "" {
		t.Errorf("in pages of two: -got +want:\n%s", diff)
	}
	if diff := cmp.Diff(ids(client.ListOpts{Metadata: map[string]string{"list": mine["list"], "name": "b"}, Kind: "work", States: []api.State{api.Succeeded, api.Failed}}), want[3:4]); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if got := ids(client.ListOpts{Metadata: mine, States: []api.State{api.Failed}}); got != nil {
		t.Errorf("got %v, want none", got)
	}
	if got, err := s.Find(t.Context(), "work", key(t, "c")); err != nil || got.ID != want[2] || string(got.Result) != `"c"` {
		t.Errorf("found %+v, %v", got, err)
	}
	if _, err := s.Find(t.Context(), "work", key(t, "nosuch")); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	for _, err := range s.List(t.Context(), client.ListOpts{Key: "k"}) {
		if !errors.Is(err, api.ErrInvalid) {
			t.Errorf("a key without a kind: %v", err)
		}
	}
}

func bulk(t *testing.T, s *server) {
	keyed := func(name string, in api.Submit) api.Keyed { return api.Keyed{Key: key(t, name), Submit: in} }
	out := s.SubmitMany(t.Context(), []api.Keyed{
		keyed("a", work("work", works, "one")), keyed("b", work("nosuch", works, "two")), keyed("a", work("work", works, "one")),
		keyed("a", work("work", works, "changed")), keyed("c", work("work", works, "three")),
	})
	if out[0].Err != nil || !*out[0].Task.Created || out[2].Err != nil || *out[2].Task.Created || out[2].Task.ID != out[0].Task.ID {
		t.Errorf("a key twice in one request: %+v and %+v", out[0], out[2])
	}
	if !errors.Is(out[1].Err, &api.Error{Code: api.CodeUnknownKind}) || !errors.Is(out[3].Err, api.ErrKeyReused) {
		t.Errorf("got %v and %v", out[1].Err, out[3].Err)
	}
	if out[4].Err != nil {
		t.Fatal(out[4].Err)
	}
	if got, err := s.Wait(t.Context(), out[4].Task.ID); err != nil || string(got.Result) != `"three"` {
		t.Errorf("got %+v, %v", got, err)
	}
}

func waitAny(t *testing.T, s *server) {
	running := s.running(t, key(t, "slow"))
	quick, err := s.Submit(t.Context(), key(t, "quick"), work("work", works, "x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.WaitAny(t.Context(), running.ID, quick.ID); err != nil || got.ID != quick.ID {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := s.WaitAny(t.Context(), running.ID, "0199a5e0-0000-7000-8000-000000000000"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

func dedupe(t *testing.T, s *server) {
	k := key(t, "a")
	first, err := s.Do(t.Context(), k, work("open", works, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if second, err := s.Do(t.Context(), k, work("open", works, "two")); err != nil || second.ID == first.ID {
		t.Errorf("open: after the end of the first: %+v, %v", second, err)
	}
	running, err := s.Submit(t.Context(), key(t, "b"), work("open", slow, "one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := s.Submit(t.Context(), key(t, "b"), work("open", slow, "one"), nil); err != nil || same.ID != running.ID {
		t.Errorf("open: while it runs: %+v, %v", same, err)
	}
	one, err1 := s.Submit(t.Context(), client.NoKey, work("free", works, "one"), nil)
	two, err2 := s.Submit(t.Context(), client.NoKey, work("free", works, "one"), nil)
	if err1 != nil || err2 != nil || one.ID == two.ID || one.Key != "" {
		t.Errorf("none: %+v, %v, %+v, %v", one, err1, two, err2)
	}
	at := time.Date(2026, 3, 1, 12, 10, 0, 0, time.UTC)
	submit := func(at time.Time) *api.Task {
		in := work("window", works, "one")
		in.OccurredAt = &at
		got, err := s.Submit(t.Context(), k, in, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a, b, c := submit(at), submit(at.Add(49*time.Minute)), submit(at.Add(50*time.Minute))
	if a.ID != b.ID || a.ID == c.ID {
		t.Errorf("window: got %s, %s, %s; want the first two to be one", a.ID, b.ID, c.ID)
	}
}

func later(t *testing.T, s *server) {
	soon, late := time.Now().Add(1500*time.Millisecond), time.Now().Add(time.Hour)
	in := work("work", works, "x")
	in.RunAt = &soon
	got, err := s.Do(t.Context(), key(t, "soon"), in)
	if err != nil || got.StartedAt.Before(soon.Add(-time.Second)) {
		t.Errorf("a task for later: %+v, %v", got, err)
	}
	deadline := time.Now().Add(2 * time.Second)
	in = work("work", works, "x")
	in.RunAt, in.Deadline = nil, &deadline
	in.Input = work("work", slow, "x").Input
	if got, err = s.Do(t.Context(), key(t, "deadline"), in); !errors.Is(err, api.ErrFailed) || got.Error.Permanent {
		t.Errorf("a task beyond its deadline: %+v, %v", got, err)
	}
	in.RunAt, in.Deadline = &late, &soon
	if _, err := s.Submit(t.Context(), key(t, "never"), in, nil); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a deadline before the start: %v", err)
	}
}

func refusals(t *testing.T, s *server) {
	code := func(err error) api.Code {
		var e *api.Error
		if !errors.As(err, &e) {
			return ""
		}
		return e.Code
	}
	for want, in := range map[api.Code]api.Submit{
		api.CodeUnknownKind:      work("nosuch", works, "x"),
		api.CodeDedupeMismatch:   {Kind: "work", Input: json.RawMessage(`{}`), Dedupe: "none"},
		api.CodeOccurredRequired: work("window", works, "x"),
		api.CodeDuplicateMember:  {Kind: "work", Input: json.RawMessage(`{"a":1,"a":2}`)},
		api.CodeNULCharacter:     {Kind: "work", Input: json.RawMessage(`"\u0000"`)},
		api.CodeInvalidInput:     {Kind: "llm.chat", Input: json.RawMessage(`{"messages":[]}`)},
		api.CodeInvalidField:     {Kind: "work", Input: json.RawMessage(`1`), Metadata: json.RawMessage(`{"n":1}`)},
	} {
		if _, err := s.Submit(t.Context(), key(t, "a"), in, nil); code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	const none = "0199a5e0-0000-7000-8000-000000000000"
	if _, err := s.Get(t.Context(), none, nil); code(err) != api.CodeNotFound {
		t.Errorf("got %v", err)
	}
	if _, err := s.Cancel(t.Context(), none); code(err) != api.CodeNotFound {
		t.Errorf("got %v", err)
	}
	stranger, err := client.New(s.url, "of_nobody_0123456789abcdef", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Get(t.Context(), none, nil); code(err) != api.CodeUnauthorized {
		t.Errorf("another key: %v", err)
	}
}
