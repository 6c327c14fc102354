package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// A thousand submits of one key at once over two api processes, on kept and on
// fresh connections, while a worker runs: one task, one model call, one answer
// that it is new, 999 that it is known, no refusal and no error.
func TestStormOfOneKey(t *testing.T) {
	t.Parallel()
	w := proc.New(t, nil)
	s := newSenders(t, w, w.API(t), w.API(t))
	w.Worker(t)
	shots := repeat(1000, "same", chat("fake:latency=300ms", "hello"))
	s.fire(t, shots)
	statuses, ids := tally(shots)
	if diff := cmp.Diff(statuses, map[int]int{202: 1, 200: 999}); diff != "" || len(ids) != 1 {
		t.Errorf("got %d ids; statuses: -got +want:\n%s", len(ids), diff)
	}
	drained(t, w)
	if calls := w.Model.Calls().Received; calls != 1 {
		t.Errorf("got %d model calls, want 1", calls)
	}
	if n := w.Count(t, `SELECT count(*) FROM onefold.tasks`); n != 1 {
		t.Errorf("got %d tasks, want 1", n)
	}
	proc.Until(t, "999 duplicates counted", func() bool {
		return w.Count(t, `SELECT coalesce(sum(count), 0)::int FROM onefold.task_duplicates`) == 999
	})
}

// Fifty keys forty times each, shuffled, one in twenty with a changed body: one
// task and one call a key; whoever comes with another body than the key's first
// is refused, and what is stored is the first.
func TestStormOfManyKeys(t *testing.T) {
	t.Parallel()
	w := proc.New(t, nil)
	s := newSenders(t, w, w.API(t), w.API(t))
	w.Worker(t)
	var shots []*shot
	for k := range 50 {
		for i := range 40 {
			text := "right"
			if i < 2 {
				text = "changed"
			}
			shots = append(shots, &shot{key: fmt.Sprint("key-", k), body: chat("fake:latency=50ms", fmt.Sprint(text, " ", k))})
		}
	}
	rand.Shuffle(len(shots), func(i, j int) { shots[i], shots[j] = shots[j], shots[i] })
	s.fire(t, shots)
	first := map[string]*shot{}
	for _, sh := range shots {
		if sh.status == 202 {
			if first[sh.key] != nil {
				t.Errorf("%s: two answers that it is new", sh.key)
			}
			first[sh.key] = sh
		}
	}
	for _, sh := range shots {
		f, want := first[sh.key], 200
		switch {
		case f == nil:
			t.Fatalf("%s: no answer that it is new", sh.key)
		case sh == f:
			want = 202
		case sh.body != f.body:
			want = 422
		}
		if sh.status != want || want != 422 && sh.task.ID != f.task.ID {
			t.Errorf("%s: got %d for task %s, want %d for %s", sh.key, sh.status, sh.task.ID, want, f.task.ID)
		}
	}
	drained(t, w)
	if calls := w.Model.Calls(); calls.Received != 50 || len(calls.ByTask) != 50 {
		t.Errorf("got %d model calls for %d tasks, want 50 for 50", calls.Received, len(calls.ByTask))
	}
	unchanged(t, w, s, first)
}

// unchanged checks that each key still means the body it was first given.
func unchanged(t *testing.T, w *proc.World, s *senders, first map[string]*shot) {
	t.Helper()
	c := w.Client(t, s.apis[1])
	for key, f := range first {
		input, err := c.Input(t.Context(), f.task.ID)
		if err != nil || `{"kind":"llm.chat","input":`+string(input)+`}` != f.body {
			t.Errorf("%s: the input is %s, %v; want that of %s", key, input, err, f.body)
		}
	}
	if n := w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded'`); n != len(first) {
		t.Errorf("got %d succeeded tasks, want %d", n, len(first))
	}
}

// One key submitted while its task waits, while its call is under way, and when
// its result is there: one task, one call, and the same result for all that
// come after.
func TestStormSpread(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	gate := make(chan struct{})
	up.answer("slow", func(a *answering) { <-gate; a.say("spread") })
	w := proc.New(t, &proc.Opts{Config: up.config()})
	s := newSenders(t, w, w.API(t), w.API(t))
	body := chat("slow", "hello")

	before := repeat(100, "spread", body)
	s.fire(t, before)
	w.Worker(t)
	up.await(t, "slow", 1)
	during := repeat(100, "spread", body)
	s.fire(t, during)
	close(gate)
	drained(t, w)
	after := repeat(100, "spread", body)
	s.fire(t, after)

	statuses, ids := tally(slices.Concat(before, during, after))
	if diff := cmp.Diff(statuses, map[int]int{202: 1, 200: 299}); diff != "" || len(ids) != 1 {
		t.Errorf("got %d ids; statuses: -got +want:\n%s", len(ids), diff)
	}
	for _, sh := range before {
		if sh.task.State != api.Pending {
			t.Errorf("before the run: got %s", sh.task.State)
		}
	}
	for _, sh := range during {
		if sh.task.State != api.Running {
			t.Errorf("during the run: got %s", sh.task.State)
		}
	}
	for _, sh := range after {
		if sh.task.State != api.Succeeded || string(sh.task.Result) != string(after[0].task.Result) || len(sh.task.Result) == 0 {
			t.Errorf("after the run: got %s with %s, want what the first got: %s", sh.task.State, sh.task.Result, after[0].task.Result)
		}
	}
	if n := up.calls("slow"); n != 1 {
		t.Errorf("got %d model calls, want 1", n)
	}
}
