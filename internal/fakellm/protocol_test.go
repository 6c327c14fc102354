package fakellm_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/anthropic"
	"github.com/onefold-dev/onefold/internal/provider/openai"
)

// speaker is a provider that speaks one of the protocols.
type speaker struct {
	p       provider.Provider
	request func(model, text string) any
	stop    string // how it says that a reply is whole
	noCut   bool   // it cannot be asked to fall silent in the middle
}

func (s speaker) call(ctx context.Context, model, text string, r provider.Request) (*provider.Response, error) {
	r.Body, _ = json.Marshal(s.request(model, text))
	return s.p.Call(ctx, r)
}

func user(text string) []any { return []any{map[string]any{"role": "user", "content": text}} }

func speakers(t *testing.T, url string) map[string]speaker {
	t.Helper()
	must := func(p provider.Provider, err error) provider.Provider {
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := p.(interface{ Close() }); ok {
			t.Cleanup(c.Close)
		}
		return p
	}
	chat, err := openai.New(openai.Opts{BaseURL: url})
	responses, err2 := openai.New(openai.Opts{BaseURL: url, Responses: true})
	background, err3 := openai.NewBackground(openai.Opts{BaseURL: url})
	messages, err4 := anthropic.New(anthropic.Opts{BaseURL: url})
	asChat := func(model, text string) any { return map[string]any{"model": model, "messages": user(text)} }
	asResponse := func(model, text string) any {
		return map[string]any{"model": model, "input": []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "input_text", "text": text}}}}}
	}
	return map[string]speaker{
		"chat":       {p: must(chat, err), request: asChat, stop: "stop"},
		"responses":  {p: must(responses, err2), request: asResponse, stop: "completed"},
		"background": {p: must(background, err3), request: asResponse, stop: "completed", noCut: true},
		"messages": {p: must(messages, err4), stop: "end_turn", request: func(model, text string) any {
			return map[string]any{"model": model, "max_tokens": 100, "messages": user(text)}
		}},
	}
}

// Every protocol echoes, streamed and not, says what it used, and is counted.
func TestProtocolsEcho(t *testing.T) {
	t.Parallel()
	s := fakellm.New()
	t.Cleanup(s.Close)
	const text = "Grüße, 世界 — one two three 😀😀😀😀😀😀😀😀😀😀"
	for name, sp := range speakers(t, s.URL()) {
		for _, stream := range []bool{true, false} {
			resp, err := sp.call(t.Context(), "of "+name, text, provider.Request{Stream: stream, TaskID: "task-" + name})
			if err != nil {
				t.Fatalf("%s, stream=%t: %v", name, stream, err)
			}
			if resp.Text != text || resp.FinishReason != sp.stop || !resp.Usage.Known || resp.Usage.OutputTokens == 0 || !strings.HasPrefix(resp.RequestID, "req-") {
				t.Errorf("%s, stream=%t: %q, %q, %+v, request %q", name, stream, resp.Text, resp.FinishReason, resp.Usage, resp.RequestID)
			}
		}
		if c := s.Calls(); c.ByModel["of "+name] != 2 || c.ByTask["task-"+name] != 2 {
			t.Errorf("%s: counts %+v", name, c)
		}
	}
	c := s.Calls()
	if c.Received != 8 || c.Completed != 8 || c.Running != 0 || c.Polls < 2 || len(c.ByPrompt) != 1 {
		t.Errorf("counts %+v", c)
	}
}

// The same scripts mean the same in every protocol.
func TestProtocolsFail(t *testing.T) {
	t.Parallel()
	s := fakellm.New()
	t.Cleanup(s.Close)
	short := provider.Timeouts{Connect: 10 * time.Second, FirstByte: 200 * time.Millisecond, Idle: 200 * time.Millisecond, Total: 3 * time.Second}
	for name, sp := range speakers(t, s.URL()) {
		for _, c := range []struct {
			script string
			class  provider.Class
			code   string
			text   string // partial text
			cut    bool   // in the middle of the reply
		}{
			{"status=429,retry_after=2", provider.Refused, provider.CodeRateLimited, "", false},
			{"status=529", provider.Refused, provider.CodeOverloaded, "", false},
			{"status=500", provider.Unknown, provider.CodeServerError, "", false},
			{"status=401", provider.Unauthorized, provider.CodeUnauthorized, "", false},
			{"status=402", provider.Rejected, provider.CodeQuotaExhausted, "", false},
			{"hang", provider.Unknown, provider.CodeFirstByteTimeout, "", false},
			{"error=overloaded_error", provider.Refused, provider.CodeOverloaded, "", false},
			{"finish=content_filter", provider.Rejected, provider.CodeContentFiltered, "one two three", false},
			{"stall=2,ping=20ms", provider.Unknown, provider.CodeIdleTimeout, "one two ", true},
			{"cut=1", provider.Unknown, provider.CodeStreamCut, "", true},
			{"error=overloaded_error,after=1", provider.Unknown, provider.CodeStreamError, "one ", true},
		} {
			if c.cut && sp.noCut {
				continue
			}
			t.Run(name+"/"+c.script, func(t *testing.T) {
				t.Parallel()
				_, err := sp.call(t.Context(), "fake:"+c.script, "one two three", provider.Request{Stream: true, Timeouts: short})
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
}

// A reply that the script cuts by length says so.
func TestProtocolsTruncate(t *testing.T) {
	t.Parallel()
	s := fakellm.New()
	t.Cleanup(s.Close)
	for name, sp := range speakers(t, s.URL()) {
		resp, err := sp.call(t.Context(), "fake:finish=length", "one two", provider.Request{Stream: true})
		if err != nil || !resp.Truncated || resp.Text != "one two" {
			t.Errorf("%s: got %+v, %v; want it truncated", name, resp, err)
		}
	}
}

// A job goes on without anyone, ends once, and can be stopped before.
func TestBackgroundJobs(t *testing.T) {
	t.Parallel()
	s := fakellm.New()
	t.Cleanup(s.Close)
	sp := speakers(t, s.URL())["background"]
	p := sp.p.(provider.Poller)
	request := func(script string) provider.Request {
		body, _ := json.Marshal(sp.request("fake:"+script, "hi"))
		return provider.Request{Body: body, Timeouts: provider.Timeouts{Total: 30 * time.Second}}
	}
	ends, err := p.Start(t.Context(), request("latency=100ms"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if resp, err := p.Poll(t.Context(), request(""), ends); err != nil || resp.Text != "hi" {
			t.Errorf("got %+v, %v", resp, err)
		}
	}
	if c := s.Calls(); c.Received != 1 || c.Completed != 1 || c.Polls < 2 {
		t.Errorf("counts %+v", c)
	}
	stalls, err := p.Start(t.Context(), request("stall=1"))
	if err != nil || stalls == ends {
		t.Fatalf("a second job %q, %v", stalls, err)
	}
	if err := p.Stop(t.Context(), request(""), stalls); err != nil {
		t.Fatal(err)
	}
	_, err = p.Poll(t.Context(), request(""), stalls)
	if f := provider.AsError(err); f == nil || f.Code != provider.CodeJobCancelled {
		t.Errorf("a stopped job: %v", err)
	}
	if c := s.Calls(); c.Received != 2 || c.Cut != 1 || c.Running != 0 {
		t.Errorf("counts %+v", c)
	}
	_, err = p.Poll(t.Context(), request(""), "resp_never")
	if f := provider.AsError(err); f == nil || f.Code != provider.CodeJobGone {
		t.Errorf("a job that never was: %v", err)
	}
}
