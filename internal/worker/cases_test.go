package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/provider/wire"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// upstream is a world of one worker whose provider is a real client, talking
// over a real socket to a server that a test scripts.
type upstream struct {
	*bundle
	p     *process
	calls atomic.Int64
	stop  chan struct{} // closed when the test is over: scripts that hold let go
}

const upstreamConfig = `
providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1", timeouts: {connect: 20s, first_byte: 60s, idle: %s, total: 60s}}
kinds:
  k: {provider: p, max_attempts: 2}
`

// serve starts the world; idle bounds the silence between tokens.
func serve(t *testing.T, idle string, script http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{stop: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.calls.Add(1)
		script(w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(u.stop) })
	u.start(t, idle, srv.URL, nil)
	return u
}

func (u *upstream) start(t *testing.T, idle, url string, o *wire.Opts) {
	t.Helper()
	p, err := openai.New(openai.Opts{BaseURL: url + "/v1", Wire: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.bundle = setupWith(t, fmt.Sprintf(upstreamConfig, idle), nil)
	u.providers = map[string]provider.Provider{"p": p}
	u.p = u.process(5 * time.Second)
}

// work runs a task until it is settled, at most so many times.
func (u *upstream) work(id task.ID, most int) *task.Row {
	u.t.Helper()
	for range most {
		u.p.Work(context.Background(), id)
		if r := u.row(id); r.State != api.Pending {
			return r
		}
		u.due(id)
	}
	return u.row(id)
}

// scripted is what a case's provider answers.
type scripted struct {
	Type      string            `json:"type"`
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      json.RawMessage   `json:"body"`
	Chunks    []json.RawMessage `json:"chunks"`
	ChunksB64 []string          `json:"chunks_b64"`
	Then      string            `json:"then"`
	Now       string            `json:"now"`
}

type wanted struct {
	State         string          `json:"state"`
	Not           string          `json:"not"`
	Class         string          `json:"class"`
	Error         string          `json:"error"`
	ErrorContains string          `json:"error_contains"`
	Content       *string         `json:"content"`
	ContentLength int             `json:"content_length"`
	FinishReason  string          `json:"finish_reason"`
	Truncated     bool            `json:"truncated"`
	UsageTotal    int64           `json:"usage_total"`
	UpstreamCalls int64           `json:"upstream_calls"`
	NoHTML        bool            `json:"no_html_in_api"`
	MaxError      int             `json:"stored_error_bytes_max"`
	DelayMS       int64           `json:"delay_ms"`
	Delay         string          `json:"delay"`
	SlotHeld      json.RawMessage `json:"worker_slot_held"`
}

func (s scripted) play(t *testing.T, w http.ResponseWriter, stop chan struct{}) {
	for k, v := range s.Headers {
		w.Header().Set(k, v)
	}
	if s.Type == "upstream" {
		body, err := casetest.Text(s.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(s.Status)
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, c := range s.Chunks {
		b, err := casetest.Text(c)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
		_ = http.NewResponseController(w).Flush()
	}
	switch {
	case strings.HasPrefix(s.Then, "silence"):
		<-stop
	case strings.Contains(s.Then, "ping"):
		for { // more often than the case says, so that the bound of the test can be short
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if _, err := w.Write([]byte(": ping\n\n")); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	case strings.Contains(s.Then, "reset"):
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Write([]byte("40\r\ndata: {\"choi")) // a chunk of 64 bytes begins and breaks off
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// TestUpstreamCases: what a provider answers, and what becomes of the task: its
// state, its calls, its attempts, and what the ledger says.
func TestUpstreamCases(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "internal/worker.TestUpstreamCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			var in scripted
			if err := json.Unmarshal(c.Input, &in); err != nil {
				t.Fatal(err)
			}
			var want wanted
			c.Expect(t, &want)
			idle := "60s"
			if strings.Contains(in.Then, "silence") || strings.Contains(in.Then, "ping") {
				idle = "300ms"
			}
			var u *upstream
			u = serve(t, idle, func(w http.ResponseWriter, _ *http.Request) { in.play(t, w, u.stop) })
			id := u.put("k", "x")
			judgeCase(t, u, id, want)
		})
	}
}

func judgeCase(t *testing.T, u *upstream, id task.ID, want wanted) {
	t.Helper()
	r := u.work(id, 6)
	all := u.attempts(id)
	first := all[0]
	t.Logf("%s %s %q after %d calls; first attempt %s %s %q", r.State, r.ErrorCode, r.ErrorMessage, u.calls.Load(), first.Outcome, first.Code, first.Message)
	succeeded := r.State == api.Succeeded
	switch {
	case want.State == "succeeded" && !succeeded, want.Not == "succeeded" && succeeded, want.Class != "" && succeeded:
		t.Fatalf("the task is %s", r.State)
	}
	if int64(len(all)) != u.calls.Load() {
		t.Errorf("%d attempts for %d calls", len(all), u.calls.Load())
	}
	if want.UpstreamCalls != 0 && want.Class != "unauthorized" && u.calls.Load() != want.UpstreamCalls {
		t.Errorf("%d calls, want %d", u.calls.Load(), want.UpstreamCalls)
	}
	if succeeded {
		judgeSuccess(t, u, r, first, want)
		return
	}
	switch want.Class {
	case "permanent":
		if r.State != api.Failed || u.calls.Load() != 1 || r.Attempts != 1 || first.Outcome != string(provider.Rejected) {
			t.Errorf("permanent, but %s after %d calls as %s", r.State, u.calls.Load(), first.Outcome)
		}
	case "unauthorized":
		if r.State != api.Pending || r.Attempts != 0 || first.Outcome != string(provider.Unauthorized) || first.Billed != api.BilledNo || first.Sends != 0 {
			t.Errorf("unauthorized, but %s with %d attempts used as %+v", r.State, r.Attempts, first)
		}
	case "retryable":
		again := r.State == api.Failed && !r.Permanent() && u.calls.Load() == 2 && r.Attempts == 2
		if first.Outcome == string(provider.Refused) { // waits without using an attempt
			again = r.State == api.Pending && r.Attempts == 0 && u.calls.Load() == 6 && first.Billed == api.BilledNo
		}
		if !again {
			t.Errorf("retryable, but %s permanent %t after %d calls, %d attempts used", r.State, r.Permanent(), u.calls.Load(), r.Attempts)
		}
	}
	if want.Error != "" && first.Code != want.Error || want.Error != "" && r.State == api.Failed && r.ErrorCode != want.Error {
		t.Errorf("code %s on the task, %s on the attempt, want %s", r.ErrorCode, first.Code, want.Error)
	}
	for _, text := range []string{first.Message, r.ErrorMessage} {
		if want.NoHTML && strings.ContainsAny(text, "<>") || want.MaxError > 0 && len(text) > want.MaxError || strings.ContainsRune(text, 0) {
			t.Errorf("message %q", text)
		}
	}
	if !strings.Contains(r.ErrorMessage, want.ErrorContains) {
		t.Errorf("message %q does not contain %q", r.ErrorMessage, want.ErrorContains)
	}
}

func judgeSuccess(t *testing.T, u *upstream, r *task.Row, a store.Attempt, want wanted) {
	t.Helper()
	var doc struct {
		Choices []struct {
			Message struct{ Content *string }
		}
	}
	if err := json.Unmarshal(r.Result, &doc); err != nil || len(doc.Choices) == 0 {
		t.Fatalf("result %.200q: %v", r.Result, err)
	}
	got := ""
	if c := doc.Choices[0].Message.Content; c != nil {
		got = *c
	}
	if want.Content != nil && got != *want.Content || want.ContentLength != 0 && len(got) != want.ContentLength {
		t.Errorf("content %.100q of %d bytes", got, len(got))
	}
	if want.FinishReason != "" && r.FinishReason != want.FinishReason || r.Truncated != want.Truncated {
		t.Errorf("finish reason %q, truncated %t", r.FinishReason, r.Truncated)
	}
	if u.calls.Load() != 1 || a.Outcome != "succeeded" || a.Billed != api.BilledYes || a.Phase != "done" || a.Orphaned || a.Sends != 1 {
		t.Errorf("%d calls, ledger %+v", u.calls.Load(), a)
	}
	if sum := r.Usage.InputTokens + r.Usage.OutputTokens; want.UsageTotal != 0 && sum != 0 && sum != want.UsageTotal {
		t.Errorf("%d tokens, want %d", sum, want.UsageTotal)
	}
}

// TestRetryAfterCases: a refused task waits as long as it is told, without a
// slot and without using an attempt, and never past its deadline.
func TestRetryAfterCases(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "internal/worker.TestRetryAfterCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			var in scripted
			if err := json.Unmarshal(c.Input, &in); err != nil {
				t.Fatal(err)
			}
			var want wanted
			c.Expect(t, &want)
			u := serve(t, "60s", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", in.Now) // the case's clock
				for k, v := range in.Headers {
					w.Header()[http.CanonicalHeaderKey(k)] = []string{v}
				}
				w.WriteHeader(in.Status)
			})
			id := u.put("k", "x")
			u.p.Work(context.Background(), id)
			r := u.row(id)
			if r.State != api.Pending || r.Attempts != 0 || u.p.Running() != 0 || u.calls.Load() != 1 {
				t.Fatalf("%s with %d attempts used, %d slots held, %d calls", r.State, r.Attempts, u.p.Running(), u.calls.Load())
			}
			ms, err := strconv.ParseFloat(u.strings(`
SELECT (extract(epoch FROM t.run_at - a.closed_at) * 1000)::text FROM onefold.tasks AS t JOIN onefold.attempts AS a ON a.task_id = t.id WHERE t.id = $1`, id)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case want.DelayMS != 0 && int64(ms+0.5) != want.DelayMS:
				t.Errorf("waits %.0f ms, want %d", ms, want.DelayMS)
			case want.Delay != "" && (ms < 250 || ms > 60_000):
				t.Errorf("waits %.0f ms, want a backoff", ms)
			case want.DelayMS == 0 && want.Delay == "":
				u.endsAtItsDeadline(id)
			}
		})
	}
}

// endsAtItsDeadline: what is told to wait beyond the deadline fails there.
func (u *upstream) endsAtItsDeadline(id task.ID) {
	u.t.Helper()
	if r := u.row(id); r.RunAt.After(r.Deadline) || r.Deadline.Sub(r.RunAt) > time.Minute {
		u.t.Errorf("runs at %v, the deadline is %v", r.RunAt, r.Deadline)
	}
	if _, err := u.pool.Exec(context.Background(), `UPDATE onefold.tasks SET deadline = now(), run_at = now() WHERE id = $1`, id); err != nil {
		u.t.Fatal(err)
	}
	u.p.Work(context.Background(), id)
	if r := u.row(id); r.State != api.Failed || r.ErrorCode != "deadline" || !strings.Contains(r.ErrorMessage, "rate_limited") || u.calls.Load() != 1 {
		u.t.Errorf("at the deadline: %s %s %q after %d calls", r.State, r.ErrorCode, r.ErrorMessage, u.calls.Load())
	}
}
