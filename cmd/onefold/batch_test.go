package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/workerd"
)

// world is a server with a worker and a model behind it, and a command line.
type world struct {
	url, key string
	pool     *pgxpool.Pool
	model    *fakellm.Server
	dir      string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t)
	w := &world{pool: db.Pool(t), model: fakellm.New(), dir: t.TempDir()}
	t.Cleanup(w.model.Close)
	file := filepath.Join(w.dir, "onefold.yaml")
	text := fmt.Sprintf("providers:\n  p:\n    type: openai\n    base_url: %q\n    prices: {m: {input: 1, output: 2}}\nkinds:\n  llm.chat: {provider: p}\n  note: {provider: p}\n", w.model.URL())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	open := func(service string) *boot.App {
		app, err := boot.Open(ctx, boot.Config{
			Service: service, DatabaseURL: db.URL(), ConfigPath: file, Addr: "127.0.0.1:0", LogLevel: "error", LogTo: t.Output(), Configuration: config.Built(nil),
		})
		if err != nil {
			t.Fatal(err)
		}
		return app
	}
	front, back := open("api"), open("worker")
	addr, done := make(chan string, 1), make(chan error, 2)
	go func() { done <- apid.Run(ctx, front, func(a string) { addr <- a }) }()
	go func() { done <- workerd.Run(ctx, back, workerd.Opts{Upkeep: true, Grace: time.Second}) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("stop: %v", err)
			}
		}
		front.Close()
		back.Close()
	})
	var err error
	w.key, _, err = auth.Create(ctx, w.pool, auth.NewKey{Tenant: "a", Name: "k", Actor: "test", Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead, api.ScopeOperate}})
	if err != nil {
		t.Fatal(err)
	}
	w.url = "http://" + <-addr
	return w
}

// run runs a command line in the world.
func (w *world) run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs lockedBuffer
	code = run(ctx, args, strings.NewReader(""), &out, &errs, func(name string) string {
		return map[string]string{"ONEFOLD_URL": w.url, "ONEFOLD_API_KEY": w.key}[name]
	})
	return code, out.String(), errs.String()
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (w *world) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openAILines is a batch file as OpenAI's API takes it.
func openAILines(model string, from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, `{"custom_id":"row-%d","method":"POST","url":"/v1/chat/completions","body":{"model":%q,"messages":[{"role":"user","content":"say %d"}],"max_tokens":10}}`+"\n", i, model, i)
	}
	return b.String()
}

func readLines(t *testing.T, path string) (lines [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for {
		l, err := in.ReadBytes('\n')
		if err == io.EOF {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, bytes.TrimSuffix(l, []byte("\n")))
	}
}

// A file written for OpenAI's Batch API runs as it is; its output is in the
// order of the input and reads with the official library's types. The same
// command again calls nothing.
func TestBatchRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 60
	in, out := w.file(t, "in.jsonl", openAILines("m", 1, n)), filepath.Join(w.dir, "out.jsonl")
	for range 2 {
		code, stdout, stderr := w.run(t.Context(), "batch", "run", in, "-o", out)
		if code != exitOK || stdout != "" || !strings.Contains(stderr, "completed: 60 succeeded; cost 0.0") {
			t.Fatalf("got exit code %d, %q, %q", code, stdout, stderr)
		}
		lines := readLines(t, out)
		if len(lines) != n {
			t.Fatalf("%d lines, want %d", len(lines), n)
		}
		for i, l := range lines {
			checkOpenAI(t, l, i+1)
		}
	}
	if calls := w.model.Calls(); calls.Received != n {
		t.Errorf("%d calls for %d lines run twice", calls.Received, n)
	}
	left, err := filepath.Glob(filepath.Join(w.dir, ".out*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left beside the output, %v", left, err)
	}
	code, stdout, stderr := w.run(t.Context(), "batch", "run", in, "--as-finished")
	if code != exitOK || strings.Count(stdout, "\n") != n {
		t.Errorf("to stdout: exit code %d, %d lines, %s", code, strings.Count(stdout, "\n"), stderr)
	}
}

