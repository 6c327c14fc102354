package boot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/migrations"
)

// minServer is the oldest Postgres that is supported, as server_version_num.
const minServer = 150000

// server is what a start must know of the database.
type server struct {
	version             int
	versionText         string
	fsync               string
	synchronousCommit   string
	encoding            string
	standby, readOnly   bool
	remote              bool // reached over TCP
	role                string
	idle, lock, stmt    time.Duration
	tcpUser             time.Duration
	tcpUserTimeoutKnown bool // the server's system has it
}

func ask(ctx context.Context, pool *pgxpool.Pool) (server, error) {
	var s server
	var idle, lock, stmt, tcp int64
	err := pool.QueryRow(ctx, `
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('fsync'),
       current_setting('synchronous_commit'), current_setting('server_encoding'), pg_is_in_recovery(),
       current_setting('transaction_read_only')::bool, inet_server_addr() IS NOT NULL, current_user,
       version() LIKE '%linux%',
       (SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout'),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'tcp_user_timeout')`).
		Scan(&s.version, &s.versionText, &s.fsync, &s.synchronousCommit, &s.encoding, &s.standby, &s.readOnly, &s.remote,
			&s.role, &s.tcpUserTimeoutKnown, &idle, &lock, &stmt, &tcp)
	if err != nil {
		return s, fmt.Errorf("ask the database for its settings: %w", err)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	s.idle, s.lock, s.stmt, s.tcpUser = ms(idle), ms(lock), ms(stmt), ms(tcp)
	return s, nil
}

// Check refuses a database on which the promises would not hold. It reports
// everything it finds, each with what to do.
func Check(ctx context.Context, pool *pgxpool.Pool, lease time.Duration) error {
	s, err := ask(ctx, pool)
	if err != nil {
		return err
	}
	problems := append(s.durability(), s.limits(lease)...)
	if s.version >= minServer && !s.standby {
		// The two say the same of an empty database; one message is enough.
		if err := migrations.Check(ctx, pool); err != nil {
			problems = append(problems, err)
		} else if err := store.CheckRiver(ctx, pool); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
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
			"ALTER ROLE %s SET synchronous_commit = on", s.synchronousCommit, s.role)
	}
	if s.encoding != "UTF8" {
		note("the database has the encoding %s; UTF8 is needed: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0", s.encoding)
	}
	return problems
}

func (s server) limits(lease time.Duration) (problems []error) {
	want := Limits(lease)
	for _, l := range []struct {
		name string
		have time.Duration
	}{
		{"idle_in_transaction_session_timeout", s.idle},
		{"lock_timeout", s.lock},
		{"statement_timeout", s.stmt},
		{"tcp_user_timeout", s.tcpUser},
	} {
		if l.name == "tcp_user_timeout" && !(s.remote && s.tcpUserTimeoutKnown) {
			continue // a local socket, or a system without it
		}
		most := want[l.name]
		if l.name != "idle_in_transaction_session_timeout" {
			most = 10 * time.Minute // any limit an operator would choose; what must not be is none
		}
		if l.have > 0 && l.have <= most {
			continue
		}
		have := l.have.String()
		if l.have == 0 {
			have = "off"
		}
		problems = append(problems, fmt.Errorf("%s is %s, at most %s is needed: take it out of the database URL, or through a pooler set it for the role: "+
			"ALTER ROLE %s SET %s = '%dms'", l.name, have, most, s.role, l.name, want[l.name].Milliseconds()))
	}
	return problems
}

// Explain puts what several problems have in common on lines of their own.
func Explain(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n  ") }
