package worker_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
)

const phasesConfig = `
providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1", timeouts: {connect: 60s, first_byte: 60s, idle: 60s, total: 60s}}
kinds:
  again: {provider: p, output: text, max_attempts: 3}
  review: {provider: p, output: text, max_attempts: 3, on_unknown: review}
  stalls: {provider: p, output: text, max_attempts: 3, timeouts: {connect: 300ms}}
  late: {provider: p, output: text, max_attempts: 3, timeouts: {total: 400ms}}
  late.review: {provider: p, output: text, max_attempts: 3, on_unknown: review, timeouts: {total: 400ms}}
`

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Request-Id: req-9\r\n\r\n"
	firstToken = "data: {\"model\":\"m-2\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half an\"}}]}\n\n"
	lastToken  = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" answer\"},\"finish_reason\":\"stop\"}]}\n\n"
	theUsage   = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\n"
	theEnd     = "data: [DONE]\n\n"
)

// Where a call breaks off: what class it is, what becomes of the task, how many
// sends there were, and what the ledger says.
func TestPhases(t *testing.T) {
	t.Parallel()
	head := func(c *providertest.Conn, tokens ...string) bool {
		if !c.Read() {
			return false
		}
		c.Send(streamHead)
		for _, s := range tokens {
			c.Chunk([]byte(s))
		}
		return true
	}
	for name, c := range map[string]struct {
		kinds  [2]string // one that calls again, one that asks a person
		script func(*providertest.Conn)
		scheme string
		// what one attempt comes to
		requests int64
		ledger   string // outcome code phase billed orphaned sends, what came, request id
		states   [2]api.State
		code     string // of the reviewed one
		attempts int32  // used
	}{
		"dial refused": {
			kinds: [2]string{"again", "review"}, ledger: "not_sent connection_refused dialing no false 0 - -",
			states: [2]api.State{api.Pending, api.Pending},
		},
		"TLS stalls": {
			kinds: [2]string{"stalls", "stalls"}, script: (*providertest.Conn).Hold, scheme: "https",
			ledger: "not_sent connect_timeout tls no false 0 - -", states: [2]api.State{api.Pending, api.Pending},
		},
		"cut before the first byte": {
			kinds: [2]string{"again", "review"}, script: func(c *providertest.Conn) {
				c.Read()
				c.Reset()
			},
			requests: 1, ledger: "unknown connection_lost written unknown true 1 - -",
			states: [2]api.State{api.Pending, api.Unknown}, code: "outcome_unknown", attempts: 1,
		},
		"cut after the first token": {
			kinds: [2]string{"again", "review"}, script: func(c *providertest.Conn) {
				head(c, firstToken)
				_ = c.Close()
			},
			requests: 1, ledger: "unknown stream_cut first_token yes true 1 half an req-9",
			states: [2]api.State{api.Pending, api.Unknown}, code: "cut", attempts: 1,
		},
		"cut after the body, before the close": {
			kinds: [2]string{"again", "review"}, script: func(c *providertest.Conn) {
				head(c, firstToken, lastToken, theUsage, theEnd)
				c.Reset() // the last chunk never comes
			},
			requests: 1, ledger: "succeeded - done yes false 1 - req-9",
			states: [2]api.State{api.Succeeded, api.Succeeded}, attempts: 1,
		},
		"a reply after one and a half times the total timeout": {
			kinds: [2]string{"late", "late.review"}, script: func(c *providertest.Conn) {
				if !c.Read() {
					return
				}
				<-time.After(600 * time.Millisecond) // the script's own, not the test's
				c.Send(streamHead)
				c.Chunk([]byte(firstToken + lastToken + theUsage + theEnd))
				c.Send("0\r\n\r\n")
			},
			requests: 1, ledger: "unknown total_timeout written unknown true 1 - -",
			states: [2]api.State{api.Pending, api.Unknown}, code: "outcome_unknown", attempts: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, kind := range c.kinds {
				addr, requests := nobody(t), func() int64 { return 0 }
				if c.script != nil {
					s := providertest.Serve(t, nil, c.script)
					addr, requests = s.Addr(), s.Requests.Load
				}
				scheme := c.scheme
				if scheme == "" {
					scheme = "http"
				}
				p, err := openai.New(openai.Opts{BaseURL: scheme + "://" + addr + "/v1"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Close)
				b := setupWith(t, phasesConfig, nil)
				b.providers = map[string]provider.Provider{"p": p}
				id := b.put(kind, "x")
				b.process(5*time.Second).Work(context.Background(), id)
				r := b.row(id)
				if r.State != c.states[i] || r.Attempts != c.attempts || requests() != c.requests || r.State == api.Unknown && r.ErrorCode != c.code {
					t.Errorf("%s: %s %s, %d attempts used, %d requests; want %s, %d, %d", kind, r.State, r.ErrorCode, r.Attempts, requests(), c.states[i], c.attempts, c.requests)
				}
				got := b.strings(`
SELECT concat_ws(' ', outcome, coalesce(code, '-'), phase, billed, orphaned::text, sends, coalesce(convert_from(partial, 'UTF8'), '-'), coalesce(request_id, '-'))
FROM onefold.attempts WHERE task_id = $1`, id)
				if diff := cmp.Diff(got, []string{c.ledger}); diff != "" {
					t.Errorf("%s: the ledger: -got +want:\n%s", kind, diff)
				}
				if sent := b.attempts(id)[0].DispatchedAt != nil; sent != (c.requests > 0) && !strings.HasPrefix(kind, "review") {
					t.Errorf("%s: sent_at is set: %t", kind, sent)
				}
			}
		})
	}
}

// nobody is an address where nobody listens: a port that was free.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr())
}
