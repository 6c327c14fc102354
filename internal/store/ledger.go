package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// Attempt is one row of the ledger as it is shown.
type Attempt struct {
	Epoch        int64
	Run          int32
	Number       int32
	Outcome      string
	Counted      bool
	Provider     string
	Model        string
	Code         string
	Message      string
	Status       int32
	Phase        string
	RequestID    string
	ProviderJob  string
	ClaimedAt    time.Time
	DispatchedAt *time.Time
	ClosedAt     *time.Time
	ConnectMS    int64
	FirstByteMS  int64
	TotalMS      int64
	Bytes        int64
	Usage        *api.Usage // nil where nothing is known
	Billed       api.Billed
	Sends        int32
	Regeneration bool
	Orphaned     bool
	FinishReason string
	Truncated    bool
	Partial      []byte // the beginning of it
	PartialBytes int64
	LateAt       *time.Time
	Parts        []string
}

// mostAttempts bounds what is read for one task: the newest ones.
const mostAttempts = 1000

// attemptColumns are those of scanAttempt; $3 is how much is read of a cut reply.
const attemptColumns = `
a.epoch, a.run, a.number, coalesce(a.outcome, ''), a.counted, a.provider, coalesce(a.model, ''), coalesce(a.code, ''),
       coalesce(a.message, ''), coalesce(a.status, 0), coalesce(a.phase, ''), coalesce(a.request_id, ''),
       coalesce(a.provider_job, ''), a.claimed_at, a.dispatched_at, a.closed_at, coalesce(a.connect_ms, 0)::bigint,
       coalesce(a.first_byte_ms, 0)::bigint, coalesce(a.total_ms, 0)::bigint, coalesce(a.bytes, 0), a.input_tokens,
       coalesce(a.cached_tokens, 0), coalesce(a.output_tokens, 0), coalesce(a.reasoning_tokens, 0), coalesce(a.cost::text, ''),
       a.billed, a.sends, a.regeneration, a.orphaned, coalesce(a.finish_reason, ''), a.truncated,
       substring(a.partial FOR $3), coalesce(octet_length(a.partial), 0)::bigint, a.late_at,
       array_remove(ARRAY[
           CASE WHEN a.partial IS NOT NULL THEN 'partial' END, CASE WHEN a.reply IS NOT NULL THEN 'reply' END,
           CASE WHEN a.late_result IS NOT NULL THEN 'late_result' END,
           CASE WHEN a.kept_result IS NOT NULL THEN 'kept_result' END], NULL)`

// Attempts reads the attempts of a tenant's task, oldest first, with at most
// partial bytes of what had come of a cut reply. An empty tenant is an instance
// key's: it sees every tenant.
func Attempts(ctx context.Context, db DBTX, tenant string, id task.ID, partial int) ([]Attempt, error) {
	rows, err := db.Query(ctx, `
SELECT `+attemptColumns+`
FROM (
    SELECT *
    FROM onefold.attempts
    WHERE task_id = $1
    ORDER BY epoch DESC
    LIMIT $4
) AS a
JOIN onefold.tasks AS t ON t.id = a.task_id
WHERE $2 = '' OR t.tenant = $2
ORDER BY a.epoch`, id, tenant, partial, mostAttempts)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	out, err := pgx.CollectRows(rows, scanAttempt)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	return out, nil
}

// LastAttempts reads the newest attempt of each task, without the text of a cut
// reply.
func LastAttempts(ctx context.Context, db DBTX, ids []task.ID) (map[task.ID]Attempt, error) {
	rows, err := db.Query(ctx, `
SELECT a.task_id,`+attemptColumns+`
FROM unnest($1::uuid[]) AS t (id)
CROSS JOIN LATERAL (
    SELECT *
    FROM onefold.attempts AS a
    WHERE a.task_id = t.id
    ORDER BY a.epoch DESC
    LIMIT $2
) AS a`, ids, 1, 0)
	if err != nil {
		return nil, fmt.Errorf("read last attempts: %w", err)
	}
	defer rows.Close()
	out := map[task.ID]Attempt{}
	for rows.Next() {
		var id task.ID
		a, err := scanAttempt(behind{rows, &id})
		if err != nil {
			return nil, fmt.Errorf("read last attempts: %w", err)
		}
		out[id] = a
	}
	return out, rows.Err()
}

// behind is a row whose first column is an id.
type behind struct {
	pgx.Rows
	id *task.ID
}

// Scan reads the id and the rest.
func (b behind) Scan(to ...any) error { return b.Rows.Scan(append([]any{b.id}, to...)...) }

func scanAttempt(row pgx.CollectableRow) (Attempt, error) {
	var a Attempt
	var input *int64
	var u api.Usage
	err := row.Scan(&a.Epoch, &a.Run, &a.Number, &a.Outcome, &a.Counted, &a.Provider, &a.Model, &a.Code, &a.Message, &a.Status, &a.Phase,
		&a.RequestID, &a.ProviderJob, &a.ClaimedAt, &a.DispatchedAt, &a.ClosedAt, &a.ConnectMS, &a.FirstByteMS, &a.TotalMS, &a.Bytes,
		&input, &u.CachedTokens, &u.OutputTokens, &u.ReasoningTokens, &u.Cost, &a.Billed, &a.Sends, &a.Regeneration, &a.Orphaned,
		&a.FinishReason, &a.Truncated, &a.Partial, &a.PartialBytes, &a.LateAt, &a.Parts)
	if input != nil {
		u.InputTokens, u.Billed = *input, a.Billed
		a.Usage = &u
	}
	return a, err
}

// parts are the columns that AttemptPart may read.
var parts = map[string]string{"partial": "partial", "reply": "reply", "late_result": "late_result", "kept_result": "kept_result"}

// AttemptPart reads what is kept of an attempt of a tenant's task, nil when
// there is nothing.
func AttemptPart(ctx context.Context, db DBTX, tenant string, id task.ID, epoch int64, part string) ([]byte, error) {
	column, ok := parts[part]
	if !ok {
		return nil, fmt.Errorf("read attempt: there is no part %q", part)
	}
	var out []byte
	err := db.QueryRow(ctx, `
SELECT a.`+column+`
FROM onefold.attempts AS a
JOIN onefold.tasks AS t ON t.id = a.task_id
WHERE a.task_id = $1 AND a.epoch = $2 AND ($3 = '' OR t.tenant = $3)`, id, epoch, tenant).Scan(&out)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s of an attempt: %w", part, err)
	}
	return out, nil
}
