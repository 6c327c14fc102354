package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// providerCase is what a scripted provider answers, and what then holds.
type providerCase struct {
	casetest.Case
	in struct {
		Type    string            `json:"type"`
		Now     string            `json:"now"`
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
		Chunks  []json.RawMessage `json:"chunks"`
		Then    string            `json:"then"`
	}
	want struct {
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
		NoHTML        bool    `json:"no_html_in_api"`
		MaxError      int     `json:"stored_error_bytes_max"`
		DelayMS       int64   `json:"delay_ms"`
		Delay         string  `json:"delay"`
	}
	name string // of its provider and its kind
}

// beyond is how far ahead the deadline is of a task that is told to wait beyond
// it.
const beyond = 10 * time.Second

func (c *providerCase) retryAfter() bool { return c.in.Type == "retry_after" }

func (c *providerCase) endsAtItsDeadline() bool {
	return c.retryAfter() && c.want.DelayMS == 0 && c.want.Delay == ""
}

// stalls says that only the idle timeout ends the call.
func (c *providerCase) stalls() bool {
	return strings.Contains(c.in.Then, "silence") || strings.Contains(c.in.Then, "ping")
}

// providerCases is one server for many cases: each has a provider, whose base
// URL names the case, so that no gate of one shuts another out.
type providerCases struct {
	t     *testing.T
	cases map[string]*providerCase
	stop  chan struct{}

	mu    sync.Mutex
	calls map[string]int
}

func (p *providerCases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	c := p.cases[name]
	if c == nil {
		p.t.Errorf("a call to %s", r.URL.Path)
		return
	}
	p.mu.Lock()
	p.calls[name]++
	p.mu.Unlock()
	if c.in.Type == "upstream_stream" {
		c.stream(p.t, w, p.stop)
		return
	}
	w.Header().Set("Date", c.in.Now) // the case's clock
	if c.in.Now == "" {
		w.Header().Del("Date")
	}
	for k, v := range c.in.Headers {
		w.Header()[http.CanonicalHeaderKey(k)] = []string{v}
	}
	w.WriteHeader(c.in.Status)
	_, _ = w.Write(c.text(p.t, c.in.Body))
}

func (c *providerCase) text(t *testing.T, raw json.RawMessage) []byte {
	b, err := casetest.Text(raw)
	if err != nil {
		t.Errorf("%s: %v", c.ID, err)
	}
	return b
}

