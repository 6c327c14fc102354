// Package audit decides what in the rows should not be so: results that are there
// twice, calls the ledger does not know, outcomes without their effects. It reads
// in one read-only transaction and changes nothing.
package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// most bounds the findings of each sort.
const most = 1000

// Opts say what is looked at.
type Opts struct {
	// Since: tasks created before are not looked at.
	Since time.Time
	// Older is the age from which an effect without a final state is a finding.
	Older time.Duration
	// SQL finds duplicates: it returns rows with the task's id in a column task_id
	// and the business key in the others. Empty: none are looked for. A query
	// without that column returns one row for each duplicate itself.
	SQL string
	// Timeout bounds each statement.
	Timeout time.Duration
	// Config reads stored kinds.
	Config config.Opts
}

// Report is what was found.
type Report struct {
	Duplicates []Duplicate
	Ledger     []store.LedgerGap
	Effects    []store.OpenEffectsRow
	Missing    []store.Missing
	Conflicts  []store.ConflictRow
	// Unread are kinds whose stored configuration this program cannot read, so that
	// their effects were not looked for.
	Unread []string
}

// Wrong says whether anything is not as it should be. Reused keys were refused
// and changed nothing; they are for people to read.
func (r *Report) Wrong() bool {
	return len(r.Duplicates)+len(r.Ledger)+len(r.Missing) > 0 ||
		slices.ContainsFunc(r.Effects, func(e store.OpenEffectsRow) bool { return e.Old > 0 })
}

// Duplicate is a business key that more than one task has, less those a person
// has marked as duplicates; or a row of a query that finds duplicates itself.
type Duplicate struct {
	Key   []string // name=value, in the query's order
	Tasks []task.ID
}

type beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Run looks. The transaction is read-only and is rolled back: whatever the
// operator's own SQL does, nothing of it stays.
func Run(ctx context.Context, db beginner, o Opts) (*Report, error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`, fmt.Sprintf("%dms", o.Timeout.Milliseconds())); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	r := &Report{}
	if r.Ledger, err = store.LedgerGaps(ctx, tx, o.Since, most); err != nil {
		return nil, err
	}
	if r.Effects, err = store.OpenEffectsByAge(ctx, tx, o.Older); err != nil {
		return nil, err
	}
	if err := missing(ctx, tx, o, r); err != nil {
		return nil, err
	}
	if r.Conflicts, err = store.Conflicts(ctx, tx, o.Since, most); err != nil {
		return nil, err
	}
	if o.SQL != "" {
		if r.Duplicates, err = duplicates(ctx, tx, o.SQL); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// missing looks for outcomes without the effects that their kind names.
func missing(ctx context.Context, tx pgx.Tx, o Opts, r *Report) error {
	kinds, err := store.KindConfigs(ctx, tx)
	if err != nil {
		return err
	}
	for _, c := range kinds {
		k, err := config.KindFromBody(c.Kind, c.Body, o.Config)
		if err != nil {
			r.Unread = append(r.Unread, c.Kind)
			continue
		}
		for _, state := range []api.State{api.Succeeded, api.Failed, api.Unknown, api.Cancelled} {
			var names []string
			for _, e := range k.Effects {
				if e.On.Matches(string(state)) {
					names = append(names, e.Name)
				}
			}
			if len(names) == 0 {
				continue
			}
			found, err := store.MissingEffects(ctx, tx, o.Since, c.Hash, state, names, most)
			if err != nil {
				return err
			}
			r.Missing = append(r.Missing, found...)
		}
	}
	return nil
}

// ErrSQL is an error of the operator's own query.
type ErrSQL struct{ Err *pgconn.PgError }

func (e *ErrSQL) Error() string { return "the query: " + e.Err.Message }

// Unwrap is what Postgres said.
func (e *ErrSQL) Unwrap() error { return e.Err }

// duplicates runs the operator's query and groups what it returns.
func duplicates(ctx context.Context, tx pgx.Tx, sql string) (out []Duplicate, err error) {
	rows, err := tx.Query(ctx, strings.TrimRight(strings.TrimSpace(sql), ";"), pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats{pgx.TextFormatCode})
	if err != nil {
		return nil, ownError(err)
	}
	defer rows.Close()
	at := -1
	var names []string
	for i, f := range rows.FieldDescriptions() {
		names = append(names, f.Name)
		if f.Name == "task_id" {
			at = i
		}
	}
	groups := map[string]*Duplicate{}
	var order []*Duplicate
	for rows.Next() {
		var key []string
		for i, v := range rows.RawValues() {
			if i != at {
				key = append(key, names[i]+"="+string(v))
			}
		}
		d := &Duplicate{Key: key}
		if at < 0 {
			order = append(order, d)
			continue
		}
		id, err := task.ParseID(string(rows.RawValues()[at]))
		if err != nil {
			return nil, api.Errorf(api.CodeInvalidField, "the query returns a task_id that is no task's id").WithFix("Return the id of the task in the column task_id.")
		}
		name := strings.Join(key, "\x00")
		if groups[name] == nil {
			groups[name], order = d, append(order, d)
		}
		groups[name].Tasks = append(groups[name].Tasks, id)
	}
	if err := rows.Err(); err != nil {
		return nil, ownError(err)
	}
	if at < 0 {
		for _, d := range order {
			out = append(out, *d)
		}
		return out, nil
	}
	return repeated(ctx, tx, order)
}

// repeated leaves those that more than one task has, marked ones apart.
func repeated(ctx context.Context, tx pgx.Tx, all []*Duplicate) (out []Duplicate, err error) {
	var ids []task.ID
	for _, d := range all {
		ids = append(ids, d.Tasks...)
	}
	marked, err := store.MarkedDuplicates(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		d.Tasks = slices.DeleteFunc(d.Tasks, func(id task.ID) bool { return marked[id] })
		if len(d.Tasks) > 1 {
			out = append(out, *d)
		}
	}
	return out, nil
}

func ownError(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return &ErrSQL{pg}
	}
	return fmt.Errorf("look for duplicates: %w", err)
}
