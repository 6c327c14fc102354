package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// GateKey names a gate: the scope is provider or destination.
type GateKey struct{ Scope, Name string }

// Gate is one row of onefold.gates.
type Gate struct {
	GateKey
	Salt           []byte
	State          api.GateState
	Until          *time.Time // with cooling: it is open from then on, whatever State says
	Code           string
	Reason         string
	Actor          string // who held it, "" when it closed by itself
	Since          time.Time
	Epoch          int64
	Failures       int32 // in a row
	NeedsAttention bool
	Suspects       []task.ID
	Refused        [][]byte // fingerprints of credentials that were turned away
}

const gateColumns = `scope, name, salt, state, until, coalesce(code, ''), coalesce(reason, ''), coalesce(actor, ''), since, epoch, failures,
needs_attention, suspects, refused`

func gateTargets(g *Gate) []any {
	return []any{
		&g.Scope, &g.Name, &g.Salt, &g.State, &g.Until, &g.Code, &g.Reason, &g.Actor, &g.Since, &g.Epoch, &g.Failures,
		&g.NeedsAttention, &g.Suspects, &g.Refused,
	}
}

// EnsureGates makes the rows that are not there yet, open, each with its salt.
func EnsureGates(ctx context.Context, db DBTX, keys []GateKey, salts [][]byte) error {
	scopes, names := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		scopes[i], names[i] = k.Scope, k.Name
	}
	_, err := db.Exec(ctx, `
INSERT INTO onefold.gates (scope, name, salt)
SELECT q.scope, q.name, q.salt
FROM unnest($1::text[], $2::text[], $3::bytea[]) AS q (scope, name, salt)
ORDER BY q.scope, q.name
ON CONFLICT DO NOTHING`, scopes, names, salts)
	if err != nil {
		return fmt.Errorf("make gates: %w", err)
	}
	return nil
}

// Gates reads all gates and the database's time, which is zero when there are
// no gates.
func Gates(ctx context.Context, db DBTX) (gates []Gate, now time.Time, err error) {
	rows, err := db.Query(ctx, `
SELECT clock_timestamp(), `+gateColumns+`
FROM onefold.gates
ORDER BY scope, name`)
	if err != nil {
		return nil, now, fmt.Errorf("read gates: %w", err)
	}
	return collectGates(rows, "read gates")
}

// LockGates locks gates in the order of their names and reads them with the
// database's time. It comes last in a transaction: others that touch the same
// gates wait for its end.
func LockGates(ctx context.Context, tx DBTX, keys []GateKey) (gates []Gate, now time.Time, err error) {
	scopes, names := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		scopes[i], names[i] = k.Scope, k.Name
	}
	rows, err := tx.Query(ctx, `
SELECT clock_timestamp(), `+gateColumns+`
FROM onefold.gates
WHERE (scope, name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY scope, name
FOR UPDATE`, scopes, names)
	if err != nil {
		return nil, now, fmt.Errorf("lock gates: %w", err)
	}
	return collectGates(rows, "lock gates")
}

func collectGates(rows pgx.Rows, what string) (gates []Gate, now time.Time, err error) {
	defer rows.Close()
	for rows.Next() {
		var g Gate
		if err := rows.Scan(append([]any{&now}, gateTargets(&g)...)...); err != nil {
			return nil, now, fmt.Errorf("%s: %w", what, err)
		}
		gates = append(gates, g)
	}
	if err := rows.Err(); err != nil {
		return nil, now, fmt.Errorf("%s: %w", what, err)
	}
	return gates, now, nil
}

// PutGates writes locked gates back. since is set where the state moved.
func PutGates(ctx context.Context, tx DBTX, gates []Gate) error {
	b := &pgx.Batch{}
	for _, g := range gates {
		b.Queue(`
UPDATE onefold.gates
SET since = CASE WHEN epoch = $8 THEN since ELSE clock_timestamp() END,
    state = $3,
    until = $4,
    code = $5,
    reason = $6,
    actor = $7,
    epoch = $8,
    failures = $9,
    needs_attention = $10,
    suspects = $11,
    refused = $12
WHERE scope = $1 AND name = $2`,
			g.Scope, g.Name, g.State, g.Until, null(g.Code), null(g.Reason), null(g.Actor), g.Epoch, g.Failures, g.NeedsAttention,
			noNil(g.Suspects), noNil(g.Refused))
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return fmt.Errorf("move gates: %w", err)
	}
	return nil
}

func noNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// GatesChannel carries the hint that gates or holds have changed.
const GatesChannel = "onefold_gates"

// NotifyGates tells all processes to read gates and holds again. Sent after the
// commit; a lost one costs a second.
func NotifyGates(ctx context.Context, db DBTX) error {
	if _, err := db.Exec(ctx, `SELECT pg_notify($1, '')`, GatesChannel); err != nil {
		return fmt.Errorf("notify of gates: %w", err)
	}
	return nil
}

// ListenGates makes a direct connection receive the hints of NotifyGates.
func ListenGates(ctx context.Context, conn DBTX) error {
	if _, err := conn.Exec(ctx, `LISTEN `+GatesChannel); err != nil {
		return fmt.Errorf("listen for gates: %w", err)
	}
	return nil
}
