package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// SecretUse names one secret of a source.
type SecretUse struct{ Source, Secret string }

// AddSecretUses adds deliveries to the present hour's counts.
func AddSecretUses(ctx context.Context, db DBTX, counts map[SecretUse]int64) error {
	var sources, secrets []string
	var n []int64
	for use, count := range counts {
		sources, secrets, n = append(sources, use.Source), append(secrets, use.Secret), append(n, count)
	}
	_, err := db.Exec(ctx, `
INSERT INTO onefold.source_secrets AS s (source, secret, hour, count)
SELECT source, secret, date_trunc('hour', now(), 'UTC'), count
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u (source, secret, count)
ORDER BY source, secret
ON CONFLICT (source, secret, hour) DO UPDATE SET count = s.count + excluded.count, last_at = now()`, sources, secrets, n)
	if err != nil {
		return fmt.Errorf("count uses of source secrets: %w", err)
	}
	return nil
}

// SecretUses reads how many deliveries each secret verified since a time.
func SecretUses(ctx context.Context, db DBTX, since time.Time) (map[SecretUse]int64, error) {
	rows, err := db.Query(ctx, `
SELECT source, secret, sum(count)::bigint FROM onefold.source_secrets
WHERE hour >= date_trunc('hour', $1::timestamptz, 'UTC') GROUP BY source, secret`, since)
	if err != nil {
		return nil, fmt.Errorf("read uses of source secrets: %w", err)
	}
	defer rows.Close()
	out := map[SecretUse]int64{}
	for rows.Next() {
		var use SecretUse
		var n int64
		if err := rows.Scan(&use.Source, &use.Secret, &n); err != nil {
			return nil, fmt.Errorf("read uses of source secrets: %w", err)
		}
		out[use] = n
	}
	return out, rows.Err()
}

// FirstSecretUses reads since when each secret has verified deliveries, to the
// hour, as far back as counts are kept.
func FirstSecretUses(ctx context.Context, db DBTX) (map[SecretUse]time.Time, error) {
	rows, err := db.Query(ctx, `SELECT source, secret, min(hour) FROM onefold.source_secrets GROUP BY source, secret`)
	if err != nil {
		return nil, fmt.Errorf("read first uses of source secrets: %w", err)
	}
	out := map[SecretUse]time.Time{}
	var use SecretUse
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&use.Source, &use.Secret, &at}, func() error {
		out[use] = at
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read first uses of source secrets: %w", err)
	}
	return out, nil
}

// ForgetSecretUses deletes counts of hours that many days back.
func ForgetSecretUses(ctx context.Context, db DBTX, days int) error {
	_, err := db.Exec(ctx, `
DELETE FROM onefold.source_secrets
WHERE hour < now() - make_interval(days => $1)`, days)
	if err != nil {
		return fmt.Errorf("forget uses of source secrets: %w", err)
	}
	return nil
}
