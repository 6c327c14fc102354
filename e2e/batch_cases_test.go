package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// chatLines is a file of OpenAI's form: a line for each model, named after it.
func chatLines(models ...string) string {
	var b strings.Builder
	for _, m := range models {
		fmt.Fprintf(&b, `{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", m, chatInput(m))
	}
	return b.String()
}

// numbered gives n model names, so that the calls of each line count apart.
func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("m", i+1)
	}
	return out
}

func batchEnd(t *testing.T, c *client.Client, key, file string) *api.Batch {
	t.Helper()
	b, err := c.UploadBatch(t.Context(), key, strings.NewReader(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = c.WaitBatch(t.Context(), b.ID, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// outputOf reads the results of a batch by custom_id: the text that was
// answered, or the error's code.
func outputOf(t *testing.T, c *client.Client, id string) (order []string, said map[string]string) {
	t.Helper()
	said = map[string]string{}
	for l, err := range c.BatchResults(t.Context(), id, nil) {
		if err != nil {
			t.Fatal(err)
		}
		var r api.OpenAIResult
		if err := json.Unmarshal(l.Text, &r); err != nil || r.CustomID == nil {
			t.Fatalf("a result is %s, %v", l.Text, err)
		}
		order = append(order, *r.CustomID)
		if r.Error != nil {
			said[*r.CustomID] = "error " + r.Error.Code
			continue
		}
		said[*r.CustomID] = contentOf(t, r.Response.Body)
	}
	return order, said
}

// TestBatchLineFails plays C252: a line that the provider refuses fails, and the
// others do not notice.
func TestBatchLineFails(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "e2e.TestBatchLineFails") {
		u := readCase(t, c)
		var want struct{ Counts api.BatchCounts }
		c.Expect(t, &want)
		up := newUpstream(t)
		up.answer("m4", func(a *answering) { u.answer(t, a) })
		w := proc.New(t, &proc.Opts{Config: up.config()})
		front := w.API(t)
		w.Worker(t)
		cl := w.Client(t, front)
		b := batchEnd(t, cl, "nightly", chatLines(numbered(10)...))
		if diff := cmp.Diff(b.Counts, want.Counts); diff != "" || b.State != api.BatchCompleted {
			t.Errorf("%s: %s, counts: -got +want:\n%s", c.ID, b.State, diff)
		}
		order, said := outputOf(t, cl, b.ID)
		for i, id := range order {
			text := "ok"
			if id == "m4" {
				text = "error rejected"
			}
			if id != fmt.Sprint("m", i+1) || said[id] != text {
				t.Errorf("%s: line %d is %s: %q, want %q", c.ID, i+1, id, said[id], text)
			}
		}
		if n := up.calls("m4"); n != 1 {
			t.Errorf("%s: %d calls of what is refused, want 1", c.ID, n)
		}
	}
}

// TestBatchesShareIDs plays C253: ids mean lines of their own batch only.
func TestBatchesShareIDs(t *testing.T) {
	t.Parallel()
	casetest.Claimed(t, "e2e.TestBatchesShareIDs")
	w := proc.New(t, nil)
	front := w.API(t)
	w.Worker(t)
	cl := w.Client(t, front)
	var all sync.WaitGroup
	for _, key := range []string{"first", "second"} {
		all.Go(func() {
			file := fmt.Sprintf(`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"fake:ok","messages":[{"role":"user","content":"this is the %s"}]}}`, key)
			b, err := cl.UploadBatch(t.Context(), key, strings.NewReader(file), nil)
			if err == nil {
				b, err = cl.WaitBatch(t.Context(), b.ID, nil)
			}
			if err != nil {
				t.Errorf("batch %s: %v", key, err)
				return
			}
			if _, said := outputOf(t, cl, b.ID); said["a"] != "this is the "+key {
				t.Errorf("batch %s was given the answer %q", key, said["a"])
			}
		})
	}
	all.Wait()
	if n := w.Model.Calls().Received; n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// TestBatchWorkerKilled plays C254: the worker is killed with 37 of 100 lines
// finished and the others' calls under way.
func TestBatchWorkerKilled(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "e2e.TestBatchWorkerKilled") {
		var want struct {
			Results int
			Again   int `json:"lines_finished_before_kill_called_again"`
		}
		c.Expect(t, &want)
		const before = 37
		models := numbered(want.Results)
		up, gate := newUpstream(t), newGate(before)
		for _, m := range models {
			up.answer(m, gate.pass)
		}
		w := proc.New(t, &proc.Opts{Config: up.config()})
		front, back := w.API(t), w.Worker(t)
		cl := w.Client(t, front)
		b, err := cl.UploadBatch(t.Context(), "nightly", strings.NewReader(chatLines(models...)), nil)
		if err != nil {
			t.Fatal(err)
		}
		const finished = `SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded'`
		proc.Until(t, "37 lines finished, and others called", func() bool { return w.Count(t, finished) == before && gate.waiting() > 0 })
		back.Kill(t)
		gate.open()
		var early []string
		if err := w.Pool.QueryRow(t.Context(), `
SELECT array_agg(l.line_id) FROM onefold.batch_lines AS l JOIN onefold.tasks AS t ON t.id = l.task_id WHERE t.state = 'succeeded'`).Scan(&early); err != nil || len(early) != before {
			t.Fatalf("%d lines finished before the kill, %v", len(early), err)
		}
		back.Restart(t)
		if b, err = cl.WaitBatch(t.Context(), b.ID, nil); err != nil || b.Counts.Succeeded != want.Results {
			t.Fatalf("%s: got %+v, %v", c.ID, b, err)
		}
		order, _ := outputOf(t, cl, b.ID)
		if diff := cmp.Diff(order, models); diff != "" {
			t.Errorf("%s: the lines of the results: -got +want:\n%s", c.ID, diff)
		}
		again := 0
		for _, m := range early {
			again += up.calls(m) - 1
		}
		if again != want.Again {
			t.Errorf("%s: %d calls of lines that were finished, want %d", c.ID, again, want.Again)
		}
		lost := w.Count(t, `SELECT count(*) FROM onefold.attempts WHERE outcome = 'lost' AND billed = 'unknown'`)
		calls := 0
		for _, m := range models {
			calls += up.calls(m)
		}
		if calls < want.Results || calls > want.Results+lost {
			t.Errorf("%s: %d calls for %d lines, the ledger marks %d as lost", c.ID, calls, want.Results, lost)
		}
	}
}

