package boot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/tracing"
	"github.com/onefold-dev/onefold/internal/tracing/otlp"
	"github.com/onefold-dev/onefold/migrations"
)

// App is a started process: what its parts are built from.
type App struct {
	Config   Config
	Log      *slog.Logger
	Instance string // names this process in logs and in the database
	Pool     *pgxpool.Pool
	Kinds    *kinds.Book
	Traces   *tracing.Tracer // nil: no spans are made
	sender   *otlp.Sender
	direct   *pgx.ConnConfig
}

// Open reads the configuration, waits for the database, checks it, and stores
// the configurations of the kinds. Close ends what it opened.
func Open(ctx context.Context, c Config) (*App, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	lvl, _ := level(c.LogLevel)
	a := &App{Config: c, Instance: instance()}
	a.Log = telemetry.New(c.LogTo, &telemetry.Opts{Level: lvl, Instance: a.Instance}).With("component", c.Service)
	loaded, err := config.Load(c.ConfigPath, c.Configuration)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	a.Kinds = kinds.New(loaded, c.Configuration)
	var pooled siblings
	pc, err := poolConfig(&a.Config, &pooled)
	if err != nil {
		return nil, err
	}
	if a.direct, err = directConfig(&a.Config, &pooled); err != nil {
		return nil, err
	}
	if a.Pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	pooled.pool.Store(a.Pool)
	a.sender, err = otlp.Start(ctx, otlp.Opts{
		Service: "onefold-" + c.Service, Version: Version, Instance: a.Instance, Getenv: c.Getenv, Log: a.Log,
	})
	if err == nil {
		a.Traces = a.sender.Tracer()
		err = a.prepare(ctx)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (a *App) prepare(ctx context.Context) error {
	if err := a.await(ctx); err != nil {
		return err
	}
	if err := a.check(ctx); err != nil {
		return fmt.Errorf("this database cannot be used: %w", err)
	}
	return a.Kinds.Store(ctx, a.Pool)
}

// Close lets the last spans leave, within a bound, and closes the pool; it waits for connections in use.
func (a *App) Close() {
	a.sender.Stop()
	a.Pool.Close()
}

// Direct opens a connection past any pooler, with the limits of all others.
func (a *App) Direct(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, a.direct.Copy())
	if err != nil {
		return nil, err
	}
	learnTypes(conn)
	return conn, nil
}

// instance is the host's name and what tells two processes there apart.
func instance() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}

// Pauses between two tries to reach the database, and between two lines about it.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
	sayEvery   = 10 * time.Second
)

// await waits until the database answers, as long as the start is patient. An
// answer that waiting cannot change ends it at once.
func (a *App) await(ctx context.Context) error {
	start, said := time.Now(), time.Time{}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := a.ping(ctx)
		if err == nil {
			return nil
		}
		if why := hopeless(err); why != "" {
			return fmt.Errorf("connect to the database: %w (%s)", err, why)
		}
		waited := time.Since(start)
		if waited+pause > a.Config.StartPatience {
			return fmt.Errorf("connect to the database, tried for %s: %w (check that Postgres runs and that the URL is right)",
				waited.Round(time.Second), err)
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			a.Log.Warn("waiting for the database", "error", err, "limit", a.Config.StartPatience)
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("connect to the database: %w", context.Cause(ctx))
		}
	}
}

func (a *App) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return a.Pool.Ping(ctx)
}

// hopeless says what to do about an answer that time alone will not mend, or "".
func hopeless(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return ""
	}
	switch {
	case strings.HasPrefix(pg.Code, "28"):
		return "check user and password in the URL, and pg_hba.conf"
	case pg.Code == "3D000":
		return "make the database with createdb, then run `onefold migrate`"
	case pg.Code == "42704" || pg.Code == "22023" || pg.Code == "08P01":
		return "a setting in the URL is refused; through a pooler give --database-direct-url as well"
	}
	return ""
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Ready says whether the database answers and has the schema this program
// needs.
func (a *App) Ready(ctx context.Context) error { return migrations.Check(ctx, a.Pool) }
