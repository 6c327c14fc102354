package enqueue_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/enqueue"
	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

const testConfig = `
providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1"}
kinds:
  k: {provider: p, max_runs: 2}
  free: {provider: p, dedupe: none}
  open: {provider: p, dedupe: open}
`

// bundle is an API process and a database that an application shares with it.
type bundle struct {
	db   *pgtest.DB
	pool *pgxpool.Pool
	api  *client.Client
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{db: pgtest.New(t)}
	b.pool = b.db.Pool(t)
	b.exec(t, `CREATE TABLE public.orders (id text PRIMARY KEY, total integer NOT NULL, task uuid)`)
	file := filepath.Join(t.TempDir(), "onefold.yaml")
	if err := os.WriteFile(file, []byte(testConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	app, err := boot.Open(ctx, boot.Config{
		Service: "api", DatabaseURL: b.db.URL(), ConfigPath: file, Addr: "127.0.0.1:0", Configuration: config.Opts{SkipSecrets: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- apid.Run(ctx, app, func(a string) { addr <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop the api: %v", err)
		}
		app.Close()
	})
	key, _, err := auth.Create(ctx, b.pool, auth.NewKey{Tenant: "shop", Name: "k", Actor: "test", Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead, api.ScopeOperate}})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-addr:
		b.api, err = client.New("http://"+a, key, &client.Opts{MaxRetries: -1})
	case err = <-done:
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// order is the business transaction of an application: an order and its task.
func order(ctx context.Context, tx pgx.Tx, id string, s api.Submit) (*api.Task, error) {
	if _, err := tx.Exec(ctx, `INSERT INTO public.orders (id, total) VALUES ($1, 10) ON CONFLICT DO NOTHING`, id); err != nil {
		return nil, err
	}
	task, err := enqueue.Tx(ctx, tx, "shop", "order:"+id, s)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `UPDATE public.orders SET task = $2::text::uuid WHERE id = $1`, id, task.ID)
	return task, err
}

var errBack = errors.New("the application changes its mind")

func submit(input string) api.Submit { return api.Submit{Kind: "k", Input: []byte(input)} }
