package store

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/api"
)

// OpenEffects counts the effects of each destination that have not ended, by
// state.
func OpenEffects(ctx context.Context, db DBTX) (map[string]map[api.EffectState]int64, error) {
	rows, err := db.Query(ctx, `
SELECT e.destination, e.state, count(*)
FROM onefold.effects AS e
WHERE e.finished_at IS NULL AND e.destination IS NOT NULL
GROUP BY e.destination, e.state`)
	if err != nil {
		return nil, fmt.Errorf("count open effects: %w", err)
	}
	defer rows.Close()
	out := map[string]map[api.EffectState]int64{}
	for rows.Next() {
		var d string
		var s api.EffectState
		var n int64
		if err := rows.Scan(&d, &s, &n); err != nil {
			return nil, fmt.Errorf("count open effects: %w", err)
		}
		if out[d] == nil {
			out[d] = map[api.EffectState]int64{}
		}
		out[d][s] = n
	}
	return out, rows.Err()
}
