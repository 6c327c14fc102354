package boot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/migrations"
)

// minServer is the oldest Postgres that is supported, as server_version_num.
const minServer = 150000

// server is what a start must know of the database behind one of its URLs.
type server struct {
	version           int
	versionText       string
	fsync             string
	synchronousCommit string
	encoding          string
	standby, readOnly bool
	remote            bool // reached over TCP
	linux             bool // as far as it says
	role, database    string
	identity          string // of the database, the same for every connection to it
	settings          map[string]string
}

func ask(ctx context.Context, db store.DBTX, lease time.Duration) (server, error) {
	var s server
	var names []string
	for _, want := range settings(lease) {
		names = append(names, want.name)
	}
	err := db.QueryRow(ctx, `
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('fsync'),
       current_setting('synchronous_commit'), current_setting('server_encoding'), pg_is_in_recovery(),
       current_setting('transaction_read_only')::bool, inet_server_addr() IS NOT NULL, version() LIKE '%linux%',
       current_user::text, current_database()::text,
       (SELECT d.oid::text FROM pg_database AS d WHERE d.datname = current_database()) || '@' || pg_postmaster_start_time()::text,
       (SELECT jsonb_object_agg(p.name, p.setting) FROM pg_settings AS p WHERE p.name = ANY ($1))`, names).
		Scan(&s.version, &s.versionText, &s.fsync, &s.synchronousCommit, &s.encoding, &s.standby, &s.readOnly, &s.remote, &s.linux,
			&s.role, &s.database, &s.identity, &s.settings)
	if err != nil {
		return s, fmt.Errorf("ask the database for its settings: %w", err)
	}
	return s, nil
}

// check refuses a database on which the promises would not hold, looking through
// the pool and, where that leads through a pooler, through a direct connection
// as well. It reports everything it finds, each with what to do.
func (a *App) check(ctx context.Context) error {
	s, err := ask(ctx, a.Pool, a.Config.Lease)
	if err != nil {
		return err
	}
	problems := append(s.durability(), s.limits(a.Config.Lease)...)
	if a.Config.Pooled() {
		problems = append(problems, a.checkDirect(ctx, s, problems)...)
	}
	if s.version >= minServer && !s.standby {
		problems = append(problems, schema(ctx, a.Pool)...)
	}
	return errors.Join(problems...)
}

func schema(ctx context.Context, pool *pgxpool.Pool) []error {
	// The two say the same of an empty database; one message is enough.
	if err := migrations.Check(ctx, pool); err != nil {
		return []error{err}
	}
	if err := store.CheckRiver(ctx, pool); err != nil {
		return []error{err}
	}
	return nil
}

// checkDirect finds what is wrong past the pooler and not known yet.
func (a *App) checkDirect(ctx context.Context, pooled server, known []error) []error {
	conn, err := a.Direct(ctx)
	if err != nil {
		return []error{fmt.Errorf("past the pooler: %w (check --database-direct-url)", err)}
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return a.compare(ctx, conn, pooled, known)
}

func (a *App) compare(ctx context.Context, conn *pgx.Conn, pooled server, known []error) (problems []error) {
	s, err := ask(ctx, conn, a.Config.Lease)
	if err != nil {
		return []error{err}
	}
	if s.identity != pooled.identity {
		problems = append(problems, fmt.Errorf("--database-url leads to another database (%s) than --database-direct-url (%s): "+
			"both must lead to the same database of the same server", pooled.database, s.database))
	}
	said := map[string]bool{}
	for _, err := range known {
		said[err.Error()] = true
	}
	for _, err := range append(s.durability(), s.limits(a.Config.Lease)...) {
		if !said[err.Error()] {
			problems = append(problems, fmt.Errorf("past the pooler: %w", err))
		}
	}
	return problems
}

func (s server) durability() (problems []error) {
	note := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if s.version < minServer {
		note("the database is Postgres %s; 15 or newer is needed", s.versionText)
	}
	if s.standby {
		note("the database is a standby and takes no writes: connect to the primary (add target_session_attrs=read-write to the URL)")
	} else if s.readOnly {
		note("transactions are read-only on this connection: unset default_transaction_read_only for the role %s, or connect to the primary", s.role)
	}
	if s.fsync != "on" {
		note("fsync is off: an answer would be given before anything is on disk; set fsync = on in postgresql.conf")
	}
	if s.synchronousCommit == "off" || s.synchronousCommit == "local" {
		note("synchronous_commit is %s: a committed task could be lost; set it to on (or remote_apply) for the role: "+
			"ALTER ROLE %s SET synchronous_commit = on", s.synchronousCommit, identifier(s.role))
	}
	if s.encoding != "UTF8" {
		note("the database has the encoding %s; UTF8 is needed: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0", s.encoding)
	}
	return problems
}

func (s server) limits(lease time.Duration) (problems []error) {
	for _, want := range settings(lease) {
		if wrong := want.wrong(s.settings[want.name], s.remote, s.linux); wrong != "" {
			problems = append(problems, fmt.Errorf("%s %s: take it out of the database URL, or through a pooler give the role its limits: "+
				"run `onefold migrate --runtime-role %s`, or ALTER ROLE %s SET %s = '%s'; then have the pooler connect anew",
				want.name, wrong, s.role, identifier(s.role), want.name, want.value))
		}
	}
	return problems
}

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// Explain puts what several problems have in common on lines of their own.
func Explain(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n  ") }
