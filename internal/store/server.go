package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is what the database says of its server and of the session that asks.
type Server struct {
	Version, Database, Role, Encoding string
	Number                            int // server_version_num
	Standby, ReadOnly                 bool
	Now                               time.Time
	Settings                          map[string]string
	Connections, MostConnections      int
}

// ReadServer reads it, with the settings of those names that exist.
func ReadServer(ctx context.Context, db DBTX, names []string) (s Server, err error) {
	err = db.QueryRow(ctx, `
SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_database()::text, current_user::text,
       current_setting('server_encoding'), pg_is_in_recovery(), current_setting('transaction_read_only')::bool, clock_timestamp(),
       (SELECT coalesce(jsonb_object_agg(p.name, p.setting), '{}') FROM pg_settings AS p WHERE p.name = ANY ($1)),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int, current_setting('max_connections')::int`, names).
		Scan(&s.Version, &s.Number, &s.Database, &s.Role, &s.Encoding, &s.Standby, &s.ReadOnly, &s.Now, &s.Settings, &s.Connections, &s.MostConnections)
	if err != nil {
		return s, fmt.Errorf("ask the server about itself: %w", err)
	}
	return s, nil
}

// SchemaVersion is the newest of our migrations that is applied; there is false
// where the schema is not.
func SchemaVersion(ctx context.Context, db DBTX) (version int64, there bool, err error) {
	if err := db.QueryRow(ctx, `SELECT to_regclass('onefold.goose_version') IS NOT NULL`).Scan(&there); err != nil || !there {
		return 0, false, wrapNil("look for the schema", err)
	}
	err = db.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM onefold.goose_version WHERE is_applied`).Scan(&version)
	return version, version > 0, wrapNil("read the schema's version", err)
}

func wrapNil(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Index is one index of the schema onefold.
type Index struct {
	Table, Name   string
	Valid, Unique bool
}

// Indexes reads all indexes, River's included.
func Indexes(ctx context.Context, db DBTX) ([]Index, error) {
	return gauges(ctx, db, "read indexes", `
SELECT t.relname, i.relname, x.indisvalid AND x.indisready, x.indisunique
FROM pg_index AS x
JOIN pg_class AS i ON i.oid = x.indexrelid
JOIN pg_class AS t ON t.oid = x.indrelid
JOIN pg_namespace AS n ON n.oid = t.relnamespace
WHERE n.nspname = 'onefold'
ORDER BY t.relname, i.relname`, func(r pgx.CollectableRow) (i Index, err error) {
		return i, r.Scan(&i.Table, &i.Name, &i.Valid, &i.Unique)
	})
}

// Frozen is how many transactions the oldest unfrozen row of the database is old:
// at two thousand million the server takes no more writes.
func Frozen(ctx context.Context, db DBTX) (age int64, err error) {
	err = db.QueryRow(ctx, `SELECT age(datfrozenxid)::bigint FROM pg_database WHERE datname = current_database()`).Scan(&age)
	return age, wrapNil("read the age of the oldest row", err)
}

// WorkerVersions counts live worker processes by version.
func WorkerVersions(ctx context.Context, db DBTX) (map[string]int, error) {
	rows, err := db.Query(ctx, `
SELECT version, count(DISTINCT process)::int
FROM onefold.workers
WHERE stopped_at IS NULL AND expires_at > now()
GROUP BY version`)
	if err != nil {
		return nil, fmt.Errorf("count workers: %w", err)
	}
	defer rows.Close()
	all := map[string]int{}
	for rows.Next() {
		var v string
		var n int
		if err := rows.Scan(&v, &n); err != nil {
			return nil, fmt.Errorf("count workers: %w", err)
		}
		all[v] = n
	}
	return all, rows.Err()
}
