// Package store decides how rows are read and written: every SQL statement on
// onefold's tables, and the few on river_job, one file a table. It runs
// statements on what it is given and never opens a transaction.
package store

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX is a pool, a connection or a transaction.
type DBTX interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// ReadCommitted names the isolation level that every transaction of ours runs
// under: a second statement must see what others committed meanwhile.
var ReadCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// Retryable says whether the transaction was rolled back for a reason that a
// second try can cure: a deadlock or a serialization failure.
func Retryable(err error) bool {
	code := SQLState(err)
	return code == "40P01" || code == "40001"
}

// DataError says whether a statement failed because of the data itself
// (SQLSTATE classes 22, 23 and 54), so that in a group one bad member has to be
// told from the good ones.
func DataError(err error) bool {
	code := SQLState(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54")
}

// SQLState is the error's five-character code, or "".
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// Constraint is the name of the constraint that was violated, or "".
func Constraint(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.ConstraintName
	}
	return ""
}

// Unclear says whether a failed COMMIT may have committed all the same: nothing
// came back from the server that says it did not.
func Unclear(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, ErrCommitWarned) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		// The server spoke. Class 08 and 57P01–57P03 end the connection, and
		// then the outcome of a COMMIT is open.
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P0") || pg.Code == "40003"
	}
	return !errors.Is(err, pgx.ErrTxCommitRollback) && !pgconn.SafeToRetry(err)
}

// Away says whether the database cannot be reached or refuses to work for now.
func Away(err error) bool {
	if err == nil {
		return false
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return !errors.Is(err, pgx.ErrNoRows)
	}
	return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57") || strings.HasPrefix(pg.Code, "53") ||
		Demoted(err) || pg.Code == "55P03" || pg.Code == "25P03"
}

// Demoted says that the server takes no writes: it was the primary when the
// connection was made, and is no longer. Such a connection is of no more use, and
// neither are its siblings; new ones find the new primary.
func Demoted(err error) bool { return SQLState(err) == "25006" }

// null turns "" into NULL.
func null(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
