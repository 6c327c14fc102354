package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// TaskFilter narrows a list of tasks; a zero field does not. An empty tenant is
// an instance key's: it sees every tenant.
type TaskFilter struct {
	Tenant        string
	States        []api.State
	Kind          string
	Key           string // needs Kind
	TraceID       string
	Batch         *task.ID
	InputHash     []byte
	Metadata      map[string]string
	CreatedAfter  *time.Time // at or after
	CreatedBefore *time.Time // before
	Before        *task.ID   // tasks listed after this one, older ones
}

// scanPerPage bounds the rows looked at for one page, so that a filter that
// nothing fits cannot read a tenant's whole history in one query.
const scanPerPage = 10_000

// idSlack is how far the clock of the process that made an id may be off the
// database's: ids only narrow down where a creation time is looked for.
const idSlack = 24 * time.Hour

// Tasks reads one page, newest first, without results. Tasks past their
// retention are left out. next is where the next page begins, nil at the end; a
// page may hold fewer than limit, even none, with more to come.
func Tasks(ctx context.Context, db DBTX, f TaskFilter, limit int) (page []*task.Row, next *task.ID, err error) {
	args := pgx.NamedArgs{"limit": limit, "scan": scanPerPage}
	rows, err := db.Query(ctx, `
SELECT `+taskColumns+`, coalesce((SELECT d.count FROM onefold.task_duplicates AS d WHERE d.task_id = t.id), 0)
FROM (
    SELECT t.*
    FROM onefold.tasks AS t
    WHERE `+strings.Join(f.narrow(args), " AND ")+`
    ORDER BY t.id DESC
    LIMIT @scan
) AS t
WHERE `+strings.Join(f.match(args), " AND ")+`
ORDER BY t.id DESC
LIMIT @limit`, args)
	if err != nil {
		return nil, nil, fmt.Errorf("list tasks: %w", err)
	}
	page, err = collectTasks(rows, func(r *task.Row) []any { return []any{&r.Duplicates} })
	if err != nil {
		return nil, nil, fmt.Errorf("list tasks: %w", err)
	}
	if len(page) == limit {
		return page, &page[limit-1].ID, nil
	}
	next, err = f.scanned(ctx, db)
	return page, next, err
}

// scanned is the last task a full scan looked at, nil when it came to the end.
func (f TaskFilter) scanned(ctx context.Context, db DBTX) (*task.ID, error) {
	args := pgx.NamedArgs{"scan": scanPerPage}
	var last task.ID
	err := db.QueryRow(ctx, `
SELECT t.id
FROM onefold.tasks AS t
WHERE `+strings.Join(f.narrow(args), " AND ")+`
ORDER BY t.id DESC
OFFSET @scan - 1
LIMIT 1`, args).Scan(&last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return &last, nil
}

// narrow are the conditions an index answers.
func (f TaskFilter) narrow(args pgx.NamedArgs) []string {
	where := []string{"true"}
	add := func(condition, name string, v any) {
		where, args[name] = append(where, condition), v
	}
	if f.Tenant != "" {
		add("t.tenant = @tenant", "tenant", f.Tenant)
	}
	if f.Kind != "" && f.Key != "" {
		add("t.kind = @kind", "kind", f.Kind)
		add("t.key = @key", "key", f.Key)
	}
	if f.Batch != nil {
		add("t.batch_id = @batch", "batch", *f.Batch)
	}
	if f.Before != nil {
		add("t.id < @before", "before", *f.Before)
	}
	if f.CreatedAfter != nil {
		add("t.id >= @first", "first", firstID(f.CreatedAfter.Add(-idSlack)))
	}
	if f.CreatedBefore != nil {
		add("t.id < @last", "last", firstID(f.CreatedBefore.Add(idSlack)))
	}
	return where
}

// match are the conditions looked at row by row.
func (f TaskFilter) match(args pgx.NamedArgs) []string {
	where := []string{"(t.expires_at IS NULL OR t.expires_at > now())"}
	add := func(condition, name string, v any) {
		where, args[name] = append(where, condition), v
	}
	if len(f.States) > 0 {
		states := make([]string, len(f.States))
		for i, s := range f.States {
			states[i] = string(s)
		}
		add("t.state = ANY (@states)", "states", states)
	}
	if f.Kind != "" {
		add("t.kind = @kind", "kind", f.Kind)
	}
	if f.TraceID != "" {
		add("t.trace_id = @trace", "trace", f.TraceID)
	}
	if f.InputHash != nil {
		add("t.input_hash = @input_hash", "input_hash", f.InputHash)
	}
	if f.CreatedAfter != nil {
		add("t.created_at >= @after", "after", *f.CreatedAfter)
	}
	if f.CreatedBefore != nil {
		add("t.created_at < @until", "until", *f.CreatedBefore)
	}
	if len(f.Metadata) > 0 {
		names := slices.Collect(maps.Keys(f.Metadata))
		values := make([]string, len(names))
		for i, n := range names {
			values[i] = f.Metadata[n]
		}
		// json, not jsonb: the bytes are a caller's, and jsonb refuses some that json takes.
		add(`NOT EXISTS (
        SELECT
        FROM unnest(@names::text[], @values::text[]) AS m (name, value)
        WHERE convert_from(t.metadata, 'UTF8')::json ->> m.name IS DISTINCT FROM m.value)`, "names", names)
		args["values"] = values
	}
	return where
}

// firstID is the smallest UUIDv7 of a time.
func firstID(t time.Time) task.ID {
	ms := max(t.UnixMilli(), 0)
	var id task.ID
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = 0x70, 0x80
	return id
}
