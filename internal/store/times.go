package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Percentiles are the middle and the tail of what something took.
type Percentiles struct{ P50, P95, P99 time.Duration }

// CallTimes are what the calls of one kind to one model took lately, under one
// configuration of the kind and of its provider.
type CallTimes struct {
	Model     string // as asked for
	Succeeded int64
	FirstByte Percentiles // of those that succeeded
	Total     Percentiles
	// Calls that each layer of the timeouts ended. TotalAlive are those ended by
	// the total timeout while tokens still came.
	FirstByteCut, IdleCut, TotalCut, TotalAlive int64
}

// ReadCallTimes reads them for the kind's and the provider's hash.
func ReadCallTimes(ctx context.Context, db DBTX, configHash, providerHash string, lately time.Duration) ([]CallTimes, error) {
	rows, err := db.Query(ctx, `
SELECT coalesce(asked_model, model, '') AS m,
       count(*) FILTER (WHERE outcome = 'succeeded'),
       coalesce(percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY first_byte_ms) FILTER (WHERE outcome = 'succeeded'), '{0,0,0}')::float8[],
       coalesce(percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY total_ms) FILTER (WHERE outcome = 'succeeded'), '{0,0,0}')::float8[],
       count(*) FILTER (WHERE code = 'first_byte_timeout'),
       count(*) FILTER (WHERE code = 'idle_timeout'),
       count(*) FILTER (WHERE code = 'total_timeout'),
       count(*) FILTER (WHERE code = 'total_timeout' AND phase = 'first_token')
FROM onefold.attempts
WHERE claimed_at > now() - $3::interval AND config_hash = $1 AND provider_hash = $2 AND closed_at IS NOT NULL
GROUP BY 1
ORDER BY 1`, configHash, providerHash, lately)
	if err != nil {
		return nil, fmt.Errorf("read what calls took: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (CallTimes, error) {
		var c CallTimes
		var first, total []*float64
		err := row.Scan(&c.Model, &c.Succeeded, &first, &total, &c.FirstByteCut, &c.IdleCut, &c.TotalCut, &c.TotalAlive)
		c.FirstByte, c.Total = percentiles(first), percentiles(total)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read what calls took: %w", err)
	}
	return out, nil
}

func percentiles(ms []*float64) (p Percentiles) {
	for i, to := range []*time.Duration{&p.P50, &p.P95, &p.P99} {
		if i < len(ms) && ms[i] != nil {
			*to = time.Duration(*ms[i] * float64(time.Millisecond))
		}
	}
	return p
}
