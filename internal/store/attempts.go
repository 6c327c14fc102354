package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// Claim is one pending task taken by a worker. The caller has locked the row
// and read it in the same transaction.
type Claim struct {
	Row          *task.Row
	Owner        task.ID
	Token        task.ID
	ProviderHash string // the provider's settings that its times depend on
}

const claimTask = `
UPDATE onefold.tasks
SET state = 'running',
    epoch = epoch + 1,
    owner = $3,
    token = $4,
    attempts = attempts + 1,
    total_attempts = total_attempts + 1,
    started_at = coalesce(started_at, now())
WHERE id = $1 AND state = 'pending' AND epoch = $2`

// ClaimTasks moves pending tasks to running and opens their attempts. Rows in
// claims are brought up to date; those that could not be claimed are left out
// of what is returned.
func ClaimTasks(ctx context.Context, tx DBTX, claims []Claim) ([]Claim, error) {
	b := &pgx.Batch{}
	var got []Claim
	for _, c := range claims {
		b.Queue(claimTask, c.Row.ID, c.Row.Epoch, c.Owner, c.Token).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 1 {
				got = append(got, c)
			}
			return nil
		})
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("claim tasks: %w", err)
	}
	for _, c := range got {
		r := c.Row
		r.State, r.Epoch, r.Owner, r.Token = api.Running, r.Epoch+1, &c.Owner, &c.Token
		r.Attempts, r.TotalAttempts = r.Attempts+1, r.TotalAttempts+1
		if r.StartedAt == nil {
			r.StartedAt = &r.Now
		}
	}
	return got, openAttempts(ctx, tx, got)
}

func openAttempts(ctx context.Context, tx DBTX, claims []Claim) error {
	if len(claims) == 0 {
		return nil
	}
	n := len(claims)
	ids, epochs, runs, numbers := make([]task.ID, n), make([]int64, n), make([]int32, n), make([]int32, n)
	owners, tokens := make([]task.ID, n), make([]task.ID, n)
	providers, hashes, settings, again := make([]string, n), make([]string, n), make([]string, n), make([]bool, n)
	for i, c := range claims {
		ids[i], epochs[i], runs[i], numbers[i] = c.Row.ID, c.Row.Epoch, c.Row.Run, c.Row.TotalAttempts
		owners[i], tokens[i], providers[i], hashes[i] = c.Owner, c.Token, c.Row.Provider, c.Row.ConfigHash
		settings[i], again[i] = c.ProviderHash, c.Row.Unclear
	}
	_, err := tx.Exec(ctx, `
INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, provider_hash, regeneration)
SELECT *
FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::uuid[], $6::uuid[], $7::text[], $8::text[], $9::text[], $10::boolean[])`,
		ids, epochs, runs, numbers, owners, tokens, providers, hashes, settings, again)
	if err != nil {
		return fmt.Errorf("open attempts: %w", err)
	}
	return nil
}

// MarkDispatched notes that sends are about to happen and returns the ids whose
// attempt is still open and owned: only those may be sent.
func MarkDispatched(ctx context.Context, tx DBTX, fences []task.Fence) (map[task.ID]bool, error) {
	b := &pgx.Batch{}
	marked := map[task.ID]bool{}
	for _, f := range fences {
		b.Queue(`
UPDATE onefold.attempts
SET dispatched_at = clock_timestamp()
WHERE task_id = $1 AND epoch = $2 AND token = $3 AND outcome IS NULL`, f.ID, f.Epoch, f.Token).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 1 {
				marked[f.ID] = true
			}
			return nil
		})
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("mark dispatched: %w", err)
	}
	return marked, nil
}