// gate lets so many calls through and holds the others until it is opened.
type gate struct {
	free   chan struct{}
	opened chan struct{}
	mu     sync.Mutex
	held   int
}

func newGate(n int) *gate {
	g := &gate{free: make(chan struct{}, n), opened: make(chan struct{})}
	for range n {
		g.free <- struct{}{}
	}
	return g
}

func (g *gate) pass(a *answering) {
	select {
	case <-g.free:
	default:
		g.mu.Lock()
		g.held++
		g.mu.Unlock()
		select {
		case <-g.opened:
		case <-a.r.Context().Done():
		}
	}
	a.say("ok")
}

func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

func (g *gate) open() { close(g.opened) }

// TestBatchReplyLost plays C255: the answer to an upload is lost after its
// commit; the same file again finds the batch.
func TestBatchReplyLost(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "e2e.TestBatchReplyLost") {
		var want struct{ Batches int }
		c.Expect(t, &want)
		up := newUpstream(t)
		w := proc.New(t, &proc.Opts{Config: up.config()})
		front := w.API(t)
		w.Worker(t)
		models := numbered(20)
		file := chatLines(models...)
		loseReply(t, w, front, "nightly", file)
		cl := w.Client(t, front)
		b, err := cl.UploadBatch(t.Context(), "nightly", strings.NewReader(file), nil)
		if err != nil || b.Created == nil || *b.Created {
			t.Fatalf("%s: got %+v, %v; want the batch that is there", c.ID, b, err)
		}
		if b, err = cl.WaitBatch(t.Context(), b.ID, nil); err != nil || b.Counts.Succeeded != len(models) {
			t.Errorf("%s: got %+v, %v", c.ID, b, err)
		}
		if n := w.Count(t, `SELECT count(*) FROM onefold.batches`); n != want.Batches {
			t.Errorf("%s: got %d batches, want %d", c.ID, n, want.Batches)
		}
		for _, m := range models {
			if n := up.calls(m); n != 1 {
				t.Errorf("%s: line %s was called %d times", c.ID, m, n)
			}
		}
	}
}

// loseReply uploads a file and breaks the connection once the batch has started,
// without reading the answer.
func loseReply(t *testing.T, w *proc.World, front *proc.Process, key, file string) {
	t.Helper()
	at, err := url.Parse(front.URL())
	if err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(context.Background(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out := bufio.NewWriter(conn)
	fmt.Fprintf(out, "%s /v1/batches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\nContent-Type: application/jsonl\r\nContent-Length: %d\r\n\r\n%s",
		http.MethodPost, w.Key, key, len(file), file)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	proc.Until(t, "the batch started", func() bool {
		return w.Count(t, `SELECT count(*) FROM onefold.batches WHERE started_at IS NOT NULL`) == 1
	})
}
