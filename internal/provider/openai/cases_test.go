package openai_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
)

// TestCasesUpstream plays every case of a scripted provider over a real socket, asked streamed and not.
func TestCasesUpstream(t *testing.T) {
	t.Parallel()
	for _, theme := range []string{"upstream_status", "finish_reason", "sse", "storage"} {
		for _, c := range casetest.Theme(t, theme) {
			if c.Type() != "upstream" && c.Type() != "upstream_stream" {
				continue
			}
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				for _, stream := range []bool{true, false} {
					playCase(t, c, stream)
				}
			})
		}
	}
}

// upstreamInput is what a scripted provider answers.
type upstreamInput struct {
	Type      string            `json:"type"`
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      json.RawMessage   `json:"body"`
	BodyB64   string            `json:"body_b64"`
	Chunks    []json.RawMessage `json:"chunks"`
	ChunksB64 []string          `json:"chunks_b64"`
	Then      string            `json:"then"`
}

type upstreamExpected struct {
	State         string  `json:"state"`
	Not           string  `json:"not"`
	Class         string  `json:"class"`
	Error         string  `json:"error"`
	ErrorContains string  `json:"error_contains"`
	Content       *string `json:"content"`
	ContentLength int     `json:"content_length"`
	FinishReason  string  `json:"finish_reason"`
	Truncated     bool    `json:"truncated"`
	UsageTotal    int64   `json:"usage_total"`
	UpstreamCalls int     `json:"upstream_calls"`
	Note          string  `json:"note"`
	NoHTML        bool    `json:"no_html_in_api"`
	MaxError      int     `json:"stored_error_bytes_max"`
}

func playCase(t *testing.T, c casetest.Case, stream bool) {
	t.Helper()
	var in upstreamInput
	if err := json.Unmarshal(c.Input, &in); err != nil {
		t.Fatal(err)
	}
	var want upstreamExpected
	c.Expect(t, &want)
	release := make(chan struct{})
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		in.answer(t, w, release)
	}))
	defer srv.Close()
	defer close(release)
	p, err := openai.New(openai.Opts{BaseURL: srv.URL + "/v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	resp, err := p.Call(t.Context(), provider.Request{
		Body: []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), Stream: stream,
		Timeouts: provider.Timeouts{Connect: 10 * time.Second, FirstByte: time.Minute, Idle: idleFor(in.Then), Total: 2 * time.Minute},
	})
	if n := calls.Load(); n != 1 {
		t.Errorf("stream=%t: %d calls, want 1", stream, n)
	}
	judge(t, stream, want, resp, err)
}

// idleFor makes a stall end soon; where there is none the bound must not matter.
func idleFor(then string) time.Duration {
	if strings.Contains(then, "silence") || strings.Contains(then, "ping") {
		return 300 * time.Millisecond
	}
	return time.Minute
}

func judge(t *testing.T, stream bool, want upstreamExpected, resp *provider.Response, err error) {
	t.Helper()
	var fail *provider.Error
	if err != nil {
		fail = provider.AsError(err)
		t.Logf("stream=%t: %v", stream, fail)
	}
	switch {
	case want.State == "succeeded" && fail != nil:
		t.Fatalf("stream=%t: failed with %v, want success", stream, fail)
	case want.Not == "succeeded" && fail == nil, want.Class != "" && fail == nil, want.State == "failed" && fail == nil:
		t.Fatalf("stream=%t: succeeded, want failure", stream)
	}
	if fail != nil {
		judgeFailure(t, want, fail)
		return
	}
	judgeReply(t, want, resp)
}

func judgeFailure(t *testing.T, want upstreamExpected, fail *provider.Error) {
	t.Helper()
	if want.Class != "" && className(fail.Class) != want.Class {
		t.Errorf("class %s (%s), want %s", fail.Class, className(fail.Class), want.Class)
	}
	if want.Error != "" && fail.Code != want.Error {
		t.Errorf("code %s, want %s", fail.Code, want.Error)
	}
	if !strings.Contains(fail.Message, want.ErrorContains) {
		t.Errorf("message %q does not contain %q", fail.Message, want.ErrorContains)
	}
	if want.NoHTML && strings.ContainsAny(fail.Message, "<>") {
		t.Errorf("message %q holds HTML", fail.Message)
	}
	if want.MaxError > 0 && len(fail.Message) > want.MaxError {
		t.Errorf("message has %d bytes, want at most %d", len(fail.Message), want.MaxError)
	}
	if strings.ContainsRune(fail.Message, 0) || strings.ContainsRune(fail.Error(), 0) {
		t.Errorf("message %q holds U+0000", fail.Message)
	}
}