// AttemptEnd is what an attempt came to: the ledger's entry.
type AttemptEnd struct {
	Outcome    string // a word of attempts.outcome
	Counted    bool
	Code       string
	Message    string
	Phase      string
	Status     int
	Model      string
	Asked      string // the model that was asked for
	RequestID  string
	Sent       *time.Time // when the call was dispatched, by the database's clock as the worker reckons it; nil if it was not
	Connect    time.Duration
	FirstByte  time.Duration
	Total      time.Duration
	Bytes      int64
	Usage      api.Usage
	UsageKnown bool
	Billed     api.Billed
	Sends      int   // what the call cost of a budget: 0 where it was not sent or turned away at the gate
	Reported   int32 // those of Sends that a service said it made itself
	Orphaned   bool  // given up while the provider may have been at work
	Partial    []byte
	Reply      []byte
	Late       []byte // a whole reply that came when it was not wanted any more
	// Effects are those that the service asked for with Kept.
	Effects []byte
	// Kept is a result that could not be stored with its effects; resolve with
	// action finish stores it without another call.
	Kept         []byte
	FinishReason string
	Truncated    bool
	JobOver      bool // the background job cannot be polled again
}

func ms(d time.Duration) *int32 {
	if d <= 0 {
		return nil
	}
	v := int32(min(d.Milliseconds(), 1<<31-1))
	return &v
}

func (a AttemptEnd) tokens() [4]*int64 {
	if !a.UsageKnown {
		return [4]*int64{}
	}
	u := a.Usage
	return [4]*int64{&u.InputTokens, &u.CachedTokens, &u.OutputTokens, &u.ReasoningTokens}
}

// closeAttempt asks for outcome IS NULL where closed_at IS NULL is meant, which a
// constraint makes the same: the latter would let the planner take the small
// index of open attempts and walk the dead entries of all that were closed since
// the last vacuum, for every attempt it closes. So do the other statements that
// name an attempt or a delivery by its key.
const closeAttempt = `
UPDATE onefold.attempts
SET closed_at = now(),
    outcome = $4,
    counted = $5,
    code = $6,
    message = $7,
    phase = $8,
    status = $9,
    model = $10,
    request_id = $11,
    dispatched_at = coalesce(dispatched_at, $12),
    connect_ms = $13,
    first_byte_ms = $14,
    total_ms = $15,
    bytes = $16,
    input_tokens = $17,
    cached_tokens = $18,
    output_tokens = $19,
    reasoning_tokens = $20,
    cost = $21::text::numeric,
    billed = $22,
    partial = $23,
    reply = $24,
    kept_result = $25,
    kept_effects = CASE WHEN $25::bytea IS NOT NULL THEN $31::bytea END,
    finish_reason = $26,
    truncated = $27,
    orphaned = $28,
    late_result = $29,
    late_at = CASE WHEN $29::bytea IS NOT NULL THEN now() END,
    sends = $30,
    job_over = $32,
    asked_model = $33
WHERE task_id = $1 AND epoch = $2 AND token = $3 AND outcome IS NULL`

// QueueCloseAttempt adds the closing of one attempt to a batch.
func QueueCloseAttempt(b *pgx.Batch, f task.Fence, a AttemptEnd) {
	t := a.tokens()
	var status *int
	if a.Status != 0 {
		status = &a.Status
	}
	b.Queue(closeAttempt, f.ID, f.Epoch, f.Token, a.Outcome, a.Counted, null(a.Code), null(a.Message), null(a.Phase), status,
		null(a.Model), null(a.RequestID), a.Sent, ms(a.Connect), ms(a.FirstByte), ms(a.Total), a.Bytes,
		t[0], t[1], t[2], t[3], null(a.Usage.Cost), billed(a.Billed), a.Partial, a.Reply, a.Kept, null(a.FinishReason), a.Truncated,
		a.Orphaned, a.Late, a.Sends, a.Effects, a.JobOver, null(a.Asked))
}

