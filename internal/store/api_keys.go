package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
)

// APIKey is one row of onefold.api_keys. Tenant is "" for an instance key.
type APIKey struct {
	ID         string
	Tenant     string
	Name       string
	SecretHash []byte
	Scopes     []api.Scope
	CreatedAt  time.Time
	ExpiresAt  *time.Time
	RevokedAt  *time.Time
	Live       bool           // neither revoked nor expired, by the database's clock
	Left       *time.Duration // until it expires, by the database's clock; nil = never
}

const keyColumns = `
k.id, coalesce(k.tenant, ''), k.name, k.secret_hash, k.scopes, k.created_at, k.expires_at, k.revoked_at,
k.revoked_at IS NULL AND coalesce(k.expires_at > clock_timestamp(), true),
CASE WHEN isfinite(k.expires_at) THEN k.expires_at - clock_timestamp() END`

func scanKey(row pgx.Row) (*APIKey, error) {
	k := new(APIKey)
	var scopes []string
	err := row.Scan(&k.ID, &k.Tenant, &k.Name, &k.SecretHash, &scopes, &k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.Live, &k.Left)
	if err != nil {
		return nil, err
	}
	for _, s := range scopes {
		k.Scopes = append(k.Scopes, api.Scope(s))
	}
	return k, nil
}

// APIKeyByID reads one key, live or not, or nil.
func APIKeyByID(ctx context.Context, db DBTX, id string) (*APIKey, error) {
	k, err := scanKey(db.QueryRow(ctx, `SELECT `+keyColumns+` FROM onefold.api_keys AS k WHERE k.id = $1`, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read API key %s: %w", id, err)
	}
	return k, nil
}

// APIKeys reads the keys of a tenant, or all keys when all is set, newest first.
// An empty tenant names the instance keys.
func APIKeys(ctx context.Context, db DBTX, tenant string, all bool) ([]*APIKey, error) {
	rows, err := db.Query(ctx, `
SELECT `+keyColumns+`
FROM onefold.api_keys AS k
WHERE $2 OR coalesce(k.tenant, '') = $1
ORDER BY coalesce(k.tenant, ''), k.created_at DESC, k.id`, tenant, all)
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	defer rows.Close()
	var out []*APIKey
	for rows.Next() {
		k, err := scanKey(rows)
		if err != nil {
			return nil, fmt.Errorf("list API keys: %w", err)
		}
		out = append(out, k)
	}
	return out, rows.Err()
}

// LockAPIKeyName makes those who change the keys of one name wait for each
// other, until the transaction ends.
func LockAPIKeyName(ctx context.Context, tx DBTX, tenant, name string) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('onefold api key ' || $1 || ' ' || $2, 0))`, tenant, name)
	if err != nil {
		return fmt.Errorf("lock API key name: %w", err)
	}
	return nil
}

// InsertAPIKey inserts a key that expires after that time, 0 = never, and reads
// it back.
func InsertAPIKey(ctx context.Context, tx DBTX, k APIKey, expiresAfter time.Duration) (*APIKey, error) {
	scopes := make([]string, len(k.Scopes))
	for i, s := range k.Scopes {
		scopes[i] = string(s)
	}
	var after *time.Duration
	if expiresAfter > 0 {
		after = &expiresAfter
	}
	got, err := scanKey(tx.QueryRow(ctx, `
INSERT INTO onefold.api_keys AS k (id, tenant, name, secret_hash, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, now() + $6::interval)
RETURNING `+keyColumns, k.ID, null(k.Tenant), k.Name, k.SecretHash, scopes, after))
	if err != nil {
		return nil, fmt.Errorf("insert API key: %w", err)
	}
	return got, nil
}

// RevokeAPIKey revokes a key that is not revoked yet, and says whether it did.
func RevokeAPIKey(ctx context.Context, tx DBTX, id string) (bool, error) {
	tag, err := tx.Exec(ctx, `
UPDATE onefold.api_keys
SET revoked_at = now()
WHERE id = $1 AND revoked_at IS NULL`, id)
	if err != nil {
		return false, fmt.Errorf("revoke API key %s: %w", id, err)
	}
	return tag.RowsAffected() == 1, nil
}

// InsertTenant makes a tenant and says whether it is new.
func InsertTenant(ctx context.Context, tx DBTX, id string) (bool, error) {
	tag, err := tx.Exec(ctx, `INSERT INTO onefold.tenants (id) VALUES ($1) ON CONFLICT (id) DO NOTHING`, id)
	if err != nil {
		return false, fmt.Errorf("insert tenant %s: %w", id, err)
	}
	return tag.RowsAffected() == 1, nil
}
