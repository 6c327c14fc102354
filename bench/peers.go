package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/onefold-dev/onefold/internal/pg"
)

const peersName = "bench_peers"

// peers is the database in which others do what is comparable.
type peers struct {
	pool   *pgxpool.Pool
	river  *river.Client[pgx.Tx]
	script string
}

// conns is the size of River's pool here, and of onefold's.
const conns = 16

func findPgbench() (string, error) {
	dir, _, err := pg.Find()
	if err != nil {
		return "", err
	}
	if p := filepath.Join(dir, "pgbench"); exec.Command(p, "--version").Run() == nil {
		return p, nil
	}
	p, err := exec.LookPath("pgbench")
	if err != nil {
		return "", fmt.Errorf("pgbench is not beside the server's programs in %s nor on PATH: on Debian it is in postgresql-contrib or the server's package", dir)
	}
	return p, nil
}

// startPeers makes the peers' database: one table with a primary key, and River's
// tables as River makes them.
func startPeers(ctx context.Context, c *cluster) (*peers, error) {
	if _, err := c.admin.Exec(ctx, "CREATE DATABASE "+peersName); err != nil {
		return nil, fmt.Errorf("make the peers' database: %w", err)
	}
	pc, err := pgxpool.ParseConfig(c.URL(peersName))
	if err != nil {
		return nil, fmt.Errorf("read the peers' URL: %w", err)
	}
	pc.MaxConns = conns
	p := &peers{script: filepath.Join(c.dir, "insert.sql")}
	if p.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("open the peers' pool: %w", err)
	}
	driver := riverpgxv5.New(p.pool)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: discard})
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		p.river, err = river.NewClient(driver, &river.Config{Logger: discard})
	}
	if err == nil {
		_, err = p.pool.Exec(ctx, `CREATE TABLE single (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)`)
	}
	if err == nil {
		err = os.WriteFile(p.script, []byte("INSERT INTO single (body) VALUES ('"+body+"');\n"), 0o644)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("set the peers up: %w", err)
	}
	return p, nil
}

func (p *peers) close() { p.pool.Close() }

// reference is the rate of pgbench's single-row insert with 8 clients: what all
// ratios are taken to.
func (c *cluster) reference(ctx context.Context, o options) (float64, error) {
	tps, _, err := c.runPgbench(ctx, 8, o.time/2)
	return tps, err
}

var (
	tpsLine   = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	countLine = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

// pgbenchFew is how many inserts each client makes where less than a second is
// asked for, which pgbench cannot count.
const pgbenchFew = 100

// runPgbench inserts single rows with prepared statements.
func (c *cluster) runPgbench(ctx context.Context, clients int, d time.Duration) (tps float64, n int, err error) {
	if _, err := c.peers.pool.Exec(ctx, `TRUNCATE single`); err != nil {
		return 0, 0, fmt.Errorf("empty pgbench's table: %w", err)
	}
	u, err := url.Parse(c.URL(peersName))
	if err != nil {
		return 0, 0, fmt.Errorf("read the peers' URL: %w", err)
	}
	args := []string{"-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)), "-f", c.peers.script}
	if d < time.Second {
		args = append(args, "-t", strconv.Itoa(pgbenchFew))
	} else {
		args = append(args, "-T", strconv.Itoa(int(d/time.Second)))
	}
	cmd := exec.CommandContext(ctx, c.pgbench, args...)
	password, _ := u.User.Password()
	cmd.Env = append(os.Environ(), "PGHOST="+u.Hostname(), "PGPORT="+u.Port(), "PGUSER="+u.User.Username(), "PGPASSWORD="+password,
		"PGDATABASE="+peersName, "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("pgbench: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	rate, count := tpsLine.FindSubmatch(out), countLine.FindSubmatch(out)
	if rate == nil || count == nil {
		return 0, 0, fmt.Errorf("pgbench said nothing of its rate:\n%s", out)
	}
	if tps, err = strconv.ParseFloat(string(rate[1]), 64); err == nil {
		n, err = strconv.Atoi(string(count[1]))
	}
	return tps, n, err
}

// pgbenchScenario is pgbench as a scenario of its own.
func pgbenchScenario(clients int) func(context.Context, *cluster, options, *meter) error {
	return func(ctx context.Context, c *cluster, o options, m *meter) error {
		if err := m.begin(ctx); err != nil {
			return err
		}
		tps, n, err := c.runPgbench(ctx, clients, o.time)
		if err != nil {
			return err
		}
		took := time.Duration(float64(n) / tps * float64(time.Second))
		return m.end(ctx, n, took, nil)
	}
}

// riverArgs is a job like one of our tasks.
type riverArgs struct {
	Key   string `json:"key"`
	Input string `json:"input"`
}

// Kind is the kind of River's job.
func (riverArgs) Kind() string { return kind }

// riverScenario inserts jobs as River's users do: each in a transaction of its own.
func riverScenario(callers int) func(context.Context, *cluster, options, *meter) error {
	return func(ctx context.Context, c *cluster, o options, m *meter) error {
		p := c.peers
		if _, err := p.pool.Exec(ctx, `TRUNCATE river_job`); err != nil {
			return fmt.Errorf("empty River's table: %w", err)
		}
		insert := func(ctx context.Context, _, i int) error {
			tx, err := p.pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if _, err := p.river.InsertTx(ctx, tx, riverArgs{Key: strconv.Itoa(i), Input: input}, nil); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}
		return measure(ctx, m, callers, o.time, insert)
	}
}
