package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/review"
	"github.com/onefold-dev/onefold/internal/server"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/wait"
)

// counting counts statements.
type counting struct {
	store.DBTX
	n atomic.Int64
}

func (c *counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.n.Add(1)
	return c.DBTX.Query(ctx, sql, args...)
}

func (c *counting) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.n.Add(1)
	return c.DBTX.QueryRow(ctx, sql, args...)
}

func (c *counting) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c.n.Add(1)
	return c.DBTX.Exec(ctx, sql, args...)
}

// counted is an API on the database of b whose statements are counted.
func counted(t *testing.T, b *bundle) (url string, waiter *wait.Waiter, statements *counting) {
	t.Helper()
	log := telemetry.New(t.Output(), &telemetry.Opts{Level: slog.LevelError})
	cfg, err := config.Parse("test", []byte(testConfig), config.Opts{SkipSecrets: true, SkipSources: true})
	if err != nil {
		t.Fatal(err)
	}
	statements = &counting{DBTX: b.DB}
	notifier := job.NewNotifier(b.DB, log)
	book := kinds.New(cfg, config.Opts{SkipSecrets: true, SkipSources: true})
	submits := submit.New(submit.Config{
		Pool: b.DB, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log,
	})
	waiter = wait.New(wait.Config{
		Pool: statements, Every: time.Hour, Log: log,
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, b.database.URL()) },
	})
	s, err := server.New(server.Config{
		DB: statements, Submit: submits, Batches: batch.New(batch.Config{Pool: b.DB, Kinds: book, Submit: submits, Notifier: notifier, Log: log}), Review: &review.Service{}, Auth: auth.New(statements), Wait: waiter, Log: log, Ready: func(context.Context) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = waiter.Run(ctx) }()
	t.Cleanup(func() { srv.Close(); cancel(); <-done; submits.Close(); notifier.Close() })
	return srv.URL, waiter, statements
}

// A thousand who wait over HTTP cost the database what one costs, their
// authentication and Retry-After included.
func TestThousandWaitOverHTTP(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := setup(t)
	ctx := context.Background()
	var ids []uuid.UUID
	rows, err := b.DB.Query(ctx, `
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, config_hash, deadline, input)
SELECT gen_random_uuid(), 'a', k.kind, i::text, 'key', 'openai', sha256(''), 1, sha256(''), '1 h', k.hash, now() + interval '1 h', '1'
FROM onefold.kind_configs AS k, generate_series(1, $1) AS i
WHERE k.kind = 'llm.chat'
RETURNING id`, n)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil {
		t.Fatal(err)
	}
	url, waiter, statements := counted(t, b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	var all sync.WaitGroup
	var good atomic.Int64
	for _, id := range ids {
		all.Go(func() {
			if task, err := getTask(ctx, client, url+"/v1/tasks/"+id.String()+"?wait=60s", b.Key); err != nil {
				t.Error(err)
			} else if task.State == api.Succeeded && string(task.Result) == `"done"` {
				good.Add(1)
			}
		})
	}
	for look := time.NewTicker(5 * time.Millisecond); waiter.Waiting() < n; {
		<-look.C
	}
	_, err = b.DB.Exec(ctx, `
UPDATE onefold.tasks SET state = 'succeeded', result = '"done"', result_hash = sha256('"done"'), finished_at = now(), epoch = 1`)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.NotifySettled(ctx, b.DB, ids); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if good.Load() != n {
		t.Errorf("%d of %d got their result", good.Load(), n)
	}
	// Each round serves all who came since the last, so their number is a matter
	// of speed; a query for each who waits would be a thousand.
	if q := statements.n.Load(); q > n/10 {
		t.Errorf("%d statements for %d who wait", q, n)
	} else {
		t.Logf("%d statements for %d who wait", q, n)
	}
}

func getTask(ctx context.Context, client *http.Client, url, key string) (task api.Task, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return task, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		return task, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return task, fmt.Errorf("got status %d", resp.StatusCode)
	}
	return task, json.NewDecoder(resp.Body).Decode(&task)
}
