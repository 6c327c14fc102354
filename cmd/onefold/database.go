package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/migrations"
)

// dbFlags are those of commands that work on the database itself.
type dbFlags struct {
	DatabaseURL string `placeholder:"URL" help:"The database (ONEFOLD_DATABASE_URL); other users of this machine can see an argument."`
}

// url is the database to work on. A direct one is preferred: locks do not
// survive a pooler.
func (f *dbFlags) url(e *env) (string, error) {
	for _, u := range []string{f.DatabaseURL, e.getenv("ONEFOLD_DATABASE_DIRECT_URL"), e.getenv("ONEFOLD_DATABASE_URL")} {
		if u == "" {
			continue
		}
		if _, err := pgxpool.ParseConfig(u); err != nil { // its text may quote the password
			return "", usage("the database's URL cannot be read", "Write it like postgres://USER:PASSWORD@HOST:5432/DATABASE.")
		}
		return u, nil
	}
	return "", usage("no database is given", "Set ONEFOLD_DATABASE_URL, as in postgres://onefold@localhost/onefold, or give --database-url.")
}

// open connects and checks that the schema is there.
func (f *dbFlags) open(ctx context.Context, e *env) (*pgxpool.Pool, error) {
	url, err := f.url(e)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %s", telemetry.ScrubError(err))
	}
	cfg.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err == nil {
		err = migrations.Check(ctx, pool)
	}
	if err != nil {
		if pool != nil {
			pool.Close()
		}
		return nil, dbProblem(err)
	}
	return pool, nil
}

// dbProblem explains an error of the database without its URL or detail.
func dbProblem(err error) error {
	var ae *api.Error
	switch {
	case errors.As(err, &ae):
		return err
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, migrations.ErrOutdated):
		return &problem{code: exitError, message: "the database has no schema, or an old one", fix: "Run `onefold migrate`.", cause: err}
	}
	what := telemetry.ScrubError(err)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return &problem{
			code: exitError, message: "the database: " + what, cause: err,
			fix: "Log in as a role that may do this: to migrate, one that may create schemas or owns the schema onefold.",
		}
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil { // pgx repeats itself for each way it tried
		what = fmt.Sprintf("%s cannot be reached: %v", op.Addr, op.Err)
	}
	return &problem{
		code: exitUnavailable, message: "the database: " + what, cause: err,
		fix: "Check that it runs, the URL, and that this user may connect.",
	}
}
