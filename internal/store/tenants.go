package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AnyTenant names the setting of all tenants that have none of their own.
const AnyTenant = "*"

// Tenant is a tenant, or AnyTenant, and what an operator set for it.
type Tenant struct {
	ID        string
	Weight    *int // nil: as for AnyTenant, and where that has none, the usual one
	Bounds    Bounds
	Queued    *int64 // as counted last; nil where nobody counts
	UpdatedAt *time.Time
}

// Tenants reads all tenants that have an API key or a setting.
func Tenants(ctx context.Context, db DBTX) ([]Tenant, error) {
	rows, err := db.Query(ctx, `
SELECT coalesce(t.id, s.tenant), s.weight, s.updated_at, s.requests_per_second::float8, s.queued::float8, c.queued
FROM onefold.tenants AS t
FULL JOIN onefold.tenant_settings AS s ON s.tenant = t.id
LEFT JOIN onefold.tenant_counts AS c ON c.tenant = coalesce(t.id, s.tenant) AND c.tenant <> '*'
ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Tenant, err error) {
		err = row.Scan(&t.ID, &t.Weight, &t.UpdatedAt, &t.Bounds.Requests, &t.Bounds.Queued, &t.Queued)
		t.Bounds.Tenant = t.ID
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return out, nil
}

// Weights reads the weights that were set.
func Weights(ctx context.Context, db DBTX) (map[string]int, error) {
	rows, err := db.Query(ctx, `SELECT tenant, weight FROM onefold.tenant_settings WHERE weight IS NOT NULL`)
	if err != nil {
		return nil, fmt.Errorf("read weights: %w", err)
	}
	out := map[string]int{}
	var tenant string
	var weight int
	_, err = pgx.ForEachRow(rows, []any{&tenant, &weight}, func() error {
		out[tenant] = weight
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read weights: %w", err)
	}
	return out, nil
}

// SetWeight sets a tenant's weight, nil for that of AnyTenant, and returns the one
// it had.
func SetWeight(ctx context.Context, tx DBTX, tenant string, weight *int) (before *int, err error) {
	err = tx.QueryRow(ctx, `SELECT weight FROM onefold.tenant_settings WHERE tenant = $1 FOR UPDATE`, tenant).Scan(&before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read weight: %w", err)
	}
	_, err = tx.Exec(ctx, `
INSERT INTO onefold.tenant_settings (tenant, weight)
VALUES ($1, $2)
ON CONFLICT (tenant) DO UPDATE
SET weight = excluded.weight, updated_at = now()`, tenant, weight)
	if err != nil {
		return nil, fmt.Errorf("set weight: %w", err)
	}
	return before, nil
}