// className maps our classes to the words of the cases (see their README).
func className(c provider.Class) string {
	switch c {
	case provider.Rejected:
		return "permanent"
	case provider.Unauthorized:
		return "unauthorized"
	}
	return "retryable"
}

func judgeReply(t *testing.T, want upstreamExpected, resp *provider.Response) {
	t.Helper()
	if !json.Valid(resp.Reply) {
		t.Errorf("reply is not JSON: %.200q", resp.Reply)
	}
	var doc struct {
		Choices []struct {
			Message struct {
				Content *string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Usage *struct {
			Total int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(resp.Reply, &doc); err != nil || len(doc.Choices) == 0 {
		t.Fatalf("reply %.200q has no choice: %v", resp.Reply, err)
	}
	if c := doc.Choices[0].Message.Content; c != nil && *c != resp.Text {
		t.Errorf("text is %.100q, the reply holds %.100q", resp.Text, *c)
	}
	if want.Content != nil && resp.Text != *want.Content {
		t.Errorf("content %.100q, want %.100q", resp.Text, *want.Content)
	}
	if want.ContentLength != 0 && len(resp.Text) != want.ContentLength {
		t.Errorf("content has %d bytes, want %d", len(resp.Text), want.ContentLength)
	}
	if want.FinishReason != "" && resp.FinishReason != want.FinishReason {
		t.Errorf("finish reason %q, want %q", resp.FinishReason, want.FinishReason)
	}
	if resp.Truncated != want.Truncated {
		t.Errorf("truncated %t, want %t", resp.Truncated, want.Truncated)
	}
	if want.UsageTotal != 0 && resp.Usage.TotalTokens != want.UsageTotal {
		t.Errorf("total tokens %d, want %d", resp.Usage.TotalTokens, want.UsageTotal)
	}
	if resp.Usage.Known != (doc.Usage != nil) {
		t.Errorf("usage known %t, the reply holds %v", resp.Usage.Known, doc.Usage)
	}
}

func content(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	b, err := casetest.Text(raw)
	if err != nil {
		t.Error(err)
	}
	return b
}

// answer plays the script: headers, body or chunks, then what the case says.
func (in upstreamInput) answer(t *testing.T, w http.ResponseWriter, release chan struct{}) {
	if in.Type == "upstream" {
		for k, v := range in.Headers {
			w.Header().Set(k, v)
		}
		w.WriteHeader(in.Status)
		if in.BodyB64 != "" {
			_, _ = w.Write(unbase64(t, in.BodyB64))
		} else if len(in.Body) > 0 {
			_, _ = w.Write(content(t, in.Body))
		}
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	var chunks [][]byte
	for _, c := range in.Chunks {
		chunks = append(chunks, content(t, c))
	}
	for _, c := range in.ChunksB64 {
		chunks = append(chunks, unbase64(t, c))
	}
	for _, c := range chunks {
		_, _ = w.Write(c)
		w.(http.Flusher).Flush()
	}
	switch {
	case strings.HasPrefix(in.Then, "silence"):
		<-release
	case strings.Contains(in.Then, "ping"):
		for { // more often than the case says, so that the bound of the test can be short
			select {
			case <-release:
				return
			case <-time.After(50 * time.Millisecond):
				_, _ = w.Write([]byte(": ping\n\n"))
				w.(http.Flusher).Flush()
			}
		}
	case strings.Contains(in.Then, "reset"):
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Write([]byte("40\r\ndata: {\"choi")) // a chunk of 64 bytes begins and breaks off
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func unbase64(t *testing.T, s string) []byte {
	t.Helper()
	b, err := casetest.Base64(s)
	if err != nil {
		t.Error(err)
	}
	return b
}
