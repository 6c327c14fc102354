package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// Line is one row of onefold.batch_lines, with what is wanted of its task.
type Line struct {
	Number   int32
	LineID   string
	Kind     string
	TaskID   task.ID
	State    string // open, or how it settled
	Run      int32
	Folded   bool
	Finished int32 // 0 while open
	Code     string
	Message  string
	Field    string
	Body     []byte // of a line that has no task yet
}

// InsertLines stages lines of a locked batch with the bodies of those that are
// to run, and returns the numbers of those whose id is taken.
func InsertLines(ctx context.Context, tx DBTX, batch task.ID, lines []Line) (taken []int32, err error) {
	n := len(lines)
	numbers, finished := make([]int32, n), make([]*int32, n)
	ids, kinds, states := make([]string, n), make([]string, n), make([]string, n)
	codes, messages, fields := make([]*string, n), make([]*string, n), make([]*string, n)
	tasks, bodies := make([]task.ID, n), make([][]byte, n)
	for i, l := range lines {
		numbers[i], ids[i], kinds[i], states[i], tasks[i], bodies[i] = l.Number, l.LineID, l.Kind, l.State, l.TaskID, l.Body
		codes[i], messages[i], fields[i] = null(l.Code), null(l.Message), null(l.Field)
		if l.Finished > 0 {
			finished[i] = &lines[i].Finished
		}
	}
	rows, err := tx.Query(ctx, `
WITH new AS (
    INSERT INTO onefold.batch_lines (batch_id, number, line_id, kind, task_id, state, finished, error_code, error_message, error_field)
    SELECT $1, u.number, u.line_id, u.kind, u.task_id, u.state, u.finished, u.code, u.message, u.field
    FROM unnest($2::integer[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::integer[], $8::text[], $9::text[], $10::text[])
        AS u (number, line_id, kind, task_id, state, finished, code, message, field)
    ORDER BY u.number
    ON CONFLICT DO NOTHING
    RETURNING number
), texts AS (
    INSERT INTO onefold.batch_bodies (batch_id, number, body)
    SELECT $1, u.number, u.body
    FROM unnest($2::integer[], $11::bytea[]) AS u (number, body)
    WHERE u.body IS NOT NULL
)
SELECT u.number
FROM unnest($2::integer[]) AS u (number)
WHERE u.number NOT IN (SELECT number FROM new)
ORDER BY u.number`, batch, numbers, ids, kinds, tasks, states, finished, codes, messages, fields, bodies)
	if err != nil {
		return nil, fmt.Errorf("stage lines: %w", err)
	}
	taken, err = pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, fmt.Errorf("stage lines: %w", err)
	}
	return taken, nil
}

// LineWithID is the number of the line that has an id, 0 where none has.
func LineWithID(ctx context.Context, db DBTX, batch task.ID, id, kind string) (number int32, err error) {
	err = db.QueryRow(ctx, `
SELECT coalesce(min(number), 0)
FROM onefold.batch_lines
WHERE batch_id = $1 AND line_id = $2 AND kind = $3`, batch, id, kind).Scan(&number)
	if err != nil {
		return 0, fmt.Errorf("look for a line by its id: %w", err)
	}
	return number, nil
}

// BacklogOf counts the handed over lines of a batch whose task waits to be
// claimed, up to limit.
func BacklogOf(ctx context.Context, tx DBTX, b *Batch, limit int) (n int, err error) {
	err = tx.QueryRow(ctx, `
SELECT count(*)
FROM (
    SELECT
    FROM onefold.batch_lines AS l
    WHERE l.batch_id = $1 AND l.state = 'open' AND l.number <= $2
        AND (SELECT t.state FROM onefold.tasks AS t WHERE t.id = l.task_id) = 'pending'
    LIMIT $3
) AS few`, b.ID, b.Released, limit).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the backlog of batch %s: %w", b.ID, err)
	}
	return n, nil
}

