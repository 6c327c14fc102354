package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
)

// lockCounts is the advisory lock under which tenants are counted ("ofqt" in hex).
const lockCounts = 0x6f667174

// Bounds are the quotas that an operator set for a tenant, or for AnyTenant: nil
// where none was, infinite where there is to be no bound.
type Bounds struct {
	Tenant           string
	Requests, Queued *float64
}

// AllBounds reads the quotas of all tenants that have any.
func AllBounds(ctx context.Context, db DBTX) ([]Bounds, error) {
	rows, err := db.Query(ctx, `
SELECT tenant, requests_per_second::float8, queued::float8
FROM onefold.tenant_settings
WHERE num_nonnulls(requests_per_second, queued) > 0`)
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Bounds, err error) {
		return b, row.Scan(&b.Tenant, &b.Requests, &b.Queued)
	})
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	return out, nil
}

// SetQuota sets a quota of a tenant, nil for that of AnyTenant, and returns the
// one it had.
func SetQuota(ctx context.Context, tx DBTX, tenant string, q api.Quota, value *float64) (before *float64, err error) {
	column := map[api.Quota]string{api.QuotaRequests: "requests_per_second", api.QuotaQueued: "queued"}[q]
	if column == "" {
		return nil, fmt.Errorf("set a quota: there is no %q", q)
	}
	err = tx.QueryRow(ctx, `SELECT `+column+`::float8 FROM onefold.tenant_settings WHERE tenant = $1 FOR UPDATE`, tenant).Scan(&before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read a quota: %w", err)
	}
	_, err = tx.Exec(ctx, `
INSERT INTO onefold.tenant_settings (tenant, `+column+`)
VALUES ($1, $2::float8::numeric)
ON CONFLICT (tenant) DO UPDATE
SET `+column+` = excluded.`+column+`, updated_at = now()`, tenant, value)
	return before, wrapped(err, "set a quota")
}

// Counted is what a tenant has, as it was counted last. Of AnyTenant it says when
// that was.
type Counted struct {
	Tenant string
	Queued int64
	Age    time.Duration // since it was counted
}

// AllCounts reads what all tenants have.
func AllCounts(ctx context.Context, db DBTX) ([]Counted, error) {
	rows, err := db.Query(ctx, `SELECT tenant, queued, clock_timestamp() - counted_at FROM onefold.tenant_counts`)
	if err != nil {
		return nil, fmt.Errorf("read counts of tenants: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Counted, err error) {
		return c, row.Scan(&c.Tenant, &c.Queued, &c.Age)
	})
	if err != nil {
		return nil, fmt.Errorf("read counts of tenants: %w", err)
	}
	return all, nil
}

// QueueOf reads what one tenant may have queued, nil for all it likes, and what it
// had when it was counted last, for whoever has no copy of all: a caller's own
// transaction.
func QueueOf(ctx context.Context, db DBTX, tenant string) (bound *float64, queued int64, err error) {
	err = db.QueryRow(ctx, `
SELECT coalesce(s.queued, d.queued)::float8, coalesce(c.queued, 0)
FROM (SELECT $1::text AS tenant) AS q
LEFT JOIN onefold.tenant_settings AS s ON s.tenant = q.tenant
LEFT JOIN onefold.tenant_settings AS d ON d.tenant = '*'
LEFT JOIN onefold.tenant_counts AS c ON c.tenant = q.tenant`, tenant).Scan(&bound, &queued)
	return bound, queued, wrapped(err, "read the quota of a tenant")
}

// LockCounts says whether this transaction is the one that counts now: no other
// does, and the last count is at least that old.
func LockCounts(ctx context.Context, tx DBTX, age time.Duration) (mine bool, err error) {
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, lockCounts).Scan(&mine); err != nil || !mine {
		return false, wrapped(err, "lock counts of tenants")
	}
	err = tx.QueryRow(ctx, `
SELECT NOT EXISTS (SELECT FROM onefold.tenant_counts WHERE tenant = '*' AND counted_at > clock_timestamp() - $1::interval)`, age).Scan(&mine)
	return mine, wrapped(err, "look when tenants were counted")
}

func wrapped(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// countQueued reads an index for all that is not finished, and takes off what
// runs, which is little. A row is written where its number changed; that of '*'
// always: it says when the count began, on this side of its snapshot.
const countQueued = `
WITH open AS (
    SELECT tenant, count(*) AS n
    FROM onefold.tasks
    WHERE finished_at IS NULL
    GROUP BY tenant
), busy AS (
    SELECT t.tenant, count(*) AS n
    FROM onefold.attempts AS a
    JOIN onefold.tasks AS t ON t.id = a.task_id
    WHERE a.closed_at IS NULL AND t.state = 'running' AND t.epoch = a.epoch
    GROUP BY t.tenant
)
INSERT INTO onefold.tenant_counts AS c (tenant, queued, spent, day, counted_at)
SELECT q.tenant, greatest(0, coalesce(open.n, 0) - coalesce(busy.n, 0)), 0, (statement_timestamp() AT TIME ZONE 'UTC')::date, statement_timestamp()
FROM (SELECT tenant FROM open UNION SELECT tenant FROM onefold.tenant_counts UNION SELECT '*') AS q
LEFT JOIN open ON open.tenant = q.tenant
LEFT JOIN busy ON busy.tenant = q.tenant
ORDER BY q.tenant
ON CONFLICT (tenant) DO UPDATE
SET queued = excluded.queued,
    counted_at = excluded.counted_at
WHERE c.queued <> excluded.queued OR c.tenant = '*'`

// CountQueued counts what each tenant has queued.
func CountQueued(ctx context.Context, tx DBTX) error {
	_, err := tx.Exec(ctx, countQueued)
	return wrapped(err, "count what tenants have queued")
}

// SetTransactionCount adds n to what this transaction has queued for a tenant and
// returns the sum. The count ends with the transaction, and with a savepoint
// that is rolled back; no row holds it.
func SetTransactionCount(ctx context.Context, tx DBTX, tenant string, n int) (sum int, err error) {
	err = tx.QueryRow(ctx, `
SELECT set_config(q.name, (coalesce(nullif(current_setting(q.name, true), ''), '0')::integer + $2)::text, true)::integer
FROM (SELECT 'onefold.queued_' || md5($1) AS name) AS q`, tenant, n).Scan(&sum)
	return sum, wrapped(err, "count what the transaction queued")
}
