package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// KindConfig is one version of a kind's configuration.
type KindConfig struct {
	Hash, Kind string
	Body       []byte
}

// PutKindConfigs stores configuration bodies by their hash and marks them as the
// newest of their kinds: those of the process that started last.
func PutKindConfigs(ctx context.Context, db DBTX, configs []KindConfig) error {
	for _, c := range configs {
		_, err := db.Exec(ctx, `
INSERT INTO onefold.kind_configs (hash, kind, body)
VALUES ($1, $2, $3)
ON CONFLICT (hash) DO UPDATE
SET newest_at = now()`, c.Hash, c.Kind, c.Body)
		if err != nil {
			return fmt.Errorf("store the configuration of kind %s: %w", c.Kind, err)
		}
	}
	return nil
}

// NewestKindConfig reads the hash of the configuration that the process which
// started last has for a kind, or "".
func NewestKindConfig(ctx context.Context, db DBTX, kind string) (hash string, err error) {
	err = db.QueryRow(ctx, `
SELECT hash
FROM onefold.kind_configs
WHERE kind = $1
ORDER BY newest_at DESC, hash
LIMIT 1`, kind).Scan(&hash)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("look for the kind: %w", err)
	}
	return hash, nil
}

// KindConfigBody reads one stored configuration, or nil.
func KindConfigBody(ctx context.Context, db DBTX, hash string) (*KindConfig, error) {
	c := KindConfig{Hash: hash}
	err := db.QueryRow(ctx, `SELECT kind, body FROM onefold.kind_configs WHERE hash = $1`, hash).Scan(&c.Kind, &c.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", hash, err)
	}
	return &c, nil
}
