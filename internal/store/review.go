package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// ReviewPlace is a place in the review queue, which goes from the longest in it
// to the newest.
type ReviewPlace struct {
	Since time.Time
	ID    task.ID
}

// After says whether p comes after o in the queue.
func (p ReviewPlace) After(o ReviewPlace) bool {
	if c := p.Since.Compare(o.Since); c != 0 {
		return c > 0
	}
	return strings.Compare(string(p.ID[:]), string(o.ID[:])) > 0
}

// ReviewFilter narrows the review queue; a zero field does not. An empty tenant
// is an instance key's: it sees every tenant.
type ReviewFilter struct {
	Tenant      string
	Kind        string
	Destination string // effects only
	Reason      api.ReviewReason
	Since       time.Time // in the queue since this time or later
	Until       time.Time // since before this time
	From        *ReviewPlace
	IDs         []task.ID
}

// ReviewRow is one task or effect that waits for a person.
type ReviewRow struct {
	ReviewPlace
	What          api.ReviewWhat
	Now           time.Time
	Reason        api.ReviewReason
	TaskID        task.ID
	Tenant        string
	Kind          string
	Key           string
	State         string
	Run           int32
	Epoch         int64
	Attempts      int32
	CreatedAt     time.Time
	DueAt         time.Time
	Code, Message string
	Compensations int16

	// Of a task: whether its run has a reply that could not be stored, and whether
	// its payload is gone.
	Kept, Purged bool

	// Of an effect.
	Name, Type, Destination string
	Reference               string
	Unclear                 bool
	Behind                  int64 // effects of its order that wait for it, up to a thousand
}

// The conditions of the indexes, word for word: the planner takes an index only
// where it sees that its condition holds.
const (
	taskInReview   = `((t.error_code IS NOT NULL AND t.error_permanent IS NOT TRUE) OR (t.stuck_at IS NOT NULL AND t.finished_at IS NULL))`
	effectInReview = `(e.state IN ('unknown', 'dead') OR (e.stuck_at IS NOT NULL AND e.finished_at IS NULL))`
)

// taskReason and effectReason say why a row is in review, ” where it is not: the
// reconciler's mark is about a due time that has passed since.
const taskReason = `
CASE
    WHEN t.state = 'unknown' THEN 'unknown'
    WHEN t.state = 'failed' AND NOT t.error_permanent AND (t.expires_at IS NULL OR t.expires_at > now()) THEN 'exhausted'
    WHEN t.state = 'pending' AND t.stuck_for = t.run_at AND t.compensations > 0 THEN 'stuck'
    WHEN t.state = 'pending' AND t.stuck_for = t.run_at THEN 'overdue'
    ELSE ''
END`

const effectReason = `
CASE
    WHEN e.state = 'unknown' THEN 'unknown'
    WHEN e.state = 'dead' AND e.error_code = 'attempts_exhausted' THEN 'exhausted'
    WHEN e.state = 'dead' THEN 'dead'
    WHEN e.state IN ('waiting', 'held') AND e.stuck_for = e.next_at AND e.compensations > 0 THEN 'stuck'
    WHEN e.state IN ('waiting', 'held') AND e.stuck_for = e.next_at THEN 'overdue'
    ELSE ''
END`

// Whether there is a kept result is asked by a scalar query: EXISTS the planner
// would rather answer for all tasks at once, from the whole ledger.
const reviewTasks = `
SELECT r.since, r.id, now(), r.reason, r.id, r.tenant, r.kind, r.key, r.state, r.run, r.epoch, r.attempts, r.created_at, r.run_at,
       coalesce(r.error_code, ''), coalesce(r.error_message, ''), r.compensations,
       r.state = 'unknown' AND coalesce((
           SELECT true FROM onefold.attempts AS a WHERE a.task_id = r.id AND a.run = r.run AND a.kept_result IS NOT NULL LIMIT 1), false),
       r.payload_purged_at IS NOT NULL
FROM (
    SELECT t.*, coalesce(t.finished_at, t.stuck_at) AS since,` + taskReason + ` AS reason
    FROM onefold.tasks AS t
    WHERE `

