package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/pg"
	"github.com/onefold-dev/onefold/internal/workerd"
	"github.com/onefold-dev/onefold/migrations"
)

type devCmd struct {
	Data   string `default:".onefold" placeholder:"DIR" help:"Where the database keeps its files."`
	Addr   string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the API listens; port 0 takes a free one."`
	Config string `placeholder:"FILE" help:"onefold.yaml; without one, llm.chat on fakellm, or on OPENAI_BASE_URL when set."`
	JSON   bool   `help:"Print one line of JSON when ready."`
}

// devReady is what is printed once everything runs.
type devReady struct {
	URL      string `json:"url"`
	Key      string `json:"key"`
	Database string `json:"database_url"`
	Fakellm  string `json:"fakellm_url"`
	PID      int    `json:"pid"`
}

func (c *devCmd) Help() string {
	return `It starts Postgres under --data, brings the schema up to date, and runs api, worker and
fakellm in one process. Ctrl-C stops all of it; the data stays for the next time.`
}

// Run runs everything until ctx ends.
func (c *devCmd) Run(ctx context.Context, e *env) error {
	live, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	dir, err := filepath.Abs(c.Data)
	if err != nil {
		return fmt.Errorf("find the data folder: %w", err)
	}
	db, err := pg.Start(live, pg.Opts{Dir: filepath.Join(dir, "postgres"), Log: e.stderr})
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	defer func() { _ = db.Stop("fast") }()
	ready := devReady{Database: db.URL("postgres"), PID: os.Getpid()}
	if err := migrations.Up(ctx, ready.Database); err != nil {
		return err
	}
	fake, err := startFake(live, &ready)
	if err != nil {
		return err
	}
	defer fake.Close()
	return c.serve(ctx, e, ready)
}

func startFake(ctx context.Context, ready *devReady) (*http.Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for fakellm: %w", err)
	}
	ready.Fakellm = "http://" + l.Addr().String() + "/v1"
	s := &http.Server{Handler: fakellm.NewHandler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	return s, nil
}

// serve runs api and worker over one database.
func (c *devCmd) serve(ctx context.Context, e *env, ready devReady) error {
	getenv := func(name string) string {
		if v := e.getenv(name); v != "" || name != "OPENAI_BASE_URL" {
			return v
		}
		return ready.Fakellm
	}
	open := func(service string) (*boot.App, error) {
		return boot.Open(ctx, boot.Config{
			Getenv:  os.Getenv,
			Service: service, DatabaseURL: ready.Database, ConfigPath: c.Config, Addr: c.Addr, LogLevel: "warn",
			LogTo: e.stderr, Configuration: config.Built(getenv),
		})
	}
	front, err := open("api")
	if err != nil {
		return err
	}
	defer front.Close()
	back, err := open("worker")
	if err != nil {
		return err
	}
	defer back.Close()
	ready.Key, _, err = auth.Create(ctx, front.Pool, auth.NewKey{
		Tenant: "dev", Name: "dev-" + time.Now().UTC().Format("20060102-150405"), Actor: "onefold dev",
		Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead, api.ScopeOperate},
	})
	if err != nil {
		return err
	}
	working := make(chan struct{})
	return boot.Run(ctx, front.Log,
		boot.Part{Name: "worker", Run: func(ctx context.Context) error {
			return workerd.Run(ctx, back, workerd.Opts{Upkeep: true, Grace: 2 * time.Second, Ready: func() { close(working) }})
		}},
		boot.Part{Name: "api", Run: func(ctx context.Context) error {
			return apid.Run(ctx, front, func(addr string) {
				select {
				case <-working:
				case <-ctx.Done():
					return
				}
				ready.URL = "http://" + addr
				_ = c.announce(e, ready)
			})
		}},
	)
}

func (c *devCmd) announce(e *env, r devReady) error {
	if c.JSON || e.json {
		b, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return e.print(string(b) + "\n")
	}
	return e.print(fmt.Sprintf(`onefold runs. In another terminal:

  export ONEFOLD_URL=%s ONEFOLD_API_KEY=%s
  onefold submit llm.chat first-key --input '{"model":"fake:ok","messages":[{"role":"user","content":"hello"}]}' --wait

model server %s · database %s
Ctrl-C stops all of it.
`, r.URL, r.Key, r.Fakellm, r.Database))
}
