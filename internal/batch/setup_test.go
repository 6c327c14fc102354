package batch_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
)

const testConfig = `
providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1"}
destinations:
  done: {url: "http://127.0.0.1:1/hook", allow_private: true, tenants: [a]}
kinds:
  k: {provider: p}
  other: {provider: p}
  free: {provider: p, dedupe: none}
  llm.chat: {provider: p}
`

// bundle is the service of one process.
type bundle struct {
	*batch.Service
	submit *submit.Service
	pool   *pgxpool.Pool
}

// setup gives several services on one database, as several processes would have.
func setup(t *testing.T, n int, o batch.Opts) []bundle {
	t.Helper()
	db := pgtest.New(t)
	out := make([]bundle, n)
	for i := range out {
		out[i] = join(t, db, testConfig, o)
	}
	return out
}

func join(t *testing.T, db *pgtest.DB, text string, o batch.Opts) bundle {
	t.Helper()
	opts := config.Opts{SkipSecrets: true}
	cfg, err := config.Parse("test.yaml", []byte(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	pool := db.Pool(t)
	book := kinds.New(cfg, opts)
	if err := book.Store(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	notifier := job.NewNotifier(pool, log)
	s := submit.New(submit.Config{Pool: pool, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log})
	t.Cleanup(func() {
		s.Close()
		notifier.Close()
	})
	return bundle{batch.New(batch.Config{Pool: pool, Kinds: book, Submit: s, Notifier: notifier, Log: log, Opts: o}), s, pool}
}

func (b bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (b bundle) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// chat is a line of OpenAI's form.
func chat(id, prompt string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":%q}]}}`, id, prompt)
}

// own is a line of our own form.
func own(key, kind, input string) string {
	return fmt.Sprintf(`{"key":%q,"kind":%q,"input":%s}`, key, kind, input)
}

func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

// chats is a file of n lines.
func chats(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(chat(fmt.Sprint("row-", i+1), fmt.Sprint("prompt ", i+1)) + "\n")
	}
	return b.String()
}

func (b bundle) upload(key, file string) (*store.Batch, bool, error) {
	return b.Upload(context.Background(), batch.Upload{Tenant: "a", Key: key, Body: strings.NewReader(file)})
}

func (b bundle) mustUpload(t *testing.T, key, file string) *store.Batch {
	t.Helper()
	got, created, err := b.upload(key, file)
	if err != nil || !created {
		t.Fatalf("upload %s: created %t, %v", key, created, err)
	}
	return got
}

func (b bundle) get(t *testing.T, of *store.Batch) *api.Batch {
	t.Helper()
	got, err := b.Get(context.Background(), "a", of.ID)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// rounds takes steps until none has anything to do.
func (b bundle) rounds(t *testing.T) {
	t.Helper()
	for range 10_000 {
		busy, err := b.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !busy {
			return
		}
	}
	t.Fatal("the steps come to no end")
}

// settle is what a worker would do with the pending tasks that match.
func (b bundle) settle(t *testing.T, state api.State, where string, args ...any) {
	t.Helper()
	set := `result = NULL, result_hash = NULL, error_code = 'attempts_exhausted', error_message = 'no luck', error_permanent = false`
	switch state {
	case api.Succeeded:
		set = `result = convert_to('{"of": ' || to_json(key)::text || E',\n"n":1.0}', 'UTF8'),
    result_hash = sha256(convert_to('{"of": ' || to_json(key)::text || E',\n"n":1.0}', 'UTF8')), error_code = NULL, error_message = NULL, error_permanent = NULL`
	case api.Unknown:
		set = `error_code = 'outcome_unknown', error_message = 'nobody knows', error_permanent = NULL`
	case api.Cancelled:
		set = `error_code = NULL, error_permanent = NULL`
	}
	b.exec(t, `
UPDATE onefold.tasks
SET state = '`+string(state)+`', epoch = epoch + 1, attempts = attempts + 1, total_attempts = total_attempts + 1, started_at = now(),
    finished_at = clock_timestamp(), expires_at = now() + interval '30 days', owner = NULL, token = NULL, input_tokens = 10, output_tokens = 5, cost = 0.25, billed = 'yes',
    `+set+`
WHERE state IN ('pending', 'running') AND `+where, args...)
}

// results reads a batch's results, each line checked to be JSON.
func (b bundle) results(t *testing.T, of *store.Batch, want batch.Want) (out []string) {
	t.Helper()
	now, err := store.BatchByID(context.Background(), b.pool, "", of.ID)
	if err != nil {
		t.Fatal(err)
	}
	if want.Order == "" {
		want.Order = api.OrderInput
	}
	var buf bytes.Buffer
	if err := b.Results(context.Background(), now, want, &buf); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(&buf)
	for {
		l, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && l == "" {
			return out
		}
		if err != nil || !json.Valid([]byte(l)) {
			t.Fatalf("a result is no line of JSON: %q, %v", l, err)
		}
		out = append(out, strings.TrimSuffix(l, "\n"))
	}
}

func asAPI(err error) *api.Error {
	var e *api.Error
	if !errors.As(err, &e) {
		return &api.Error{}
	}
	return e
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); !f(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not come", what)
		}
	}
}