const reviewEffects = `
SELECT r.since, r.id, now(), r.reason, r.task_id, r.tenant, t.kind, t.key, r.state, r.run, r.epoch, r.attempts, r.created_at,
       r.next_at, coalesce(r.error_code, ''), coalesce(r.error_message, ''), r.compensations,
       r.name, r.type, coalesce(r.destination, ''), coalesce(r.reference, ''), r.unclear,
       CASE WHEN r.order_key IS NULL THEN 0 ELSE (
           SELECT count(*)
           FROM (
               SELECT
               FROM onefold.effects AS b
               WHERE b.tenant = r.tenant AND b.destination = r.destination AND b.order_key = r.order_key AND b.order_key IS NOT NULL
                   AND b.state NOT IN ('delivered', 'discarded') AND b.order_seq > r.order_seq
               LIMIT 1000) AS few) END
FROM (
    SELECT e.*, coalesce(e.finished_at, e.stuck_at) AS since,` + effectReason + ` AS reason
    FROM onefold.effects AS e
    WHERE `

// ReviewTasks reads tasks in review, the longest in it first, up to limit. upTo
// is the place up to which it has looked, nil at the end of the queue: what it
// has looked at is bounded, so that there may be fewer than limit, even none,
// with more to come.
func ReviewTasks(ctx context.Context, db DBTX, f ReviewFilter, limit int) (rows []ReviewRow, upTo *ReviewPlace, err error) {
	if f.Destination != "" {
		return nil, nil, nil
	}
	args := pgx.NamedArgs{"limit": limit, "scan": scanPerPage}
	got, err := db.Query(ctx, reviewTasks+f.narrow("t", taskInReview, args)+`
    ORDER BY coalesce(t.finished_at, t.stuck_at), t.id
    LIMIT @scan
) AS r
WHERE `+f.match("r.kind", "", args)+`
ORDER BY r.since, r.id
LIMIT @limit`, args)
	if err != nil {
		return nil, nil, fmt.Errorf("read the review queue: %w", err)
	}
	rows, err = pgx.CollectRows(got, func(row pgx.CollectableRow) (ReviewRow, error) {
		r := ReviewRow{What: api.ReviewTask}
		return r, row.Scan(append(r.common(), &r.Kept, &r.Purged)...)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the review queue: %w", err)
	}
	upTo, err = f.reached(ctx, db, rows, limit, "tasks", "t", taskInReview)
	return rows, upTo, err
}

// ReviewEffects is the same for effects.
func ReviewEffects(ctx context.Context, db DBTX, f ReviewFilter, limit int) (rows []ReviewRow, upTo *ReviewPlace, err error) {
	args := pgx.NamedArgs{"limit": limit, "scan": scanPerPage}
	got, err := db.Query(ctx, reviewEffects+f.narrow("e", effectInReview, args)+`
    ORDER BY coalesce(e.finished_at, e.stuck_at), e.id
    LIMIT @scan
) AS r
JOIN onefold.tasks AS t ON t.id = r.task_id
WHERE `+f.match("t.kind", "r.destination", args)+`
ORDER BY r.since, r.id
LIMIT @limit`, args)
	if err != nil {
		return nil, nil, fmt.Errorf("read the review queue: %w", err)
	}
	rows, err = pgx.CollectRows(got, func(row pgx.CollectableRow) (ReviewRow, error) {
		r := ReviewRow{What: api.ReviewEffect}
		return r, row.Scan(append(r.common(), &r.Name, &r.Type, &r.Destination, &r.Reference, &r.Unclear, &r.Behind)...)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the review queue: %w", err)
	}
	upTo, err = f.reached(ctx, db, rows, limit, "effects", "e", effectInReview)
	return rows, upTo, err
}

func (r *ReviewRow) common() []any {
	return []any{
		&r.Since, &r.ID, &r.Now, &r.Reason, &r.TaskID, &r.Tenant, &r.Kind, &r.Key, &r.State, &r.Run, &r.Epoch, &r.Attempts, &r.CreatedAt,
		&r.DueAt, &r.Code, &r.Message, &r.Compensations,
	}
}

// narrow are the conditions an index answers, of the table with that alias.
func (f ReviewFilter) narrow(alias, inReview string, args pgx.NamedArgs) string {
	where := []string{inReview}
	add := func(condition, name string, v any) {
		where, args[name] = append(where, strings.ReplaceAll(condition, "x.", alias+".")), v
	}
	if f.Tenant != "" {
		add("x.tenant = @tenant", "tenant", f.Tenant)
	}
	if !f.Since.IsZero() {
		add("coalesce(x.finished_at, x.stuck_at) >= @since", "since", f.Since)
	}
	if !f.Until.IsZero() {
		add("coalesce(x.finished_at, x.stuck_at) < @until", "until", f.Until)
	}
	if f.From != nil {
		add("(coalesce(x.finished_at, x.stuck_at), x.id) > (@from_since, @from_id::uuid)", "from_since", f.From.Since)
		args["from_id"] = f.From.ID
	}
	if f.IDs != nil {
		add("x.id = ANY (@ids)", "ids", f.IDs)
	}
	return strings.Join(where, " AND ")
}

// match are the conditions looked at row by row.
func (f ReviewFilter) match(kind, destination string, args pgx.NamedArgs) string {
	where := []string{"r.reason <> ''"}
	if f.Reason != "" {
		where, args["reason"] = append(where, "r.reason = @reason"), string(f.Reason)
	}
	if f.Kind != "" {
		where, args["kind"] = append(where, kind+" = @kind"), f.Kind
	}
	if f.Destination != "" {
		where, args["destination"] = append(where, destination+" = @destination"), f.Destination
	}
	return strings.Join(where, " AND ")
}

func (f ReviewFilter) reached(ctx context.Context, db DBTX, rows []ReviewRow, limit int, table, alias, inReview string) (*ReviewPlace, error) {
	if len(rows) == limit {
		return &rows[limit-1].ReviewPlace, nil
	}
	args := pgx.NamedArgs{"scan": scanPerPage}
	var last ReviewPlace
	err := db.QueryRow(ctx, `
SELECT coalesce(`+alias+`.finished_at, `+alias+`.stuck_at), `+alias+`.id
FROM onefold.`+table+` AS `+alias+`
WHERE `+f.narrow(alias, inReview, args)+`
ORDER BY 1, 2
OFFSET @scan - 1
LIMIT 1`, args).Scan(&last.Since, &last.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the review queue: %w", err)
	}
	return &last, nil
}

// ReviewCount is how many are in review of one sort.
type ReviewCount struct {
	What   api.ReviewWhat
	Reason api.ReviewReason
	Age    api.ReviewAge
	Count  int64
}

// mostCounted bounds the rows that are counted of each table.
const mostCounted = 100_000

// CountReview counts the queue by sort, reason and age. Of more than a hundred
// thousand tasks or effects the oldest are counted; atLeast then says so.
func CountReview(ctx context.Context, db DBTX, f ReviewFilter) (counts []ReviewCount, atLeast bool, err error) {
	for _, one := range []struct {
		what         api.ReviewWhat
		table, alias string
		in, reason   string
		kind, dest   string
		join         string
	}{
		{api.ReviewTask, "tasks", "t", taskInReview, taskReason, "r.kind", "", ""},
		{api.ReviewEffect, "effects", "e", effectInReview, effectReason, "k.kind", "r.destination", "JOIN onefold.tasks AS k ON k.id = r.task_id"},
	} {
		if f.Destination != "" && one.what == api.ReviewTask {
			continue
		}
		if f.Kind == "" {
			one.join = ""
		}
		args := pgx.NamedArgs{"scan": mostCounted}
		rows, err := db.Query(ctx, `
SELECT r.reason, CASE WHEN r.since > now() - interval '1 h' THEN '1h' WHEN r.since > now() - interval '24 h' THEN '24h' ELSE 'older' END,
       count(*) FILTER (WHERE `+f.match(one.kind, one.dest, args)+`), count(*)
FROM (
    SELECT `+one.alias+`.*, coalesce(`+one.alias+`.finished_at, `+one.alias+`.stuck_at) AS since,`+one.reason+` AS reason
    FROM onefold.`+one.table+` AS `+one.alias+`
    WHERE `+f.narrow(one.alias, one.in, args)+`
    ORDER BY coalesce(`+one.alias+`.finished_at, `+one.alias+`.stuck_at), `+one.alias+`.id
    LIMIT @scan
) AS r `+one.join+`
GROUP BY 1, 2
ORDER BY 1, 2`, args)
		if err != nil {
			return nil, false, fmt.Errorf("count the review queue: %w", err)
		}
		seen := int64(0)
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ReviewCount, error) {
			c := ReviewCount{What: one.what}
			var looked int64
			err := row.Scan(&c.Reason, &c.Age, &c.Count, &looked)
			seen += looked
			return c, err
		})
		if err != nil {
			return nil, false, fmt.Errorf("count the review queue: %w", err)
		}
		atLeast = atLeast || seen >= mostCounted
		for _, c := range all {
			if c.Count > 0 {
				counts = append(counts, c)
			}
		}
	}
	return counts, atLeast, nil
}
