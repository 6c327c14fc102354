package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
)

const wholeReply = `{"id":"x","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

func replyWhole(c *providertest.Conn) {
	c.Send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(wholeReply), wholeReply))
}

// transport is one world whose providers fail below HTTP, each in its own way.
type transport struct {
	*proc.World
	cl      *client.Client
	breaks  *providertest.Server // answers once, then closes instead of answering
	idles   *providertest.Server // closes after each answer
	closed  chan struct{}        // by idles, once each time
	goodbye *providertest.GoAway
	silent  *providertest.Server
	slow    *providertest.Server
	proceed chan struct{} // lets slow answer
}

// The host of C171 is one that never exists (RFC 6761).
const transportConfig = `
retention: {tasks: 720h}
providers:
  c167: {type: openai, base_url: "http://%s/v1"}
  c168: {type: openai, base_url: "http://%s/v1"}
  c169: {type: openai, base_url: "https://%s/v1"}
  c171: {type: openai, base_url: "http://nosuch.onefold.invalid/v1"}
  c172: {type: openai, base_url: "http://%s/v1"}
  c173: {type: openai, base_url: "http://%s/v1"}
kinds:
  c167: {provider: c167, max_attempts: 1}
  c168: {provider: c168, max_attempts: 2}
  c169: {provider: c169, max_attempts: 2}
  c171: {provider: c171, max_attempts: 2}
  c172: {provider: c172, max_attempts: 2, timeouts: {total: 1s}}
  c173: {provider: c173, max_attempts: 2}
