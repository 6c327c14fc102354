package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/upkeep"
	"github.com/onefold-dev/onefold/internal/worker"
)

const testConfig = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
  q: {type: httpcall, base_url: "http://127.0.0.1:1", status: /status}
destinations:
  d: {url: "http://127.0.0.1:1/", repeat: safe, allow_private: true}
kinds:
  k:
    provider: p
    output: text
    effects:
      - {name: tell, type: webhook, destination: d, on: final, body: '{"outcome": {{json .outcome}}, "n": {{json .input.n}}}'}
  r: {provider: p, output: text, on_unknown: review}
  asks: {provider: q, output: text}
  asks.review: {provider: q, output: text, on_unknown: review}
  s:
    provider: p
    output: json
    effects:
      - {name: save, type: sql, statement: "INSERT INTO public.saved (key, total) VALUES (@key, @result.total)"}
`

// script is a provider whose answers a test decides.
type script struct {
	mu    sync.Mutex
	calls int
	call  func(ctx context.Context, n int, r provider.Request) (*provider.Response, error)
}

func (s *script) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	s.mu.Lock()
	s.calls++
	n := s.calls
	s.mu.Unlock()
	return s.call(ctx, n, r)
}

func ok(text string) (*provider.Response, error) {
	reply, _ := json.Marshal(map[string]string{"text": text})
	return &provider.Response{Reply: reply, Text: text, FinishReason: "stop", Model: "m", Usage: provider.Usage{Known: true, InputTokens: 3, OutputTokens: 5}}, nil
}

type bundle struct {
	t      *testing.T
	pool   *pgxpool.Pool
	db     *pgtest.DB
	submit *submit.Service
	script *script
	cfg    *config.Config
	book   *kinds.Book
	notify *job.Notifier
	work   *pgxpool.Pool // what processes claim and finish through; pool if nil

	providers map[string]provider.Provider // by name; the script as p if nil
}

func setup(t *testing.T, call func(ctx context.Context, n int, r provider.Request) (*provider.Response, error)) *bundle {
	t.Helper()
	return setupWith(t, testConfig, call)
}

func setupWith(t *testing.T, file string, call func(ctx context.Context, n int, r provider.Request) (*provider.Response, error)) *bundle {
	t.Helper()
	db := pgtest.New(t)
	pool := db.Pool(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE public.saved (key text, total numeric CHECK (total < 1000))`); err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, pool: pool, db: db, script: &script{call: call}}
	return b.with(file, config.Opts{SkipSecrets: true})
}

// with is the same database as a process with that file sees it.
func (b *bundle) with(file string, opts config.Opts) *bundle {
	b.t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(file), opts)
	if err != nil {
		b.t.Fatal(err)
	}
	made := *b
	made.cfg, made.book = cfg, kinds.New(cfg, opts)
	if err := made.book.Store(b.t.Context(), b.pool); err != nil {
		b.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testWriter{b.t}, nil))
	made.notify = job.NewNotifier(b.pool, log)
	made.submit = submit.New(submit.Config{Pool: b.pool, Kinds: made.book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: made.notify, Log: log})
	b.t.Cleanup(func() {
		made.submit.Close()
		made.notify.Close()
	})
	return &made
}

// process is one worker process: a lease and a worker of its own.
type process struct {
	*worker.Worker
	lease *worker.Lease
	up    *upkeep.Upkeep

	purger *upkeep.Purger
}

func (b *bundle) process(lease time.Duration) *process {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{b.t}, nil))
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, b.db.URL()) }
	p := &process{}
	var err error
	p.lease, err = worker.StartLease(b.t.Context(), worker.LeaseConfig{
		Connect: connect, Lease: lease, Log: log, Worker: store.Worker{Process: task.NewToken(), Instance: "test", Host: "h", PID: 1, Version: "v"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	o := outbox.New(outbox.Opts{Config: b.cfg})
	p.up = upkeep.New(upkeep.Config{Connect: connect, Kinds: b.book, Outbox: o, Notifier: b.notify, Lease: lease, Longest: time.Minute, Log: log})
	p.purger = &upkeep.Purger{Connect: connect, Kinds: b.book, Log: log}
	pool := b.pool
	if b.work != nil {
		pool = b.work
	}
	providers := b.providers
	if providers == nil {
		providers = map[string]provider.Provider{"p": b.script}
	}
	p.Worker = worker.New(worker.Config{
		Pool: pool, EffectsDB: pool, Kinds: b.book, Providers: providers, Outbox: o, Notifier: b.notify,
		Lease: p.lease, Log: log, Random: func() float64 { return 0.5 }, Reap: p.up.Reap,
	})
	b.t.Cleanup(func() {
		p.Drain(0)
		p.Close()
		p.lease.Stop(context.Background())
	})
	return p
}

func (b *bundle) put(kind, key string) task.ID {
	b.t.Helper()
	a, err := b.submit.Submit(b.t.Context(), submit.Request{Tenant: "a", Key: key, KeySent: true, Body: []byte(fmt.Sprintf(`{"kind":%q,"input":{"n":1}}`, kind))})
	if err != nil {
		b.t.Fatal(err)
	}
	return a.Row.ID
}

func (b *bundle) row(id task.ID) *task.Row {
	b.t.Helper()
	r, err := store.Task(context.Background(), b.pool, "", id)
	if err != nil || r == nil {
		b.t.Fatalf("read task: %v, %v", r, err)
	}
	return r
}

func (b *bundle) strings(sql string, args ...any) []string {
	b.t.Helper()
	rows, err := b.pool.Query(context.Background(), sql, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (b *bundle) due(id task.ID) {
	b.t.Helper()
	if _, err := b.pool.Exec(context.Background(), `UPDATE onefold.tasks SET run_at = now() - interval '1 s' WHERE id = $1`, id); err != nil {
		b.t.Fatal(err)
	}
}

const wakes = `SELECT j.state::text FROM onefold.river_job j WHERE (j.args->>'id')::uuid = $1`

// testWriter lets the log of a worker be seen beside the test that it is of.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}
