package boot

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"github.com/onefold-dev/onefold/internal/store"
)

const connectTimeout = 5 * time.Second

// maxConns bounds a pool where neither Config nor the URL does.
const maxConns = 16

// poolConfig is the pool of a process. A pooler refuses session settings it
// does not know, so through one the limits must come from the role; check
// looks whether they do.
func poolConfig(c *Config, siblings *siblings) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	switch given, err := pgx.ParseConfig(c.DatabaseURL); {
	case err != nil:
		return nil, fmt.Errorf("read the database URL: %w", err)
	case c.MaxConns > 0:
		pc.MaxConns = c.MaxConns
	case given.RuntimeParams["pool_max_conns"] == "":
		pc.MaxConns = maxConns
	}
	pc.MaxConnLifetime = time.Hour
	pc.MaxConnLifetimeJitter = 10 * time.Minute
	pc.PingTimeout = 2 * time.Second
	prepareConn(pc.ConnConfig, c, siblings)
	pc.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		learnTypes(conn)
		return nil
	}
	if c.Pooled() {
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	} else {
		limit(pc.ConnConfig, c.Lease)
	}
	return pc, nil
}

// directConfig is a connection past any pooler.
func directConfig(c *Config, siblings *siblings) (*pgx.ConnConfig, error) {
	pc, err := pgxpool.ParseConfig(c.DirectURL) // takes the pool's own settings out of the URL
	if err != nil {
		return nil, fmt.Errorf("read the direct database URL: %w", err)
	}
	prepareConn(pc.ConnConfig, c, siblings)
	limit(pc.ConnConfig, c.Lease)
	return pc.ConnConfig, nil
}

// siblings are the connections of a process's pool, for the hooks of each of
// them, which are made before the pool is.
type siblings struct{ pool atomic.Pointer[pgxpool.Pool] }

// drop closes them all, those in use once they are given back.
func (s *siblings) drop() {
	if p := s.pool.Load(); p != nil {
		go p.Reset()
	}
}

func prepareConn(cc *pgx.ConnConfig, c *Config, siblings *siblings) {
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "onefold-" + c.Service
	}
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	cc.OnNotice = store.NoteNotice
	fatal := cc.OnPgError
	cc.OnPgError = func(conn *pgconn.PgConn, e *pgconn.PgError) (keep bool) {
		if store.Demoted(e) {
			siblings.drop()
			return false
		}
		return fatal(conn, e)
	}
}

// limit sets what every connection must have, except what the operator put into
// the URL.
func limit(cc *pgx.ConnConfig, lease time.Duration) {
	for _, s := range settings(lease) {
		if _, given := cc.RuntimeParams[s.name]; !given {
			cc.RuntimeParams[s.name] = s.value
		}
	}
}

// learnTypes tells a connection that may never ask the server for the types of
// parameters what our ids are.
func learnTypes(conn *pgx.Conn) {
	m := conn.TypeMap()
	// Else pgx takes an id for a driver.Valuer: it writes it as text, fails to send
	// that as a uuid, and parses it again, for each id of each statement.
	m.TryWrapEncodePlanFuncs = slices.Insert(m.TryWrapEncodePlanFuncs, 0, pgxuuid.TryWrapUUIDEncodePlan)
	m.RegisterDefaultPgType(uuid.UUID{}, "uuid")
	m.RegisterDefaultPgType((*uuid.UUID)(nil), "uuid")
	m.RegisterDefaultPgType([]uuid.UUID(nil), "_uuid")
	m.RegisterDefaultPgType([]*uuid.UUID(nil), "_uuid")
}
