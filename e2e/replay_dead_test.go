package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// TestDeadKey plays C023: a key whose task failed for good means that task,
// whichever way it comes in again: alone, in bulk, as a line of a batch, as a
// signed webhook. The model is called once.
func TestDeadKey(t *testing.T) {
	t.Parallel()
	const config = `
retention: {tasks: 720h}
providers:
  model: {type: openai, base_url: "{{FAKELLM}}"}
kinds:
  llm.chat: {provider: model}
sources:
  hook: {scheme: github, tenant: e2e, kind: llm.chat, secret_env: HOOK}
`
	const key, secret, input = "d1", "the secret of the source hook", `{"model":"fake:status=400","messages":[{"role":"user","content":"dead"}]}`
	for _, c := range casetest.Claimed(t, "e2e.TestDeadKey") {
		var want struct {
			UpstreamCalls int `json:"upstream_calls"`
		}
		c.Expect(t, &want)
		w := proc.New(t, &proc.Opts{Config: config, Env: []string{"HOOK=" + secret}})
		front := w.API(t)
		w.Worker(t)
		cl := w.Client(t, front)
		submit := api.Submit{Kind: "llm.chat", Input: json.RawMessage(input)}
		first, err := cl.Submit(t.Context(), key, submit, nil)
		if err != nil {
			t.Fatal(err)
		}
		dead, _ := cl.Wait(t.Context(), first.ID)
		if dead == nil || dead.State != api.Failed {
			t.Fatalf("%s: the task is %+v", c.ID, dead)
		}
		same := func(how, id string, state api.State) {
			t.Helper()
			if id != first.ID || state != api.Failed {
				t.Errorf("%s: %s is answered with %s %q, want %s failed", c.ID, how, id, state, first.ID)
			}
		}
		again, err := cl.Submit(t.Context(), key, submit, nil)
		if err != nil {
			t.Fatal(err)
		}
		same("a single submit", again.ID, again.State)
		many := cl.SubmitMany(t.Context(), []api.Keyed{{Key: key, Submit: submit}})
		if len(many) != 1 || many[0].Task == nil {
			t.Fatalf("%s: in bulk: %+v", c.ID, many)
		}
		same("a bulk submit", many[0].Task.ID, many[0].Task.State)
		b := batchEnd(t, cl, "file", `{"key":"`+key+`","kind":"llm.chat","input":`+input+"}\n")
		if n := w.Count(t, `SELECT count(*) FROM onefold.batch_lines WHERE batch_id = $1 AND task_id = $2 AND state = 'failed'`, b.ID, first.ID); n != 1 {
			t.Errorf("%s: the batch's line is not the failed task %s", c.ID, first.ID)
		}
		got := hook(t, front.URL()+"/v1/ingest/hook", key, secret, input)
		same("a webhook", got.TaskID, got.State)
		if n := w.Count(t, `SELECT count(*) FROM onefold.tasks`); n != 1 {
			t.Errorf("%s: %d tasks", c.ID, n)
		}
		if n := w.Count(t, `SELECT count(*) FROM onefold.attempts`); n != want.UpstreamCalls {
			t.Errorf("%s: %d calls, want %d", c.ID, n, want.UpstreamCalls)
		}
	}
}

type hooked struct {
	TaskID string    `json:"task_id"`
	State  api.State `json:"state"`
}

// hook delivers a webhook, signed as GitHub does.
func hook(t *testing.T, url, id, secret, body string) (got hooked) {
	t.Helper()
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(body))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Delivery", id)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(m.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the webhook is answered %d %s, %v", resp.StatusCode, raw, err)
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	return got
}
