package workerd_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/workerd"
)

// patience ends a test that waits for what never comes; nothing is measured
// against it.
const patience = 2 * time.Minute

// world is a database, a model server and any number of worker processes in
// this one.
type world struct {
	t      *testing.T
	file   string
	pool   *pgxpool.Pool
	db     *pgtest.DB
	llm    *fakellm.Handler
	submit *submit.Service
	board  *gate.Board // as an API process has one
	log    *logs
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

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// setup makes a world by a configuration in which URL stands for the model
// server's address and DIR for a folder, with "old" in the file key. wrap, which may be nil, stands before
// the model server.
func setup(t *testing.T, configuration string, wrap func(http.Handler) http.Handler) *world {
	t.Helper()
	w := &world{t: t, db: pgtest.New(t), llm: fakellm.NewHandler(), log: &logs{}}
	w.pool = w.db.Pool(t)
	var h http.Handler = w.llm
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		w.llm.Close()
		srv.CloseClientConnections()
		srv.Close()
	})
	dir := t.TempDir()
	w.file = filepath.Join(dir, "onefold.yaml")
	text := strings.NewReplacer("URL", srv.URL+"/v1", "DIR", dir).Replace(configuration)
	if err := os.WriteFile(w.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.secret("key", "old")
	app := w.open("api")
	t.Cleanup(app.Close)
	notifier := job.NewNotifier(app.Pool, app.Log)
	var err error
	if w.board, err = gate.New(t.Context(), gate.Opts{Pool: app.Pool, Log: app.Log}); err != nil {
		t.Fatal(err)
	}
	w.submit = submit.New(submit.Config{Pool: app.Pool, Kinds: app.Kinds, Outbox: outbox.New(outbox.Opts{Config: app.Kinds.Config()}), Notifier: notifier, Log: app.Log, Gates: w.board})
	t.Cleanup(func() {
		w.submit.Close()
		notifier.Close()
	})
	return w
}

func (w *world) secret(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(w.file), name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open(service string) *boot.App {
	w.t.Helper()
	app, err := boot.Open(context.Background(), boot.Config{
		Service: service, DatabaseURL: w.db.URL(), ConfigPath: w.file, LogTo: w.log, Lease: 30 * time.Second, MaxConns: 8,
		Configuration: config.Built(nil),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return app
}

// worker runs one worker process until the test ends.
func (w *world) worker(concurrency int) {
	w.t.Helper()
	app := w.open("worker")
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- workerd.Run(ctx, app, workerd.Opts{Upkeep: true, Grace: time.Second, Concurrency: concurrency, Ready: func() { close(ready) }})
	}()
	w.t.Cleanup(func() {
		w.llm.Close() // calls that hang end
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("stop the worker: %v", err)
		}
		app.Close()
	})
	select {
	case <-ready:
	case err := <-done:
		w.t.Fatalf("the worker did not start: %v", err)
	}
}

// put submits n tasks of a kind, several at a time.
func (w *world) put(tenant, kind string, n int) []task.ID {
	w.t.Helper()
	ids := make([]task.ID, n)
	var wg sync.WaitGroup
	next := make(chan int)
	for range 32 {
		wg.Go(func() {
			for i := range next {
				body := fmt.Sprintf(`{"kind":%q,"input":{"model":"m","messages":[{"role":"user","content":"%s %s %d"}]}}`, kind, tenant, kind, i)
				a, err := w.submit.Submit(context.Background(), submit.Request{Tenant: tenant, Key: fmt.Sprintf("k%d", i), KeySent: true, Body: []byte(body)})
				if err != nil {
					w.t.Errorf("submit: %v", err)
					continue
				}
				ids[i] = a.Row.ID
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return ids
}

// number reads one whole number.
func (w *world) number(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) tasks(kind, state string) int {
	w.t.Helper()
	return w.number(`SELECT count(*) FROM onefold.tasks WHERE kind = $1 AND state = $2`, kind, state)
}

func (w *world) until(what string, f func() bool) {
	w.t.Helper()
	limit := time.After(patience)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !f() {
		select {
		case <-look.C:
		case <-limit:
			w.t.Fatalf("never: %s\n%s", what, w.state())
		}
	}
}

// state is what a person would look at first.
func (w *world) state() string {
	rows, err := w.pool.Query(context.Background(), `
SELECT format('%s %s: %s, %s parked, attempts %s, %s', kind, state, count(*), count(*) FILTER (WHERE job_id IS NULL), sum(attempts), min(coalesce(error_code, '')))
FROM onefold.tasks GROUP BY kind, state
UNION ALL SELECT format('gate %s %s %s %s', name, state, code, until) FROM onefold.gates
UNION ALL SELECT format('queue %s paused %s', name, paused_at) FROM onefold.river_queue
UNION ALL SELECT format('wake %s %s: %s', queue, state, count(*)) FROM onefold.river_job GROUP BY queue, state`)
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err.Error()
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