func (c *providerCase) stream(t *testing.T, w http.ResponseWriter, stop chan struct{}) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(b []byte) bool {
		_, err := w.Write(b)
		_ = http.NewResponseController(w).Flush()
		return err == nil
	}
	for _, chunk := range c.in.Chunks {
		send(c.text(t, chunk))
	}
	switch {
	case strings.HasPrefix(c.in.Then, "silence"):
		<-stop
	case strings.Contains(c.in.Then, "ping"):
		for ok := true; ok; ok = send([]byte(": ping\n\n")) { // more often than the case says: the bound here is shorter
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	case strings.Contains(c.in.Then, "reset"):
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

// providerConfig has a provider and a kind for each case.
func providerConfig(url string, cases map[string]*providerCase) string {
	var providers, kinds strings.Builder
	for name, c := range cases {
		idle := "60s"
		if c.stalls() {
			idle = "1s"
		}
		fmt.Fprintf(&providers, "  %s: {type: openai, base_url: %q, timeouts: {connect: 20s, first_byte: 60s, idle: %s, total: 80s}}\n", name, url+"/"+name+"/v1", idle)
		fmt.Fprintf(&kinds, "  %s: {provider: %s, max_attempts: 2}\n", name, name)
	}
	return "retention: {tasks: 720h}\nproviders:\n" + providers.String() + "kinds:\n" + kinds.String()
}

// TestProviderCases plays what providers answer through whole processes: all
// tasks are submitted to one api, called for by one worker, and judged by what
// the api tells: state, result, attempts, calls, waits.
func TestProviderCases(t *testing.T) {
	t.Parallel()
	p := &providerCases{t: t, cases: map[string]*providerCase{}, stop: make(chan struct{}), calls: map[string]int{}}
	all := casetest.Claimed(t, "e2e.TestProviderCases")
	for _, of := range all {
		c := &providerCase{Case: of, name: strings.ToLower(of.ID)}
		if err := json.Unmarshal(of.Input, &c.in); err != nil {
			t.Fatal(err)
		}
		of.Expect(t, &c.want)
		p.cases[c.name] = c
	}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(p.stop) })
	w := proc.New(t, &proc.Opts{Config: providerConfig(srv.URL, p.cases)})
	front := w.API(t)
	w.Worker(t)
	cl := w.Client(t, front)
	ids := map[string]string{}
	for name, c := range p.cases {
		s := api.Submit{Kind: name, Input: chatInput("m")}
		if c.endsAtItsDeadline() {
			at := time.Now().Add(beyond)
			s.Deadline = &at
		}
		got, err := cl.Submit(t.Context(), name, s, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ids[name] = got.ID
	}
	for _, of := range all {
		t.Run(of.ID, func(t *testing.T) {
			name := strings.ToLower(of.ID)
			s := sighted{p: p, providerCase: p.cases[name]}
			s.see(t, cl, ids[name])
			s.judge(t)
		})
	}
}

// sighted is a case with what the api tells of it once all of it is to be seen.
type sighted struct {
	*providerCase
	p     *providerCases
	task  *api.Task
	tries []api.Attempt // those that ended
	calls int
}

// see waits until the task is settled, or waits for its provider: twice, where
// that used no attempt and it is to be called again.
func (s *sighted) see(t *testing.T, cl *client.Client, id string) {
	t.Helper()
	proc.Until(t, s.ID+" is settled or waits", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
		defer cancel()
		task, err := cl.Get(ctx, id, nil)
		if err != nil {
			t.Fatal(err)
		}
		tries, err := cl.Attempts(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		s.task, s.tries = task, slices.DeleteFunc(tries, func(a api.Attempt) bool { return a.Outcome == "" })
		enough := 2
		if s.retryAfter() || s.want.Class == "unauthorized" {
			enough = 1
		}
		waits := task.State == api.Pending && len(s.tries) >= enough && !s.tries[0].Counted && !s.endsAtItsDeadline()
		return task.State.Settled() || waits
	})
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.calls = s.p.calls[s.name]
}

func (s *sighted) judge(t *testing.T) {
	t.Helper()
	if len(s.tries) == 0 {
		t.Fatalf("the task is %s after no attempt: %+v", s.task.State, s.task.Error)
	}
	t.Logf("%s %+v after %d calls; the first attempt: %s %s %q", s.task.State, s.task.Error, s.calls, s.tries[0].Outcome, s.tries[0].Code, s.tries[0].Message)
	if s.calls != len(s.tries) {
		t.Errorf("%d attempts for %d calls", len(s.tries), s.calls)
	}
	succeeded := s.task.State == api.Succeeded
	switch {
	case s.retryAfter():
		s.judgeWait(t)
		return
	case s.want.State == "succeeded" && !succeeded, s.want.Not == "succeeded" && succeeded, s.want.Class != "" && succeeded:
		t.Fatalf("the task is %s", s.task.State)
	}
	if s.want.UpstreamCalls != 0 && s.calls != s.want.UpstreamCalls {
		t.Errorf("%d calls, want %d", s.calls, s.want.UpstreamCalls)
	}
	if succeeded {
		s.judgeSuccess(t)
		return
	}
	s.judgeClass(t)
	s.judgeError(t)
}

func (s *sighted) judgeClass(t *testing.T) {
	t.Helper()
	first, failed := s.tries[0], s.task.State == api.Failed
	ok := true
	switch s.want.Class {
	case "permanent":
		ok = failed && s.calls == 1 && s.task.Attempts == 1 && first.Outcome == "rejected"
	case "unauthorized":
		ok = s.task.State == api.Pending && s.task.Attempts == 0 && first.Outcome == "unauthorized" && first.Billed == api.BilledNo && first.Sends == 0
	case "retryable":
		ok = failed && !s.task.Error.Permanent && s.calls == 2 && s.task.Attempts == 2
		if first.Outcome == "refused" { // waits without using an attempt
			ok = s.task.State == api.Pending && s.task.Attempts == 0 && s.calls >= 2 && first.Billed == api.BilledNo
		}
	}
	if !ok {
		t.Errorf("%s, but %s (%+v) after %d calls, %d attempts used; the first: %+v", s.want.Class, s.task.State, s.task.Error, s.calls, s.task.Attempts, first)
	}
}

func (s *sighted) judgeError(t *testing.T) {
	t.Helper()
	texts, first := []string{s.tries[0].Message}, s.tries[0]
	said := ""
	if s.task.Error != nil {
		said = s.task.Error.Message
		texts = append(texts, said)
		if s.want.Error != "" && s.task.Error.Code != s.want.Error {
			t.Errorf("the task's error is %s, want %s", s.task.Error.Code, s.want.Error)
		}
	}
	if s.want.Error != "" && first.Code != s.want.Error {
		t.Errorf("the attempt's code is %s, want %s", first.Code, s.want.Error)
	}
	for _, text := range texts {
		if s.want.NoHTML && strings.ContainsAny(text, "<>") || s.want.MaxError > 0 && len(text) > s.want.MaxError || strings.ContainsRune(text, 0) {
			t.Errorf("message %q", text)
		}
	}
	if !strings.Contains(said, s.want.ErrorContains) {
		t.Errorf("message %q does not contain %q", said, s.want.ErrorContains)
	}
}

func (s *sighted) judgeSuccess(t *testing.T) {
	t.Helper()
	var doc struct {
		Choices []struct {
			Message struct{ Content *string }
		}
	}
	if err := json.Unmarshal(s.task.Result, &doc); err != nil || len(doc.Choices) == 0 {
		t.Fatalf("result %.200q: %v", s.task.Result, err)
	}
	got := ""
	if c := doc.Choices[0].Message.Content; c != nil {
		got = *c
	}
	if s.want.Content != nil && got != *s.want.Content || s.want.ContentLength != 0 && len(got) != s.want.ContentLength {
		t.Errorf("content %.100q of %d bytes", got, len(got))
	}
	if s.want.FinishReason != "" && s.task.FinishReason != s.want.FinishReason || s.task.Truncated != s.want.Truncated {
		t.Errorf("finish reason %q, truncated %t", s.task.FinishReason, s.task.Truncated)
	}
	if a := s.tries[0]; s.calls != 1 || a.Outcome != "succeeded" || a.Billed != api.BilledYes || a.Phase != "done" || a.Orphaned || a.Sends != 1 {
		t.Errorf("%d calls, the ledger says %+v", s.calls, a)
	}
	if u := s.task.Usage; s.want.UsageTotal != 0 && u != nil && u.InputTokens+u.OutputTokens != 0 && u.InputTokens+u.OutputTokens != s.want.UsageTotal {
		t.Errorf("%d + %d tokens, want %d", u.InputTokens, u.OutputTokens, s.want.UsageTotal)
	}
}

// judgeWait: a refused task waits as long as it was told, without a worker and
// without using an attempt, and never past its deadline.
func (s *sighted) judgeWait(t *testing.T) {
	t.Helper()
	first := s.tries[0]
	if first.Outcome != "refused" || first.Counted || s.task.Attempts != 0 {
		t.Errorf("%d attempts used, the ledger says %+v", s.task.Attempts, first)
	}
	if s.endsAtItsDeadline() {
		if e := s.task.Error; s.task.State != api.Failed || e == nil || e.Code != "deadline" || !strings.Contains(e.Message, "rate_limited") || s.calls != 1 {
			t.Errorf("at its deadline: %s %+v after %d calls", s.task.State, e, s.calls)
		}
		return
	}
	last := s.tries[len(s.tries)-1] // a short wait may be over and have been told anew
	if s.task.State != api.Pending || last.ClosedAt == nil {
		t.Fatalf("the task is %s, its last attempt %+v", s.task.State, last)
	}
	switch ms := s.task.RunAt.Sub(*last.ClosedAt).Milliseconds(); {
	case s.want.DelayMS != 0 && max(ms-s.want.DelayMS, s.want.DelayMS-ms) > 1: // two roundings
		t.Errorf("waits %d ms, want %d", ms, s.want.DelayMS)
	case s.want.Delay != "" && (ms < 250 || ms > 60_000):
		t.Errorf("waits %d ms, want a backoff", ms)
	}
}
