package store

import (
	"context"
	"fmt"
)

// SilentWorkers lists the identities of processes that gave no sign for a lease
// and have not signed off.
func SilentWorkers(ctx context.Context, db DBTX) ([]string, error) {
	rows, err := db.Query(ctx, `
SELECT DISTINCT w.identity
FROM onefold.workers AS w
WHERE w.stopped_at IS NULL AND w.expires_at <= now() AND w.identity IS NOT NULL`)
	if err != nil {
		return nil, fmt.Errorf("look for silent processes: %w", err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("look for silent processes: %w", err)
		}
		out = append(out, id)
	}
	return out, rows.Err()
}

// ConfirmEnded notes that processes have ended, as their machine says: they can
// send nothing any more.
func ConfirmEnded(ctx context.Context, db DBTX, identities []string) error {
	_, err := db.Exec(ctx, `
UPDATE onefold.workers
SET stopped_at = now()
WHERE identity = ANY ($1) AND stopped_at IS NULL`, identities)
	if err != nil {
		return fmt.Errorf("confirm ended processes: %w", err)
	}
	return nil
}