// KeepLateResult keeps what came back to a worker that no longer owns its task, on
// the attempt row of its own epoch; nothing else is touched. The row may have
// been lost with the claim (a failover), and is then made anew.
func KeepLateResult(ctx context.Context, db DBTX, r *task.Row, f task.Fence, owner task.ID, a AttemptEnd) error {
	t := a.tokens()
	_, err := db.Exec(ctx, `
INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, closed_at, outcome,
    counted, code, message, model, request_id, billed, late_at, late_result, partial, first_byte_ms, total_ms, bytes,
    input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost, orphaned)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now(), 'lost', false, $9, $10, $11, $12, $13,
    CASE WHEN $14::bytea IS NOT NULL THEN now() END, $14, $15, $16, $17, $18,
    $19, $20, $21, $22, $23::text::numeric, true)
ON CONFLICT (task_id, epoch) DO UPDATE
SET late_at = coalesce(excluded.late_at, attempts.late_at),
    late_result = coalesce(excluded.late_result, attempts.late_result),
    partial = coalesce(attempts.partial, excluded.partial),
    model = coalesce(attempts.model, excluded.model),
    request_id = coalesce(attempts.request_id, excluded.request_id),
    first_byte_ms = coalesce(attempts.first_byte_ms, excluded.first_byte_ms),
    total_ms = coalesce(attempts.total_ms, excluded.total_ms),
    bytes = coalesce(attempts.bytes, excluded.bytes),
    input_tokens = coalesce(attempts.input_tokens, excluded.input_tokens),
    cached_tokens = coalesce(attempts.cached_tokens, excluded.cached_tokens),
    output_tokens = coalesce(attempts.output_tokens, excluded.output_tokens),
    reasoning_tokens = coalesce(attempts.reasoning_tokens, excluded.reasoning_tokens),
    cost = coalesce(attempts.cost, excluded.cost),
    orphaned = true,
    billed = CASE WHEN attempts.billed = 'unknown' THEN excluded.billed ELSE attempts.billed END
WHERE attempts.token = excluded.token`,
		f.ID, f.Epoch, r.Run, r.TotalAttempts, owner, f.Token, r.Provider, r.ConfigHash,
		null(a.Code), null(a.Message), null(a.Model), null(a.RequestID), billed(a.Billed), a.Late, a.Partial,
		ms(a.FirstByte), ms(a.Total), a.Bytes, t[0], t[1], t[2], t[3], null(a.Usage.Cost))
	if err != nil {
		return fmt.Errorf("keep late result: %w", err)
	}
	return nil
}

// ClosedAs says how the attempt of a fence was closed: "" while it is open or
// absent. It is read before a refused finish is called fenced: an earlier try
// of the same finish may have committed.
func ClosedAs(ctx context.Context, db DBTX, f task.Fence) (outcome string, err error) {
	err = db.QueryRow(ctx, `
SELECT coalesce((SELECT outcome FROM onefold.attempts WHERE task_id = $1 AND epoch = $2 AND token = $3), '')`,
		f.ID, f.Epoch, f.Token).Scan(&outcome)
	if err != nil {
		return "", fmt.Errorf("read attempt: %w", err)
	}
	return outcome, nil
}

// Kept is a result that could not be stored with its effects.
type Kept struct {
	Result       []byte
	Effects      []byte // those that the service asked for with it
	FinishReason string
	Truncated    bool
}

// KeptResult reads the result that the newest attempt of a run brought and that
// could not be stored with its effects; Result is nil when there is none.
func KeptResult(ctx context.Context, db DBTX, id task.ID, run int32) (k Kept, err error) {
	rows, err := db.Query(ctx, `
SELECT kept_result, kept_effects, coalesce(finish_reason, ''), truncated
FROM onefold.attempts
WHERE task_id = $1 AND run = $2 AND kept_result IS NOT NULL
ORDER BY epoch DESC
LIMIT 1`, id, run)
	if err != nil {
		return k, fmt.Errorf("read kept result: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&k.Result, &k.Effects, &k.FinishReason, &k.Truncated); err != nil {
			return k, fmt.Errorf("read kept result: %w", err)
		}
	}
	return k, rows.Err()
}