// NextLines reads the next lines of a batch that are to be handed over: open
// ones, and in a later run those that failed or expired in an earlier one. Their
// bodies together have about size bytes at most; one always fits.
func NextLines(ctx context.Context, tx DBTX, b *Batch, limit, size int) ([]Line, error) {
	rows, err := tx.Query(ctx, `
SELECT n.number, n.line_id, n.kind, n.task_id, n.state, n.run, n.folded, coalesce(n.finished, 0), d.body
FROM (
    SELECT l.*,
           row_number() OVER (ORDER BY l.number) AS place,
           sum((SELECT octet_length(d.body) FROM onefold.batch_bodies AS d WHERE d.batch_id = l.batch_id AND d.number = l.number))
               OVER (ORDER BY l.number) AS sofar
    FROM (
        SELECT *
        FROM onefold.batch_lines
        WHERE batch_id = $1 AND number > $2 AND (state = 'open' OR state IN ('failed', 'expired') AND run < $3)
        ORDER BY number
        LIMIT $4
    ) AS l
) AS n
LEFT JOIN onefold.batch_bodies AS d ON d.batch_id = n.batch_id AND d.number = n.number
WHERE n.place = 1 OR coalesce(n.sofar, 0) <= $5
ORDER BY n.number`, b.ID, b.Released, b.Run, limit, size)
	if err != nil {
		return nil, fmt.Errorf("read the next lines: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Line, err error) {
		err = row.Scan(&l.Number, &l.LineID, &l.Kind, &l.TaskID, &l.State, &l.Run, &l.Folded, &l.Finished, &l.Body)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the next lines: %w", err)
	}
	return out, nil
}

// UpdateLines writes lines of a locked batch as they are to stand.
func UpdateLines(ctx context.Context, tx DBTX, batch task.ID, lines []Line) error {
	b := &pgx.Batch{}
	for _, l := range lines {
		var finished *int32
		if l.State != "open" {
			finished = &l.Finished
		}
		b.Queue(`
UPDATE onefold.batch_lines
SET state = $3,
    task_id = $4,
    run = $5,
    folded = $6,
    finished = $7,
    error_code = $8,
    error_message = $9,
    error_field = $10
WHERE batch_id = $1 AND number = $2`, batch, l.Number, l.State, l.TaskID, l.Run, l.Folded, finished, null(l.Code), null(l.Message), null(l.Field))
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return fmt.Errorf("write lines: %w", err)
	}
	return nil
}

// DeleteBodies removes the texts of lines that need them no more.
func DeleteBodies(ctx context.Context, tx DBTX, batch task.ID, numbers []int32) error {
	if _, err := tx.Exec(ctx, `DELETE FROM onefold.batch_bodies WHERE batch_id = $1 AND number = ANY ($2)`, batch, numbers); err != nil {
		return fmt.Errorf("delete bodies: %w", err)
	}
	return nil
}

// CollectLines notes which handed over lines of a locked batch have settled, in
// the order their tasks did, up to limit. A task that is gone (purged) counts as
// failed. It returns how many there were.
func CollectLines(ctx context.Context, tx DBTX, b *Batch, limit int) (n int, err error) {
	tag, err := tx.Exec(ctx, `
UPDATE onefold.batch_lines AS l
SET state = s.state,
    finished = $4 + s.place,
    input_tokens = s.input_tokens,
    cached_tokens = s.cached_tokens,
    output_tokens = s.output_tokens,
    reasoning_tokens = s.reasoning_tokens,
    cost = s.cost,
    billed = s.billed
FROM (
    SELECT o.number,
           coalesce(t.state, 'failed') AS state,
           t.input_tokens, t.cached_tokens, t.output_tokens, t.reasoning_tokens, t.cost, t.billed,
           row_number() OVER (ORDER BY t.finished_at NULLS FIRST, o.number) AS place
    FROM (
        SELECT l.number, l.task_id, l.folded
        FROM onefold.batch_lines AS l
        WHERE l.batch_id = $1 AND l.state = 'open' AND l.number <= $2
    ) AS o
    LEFT JOIN LATERAL (
        SELECT t.id, t.state, t.finished_at,
               CASE WHEN NOT o.folded THEN t.input_tokens END AS input_tokens,
               CASE WHEN NOT o.folded THEN t.cached_tokens END AS cached_tokens,
               CASE WHEN NOT o.folded THEN t.output_tokens END AS output_tokens,
               CASE WHEN NOT o.folded THEN t.reasoning_tokens END AS reasoning_tokens,
               CASE WHEN NOT o.folded THEN t.cost END AS cost,
               CASE WHEN NOT o.folded THEN t.billed END AS billed
        FROM onefold.tasks AS t
        WHERE t.id = o.task_id
        OFFSET 0
    ) AS t ON true
    WHERE t.id IS NULL OR t.state IN ('succeeded', 'failed', 'unknown', 'cancelled')
    ORDER BY place
    LIMIT $3
) AS s
WHERE l.batch_id = $1 AND l.number = s.number`, b.ID, b.Released, limit, b.Finished)
	if err != nil {
		return 0, fmt.Errorf("collect settled lines: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// CloseLines settles open lines of a locked batch that have not been handed
// over, up to limit, as expired or cancelled. It returns how many there were.
func CloseLines(ctx context.Context, tx DBTX, b *Batch, state string, limit int) (n int, err error) {
	tag, err := tx.Exec(ctx, `
UPDATE onefold.batch_lines AS l
SET state = $3,
    finished = $4 + s.place
FROM (
    SELECT l.number, row_number() OVER (ORDER BY l.number) AS place
    FROM onefold.batch_lines AS l
    WHERE l.batch_id = $1 AND l.state = 'open' AND l.number > $2
    ORDER BY l.number
    LIMIT $5
) AS s
WHERE l.batch_id = $1 AND l.number = s.number`, b.ID, b.Released, state, b.Finished, limit)
	if err != nil {
		return 0, fmt.Errorf("close lines: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// UncancelledTasks are tasks that a batch made, which have not settled and of
// which nobody has asked yet that they end.
func UncancelledTasks(ctx context.Context, db DBTX, batch task.ID, limit int) ([]task.ID, error) {
	return queryIDs(ctx, db, "read open tasks of a batch", `
SELECT t.id
FROM onefold.batch_lines AS l
JOIN onefold.tasks AS t ON t.id = l.task_id
WHERE l.batch_id = $1 AND l.state = 'open' AND NOT l.folded AND t.state IN ('pending', 'running') AND NOT t.cancel_requested
ORDER BY l.number
LIMIT $2`, batch, limit)
}

// DetachLines settles open lines that only met a task of someone else's: the
// batch waits for it no more, and the task goes its way.
func DetachLines(ctx context.Context, tx DBTX, b *Batch, state string, limit int) (n int, err error) {
	tag, err := tx.Exec(ctx, `
UPDATE onefold.batch_lines AS l
SET state = $3,
    finished = $4 + s.place
FROM (
    SELECT l.number, row_number() OVER (ORDER BY l.number) AS place
    FROM onefold.batch_lines AS l
    WHERE l.batch_id = $1 AND l.state = 'open' AND l.number <= $2 AND l.folded
    ORDER BY l.number
    LIMIT $5
) AS s
WHERE l.batch_id = $1 AND l.number = s.number`, b.ID, b.Released, state, b.Finished, limit)
	if err != nil {
		return 0, fmt.Errorf("detach lines: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// HasLines says whether a batch has a line in one of the states.
func HasLines(ctx context.Context, db DBTX, id task.ID, states ...string) (has bool, err error) {
	err = db.QueryRow(ctx, `
SELECT EXISTS (SELECT FROM onefold.batch_lines WHERE batch_id = $1 AND state = ANY ($2))`, id, states).Scan(&has)
	if err != nil {
		return false, fmt.Errorf("look for lines: %w", err)
	}
	return has, nil
}

// HasOpenLines says whether a batch has a line that has not settled.
func HasOpenLines(ctx context.Context, db DBTX, id task.ID) (has bool, err error) {
	err = db.QueryRow(ctx, `
SELECT EXISTS (SELECT FROM onefold.batch_lines WHERE batch_id = $1 AND state = 'open')`, id).Scan(&has)
	if err != nil {
		return false, fmt.Errorf("look for open lines: %w", err)
	}
	return has, nil
}

// SetDeadlines gives tasks a deadline, kept for later runs of theirs as well.
func SetDeadlines(ctx context.Context, tx DBTX, ids []task.ID, deadline time.Time) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.tasks
SET deadline = $2,
    deadline_after = greatest($2 - now(), interval '1 s')
WHERE id = ANY ($1) AND state = 'pending'`, ids, deadline)
	if err != nil {
		return fmt.Errorf("set deadlines: %w", err)
	}
	return nil
}
