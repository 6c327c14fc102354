package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/workerd"
	"github.com/onefold-dev/onefold/migrations"
)

// configuration has one kind, whose provider is replaced by noop.
const configuration = `
providers:
  noop: {type: openai, base_url: "http://127.0.0.1:9/v1"}
kinds:
  bench.echo: {provider: noop, output: text}
`

const (
	kind     = "bench.echo"
	tenant   = "bench"
	template = "bench_template"
)

// settings are those of a small server: what is about durability is Postgres'
// default, and no checkpoint falls into a scenario.
var settings = map[string]string{
	"shared_buffers":     "512MB",
	"max_wal_size":       "8GB",
	"checkpoint_timeout": "30min",
	"max_connections":    "300",
}

// cluster is the Postgres of one run.
type cluster struct {
	*pg.Server
	dir     string
	file    string // onefold.yaml
	pgbench string
	admin   *pgx.Conn
	peers   *peers
	machine machine
	count   int // of databases made
}

// startCluster starts Postgres on a disk, makes the database that each scenario
// gets a copy of, and the peers'.
func startCluster(ctx context.Context, parent string) (c *cluster, err error) {
	c = &cluster{}
	if c.dir, err = os.MkdirTemp(parent, "onefold-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := os.Chmod(c.dir, 0o755); err != nil { // Postgres may run as another user
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	c.file = filepath.Join(c.dir, "onefold.yaml")
	if err := os.WriteFile(c.file, []byte(configuration), 0o644); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if c.pgbench, err = findPgbench(); err != nil {
		return nil, err
	}
	if c.Server, err = pg.Start(context.WithoutCancel(ctx), pg.Opts{Dir: filepath.Join(c.dir, "pg"), Settings: settings}); err != nil {
		return nil, err
	}
	if c.admin, err = pgx.Connect(ctx, c.URL("postgres")); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if _, err := c.admin.Exec(ctx, "CREATE DATABASE "+template); err != nil {
		return nil, fmt.Errorf("make the template: %w", err)
	}
	if err := migrations.Up(ctx, c.URL(template)); err != nil {
		return nil, err
	}
	if c.peers, err = startPeers(ctx, c); err != nil {
		return nil, err
	}
	c.machine, err = describe(ctx, c)
	return c, err
}

func (c *cluster) close() error {
	if c.peers != nil {
		c.peers.close()
	}
	if c.admin != nil {
		_ = c.admin.Close(context.Background())
	}
	var err error
	if c.Server != nil {
		err = c.Stop("immediate") // nothing in it is wanted any more
		err = errors.Join(err, c.Server.Close(), os.RemoveAll(c.Dir()))
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// world is onefold on a database of its own, for one scenario in one round.
type world struct {
	cluster *cluster
	name    string
	ends    []func() error
}

// newWorld makes an empty database. Its close drops it, which ends with a
// checkpoint: the next scenario begins with a clean log.
func (c *cluster) newWorld(ctx context.Context) (*world, error) {
	c.count++
	w := &world{cluster: c, name: fmt.Sprintf("bench_%d", c.count)}
	if _, err := c.admin.Exec(ctx, "CREATE DATABASE "+w.name+" TEMPLATE "+template); err != nil {
		return nil, fmt.Errorf("make a database: %w", err)
	}
	return w, nil
}

// close stops what runs, the last started first.
func (w *world) close() error {
	var err error
	for i := len(w.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, w.ends[i]())
	}
	_, dropErr := w.cluster.admin.Exec(context.Background(), "DROP DATABASE "+w.name+" WITH (FORCE)")
	return errors.Join(err, dropErr)
}

func (w *world) onClose(f func() error) { w.ends = append(w.ends, f) }

// open opens a process's part of onefold as its main does; its log is made and
// thrown away.
func (w *world) open(ctx context.Context, service string) (*boot.App, error) {
	app, err := boot.Open(ctx, boot.Config{
		Service: service, DatabaseURL: w.cluster.URL(w.name), ConfigPath: w.cluster.file, Addr: "127.0.0.1:0",
		LogTo: io.Discard, Configuration: config.Built(nil),
	})
	if err != nil {
		return nil, err
	}
	w.onClose(func() error {
		app.Close()
		return nil
	})
	return app, nil
}

// submits is the service that an API process answers submits with.
func (w *world) submits(ctx context.Context) (*submit.Service, error) {
	return w.submitsAs(ctx, false)
}

// submitsAs leaves out what is there for people to see when blind.
func (w *world) submitsAs(ctx context.Context, blind bool) (*submit.Service, error) {
	app, err := w.open(ctx, "api")
	if err != nil {
		return nil, err
	}
	notifier := job.NewNotifier(app.Pool, app.Log)
	gates, err := gate.New(ctx, gate.Opts{Pool: app.Pool, Log: app.Log})
	if err != nil {
		return nil, err
	}
	s := submit.New(submit.Config{
		Pool: app.Pool, Kinds: app.Kinds, Outbox: outbox.New(outbox.Opts{Config: app.Kinds.Config()}), Notifier: notifier, Log: app.Log, Gates: gates,
		Salt: []byte("the salt of this bench's addresses"), Blind: blind,
	})
	w.onClose(func() error {
		s.Close()
		notifier.Close()
		return nil
	})
	return s, nil
}

// api runs an API process' parts and returns its address and a key.
func (w *world) api(ctx context.Context) (addr, key string, err error) {
	app, err := w.open(ctx, "api")
	if err != nil {
		return "", "", err
	}
	key, _, err = auth.Create(ctx, app.Pool, auth.NewKey{
		Tenant: tenant, Name: "bench", Actor: "bench", Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead},
	})
	if err != nil {
		return "", "", err
	}
	ready := make(chan string, 1)
	err = w.start(ctx, func(ctx context.Context) error {
		return apid.Run(ctx, app, func(addr string) { ready <- addr })
	}, func(ctx context.Context, failed <-chan error) error {
		select {
		case addr = <-ready:
			return nil
		case err := <-failed:
			return err
		}
	})
	return addr, key, err
}

// noop answers every call at once, with the same text.
type noop struct{ calls atomic.Int64 }

var reply = []byte(`{"text":"ok"}`)

// Call answers one call; see provider.Provider.
func (p *noop) Call(context.Context, provider.Request) (*provider.Response, error) {
	p.calls.Add(1)
	return &provider.Response{
		Reply: reply, Text: "ok", FinishReason: "stop", Model: "noop", Bytes: int64(len(reply)),
		Phases: provider.Phases{FirstByte: time.Microsecond, Total: time.Microsecond},
	}, nil
}

// worker runs a worker process' parts, and returns when it begins to fetch.
func (w *world) worker(ctx context.Context, p *noop) error {
	app, err := w.open(ctx, "worker")
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	return w.start(ctx, func(ctx context.Context) error {
		return workerd.Run(ctx, app, workerd.Opts{
			Upkeep: true, Grace: time.Second, Providers: map[string]provider.Provider{"noop": p}, Ready: func() { close(ready) },
		})
	}, func(_ context.Context, failed <-chan error) error {
		select {
		case <-ready:
			return nil
		case err := <-failed:
			return err
		}
	})
}

// start runs a part until the world is closed, and waits until it is ready.
func (w *world) start(ctx context.Context, part func(context.Context) error, ready func(context.Context, <-chan error) error) error {
	live, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- part(live) }()
	if err := ready(ctx, done); err != nil {
		stop()
		if err == nil {
			err = errors.New("it ended before it was ready")
		}
		return err
	}
	w.onClose(func() error {
		stop()
		return <-done
	})
	return nil
}

// discard is a logger for what must have one.
var discard = slog.New(slog.DiscardHandler)
