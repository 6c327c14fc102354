package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// CodeSQLFailed is the code of an sql effect that Postgres refused.
const CodeSQLFailed = "sql_failed"

// sqlTries is how often a statement that lost a deadlock is tried within one transaction, where a savepoint allows it.
const sqlTries = 3

// runSQL executes an sql effect in the finishing transaction. strict leaves the transaction aborted after a failure;
// otherwise a savepoint takes the failure back and the transaction goes on.
func (o *Outbox) runSQL(ctx context.Context, tx pgx.Tx, e *config.RenderedEffect, strict bool) *EffectError {
	var err error
	if strict {
		err = o.statement(ctx, tx, e)
	} else {
		for range sqlTries {
			err = pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return o.statement(ctx, sp, e) })
			if !store.Retryable(err) {
				break
			}
		}
	}
	if err == nil {
		err = failpoint.Hit(failpoint.SQLEffectAfter)
	}
	if err == nil {
		return nil
	}
	return &EffectError{Name: e.Name, Code: CodeSQLFailed, Message: message(err), Permanent: !transient(tx, err), err: err}
}

// RunStored executes an sql effect that failed with its outcome, as it was stored then, in the caller's transaction,
// which goes on whatever comes of it.
func (o *Outbox) RunStored(ctx context.Context, tx pgx.Tx, name string, body []byte) *EffectError {
	var stored struct {
		Statement string          `json:"statement"`
		Args      json.RawMessage `json:"args"`
	}
	if err := json.Unmarshal(body, &stored); err != nil || stored.Statement == "" {
		return &EffectError{Name: name, Code: CodeSQLFailed, Message: "the statement was not stored", Permanent: true}
	}
	return o.runSQL(ctx, tx, &config.RenderedEffect{Name: name, Statement: stored.Statement, Args: stored.Args}, false)
}

// errEnded says that a statement committed or rolled back the transaction it was a part of.
var errEnded = api.Errorf(CodeSQLFailed, "the statement ended the transaction it was to be a part of")

// statement runs one statement under limits of its own. Deferred constraints are checked before it returns: they would
// fail at COMMIT, where nobody can tell any more which effect was at fault.
func (o *Outbox) statement(ctx context.Context, tx pgx.Tx, e *config.RenderedEffect) error {
	var lock, limit string
	err := tx.QueryRow(ctx, `SELECT current_setting('lock_timeout'), current_setting('statement_timeout')`).Scan(&lock, &limit)
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	before, err := setLimits(ctx, tx, milliseconds(o.SQLLockTimeout), milliseconds(o.SQLTimeout))
	if err != nil {
		return err
	}
	if err := execText(ctx, tx.Conn().PgConn(), e); err != nil {
		return err
	}
	if tx.Conn().PgConn().TxStatus() != 'T' {
		return errEnded
	}
	if _, err := tx.Exec(ctx, `SET CONSTRAINTS ALL IMMEDIATE`); err != nil {
		return fmt.Errorf("check constraints: %w", err)
	}
	after, err := setLimits(ctx, tx, lock, limit)
	if err == nil && after != before {
		err = errEnded
	}
	return err
}

// setLimits sets both limits for what is left of the transaction and returns its id.
func setLimits(ctx context.Context, tx pgx.Tx, lock, limit string) (id string, err error) {
	err = tx.QueryRow(ctx, `
SELECT pg_current_xact_id()::text, set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`,
		lock, limit).Scan(&id, nil, nil)
	if err != nil {
		return "", fmt.Errorf("set limits: %w", err)
	}
	return id, nil
}

// transient says whether another try of the whole transaction may go better.
func transient(tx pgx.Tx, err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return tx.Conn().IsClosed() || errors.Is(err, failpoint.ErrInjected)
	}
	return store.Away(err) || store.Retryable(err)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// execText executes the statement with its values in text form: Postgres reads each as the type it inferred, so that
