package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// lockShares is the advisory lock under which shares move ("ofsh" in hex).
const lockShares = 0x6f667368

// LockShares takes the lock that all moves of shares have in common, to the end
// of the transaction; false when another process has it.
func LockShares(ctx context.Context, tx DBTX) (mine bool, err error) {
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, lockShares).Scan(&mine); err != nil {
		return false, fmt.Errorf("lock shares: %w", err)
	}
	return mine, nil
}

// Share is what one incarnation may have under way of what has a bound.
type Share struct {
	GateKey
	Incarnation         task.ID
	Slots, Used, Wanted int
}

// Shares reads the shares of living incarnations.
func Shares(ctx context.Context, db DBTX) ([]Share, error) {
	rows, err := db.Query(ctx, `
SELECT s.scope, s.name, s.incarnation, s.slots, s.used, s.wanted
FROM onefold.shares AS s
JOIN onefold.workers AS w USING (incarnation)
WHERE w.expires_at > clock_timestamp()
ORDER BY s.scope, s.name, s.incarnation`)
	if err != nil {
		return nil, fmt.Errorf("read shares: %w", err)
	}
	defer rows.Close()
	var out []Share
	for rows.Next() {
		var s Share
		if err := rows.Scan(&s.Scope, &s.Name, &s.Incarnation, &s.Slots, &s.Used, &s.Wanted); err != nil {
			return nil, fmt.Errorf("read shares: %w", err)
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// PutShares writes an incarnation's own shares.
func PutShares(ctx context.Context, tx DBTX, shares []Share) error {
	b := &pgx.Batch{}
	for _, s := range shares {
		b.Queue(`
INSERT INTO onefold.shares (scope, name, incarnation, slots, used, wanted)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, name, incarnation) DO UPDATE
SET slots = excluded.slots, used = excluded.used, wanted = excluded.wanted`,
			s.Scope, s.Name, s.Incarnation, s.Slots, s.Used, s.Wanted)
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return fmt.Errorf("write shares: %w", err)
	}
	return nil
}

// Rate says how fast things may begin. A zero Every or Cost bounds nothing.
type Rate struct {
	Every, Burst     time.Duration // between two requests, and how much time can be saved up
	Cost, TokenBurst time.Duration // what one request costs of the time tokens are given out for
}

const takeRate = `
WITH cur AS (
    SELECT requests_at, tokens_at
    FROM onefold.rates
    WHERE scope = $1 AND name = $2
    FOR UPDATE
), base AS (
    SELECT t.now, greatest(cur.requests_at, t.now - $5::interval) AS r, greatest(cur.tokens_at, t.now - $7::interval) AS k
    FROM cur
    CROSS JOIN (SELECT clock_timestamp() AS now) AS t
), n AS (
    SELECT base.*,
           greatest(0, least($3::numeric,
               CASE WHEN $4::interval > '0' THEN floor(extract(epoch FROM base.now - base.r) / extract(epoch FROM $4::interval)) ELSE $3 END,
               CASE WHEN $6::interval = '0' THEN $3
                    WHEN base.now <= base.k THEN 0
                    ELSE ceil(extract(epoch FROM base.now - base.k) / extract(epoch FROM $6::interval)) END))::integer AS granted
    FROM base
)
UPDATE onefold.rates AS x
SET requests_at = n.r + n.granted * $4::interval,
    tokens_at = n.k + n.granted * $6::interval
FROM n
WHERE x.scope = $1 AND x.name = $2
RETURNING n.granted, extract(epoch FROM greatest(
    CASE WHEN $4::interval > '0' THEN n.r + (n.granted + 1) * $4::interval - n.now ELSE '0' END,
    CASE WHEN $6::interval > '0' THEN n.k + n.granted * $6::interval - n.now ELSE '0' END, '0'))::float8`

// TakeRate takes up to want permits of n and says how long until the next one
// can be there.
func TakeRate(ctx context.Context, db DBTX, n GateKey, want int, r Rate) (granted int, wait time.Duration, err error) {
	var seconds float64
	err = db.QueryRow(ctx, takeRate, n.Scope, n.Name, want, r.Every, r.Burst, r.Cost, r.TokenBurst).Scan(&granted, &seconds)
	if err != nil {
		return 0, 0, fmt.Errorf("take permits: %w", err)
	}
	return granted, time.Duration(seconds * float64(time.Second)), nil
}

// EnsureRates makes the rows that TakeRate needs.
func EnsureRates(ctx context.Context, db DBTX, names []GateKey) error {
	for _, n := range names {
		if _, err := db.Exec(ctx, `INSERT INTO onefold.rates (scope, name) VALUES ($1, $2) ON CONFLICT DO NOTHING`, n.Scope, n.Name); err != nil {
			return fmt.Errorf("make rates: %w", err)
		}
	}
	return nil
}

// CorrectTokens moves what was guessed of tokens to what was taken.
func CorrectTokens(ctx context.Context, db DBTX, n GateKey, by time.Duration) error {
	if _, err := db.Exec(ctx, `UPDATE onefold.rates SET tokens_at = tokens_at + $3::interval WHERE scope = $1 AND name = $2`, n.Scope, n.Name, by); err != nil {
		return fmt.Errorf("correct tokens: %w", err)
	}
	return nil
}
