package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

const realConfig = `
providers:
  openai: {type: openai, base_url: "http://127.0.0.1:1/v1"}
destinations:
  crm: {url: "https://crm.example/hooks", secret_env: CRM, repeat: safe}
kinds:
  llm.chat: {provider: openai}
  invoice:
    provider: openai
    effects:
      - {name: notify, type: webhook, destination: crm, body: '{"id": {{json .task.id}}}'}
  invoice.undo: {provider: openai}
`

// TestRealScripts runs the sessions of testdata/real, each against an API process
// on a database of its own. There is no worker: what a session needs of one it
// writes with sql.
func TestRealScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/real", Cmds: commands, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			db := pgtest.New(t)
			file := filepath.Join(e.WorkDir, "onefold.yaml")
			if err := os.WriteFile(file, []byte(realConfig), 0o600); err != nil {
				return err
			}
			pool := db.Pool(t)
			keys := map[string]string{}
			for name, k := range map[string]auth.NewKey{
				"ONEFOLD_API_KEY": {Tenant: "acme", Name: "ops", Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead, api.ScopeOperate}, Actor: "test"},
				"OTHER_KEY":       {Tenant: "other", Name: "ops", Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead, api.ScopeOperate}, Actor: "test"},
			} {
				secret, _, err := auth.Create(context.Background(), pool, k)
				if err != nil {
					return err
				}
				keys[name] = secret
			}
			url, stop := serveReal(t, db, file)
			e.Defer(stop)
			e.Values["pool"] = pool
			e.Vars = append(e.Vars, noSleep, "ONEFOLD_URL="+url, "ONEFOLD_DATABASE_URL="+db.URL(), "ONEFOLD_CONFIG="+file)
			for name, v := range keys {
				e.Vars = append(e.Vars, name+"="+v)
			}
			return nil
		},
	})
}

func serveReal(t *testing.T, db *pgtest.DB, file string) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	app, err := boot.Open(ctx, boot.Config{
		Service: "api", DatabaseURL: db.URL(), ConfigPath: file, Addr: "127.0.0.1:0", LogTo: t.Output(),
		Configuration: config.Opts{SkipSecrets: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- apid.Run(ctx, app, func(a string) { addr <- a }) }()
	select {
	case a := <-addr:
		url = "http://" + a
	case err := <-done:
		t.Fatalf("the api did not start: %v", err)
	}
	return url, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop the api: %v", err)
		}
		app.Close()
	}
}

// sql FILE: runs the statements of a file on the session's database; $NAME stands
// for the environment's.
func sql(ts *testscript.TestScript, _ bool, args []string) {
	pool := ts.Value("pool").(*pgxpool.Pool)
	for s := range strings.SplitSeq(os.Expand(ts.ReadFile(args[0]), ts.Getenv), ";\n") {
		if strings.TrimSpace(s) == "" {
			continue
		}
		_, err := pool.Exec(context.Background(), s)
		ts.Check(err)
	}
}

// counted N: waits until so many submits have been counted as refused for their
// key, which happens in batches.
func counted(ts *testscript.TestScript, _ bool, args []string) {
	pool := ts.Value("pool").(*pgxpool.Pool)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for look := time.NewTicker(20 * time.Millisecond); ; <-look.C {
		var n string
		ts.Check(pool.QueryRow(ctx, `SELECT coalesce(sum(count), 0)::text FROM onefold.key_conflicts`).Scan(&n))
		if n == args[0] {
			return
		}
	}
}

// held: waits until the server takes no new tasks of the kind invoice.
func held(ts *testscript.TestScript, _ bool, _ []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for n := 0; ; n++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, ts.Getenv("ONEFOLD_URL")+"/v1/tasks", strings.NewReader(`{"kind":"invoice","input":{}}`))
		ts.Check(err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "probe-"+strconv.Itoa(n))
		r.Header.Set("Authorization", "Bearer "+ts.Getenv("ONEFOLD_API_KEY"))
		resp, err := http.DefaultClient.Do(r)
		ts.Check(err)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return
		}
		<-look.C
	}
}
