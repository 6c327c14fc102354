// Package migrations decides what the schema is and what a runtime role may do
// with it: River's migrations first, then ours, then the grants, under one lock,
// in the schema onefold.
package migrations

//go:generate go test . -run TestSchemaDoc -update

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Schema is the one schema all tables live in, River's included, so that
// onefold can share a database with the application it serves.
const Schema = "onefold"

// lockID is the advisory lock that lets one migration run at a time ("onefold" in hex).
const lockID = 0x6f6e65666f6c64

//go:embed *.sql
var files embed.FS

// Files are the migration files, for those who derive a name from their content.
func Files() fs.FS { return files }

// Up brings the database to the newest version. It needs a direct connection
// (no transaction pooler) as a role that may create schemas. Several at once
// wait for each other; a process that dies in between leaves whole steps only.
func Up(ctx context.Context, directURL string) error {
	return locked(ctx, directURL, func(pool *pgxpool.Pool) error {
		if _, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+Schema); err != nil {
			return fmt.Errorf("create schema: %w", err)
		}
		river, err := riverMigrator(pool)
		if err != nil {
			return err
		}
		if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrate river: %w", err)
		}
		return withGoose(pool, func(p *goose.Provider) error {
			_, err := p.Up(ctx)
			return err
		})
	})
}

// Down takes our tables away again and then River's: the way back that the
// tests walk. It destroys all data.
func Down(ctx context.Context, directURL string) error {
	return locked(ctx, directURL, func(pool *pgxpool.Pool) error {
		err := withGoose(pool, func(p *goose.Provider) error {
			_, err := p.DownTo(ctx, 0)
			return err
		})
		if err != nil {
			return err
		}
		river, err := riverMigrator(pool)
		if err != nil {
			return err
		}
		if _, err := river.Migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1}); err != nil {
			return fmt.Errorf("migrate river down: %w", err)
		}
		return nil
	})
}

// ErrOutdated says that the database lacks migrations this program needs.
var ErrOutdated = errors.New("the database schema is not up to date; run `onefold migrate`")

// Check returns ErrOutdated when a migration of this program is not applied.
// A newer schema than the program's is fine: expand, then contract.
func Check(ctx context.Context, db *pgxpool.Pool) error {
	var exists bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('onefold.goose_version') IS NOT NULL").Scan(&exists); err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	if !exists {
		return ErrOutdated
	}
	var have int64
	if err := db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM onefold.goose_version WHERE is_applied").Scan(&have); err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	if have < Latest() {
		return ErrOutdated
	}
	return nil
}

// Latest is the newest migration of this program.
func Latest() int64 {
	sources, err := fs.Glob(files, "*.sql")
	if err != nil || len(sources) == 0 {
		panic("migrations: no files embedded")
	}
	v, err := goose.NumericComponent(sources[len(sources)-1])
	if err != nil {
		panic(err)
	}
	return v
}

func locked(ctx context.Context, url string, f func(*pgxpool.Pool) error) error {
	lock, err := lockConn(ctx, url)
	if err != nil {
		return err
	}
	defer lock.Close(context.WithoutCancel(ctx))
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	return f(pool)
}

// lockConn is a connection that holds the migration lock until it is closed.
func lockConn(ctx context.Context, url string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockID); err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("wait for the migration lock: %w", err)
	}
	return conn, nil
}

func riverMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: Schema})
	if err != nil {
		return nil, fmt.Errorf("prepare river's migrations: %w", err)
	}
	return m, nil
}

func withGoose(pool *pgxpool.Pool, f func(*goose.Provider) error) error {
	var db *sql.DB = stdlib.OpenDBFromPool(pool)
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(Schema+".goose_version"))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := f(p); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
