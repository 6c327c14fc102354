package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

const testConfig = `
providers:
  openai: {type: openai, base_url: "http://127.0.0.1:1/v1"}
kinds:
  llm.chat: {provider: openai}
  open: {provider: openai, dedupe: open}
  free: {provider: openai, dedupe: none}
  review: {provider: openai, on_unknown: review}
destinations:
  filed: {url: "https://93.184.216.34/"}
sources:
  hook: {scheme: github, tenant: a, kind: llm.chat, secret_env: HOOK, max_body: 4096, rate: 1000}
  narrow: {scheme: github, tenant: a, kind: llm.chat, secret_env: HOOK, rate: 1}
`

const hookSecret = "the secret of all test sources"

// bundle is an API process in this one, on a database of its own.
type bundle struct {
	URL, Addr string
	DB        *pgxpool.Pool
	Key       string // of tenant a, with all its scopes
	Log       *logs
	database  *pgtest.DB
	pooled    bool // as if DatabaseURL led through a pooler, as a runtime role
	stop      func() error
}

type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return start(t, pgtest.New(t))
}

// start runs an API process on db until t ends.
func start(t *testing.T, db *pgtest.DB) *bundle {
	t.Helper()
	b := &bundle{Log: &logs{}, database: db}
	b.run(t)
	b.DB = db.Pool(t)
	b.Key = b.key(t, "a", api.ScopeSubmit, api.ScopeRead, api.ScopeOperate)
	return b
}

// startOn runs a second API process on the database of the first.
func startOn(t *testing.T, first *bundle) *bundle {
	t.Helper()
	b := &bundle{Log: &logs{}, database: first.database, DB: first.DB, Key: first.Key}
	b.run(t)
	return b
}

func (b *bundle) run(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "onefold.yaml")
	if err := os.WriteFile(file, []byte(testConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cfg := boot.Config{
		Service: "api", DatabaseURL: b.database.URL(), ConfigPath: file, Addr: "127.0.0.1:0", LogTo: b.Log, SealKeys: telemetry.SecretFromValue(telemetry.NewSecret(ring)),
		Configuration: config.Opts{SkipSecrets: true, Getenv: func(string) string { return hookSecret }},
	}
	if b.pooled {
		cfg.DirectURL, cfg.DatabaseURL = cfg.DatabaseURL, b.database.Runtime(t, boot.Settings(boot.DefaultLease))
	}
	app, err := boot.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- apid.Run(ctx, app, func(a string) { addr <- a }) }()
	b.stop = sync.OnceValue(func() error {
		cancel()
		err := <-done
		app.Close()
		return err
	})
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Errorf("stop the api: %v", err)
		}
	})
	select {
	case b.Addr = <-addr:
	case err := <-done:
		t.Fatalf("the api did not start: %v", err)
	}
	b.URL = "http://" + b.Addr
}

func (b *bundle) key(t *testing.T, tenant string, scopes ...api.Scope) string {
	t.Helper()
	secret, _, err := auth.Create(context.Background(), b.DB, auth.NewKey{Tenant: tenant, Name: "n-" + string(scopes[0]), Scopes: scopes, Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// call is one request; nil bodies send none.
type call struct {
	method, path string
	key          string // API key; the bundle's when empty, none when "-"
	idem         string
	body         string
	header       http.Header
}

type reply struct {
	status  int
	header  http.Header
	body    []byte
	problem api.Error
	task    api.Task
}

func (b *bundle) do(t *testing.T, c call) reply {
	t.Helper()
	var body io.Reader
	if c.body != "" {
		body = bytes.NewReader([]byte(c.body))
	}
	req, err := http.NewRequest(c.method, b.URL+c.path, body)
	if err != nil {
		t.Fatal(err)
	}
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.idem != "" {
		req.Header.Set("Idempotency-Key", c.idem)
	}
	switch c.key {
	case "-":
	case "":
		req.Header.Set("Authorization", "Bearer "+b.Key)
	default:
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp, raw)
}

func read(t *testing.T, resp *http.Response, raw []byte) reply {
	t.Helper()
	r := reply{status: resp.StatusCode, header: resp.Header, body: raw}
	var err error
	switch {
	case resp.Header.Get("Content-Type") == "application/problem+json":
		err = json.Unmarshal(raw, &r.problem)
	case resp.StatusCode < 300 && resp.Header.Get("Content-Type") == "application/json" && bytes.HasPrefix(raw, []byte(`{"id"`)):
		err = json.Unmarshal(raw, &r.task)
	}
	if err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
	return r
}

const chat = `{"kind":"llm.chat","input":{"model":"m","messages":[{"role":"user","content":"hi"}]}}`

func (b *bundle) submit(t *testing.T, idem, body string) reply {
	t.Helper()
	return b.do(t, call{method: "POST", path: "/v1/tasks", idem: idem, body: body})
}

// awaitReady waits until the api can serve requests.
func (b *bundle) awaitReady(t *testing.T) {
	t.Helper()
	for look := time.NewTicker(20 * time.Millisecond); ; <-look.C {
		if b.do(t, call{method: "GET", path: "/readyz", key: "-"}).status == 200 {
			return
		}
	}
}