// Interrupted in the middle and run again, the command goes on: every line once,
// in order, and no call twice.
func TestBatchRunInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.model.Script("m", "latency=50ms"); err != nil {
		t.Fatal(err)
	}
	const n = 1500
	in, out := w.file(t, "in.jsonl", openAILines("m", 1, n)), filepath.Join(w.dir, "out.jsonl")
	for calls := 200; calls < n; calls += 400 {
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for look := time.NewTicker(5 * time.Millisecond); w.model.Calls().Received < calls; <-look.C {
			}
			cancel()
		}()
		code, _, stderr := w.run(ctx, "batch", "run", in, "-o", out)
		<-stop
		if code != exitInterrupted || !strings.Contains(stderr, "The same command again") {
			t.Fatalf("got exit code %d, %s", code, stderr)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("half the output has the name of the whole")
		}
	}
	// Half a line at the end of what was written, as a crash leaves it.
	part, err := filepath.Glob(filepath.Join(w.dir, ".out.jsonl.*.part"))
	if err != nil || len(part) != 1 {
		t.Fatalf("got %v, %v", part, err)
	}
	f, err := os.OpenFile(part[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"batch_req_x_`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := w.run(t.Context(), "batch", "run", in, "-o", out)
	if code != exitOK || !strings.Contains(stderr, "this file is batch ") {
		t.Fatalf("got exit code %d, %s", code, stderr)
	}
	lines := readLines(t, out)
	if len(lines) != n {
		t.Fatalf("%d lines, want %d", len(lines), n)
	}
	for i, l := range lines {
		checkOpenAI(t, l, i+1)
	}
	if calls := w.model.Calls(); calls.Received != n {
		t.Errorf("%d calls for %d lines", calls.Received, n)
	}
}

func TestBatchCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := openAILines("m", 1, 3) + openAILines("fake:status=400", 4, 4) + "[]\n" + openAILines("fake:status=500;ok", 5, 5)
	in, out := w.file(t, "in.jsonl", file), filepath.Join(w.dir, "out.jsonl")
	code, _, stderr := w.run(t.Context(), "batch", "run", in, "-o", out, "--key", "n:1")
	if code != exitFailed || !strings.Contains(stderr, "4 succeeded, 1 failed, 1 invalid") {
		t.Fatalf("got exit code %d, %s", code, stderr)
	}
	var told []string
	for _, l := range readLines(t, out) {
		var r api.OpenAIResult
		if err := json.Unmarshal(l, &r); err != nil {
			t.Fatal(err)
		}
		if r.Error != nil {
			told = append(told, r.Error.Code)
		} else {
			told = append(told, "")
		}
	}
	if diff := cmp.Diff(told, []string{"", "", "", "rejected", "invalid_json", ""}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if !strings.Contains(stderr, "--only errors") || !strings.Contains(stderr, "--retry-failed") || strings.Contains(stderr, "is batch") {
		t.Errorf("nothing is said of what to do about what failed: %s", stderr)
	}
	code, stdout, _ := w.run(t.Context(), "batch", "status", "n:1")
	if code != exitOK || !strings.Contains(stdout, "state      completed") || !strings.Contains(stdout, "line 5     invalid_json") {
		t.Errorf("status: %d %s", code, stdout)
	}
	code, stdout, _ = w.run(t.Context(), "batch", "status", "-o", "json")
	var b api.Batch
	if err := json.Unmarshal([]byte(stdout), &b); err != nil || code != exitOK || b.Key != "n:1" || b.Counts.Total() != 6 {
		t.Errorf("status -o json: %d %s", code, stdout)
	}
	code, stdout, _ = w.run(t.Context(), "batch", "results", b.ID, "--only", "errors")
	if code != exitOK || strings.Count(stdout, "\n") != 2 {
		t.Errorf("results: %d %s", code, stdout)
	}
	if code, _, stderr = w.run(t.Context(), "batch", "cancel", b.ID); code != exitError || !strings.Contains(stderr, "conflict") {
		t.Errorf("cancel: %d %s", code, stderr)
	}
	if code, _, stderr = w.run(t.Context(), "batch", "status", "nosuch"); code != exitNotFound {
		t.Errorf("status of what is not there: %d %s", code, stderr)
	}
	if code, stdout, _ = w.run(t.Context(), "batch", "retry", "n:1"); code != exitOK || !strings.Contains(stdout, "run        2") {
		t.Errorf("retry: %d %s", code, stdout)
	}
	if code, _, stderr = w.run(t.Context(), "batch", "run", in, "-o", out, "--key", "n:1"); code != exitFailed {
		t.Errorf("run after the retry: %d %s", code, stderr)
	}
	if calls := w.model.Calls(); calls.ByModel["m"] != 3 || calls.ByModel["fake:status=400"] != 2 || calls.ByModel["fake:status=500;ok"] != 2 {
		t.Errorf("got the calls %v, want those of the failed line again and no others", calls.ByModel)
	}
	for name, args := range map[string][]string{
		"no file":              {"batch", "run", filepath.Join(w.dir, "nosuch")},
		"another file":         {"batch", "run", w.file(t, "other.jsonl", openAILines("m", 1, 2)), "--key", "n:1"},
		"a file refused":       {"batch", "run", w.file(t, "bad.jsonl", openAILines("m", 1, 2)+openAILines("m", 1, 1))},
		"a form that is not":   {"batch", "status", "-o", "out.jsonl"},
		"a folder that is not": {"batch", "run", in, "--key", "n:1", "-o", filepath.Join(w.dir, "no", "out")},
	} {
		code, _, stderr := w.run(t.Context(), args...)
		want := map[string]int{"another file": exitError, "a file refused": exitError}[name]
		if want == 0 {
			want = exitUsage
		}
		if code != want || !strings.Contains(stderr, "fix") {
			t.Errorf("%s: %d %s", name, code, stderr)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var errs lockedBuffer
	e := &env{stderr: &errs, now: func() time.Time { return at }}
	p := e.newProgress()
	p.sent(1, 2)
	b := &api.Batch{Lines: 1000, State: api.BatchRunning, Counts: api.BatchCounts{Waiting: 1000}}
	p.show(b)
	for range 15 {
		at = at.Add(time.Second)
		b.Counts.Waiting -= 10
		b.Counts.Succeeded += 8
		b.Counts.Failed += 2
		b.Usage.Cost = "1.25"
		p.show(b)
	}
	b.Counts, b.State = api.BatchCounts{Succeeded: 990, Failed: 10}, api.BatchCompleted
	p.show(b)
	want := "onefold: 0 of 1000, 0 failed\nonefold: 100 of 1000, 10.0/s, 1m30s left, 20 failed, cost 1.25\nonefold: 1000 of 1000, completed, 10 failed, cost 1.25\n"
	if diff := cmp.Diff(errs.String(), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	// On a terminal: what is said meanwhile is not lost, and closing twice is fine.
	var screen lockedBuffer
	e = &env{stderr: &screen, now: time.Now}
	drawn := newBar(e, meter{now: e.now}, 100)
	drawn.sent(1<<20, 1<<21)
	drawn.show(b)
	e.say("meanwhile")
	drawn.close()
	drawn.close()
	e.say("after")
	want = "\r\x1b[K[============            ] uploading, 1024 of 2048 KiB" +
		"\r\x1b[K[========================] 1000 of 1000, completed, 10 failed, cost 1.25" +
		"\r\x1b[Konefold: meanwhile\n[========================] 1000 of 1000, completed, 10 failed, cost 1.25\nonefold: after\n"
	if diff := cmp.Diff(screen.String(), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}
