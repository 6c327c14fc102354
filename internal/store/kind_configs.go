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

// PutKindConfigs stores configuration bodies by their hash; those already
// there are left alone.
func PutKindConfigs(ctx context.Context, db DBTX, configs []KindConfig) error {
	for _, c := range configs {
		_, err := db.Exec(ctx, `
INSERT INTO onefold.kind_configs (hash, kind, body)
VALUES ($1, $2, $3)
ON CONFLICT (hash) DO NOTHING`, c.Hash, c.Kind, c.Body)
		if err != nil {
			return fmt.Errorf("store the configuration of kind %s: %w", c.Kind, err)
		}
	}
	return nil
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
