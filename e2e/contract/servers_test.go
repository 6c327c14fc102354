package contract

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/client/clienttest"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
)

func TestMain(m *testing.M) { proc.Main(m) }

// server is what a test is given: it talks to it as any caller does.
type server struct {
	*client.Client
	url, key string
}

// config is what the real one runs. A task's input names the model, and by it
// what becomes of the task; the text is echoed.
var config = func() string {
	text := `
providers:
  model: {type: openai, base_url: "{{FAKELLM}}", timeouts: {connect: 5s, first_byte: 60s, idle: 60s, total: 90s}}
kinds:
  llm.chat: {provider: model}
`
	for kind, more := range map[string]string{
		"work": "on_unknown: retry", "careful": "on_unknown: review", "open": "dedupe: open", "free": "dedupe: none", "window": `dedupe: "window: 1h"`,
	} {
		text += "  " + kind + ": {provider: model, output: text, max_attempts: 1, " + more + `,
    request: {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}, sample: {model: "fake:ok", text: "hello"}}
`
	}
	return text
}()

// The models of the tests.
const (
	works   = "fake:ok"
	refuses = "fake:status=400"
	breaks  = "fake:status=500"
	mends   = "fake:status=500;ok" // breaks once
	slow    = "fake:latency=60s"
)

func realServer(t *testing.T) *server {
	t.Helper()
	w := proc.New(t, &proc.Opts{Config: config})
	front := w.API(t)
	w.Worker(t)
	key, _, err := auth.Create(t.Context(), w.Pool, auth.NewKey{
		Tenant: "e2e", Name: "contract", Actor: "test", Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead, api.ScopeOperate},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(front.URL(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &server{c, front.URL(), key}
}

func fakeServer(t *testing.T) *server {
	t.Helper()
	s := clienttest.New(map[string]clienttest.Kind{
		"llm.chat": {Do: echo}, "work": {Do: echo}, "careful": {Do: echo},
		"open": {Do: echo, Dedupe: api.DedupeOpen}, "free": {Do: echo, Dedupe: api.DedupeNone},
		"window": {Do: echo, Dedupe: api.DedupeWindow, Window: time.Hour},
	})
	t.Cleanup(s.Close)
	return &server{s.Client(), s.URL, s.Key}
}

// echo does what the models do.
func echo(ctx context.Context, c clienttest.Call) clienttest.Outcome {
	var in struct{ Model, Text string }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return clienttest.Reject(err.Error())
	}
	switch {
	case in.Model == slow:
		<-ctx.Done()
		return clienttest.Exhaust("cut off")
	case in.Model == refuses:
		return clienttest.Reject("status 400")
	case in.Model == breaks && c.Kind == "careful":
		return clienttest.NotKnown("status 500")
	case in.Model == breaks, in.Model == mends && c.Run == 1:
		return clienttest.Exhaust("status 500")
	}
	text, _ := json.Marshal(in.Text)
	return clienttest.Succeed(string(text))
}

// TestContract runs each test against each server.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *server{"real": realServer, "clienttest": fakeServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, s)
				})
			}
		})
	}
}

// work is a submit of a kind whose model does what its name says.
func work(kind, model, text string) api.Submit {
	input, _ := json.Marshal(map[string]string{"model": model, "text": text})
	return api.Submit{Kind: kind, Input: input}
}

// key is one of the test's own.
func key(t *testing.T, name string) string {
	_, test, _ := strings.Cut(t.Name(), "/")
	return client.Key(url.PathEscape(test), name)
}
