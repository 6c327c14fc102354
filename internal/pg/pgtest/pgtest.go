package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/pg"
)

// EnvURL names the environment variable with the superuser's URL of a running
// cluster for the tests. Its server must keep fsync and synchronous_commit on.
const EnvURL = "ONEFOLD_TEST_DATABASE_URL"

// Settings are those of every cluster for tests: room for many tests at once,
// each with pools and processes of its own.
func Settings() map[string]string {
	return map[string]string{"max_connections": "400"}
}

// DB is one test's database.
type DB struct {
	url string
}

// New makes a migrated, empty database, which is dropped when t ends. Tests that
// use it may run in parallel.
func New(t testing.TB) *DB {
	t.Helper()
	return create(t, shared(t))
}

// NewIn is New on the private cluster s of a test.
func NewIn(t testing.TB, s *pg.Server) *DB {
	t.Helper()
	return create(t, s.URL("postgres"))
}

// Empty makes a database without the migrations, for those who test them.
func Empty(t testing.TB) *DB {
	t.Helper()
	return copyOf(t, shared(t), "template0")
}

// URL is the address of the database, as the cluster's superuser.
func (d *DB) URL() string { return d.url }

// Pool opens a pool on the database, which is closed when t ends.
func (d *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		t.Fatalf("read the test database's URL: %v", err)
	}
	cfg.MaxConns = 16 // the default follows the CPUs, and tests of races need more than two
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open a pool on the test database: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePatience bounds the wait for connections that a test did not give back.
const closePatience = 10 * time.Second

// closePool names the mistake of a test that leaves a connection or a transaction
// open, where pgxpool would wait for it until the whole binary is timed out.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
		t.Errorf("the test left %d connections of its pool in use", pool.Stat().AcquiredConns())
	}
}

// Cluster starts a cluster for this test alone, which the test may stop, crash
// and restart. It is removed when t ends.
func Cluster(t testing.TB) *pg.Server {
	t.Helper()
	s, err := pg.Start(context.Background(), pg.Opts{Ephemeral: true, Settings: Settings()})
	if err != nil {
		t.Fatalf("start a private cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the private cluster: %v", err)
		}
	})
	return s
}

// startOnce starts this test binary's cluster. Nobody closes it: it ends, and
// its folder goes, when the binary does (see package pg), which also covers a
// binary that is killed by its time limit.
var startOnce = sync.OnceValues(func() (string, error) {
	s, err := pg.Start(context.Background(), pg.Opts{Ephemeral: true, Settings: Settings()})
	if err != nil {
		return "", err
	}
	return s.URL("postgres"), nil
})

// shared returns the superuser's URL of the cluster the tests share.
func shared(t testing.TB) string {
	t.Helper()
	if u := os.Getenv(EnvURL); u != "" {
		return u
	}
	u, err := startOnce()
	if err != nil {
		t.Fatalf("start a cluster for the tests: %v", err)
	}
	return u
}

func create(t testing.TB, admin string) *DB {
	t.Helper()
	template, err := template(admin)
	if err != nil {
		t.Fatalf("prepare the template database: %v", err)
	}
	return copyOf(t, admin, template)
}

func copyOf(t testing.TB, admin, template string) *DB {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	if err := run(admin, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	t.Cleanup(func() {
		if err := run(admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
	})
	u, err := withDatabase(admin, name)
	if err != nil {
		t.Fatalf("name the test database: %v", err)
	}
	return &DB{url: u}
}

// run executes one statement on a connection of its own.
func run(dsn, sql string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

func withDatabase(dsn, name string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" && u.RawQuery == "" {
		return "", fmt.Errorf("%s must be a postgres:// URL", EnvURL)
	}
	u.Path = "/" + name
	return u.String(), nil
}
