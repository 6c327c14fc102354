package upkeep_test

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/upkeep"
)

const gaugesFile = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  k: {provider: p, output: text}
`

func scrape(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	telemetry.MetricsHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// What stands in the database is shown by the one process that was elected, and
// gone from /metrics when it stops. The one test of this package that reads the
// process's metrics: they are shared.
func TestGauges(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	cfg, err := config.Parse("test.yaml", []byte(gaugesFile), config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	book := kinds.New(cfg, config.Opts{SkipSecrets: true})
	if err := book.Store(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), `
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, deadline, input,
    config_hash, run_at, state, finished_at, error_code)
SELECT gen_random_uuid(), 'a', 'k', 'x' || i, 'key', 'p', sha256(''), 1, sha256(''), '1 h', now() + interval '1 h', '1', $1, now() - interval '100 s',
    CASE WHEN i <= 7 THEN 'pending' ELSE 'unknown' END, CASE WHEN i > 7 THEN now() - interval '20 min' END, CASE WHEN i > 7 THEN 'worker_lost' END
FROM generate_series(1, 10) AS i`, cfg.Kinds["k"].Hash())
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), `
INSERT INTO onefold.task_duplicates (task_id, count) SELECT id, 4 FROM onefold.tasks WHERE key IN ('x1', 'x2');
INSERT INTO onefold.gates (scope, name, salt, state, code, failures) VALUES ('provider', 'p', sha256('s'), 'held', 'unauthorized', 6)`)
	if err != nil {
		t.Fatal(err)
	}
	u := upkeep.New(upkeep.Config{Kinds: book, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.RunGauges(ctx, pool)
	}()
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text := ""
	for tick := time.NewTicker(20 * time.Millisecond); !strings.Contains(text, "onefold_gauges_read_seconds "); text = scrape(t) {
		select {
		case <-deadline.Done():
			t.Fatalf("no gauges:\n%s", text)
		case <-tick.C:
		}
	}
	for _, want := range []string{
		`onefold_queue_depth{kind="k",state="due"} 7`, `onefold_tasks_unknown 3`, `onefold_queue_oldest_seconds{kind="k"} 1`,
		`onefold_review_items{age="1h",state="unknown",type="task"} 3`, `onefold_gate_state{code="unauthorized",name="p",scope="provider",state="held"} 1`,
		`onefold_gate_waiting{name="p",scope="provider"} 7`, `onefold_gate_consecutive_failures{name="p",scope="provider"} 6`,
		`onefold_key_repeats_bucket{le="3"} 0`, `onefold_key_repeats_bucket{le="5"} 2`, `onefold_key_repeats_sum 8`,
		`onefold_postgres_oldest_xmin_transactions `, `onefold_postgres_dead_rows{table="tasks"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if mine, err := store.Elect(t.Context(), pool, "gauges", task.NewToken(), time.Second); err != nil || mine {
		t.Errorf("another was elected beside it: %v, %v", mine, err)
	}
	stop()
	<-done
	if strings.Contains(scrape(t), "onefold_queue_depth{") {
		t.Error("a process that reads no more still shows what it read")
	}
}
