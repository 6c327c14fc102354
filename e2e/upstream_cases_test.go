package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// upstreamCase is what a scripted provider answers, and what then holds.
type upstreamCase struct {
	id   string
	in   upstreamInput
	want upstreamAnswer
}

type upstreamInput struct {
	Type      string            `json:"type"`
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      json.RawMessage   `json:"body"`
	BodyB64   string            `json:"body_b64"`
	ChunksB64 []string          `json:"chunks_b64"`
	Then      string            `json:"then"`
}

type upstreamAnswer struct {
	State         string  `json:"state"`
	Error         string  `json:"error"`
	Content       *string `json:"content"`
	UpstreamCalls int     `json:"upstream_calls"`
	Healthy       int     `json:"healthy_succeeded"`
	HealthyCalls  int     `json:"healthy_upstream_calls"`
	GracefulStopS int     `json:"graceful_stop_s_max"`
	Note          string  `json:"note"`
}

// maxAttempts is that of llm.chat in the configuration of these tests.
const maxAttempts = 3

func readCase(t *testing.T, c casetest.Case) upstreamCase {
	t.Helper()
	u := upstreamCase{id: c.ID}
	if err := json.Unmarshal(c.Input, &u.in); err != nil {
		t.Fatal(err)
	}
	c.Expect(t, &u.want)
	return u
}

// TestUpstreamCases plays cases of what a provider answers through whole
// processes: submitted to an api, run by a worker, polled from the api.
func TestUpstreamCases(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "e2e.TestUpstreamCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			readCase(t, c).play(t)
		})
	}
}

func (u upstreamCase) play(t *testing.T) {
	t.Helper()
	up := newUpstream(t)
	up.answer(u.id, func(a *answering) { u.answer(t, a) })
	w := proc.New(t, &proc.Opts{Config: up.config()})
	front, back := w.API(t), w.Worker(t)
	c := w.Client(t, front)
	task, err := c.Submit(t.Context(), u.id, api.Submit{Kind: "llm.chat", Input: chatInput(u.id)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if u.want.Healthy > 0 {
		u.healthy(t, up, c)
	}
	got, err := c.Wait(t.Context(), task.ID)
	if got == nil || !got.State.Settled() {
		t.Fatalf("the task did not settle: %v", err)
	}
	u.judge(t, got, up.calls(u.id))
	u.poll(t, w, front, got)
	u.stop(t, back)
}

func chatInput(model string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model))
}

// healthy runs the tasks that the same worker must not have been hurt for.
func (u upstreamCase) healthy(t *testing.T, up *upstream, c *client.Client) {
	t.Helper()
	up.await(t, u.id, 1)
	var all sync.WaitGroup
	for i := range u.want.Healthy {
		all.Go(func() {
			if _, err := c.Do(t.Context(), fmt.Sprint("healthy-", i), api.Submit{Kind: "llm.chat", Input: chatInput("healthy")}); err != nil {
				t.Errorf("healthy task %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := up.calls("healthy"); n != u.want.HealthyCalls {
		t.Errorf("got %d calls for the healthy tasks, want %d", n, u.want.HealthyCalls)
	}
}

// judge compares the settled task with what the case expects. Its "retrying or
// failed" is failed here, for the task is settled; "bounded" attempts are those
// of the kind.
func (u upstreamCase) judge(t *testing.T, got *api.Task, calls int) {
	t.Helper()
	want := api.Succeeded
	if strings.Contains(u.want.State, "failed") {
		want = api.Failed
	}
	if got.State != want {
		t.Fatalf("got %s (%+v), want %s", got.State, got.Error, want)
	}
	if u.want.Error != "" && got.Error.Code != u.want.Error {
		t.Errorf("got the error %s, want %s", got.Error.Code, u.want.Error)
	}
	if u.want.UpstreamCalls != 0 && calls != u.want.UpstreamCalls {
		t.Errorf("got %d calls, want %d", calls, u.want.UpstreamCalls)
	}
	if calls < 1 || calls > maxAttempts {
		t.Errorf("got %d calls, want at most the kind's %d attempts", calls, maxAttempts)
	}
	if want != api.Succeeded {
		if strings.ContainsRune(got.Error.Message, 0) {
			t.Errorf("the error %q holds U+0000", got.Error.Message)
		}
		return
	}
	content := contentOf(t, got.Result)
	switch {
	case u.want.Content != nil && content != *u.want.Content:
		t.Errorf("got the content %q, want %q", content, *u.want.Content)
	case u.id == "C061" && content != "x\x00y" && content != "x\uFFFDy":
		t.Errorf("got the content %q, want %s", content, u.want.Note)
	}
}

func contentOf(t *testing.T, result json.RawMessage) string {
	t.Helper()
	var doc struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(result, &doc); err != nil || len(doc.Choices) != 1 {
		t.Fatalf("the result %.200s has no choice: %v", result, err)
	}
	return doc.Choices[0].Message.Content
}

// poll reads the task once more without our client, which might mend it: the
// body is valid JSON, and its result is the raw one, byte for byte.
func (u upstreamCase) poll(t *testing.T, w *proc.World, front *proc.Process, got *api.Task) {
	t.Helper()
	body := fetch(t, w, front.URL()+"/v1/tasks/"+got.ID)
	var doc struct{ Result json.RawMessage }
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("the poll's body is no JSON: %v\n%.300q", err, body)
	}
	if got.State != api.Succeeded {
		return
	}
	if raw := fetch(t, w, front.URL()+"/v1/tasks/"+got.ID+"/result"); string(raw) != string(doc.Result) {
		t.Errorf("the raw result is %q, the polled one %q", raw, doc.Result)
	}
}

// stop ends the worker as an orchestrator does. The case's bound is a guard and
// taken times five.
func (u upstreamCase) stop(t *testing.T, back *proc.Process) {
	t.Helper()
	start := time.Now()
	if err := back.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code, err := back.Exit()
	if err != nil || code != 0 {
		t.Errorf("the worker ended with %d, %v; want 0", code, err)
	}
	if most := 5 * time.Duration(u.want.GracefulStopS) * time.Second; most > 0 && time.Since(start) > most {
		t.Errorf("the stop took %s, want at most %s", time.Since(start), most)
	}
}

// answer plays the script.
func (u upstreamCase) answer(t *testing.T, a *answering) {
	if u.in.Type == "upstream_stream" {
		a.Header().Set("Content-Type", "text/event-stream")
		for _, chunk := range u.in.ChunksB64 {
			_, _ = a.Write(unbase64(t, chunk))
			a.ResponseWriter.(http.Flusher).Flush()
		}
		return
	}
	for name, value := range u.in.Headers {
		a.Header().Set(name, value)
	}
	a.WriteHeader(u.in.Status)
	if u.in.BodyB64 != "" {
		_, _ = a.Write(unbase64(t, u.in.BodyB64))
		return
	}
	text, err := casetest.Text(u.in.Body)
	if err != nil {
		t.Error(err)
	}
	_, _ = a.Write(text)
}

func unbase64(t *testing.T, s string) []byte {
	raw, err := casetest.Base64(s)
	if err != nil {
		t.Error(err)
	}
	return raw
}