`

func newTransport(t *testing.T) *transport {
	t.Helper()
	w := &transport{closed: make(chan struct{}, 9), proceed: make(chan struct{})}
	w.breaks = providertest.Serve(t, nil, func(c *providertest.Conn) {
		if c.Read() {
			replyWhole(c)
		}
		c.Read()
		_ = c.Close()
	})
	w.idles = providertest.Serve(t, nil, func(c *providertest.Conn) {
		if c.Read() {
			replyWhole(c)
		}
		_ = c.Close()
		w.closed <- struct{}{}
	})
	config, pem := providertest.Certificate(t)
	w.goodbye = providertest.ServeGoAway(t, config, wholeReply)
	w.silent = providertest.Serve(t, nil, func(c *providertest.Conn) {
		c.Read()
		c.Hold()
	})
	w.slow = providertest.Serve(t, nil, func(c *providertest.Conn) {
		if c.Read() {
			<-w.proceed
			replyWhole(c)
		}
		c.Hold()
	})
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	w.World = proc.New(t, &proc.Opts{
		Config: fmt.Sprintf(transportConfig, w.breaks.Addr(), w.idles.Addr(), w.goodbye.Addr(), w.silent.Addr(), w.slow.Addr()),
		Env:    []string{"SSL_CERT_FILE=" + roots},
	})
	front := w.API(t)
	w.Worker(t)
	w.cl = w.Client(t, front)
	return w
}

// run submits a task and waits until it is settled.
func (w *transport) run(t *testing.T, kind, key string, deadline time.Duration) (*api.Task, []api.Attempt) {
	t.Helper()
	s := api.Submit{Kind: kind, Input: chatInput("m")}
	if deadline > 0 {
		at := time.Now().Add(deadline)
		s.Deadline = &at
	}
	got, err := w.cl.Submit(t.Context(), key, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err = w.cl.Wait(t.Context(), got.ID)
	if got == nil || !got.State.Settled() {
		t.Fatalf("%s did not settle: %v", key, err)
	}
	tries, err := w.cl.Attempts(t.Context(), got.ID)
	if err != nil {
		t.Fatal(err)
	}
	return got, tries
}

// TestTransportCases plays what happens below HTTP between whole processes and
// real sockets. C170 is not here: a process's name server cannot be taken away
// from outside without changing the machine's.
func TestTransportCases(t *testing.T) {
	t.Parallel()
	plays := map[string]func(*transport, *testing.T){
		"C167": (*transport).noHiddenReplay, "C168": (*transport).idleConnectionClosed, "C169": (*transport).goAwayAnswers,
		"C171": (*transport).noSuchName, "C172": (*transport).neverAnswers, "C173": (*transport).answersAfterManyLeases,
	}
	w := newTransport(t)
	for _, c := range casetest.Claimed(t, "e2e.TestTransportCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			plays[c.ID](w, t)
		})
	}
}

func (w *transport) noHiddenReplay(t *testing.T) {
	if got, _ := w.run(t, "c167", "warm", 0); got.State != api.Succeeded {
		t.Fatalf("warming up: %s %+v", got.State, got.Error)
	}
	got, tries := w.run(t, "c167", "cold", 0)
	if got.State != api.Failed || len(tries) != 1 || w.breaks.Requests.Load() != 2 || w.breaks.Conns.Load() != 1 {
		t.Errorf("%s after %d attempts, %d requests over %d connections", got.State, len(tries), w.breaks.Requests.Load(), w.breaks.Conns.Load())
	}
	if a := tries[0]; a.Code != "connection_lost" || a.Billed != api.BilledUnknown || !a.Orphaned || a.Sends != 1 {
		t.Errorf("the ledger says %+v", a)
	}
}

func (w *transport) idleConnectionClosed(t *testing.T) {
	w.run(t, "c168", "first", 0)
	<-w.closed
	if got, _ := w.run(t, "c168", "second", 0); got.State != api.Succeeded {
		t.Errorf("got %s %+v", got.State, got.Error)
	}
}

func (w *transport) goAwayAnswers(t *testing.T) {
	got, tries := w.run(t, "c169", "goodbye", 0)
	if got.State != api.Succeeded || len(tries) != 1 || w.goodbye.Calls.Load() != 1 || w.goodbye.Answered.Load() != 1 {
		t.Errorf("got %s %+v after %d calls, %d answered after the goodbye", got.State, got.Error, w.goodbye.Calls.Load(), w.goodbye.Answered.Load())
	}
}

// noSuchName ends by the deadline here: by itself it would after a minute of
// waits, which internal/worker plays without waiting.
func (w *transport) noSuchName(t *testing.T) {
	got, tries := w.run(t, "c171", "nowhere", 10*time.Second)
	if got.State != api.Failed || got.Error.Permanent || got.Attempts > 5 {
		t.Errorf("got %s %+v after %d attempts", got.State, got.Error, got.Attempts)
	}
	for _, a := range tries {
		if a.Outcome != "not_sent" || a.Billed != api.BilledNo || a.Sends != 0 {
			t.Errorf("the ledger says %+v", a)
		}
	}
}

func (w *transport) neverAnswers(t *testing.T) {
	got, tries := w.run(t, "c172", "never", 0)
	if got.State != api.Failed || got.Error.Code != "attempts_exhausted" || w.silent.Requests.Load() != 2 || got.Usage.Billed != api.BilledUnknown {
		t.Errorf("got %s %+v after %d calls", got.State, got.Error, w.silent.Requests.Load())
	}
	for _, a := range tries { // 75 s for two timeouts of 30 s, at five times the value
		if limit := int64(1000 * 5 * 75 / 60); a.TotalMS < 1000 || a.TotalMS > limit {
			t.Errorf("a call took %d ms, its total timeout is 1 s", a.TotalMS)
		}
	}
}

func (w *transport) answersAfterManyLeases(t *testing.T) {
	first, err := w.cl.Submit(t.Context(), "slow", api.Submit{Kind: "c173", Input: chatInput("m")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	proc.Until(t, "three leases have passed", func() bool {
		return w.Count(t, `SELECT count(*) FROM onefold.attempts WHERE task_id = $1 AND claimed_at < now() - interval '9 s'`, first.ID) == 1
	})
	close(w.proceed)
	got, tries := w.run(t, "c173", "slow", 0)
	if got.State != api.Succeeded || len(tries) != 1 || tries[0].Epoch != 1 || w.slow.Requests.Load() != 1 {
		t.Errorf("got %s %+v after %d calls: %+v", got.State, got.Error, w.slow.Requests.Load(), tries)
	}
}