// numbers keep their digits and dates are dates. The rows it returns are read and dropped.
func execText(ctx context.Context, conn *pgconn.PgConn, e *config.RenderedEffect) error {
	desc, err := conn.Prepare(ctx, "", e.Statement, nil)
	if err != nil {
		return err
	}
	params, err := sqlParams(e.Args, desc.ParamOIDs)
	if err != nil {
		return err
	}
	rows := conn.ExecPrepared(ctx, "", params, nil, nil)
	for rows.NextRow() { //nolint:revive // dropped
	}
	_, err = rows.Close()
	return err
}

// sqlParams are the values of the arguments as text. A text that goes where JSON is wanted goes as a JSON string.
func sqlParams(args []byte, oids []uint32) ([][]byte, error) {
	params, err := config.SQLParams(args)
	if err != nil {
		return nil, err
	}
	if len(params) != len(oids) {
		return nil, fmt.Errorf("the statement takes %d values, but %d are stored", len(oids), len(params))
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(args, &raw); err != nil {
		return nil, fmt.Errorf("read stored SQL arguments: %w", err)
	}
	for i, oid := range oids {
		if (oid == pgtype.JSONOID || oid == pgtype.JSONBOID) && len(raw[i]) > 0 && raw[i][0] == '"' {
			if params[i], err = jsontext.AppendQuote(nil, params[i]); err != nil {
				return nil, fmt.Errorf("encode SQL argument %d: %w", i+1, err)
			}
		}
	}
	return params, nil
}

// message is what may be stored and shown of an error: no DETAIL, no value of a row.
func message(err error) string {
	var own *api.Error
	if errors.As(err, &own) {
		return telemetry.ScrubText(own.Message)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		text := telemetry.ScrubError(pg)
		if pg.Code == "55P03" || pg.Code == "57014" {
			text += "; another transaction holds what the statement needs, or it takes too long"
		}
		return text
	}
	return telemetry.ScrubError(err)
}

// beginner is a pool or a connection.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// CheckSQL prepares the statement of every sql effect against the database it will run in, and reports all that is
// wrong at once: the error is config.Errors, with file, line and what to do. Nothing is executed.
func CheckSQL(ctx context.Context, db beginner, cfg *config.Config) error {
	var found config.Errors
	for _, st := range cfg.SQLStatements() {
		wrong, err := checkStatement(ctx, db, st.SQL)
		if err != nil {
			return fmt.Errorf("check the statement of effect %s of kind %s: %w", st.Effect, st.Kind, err)
		}
		if wrong != nil {
			found = append(found, cfg.At(st.Path, "Postgres refuses the statement: "+wrong.Message, fixFor(wrong)))
		}
	}
	if len(found) > 0 {
		return found
	}
	return nil
}

func checkStatement(ctx context.Context, db beginner, sql string) (*pgconn.PgError, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Conn().PgConn().Prepare(ctx, "", sql, nil)
	var wrong *pgconn.PgError
	if errors.As(err, &wrong) && !store.Away(err) {
		return wrong, nil
	}
	return nil, err
}

// fixFor says what to do about a statement that cannot be prepared.
func fixFor(e *pgconn.PgError) string {
	switch e.Code {
	case "42P01":
		return "create the table in this database before starting, or correct its name (with its schema, where it is not on the search_path)"
	case "42703":
		return "correct the column's name, or add it to the table"
	case "42501":
		return "grant the database role of the workers what the statement needs"
	case "42P18", "42P08", "42804":
		return "give the value one type wherever it stands, as in @result.total::numeric"
	case "42883":
		return "cast the values to the types that the function or operator takes, as in @result.total::numeric"
	case "3F000":
		return "create the schema, or correct its name"
	}
	if strings.HasPrefix(e.Code, "42") {
		return "correct the statement; values are written @key, @input.a, @result.b"
	}
	return "try the statement in psql with PREPARE"
}
