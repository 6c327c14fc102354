package fakellm_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
)

// rig is a server with the provider that talks to it.
type rig struct {
	*fakellm.Server
	p *openai.Provider
}

func setup(t *testing.T) rig {
	t.Helper()
	s := fakellm.New()
	t.Cleanup(s.Close)
	p, err := openai.New(openai.Opts{BaseURL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return rig{s, p}
}

func (r rig) call(ctx context.Context, model, text string, o provider.Request) (*provider.Response, error) {
	body, err := json.Marshal(map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": text}}})
	if err != nil {
		return nil, err
	}
	o.Body = body
	return r.p.Call(ctx, o)
}

func TestEchoStreamedAndNotAreEqual(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const text = "Grüße, 世界 — one two three 😀😀😀😀😀😀😀😀😀😀"
	var replies []string
	for _, stream := range []bool{true, false} {
		resp, err := r.call(t.Context(), "any", text, provider.Request{Stream: stream})
		if err != nil {
			t.Fatalf("stream=%t: %v", stream, err)
		}
		if resp.Text != text || resp.FinishReason != "stop" || !resp.Usage.Known {
			t.Errorf("stream=%t: %q %q %+v", stream, resp.Text, resp.FinishReason, resp.Usage)
		}
		replies = append(replies, string(resp.Reply))
	}
	if a, b := normal(t, replies[0]), normal(t, replies[1]); a != b {
		t.Errorf("replies differ:\n%s\n%s", a, b)
	}
	if c := r.Calls(); c.Received != 2 || c.Completed != 2 || c.Running != 0 || c.ByModel["any"] != 2 {
		t.Errorf("counts %+v", c)
	}
}

// normal sorts the members of a document and drops nulls, by which streamed replies may differ.
func normal(t *testing.T, doc string) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range v["choices"].([]any) {
		delete(c.(map[string]any), "logprobs")
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestScriptedFailures(t *testing.T) {
	t.Parallel()
	r := setup(t)
	short := provider.Timeouts{Connect: 10 * time.Second, FirstByte: 200 * time.Millisecond, Idle: 200 * time.Millisecond, Total: 10 * time.Second}
	for _, c := range []struct {
		script string
		class  provider.Class
		code   string
		text   string // partial text
	}{
		{"status=429,retry_after=2", provider.Refused, provider.CodeRateLimited, ""},
		{"status=429,code=insufficient_quota", provider.Rejected, provider.CodeQuotaExhausted, ""},
		{"status=500", provider.Unknown, provider.CodeServerError, ""},
		{"status=401", provider.Unauthorized, provider.CodeUnauthorized, ""},
		{"hang", provider.Unknown, provider.CodeFirstByteTimeout, ""},
		{"hang=headers", provider.Unknown, provider.CodeFirstByteTimeout, ""},
		{"hang=headers,ping=20ms", provider.Unknown, provider.CodeFirstByteTimeout, ""},
		{"stall=2", provider.Unknown, provider.CodeIdleTimeout, "one two "},
		{"stall=2,ping=20ms", provider.Unknown, provider.CodeIdleTimeout, "one two "},
		{"cut=1", provider.Unknown, provider.CodeStreamCut, ""},
		{"error=overloaded_error", provider.Refused, provider.CodeOverloaded, ""},
		{"error=overloaded_error,after=1", provider.Unknown, provider.CodeStreamError, "one "},
		{"finish=content_filter", provider.Rejected, provider.CodeContentFiltered, "one two three"},
	} {
		t.Run(c.script, func(t *testing.T) {
			t.Parallel()
			_, err := r.call(t.Context(), "fake:"+c.script, "one two three", provider.Request{Stream: true, Timeouts: short})
			if err == nil {
				t.Fatal("succeeded")
			}
			f := provider.AsError(err)
			if f.Class != c.class || f.Code != c.code {
				t.Errorf("got %s %s (%s), want %s %s", f.Class, f.Code, f.Message, c.class, c.code)
			}
			var text string
			if f.Partial != nil {
				text = f.Partial.Text
			}
			if text != c.text {
				t.Errorf("partial %q, want %q", text, c.text)
			}
		})
	}
}

func TestSequenceCountsByTask(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const model = "fake:2*status=500;text=fine"
	for _, task := range []string{"a", "b"} {
		for n, want := range []string{"500", "500", "fine", "fine"} {
			resp, err := r.call(t.Context(), model, "x", provider.Request{TaskID: task, Run: 1, Attempt: n + 1, Stream: true})
			got := "500"
			if err == nil {
				got = resp.Text
			}
			if got != want {
				t.Errorf("task %s call %d: got %s, want %s", task, n+1, got, want)
			}
		}
	}
	if c := r.Calls(); c.ByTask["a"] != 4 || c.ByTask["b"] != 4 || c.Failed != 4 || c.Completed != 4 {
		t.Errorf("counts %+v", c)
	}
	if l := r.Log(1); len(l) != 1 || l[0].Task != "b" || l[0].Attempt != "4" || l[0].Outcome != "completed" {
		t.Errorf("log %+v", l)
	}
}

func TestWorkGoesOnWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	r := setup(t)
	_, err := r.call(t.Context(), "fake:latency=300ms", "x", provider.Request{
		Stream: true, Timeouts: provider.Timeouts{Total: 50 * time.Millisecond},
	})
	if f := provider.AsError(err); f == nil || f.Code != provider.CodeTotalTimeout {
		t.Fatalf("got %v, want a total timeout", err)
	}
	c := waitFor(t, r, func(c fakellm.Calls) bool { return c.Running == 0 })
	if c.Completed != 1 || c.Orphaned != 1 || c.ClientGone != 1 {
		t.Errorf("counts %+v, want one completed unseen", c)
	}
}

func waitFor(t *testing.T, r rig, ok func(fakellm.Calls) bool) fakellm.Calls {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if c := r.Calls(); ok(c) {
			return c
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("counts stay at %+v", r.Calls())
		}
	}
}

func TestMixIsDeterministicAndNear(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if err := r.Script("mixed", "20%status=429|5%status=500|text=ok"); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for i := range 400 {
		_, err := r.call(t.Context(), "mixed", strings.Repeat("p", i+1), provider.Request{})
		if err == nil {
			count["ok"]++
		} else {
			count[provider.AsError(err).Code]++
		}
	}
	if n := count[provider.CodeRateLimited]; n < 50 || n > 110 {
		t.Errorf("%d of 400 refused, want about 80", n)
	}
	if n := count[provider.CodeServerError]; n < 5 || n > 40 {
		t.Errorf("%d of 400 failed, want about 20", n)
	}
}

func TestScriptErrorsAreTold(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, script := range []string{"nonsense", "status=x", "60%ok|60%hang", "latency=5", "ok;status=1"} {
		if err := r.Script("m", script); err == nil {
			t.Errorf("script %q was taken", script)
		}
	}
	resp, err := http.Post(r.Root()+"/_fake/script", "application/json", strings.NewReader(`{"model":"m","script":"cold=1s,cold_calls=2,cold_idle=1m"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("status %d, want 204", resp.StatusCode)
	}
}

func TestStampedRepliesDiffer(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, stream := range []bool{true, false} {
		resp, err := r.call(t.Context(), "fake:stamp", "hello", provider.Request{Stream: stream})
		if err != nil || resp.Text != "hello "+resp.RequestID || resp.RequestID == "" {
			t.Errorf("stream=%t: got %+v, %v; want the text and the call's id", stream, resp, err)
		}
	}
}
