package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// BadLines reads the first lines of a batch that are no valid request.
func BadLines(ctx context.Context, db DBTX, id task.ID, limit int) ([]Line, error) {
	rows, err := db.Query(ctx, `
SELECT l.number, l.error_code, l.error_message, coalesce(l.error_field, '')
FROM onefold.batch_lines AS l
WHERE l.batch_id = $1 AND l.state = 'invalid'
ORDER BY l.number
LIMIT $2`, id, limit)
	if err != nil {
		return nil, fmt.Errorf("read invalid lines: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Line, err error) {
		err = row.Scan(&l.Number, &l.Code, &l.Message, &l.Field)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read invalid lines: %w", err)
	}
	return out, nil
}

// ResultLine is a line with what its result is made of, the result's bytes apart.
type ResultLine struct {
	Line
	Waiting    bool // it is to be handed over, for the first time or again
	There      bool // its task is there
	Task       task.Row
	ResultSize int
}

// ResultLines reads a page of a batch's lines: in input order those after a
// number, in order of finishing those after a place.
func ResultLines(ctx context.Context, db DBTX, b *Batch, finished bool, after int32, limit int) ([]ResultLine, error) {
	where, order := "l.number > $2", "l.number"
	if finished {
		where, order = "l.finished > $2", "l.finished"
	}
	rows, err := db.Query(ctx, `
SELECT l.number, l.line_id, l.kind, l.task_id, l.state, l.run, l.folded, coalesce(l.finished, 0), coalesce(l.error_code, ''),
       coalesce(l.error_message, ''), coalesce(l.error_field, ''),
       l.number > $4 AND (l.state = 'open' OR l.run < $5 AND l.state IN ('failed', 'expired')),
       t.id IS NOT NULL, coalesce(t.state, ''), coalesce(t.key, ''), t.total_attempts, t.input_tokens, t.cached_tokens, t.output_tokens,
       t.reasoning_tokens, coalesce(t.cost::text, ''), coalesce(t.billed, 'no'), coalesce(t.error_code, ''), coalesce(t.error_message, ''),
       t.error_permanent, coalesce(octet_length(t.result), 0)
FROM onefold.batch_lines AS l
LEFT JOIN onefold.tasks AS t ON t.id = l.task_id
WHERE l.batch_id = $1 AND `+where+`
ORDER BY `+order+`
LIMIT $3`, b.ID, after, limit, b.Released, b.Run)
	if err != nil {
		return nil, fmt.Errorf("read result lines: %w", err)
	}
	out, err := pgx.CollectRows(rows, scanResultLine)
	if err != nil {
		return nil, fmt.Errorf("read result lines: %w", err)
	}
	return out, nil
}

func scanResultLine(row pgx.CollectableRow) (l ResultLine, err error) {
	var attempts *int32
	var in, cached, out, reasoning *int64
	t := &l.Task
	err = row.Scan(&l.Number, &l.LineID, &l.Kind, &l.TaskID, &l.State, &l.Run, &l.Folded, &l.Finished, &l.Code,
		&l.Message, &l.Field, &l.Waiting, &l.There, &t.State, &t.Key, &attempts, &in, &cached, &out, &reasoning,
		&t.Usage.Cost, &t.Usage.Billed, &t.ErrorCode, &t.ErrorMessage, &t.ErrorPermanent, &l.ResultSize)
	if err != nil || !l.There {
		return l, err
	}
	t.ID, t.TotalAttempts = l.TaskID, *attempts
	t.Usage.InputTokens, t.Usage.CachedTokens, t.Usage.OutputTokens, t.Usage.ReasoningTokens = *in, *cached, *out, *reasoning
	return l, nil
}

// Results reads the results of tasks, by id.
func Results(ctx context.Context, db DBTX, ids []task.ID) (map[task.ID][]byte, error) {
	rows, err := db.Query(ctx, `SELECT id, result FROM onefold.tasks WHERE id = ANY ($1) AND result IS NOT NULL`, ids)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	defer rows.Close()
	out := make(map[task.ID][]byte, len(ids))
	for rows.Next() {
		var id task.ID
		var result []byte
		if err := rows.Scan(&id, &result); err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		out[id] = result
	}
	return out, rows.Err()
}
