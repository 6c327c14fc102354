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

// taskColumns are the columns of a task.Row, input and effects apart, in the
// order scanTask reads them. $now is the database's time.
const taskColumns = `
t.id, t.tenant, t.kind, t.key, t.slot, t.dedupe, t.provider, t.priority, t.fingerprint, t.input_hash, t.config_hash,
coalesce(t.trace_id, ''), coalesce(t.traceparent, ''), t.parent_id, t.batch_id, coalesce(t.budget_id, ''), coalesce(t.budget_sends, 0), t.metadata,
t.state, t.run, t.epoch, t.owner, t.token, t.job_id, t.attempts, t.total_attempts, t.not_sent, t.released, t.lost,
t.unclear, t.cancel_requested, t.run_at, t.deadline, t.created_at, t.virtual_at, t.started_at, t.finished_at,
t.expires_at, t.payload_purged_at, t.input_tokens, t.cached_tokens, t.output_tokens, t.reasoning_tokens,
coalesce(t.cost::text, ''), t.billed, coalesce(t.finish_reason, ''), t.truncated, coalesce(t.error_code, ''),
coalesce(t.error_message, ''), t.error_permanent, t.result_hash, coalesce(t.last_error, ''), t.same, t.reported, t.duplicate_of, clock_timestamp()`

func taskTargets(r *task.Row) []any {
	return []any{
		&r.ID, &r.Tenant, &r.Kind, &r.Key, &r.Slot, &r.Dedupe, &r.Provider, &r.Priority, &r.Fingerprint, &r.InputHash, &r.ConfigHash,
		&r.TraceID, &r.Traceparent, &r.ParentID, &r.BatchID, &r.BudgetID, &r.BudgetSends, &r.Metadata,
		&r.State, &r.Run, &r.Epoch, &r.Owner, &r.Token, &r.JobID, &r.Attempts, &r.TotalAttempts, &r.NotSent, &r.Released, &r.Lost,
		&r.Unclear, &r.CancelRequested, &r.RunAt, &r.Deadline, &r.CreatedAt, &r.VirtualAt, &r.StartedAt, &r.FinishedAt,
		&r.ExpiresAt, &r.PayloadPurgedAt, &r.Usage.InputTokens, &r.Usage.CachedTokens, &r.Usage.OutputTokens, &r.Usage.ReasoningTokens,
		&r.Usage.Cost, &r.Usage.Billed, &r.FinishReason, &r.Truncated, &r.ErrorCode,
		&r.ErrorMessage, &r.ErrorPermanent, &r.ResultHash, &r.LastError, &r.Same, &r.Reported, &r.DuplicateOf, &r.Now,
	}
}

// collectTasks reads rows of taskColumns followed by what extra points at.
func collectTasks(rows pgx.Rows, extra func(*task.Row) []any) ([]*task.Row, error) {
	defer rows.Close()
	var out []*task.Row
	for rows.Next() {
		r := new(task.Row)
		if err := rows.Scan(append(taskTargets(r), extra(r)...)...); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func withResult(r *task.Row) []any { return []any{&r.Result, &r.Duplicates} }

const resultColumns = `, t.result, coalesce((SELECT d.count FROM onefold.task_duplicates AS d WHERE d.task_id = t.id), 0)`

// TasksByID reads tasks of any tenant with their results; missing ids are left
// out. It serves the waiters, one query for all of them.
func TasksByID(ctx context.Context, db DBTX, ids []task.ID) ([]*task.Row, error) {
	rows, err := db.Query(ctx, `
SELECT `+taskColumns+resultColumns+`
FROM onefold.tasks AS t
WHERE t.id = ANY ($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	out, err := collectTasks(rows, withResult)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	return out, nil
}

// Task reads one task of a tenant with its result, or nil. An empty tenant is
// an instance key's: it sees every tenant.
func Task(ctx context.Context, db DBTX, tenant string, id task.ID) (*task.Row, error) {
	rows, err := db.Query(ctx, `
SELECT `+taskColumns+resultColumns+`
FROM onefold.tasks AS t
WHERE t.id = $1 AND ($2 = '' OR t.tenant = $2)`, id, tenant)
	if err != nil {
		return nil, fmt.Errorf("read task: %w", err)
	}
	out, err := collectTasks(rows, withResult)
	if err != nil {
		return nil, fmt.Errorf("read task: %w", err)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out[0], nil
}

// NewestByKey is the newest task of a tenant under a key, or nil; one past its
// retention does not count. An empty tenant is an instance key's.
func NewestByKey(ctx context.Context, db DBTX, tenant, kind, key string) (*task.ID, error) {
	var id task.ID
	err := db.QueryRow(ctx, `
SELECT id
FROM onefold.tasks
WHERE ($1 = '' OR tenant = $1) AND kind = $2 AND key = $3 AND (expires_at IS NULL OR expires_at > now())
ORDER BY id DESC
LIMIT 1`, tenant, kind, key).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a task by key: %w", err)
	}
	return &id, nil
}

// TaskInput reads the verbatim input of a tenant's task. found is false when
// there is no such task; input is nil when the payload was purged.
func TaskInput(ctx context.Context, db DBTX, tenant string, id task.ID) (input []byte, found bool, err error) {
	err = db.QueryRow(ctx, `
SELECT input
FROM onefold.tasks
WHERE id = $1 AND ($2 = '' OR tenant = $2)`, id, tenant).Scan(&input)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read input: %w", err)
	}
	return input, true, nil
}

// Payloads reads input and effects of tasks, by id.
func Payloads(ctx context.Context, db DBTX, ids []task.ID) (map[task.ID][2][]byte, error) {
	rows, err := db.Query(ctx, `SELECT id, input, effects FROM onefold.tasks WHERE id = ANY ($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read payloads: %w", err)
	}
	defer rows.Close()
	out := map[task.ID][2][]byte{}
	for rows.Next() {
		var id task.ID
		var p [2][]byte
		if err := rows.Scan(&id, &p[0], &p[1]); err != nil {
			return nil, fmt.Errorf("read payloads: %w", err)
		}
		out[id] = p
	}
	return out, rows.Err()
}

// Slot is one place a key can take: the unique constraint tasks_key.
type Slot struct{ Tenant, Kind, Key, Slot string }

// TasksBySlot reads the tasks that hold slots, with their results. It is the
// fast path of submit and the read of its losers. It is planned anew each time:
// a plan that was made while the table was small, and is kept by the connection
// until somebody analyses the table, goes by the tenant alone, and reads all its
// tasks for each slot.
func TasksBySlot(ctx context.Context, db DBTX, slots []Slot) (map[Slot]*task.Row, error) {
	n := len(slots)
	tenants, kinds, keys, names := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, s := range slots {
		tenants[i], kinds[i], keys[i], names[i] = s.Tenant, s.Kind, s.Key, s.Slot
	}
	rows, err := db.Query(ctx, `
SELECT `+taskColumns+resultColumns+`
FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS u (tenant, kind, key, slot)) AS q
JOIN onefold.tasks AS t USING (tenant, kind, key, slot)`, pgx.QueryExecModeExec, tenants, kinds, keys, names)
	if err != nil {
		return nil, fmt.Errorf("read tasks by key: %w", err)
	}
	list, err := collectTasks(rows, withResult)
	if err != nil {
		return nil, fmt.Errorf("read tasks by key: %w", err)
	}
	out := make(map[Slot]*task.Row, len(list))
	for _, r := range list {
		out[Slot{r.Tenant, r.Kind, r.Key, r.Slot}] = r
	}
	return out, nil
}

// New is a task to be inserted. Its id was made before the first try.
type New struct {
	ID            task.ID
	Slot          Slot
	Dedupe        api.Dedupe
	Provider      string
	Queue         string
	Priority      int16
	Fingerprint   [32]byte
	FingerprintV  int16
	InputHash     [32]byte
	ConfigHash    string
	TraceID       string
	Traceparent   string // where in that trace; see package tracing
	ParentID      *task.ID
	Batch         *task.ID
	Background    bool      // it follows on a batch, and has no more weight than that
	Virtual       time.Time // its place in virtual time; zero: the first one
	BudgetID      string
	BudgetSends   int32
	OccurredAt    *time.Time
	RunAt         *time.Time
	Deadline      *time.Time
	DeadlineAfter time.Duration // the kind's, where Deadline is nil
	Metadata      []byte
	Effects       []byte
	Input         []byte
	Origin        func() string // JSON: who made it; asked only where the task is inserted. Nil: nobody knows
}

// insertTasks takes the rows in key order: two groups that hold the same keys
// in another order would deadlock otherwise. There is no conflict target, so
// that an insert repeated after an unclear commit, which conflicts on the id,
// waits for the first one and then does nothing, too.
const insertTasks = `
WITH new AS (
    INSERT INTO onefold.tasks (id, tenant, kind, key, slot, dedupe, provider, priority, fingerprint,
        fingerprint_version, input_hash, config_hash, trace_id, parent_id, budget_id, budget_sends, occurred_at,
        run_at, deadline, deadline_after, metadata, effects, input, batch_id, virtual_at, origin, traceparent, job_id)
    SELECT r.id, r.tenant, r.kind, r.key, r.slot, r.dedupe, r.provider, r.priority, r.fingerprint,
        r.fingerprint_version, r.input_hash, r.config_hash, r.trace_id, r.parent_id, r.budget_id, r.budget_sends,
        r.occurred_at, greatest(r.run_at, now()), coalesce(r.deadline, greatest(r.run_at, now()) + r.deadline_after),
        coalesce(r.deadline - now(), r.deadline_after), r.metadata, r.effects, r.input,
        r.batch_id, r.virtual_at, nullif(r.origin, ''), r.traceparent, nextval('onefold.river_job_id_seq')
    FROM (
        SELECT *
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::smallint[], $9::bytea[], $10::smallint[], $11::bytea[], $12::text[], $13::text[], $14::uuid[],
            $15::text[], $16::integer[], $17::timestamptz[], $18::timestamptz[], $19::timestamptz[],
            $20::interval[], $21::bytea[], $22::bytea[], $23::bytea[], $25::uuid[], $26::timestamptz[], $27::text[],
            $28::text[])
            AS u (id, tenant, kind, key, slot, dedupe, provider, priority, fingerprint, fingerprint_version,
                input_hash, config_hash, trace_id, parent_id, budget_id, budget_sends, occurred_at, run_at, deadline,
                deadline_after, metadata, effects, input, batch_id, virtual_at, origin, traceparent)
        ORDER BY u.tenant, u.kind, u.key, u.slot, u.id
    ) AS r
    ON CONFLICT DO NOTHING
    RETURNING id, job_id, run_at, virtual_at, created_at, deadline
), wakes AS (
    INSERT INTO onefold.river_job (id, state, max_attempts, scheduled_at, args, kind, queue)
    SELECT new.job_id,
           CASE WHEN new.run_at > now() THEN 'scheduled' ELSE 'available' END::onefold.river_job_state,
           1000,
           CASE WHEN new.run_at > now() THEN new.run_at ELSE new.virtual_at END,
           jsonb_build_object('id', new.id),
           'task',
           q.queue
    FROM new
    JOIN unnest($1::uuid[], $24::text[]) AS q (id, queue) USING (id)
)
SELECT id, created_at, run_at, deadline FROM new`

// Inserted is what the database decided about a new task.
type Inserted struct{ CreatedAt, RunAt, Deadline time.Time }

// InsertTasks inserts the tasks whose slots are free, each with its wake-up,
// and returns those inserted by id. A slot that is taken is skipped; it
// may have been taken by a transaction that committed after this statement
// began, so read the loser's row in a statement of its own.
func InsertTasks(ctx context.Context, db DBTX, news []*New) (map[task.ID]Inserted, error) {
	n := len(news)
	var (
		ids                                                     = make([]task.ID, n)
		tenants, kinds, keys, slots, dedupes, providers, hashes = make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		priorities, versions                                    = make([]int16, n), make([]int16, n)
		prints, inputHashes, metas, effects, inputs             = make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
		traces, traceparents, budgets                           = make([]*string, n), make([]*string, n), make([]*string, n)
		parents, batches                                        = make([]*task.ID, n), make([]*task.ID, n)
		sends                                                   = make([]*int32, n)
		occurred, runs, deadlines                               = make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
		afters                                                  = make([]time.Duration, n)
		virtuals                                                = make([]time.Time, n)
		queues, origins                                         = make([]string, n), make([]string, n)
	)
	for i, t := range news {
		ids[i], tenants[i], kinds[i], keys[i], slots[i] = t.ID, t.Slot.Tenant, t.Slot.Kind, t.Slot.Key, t.Slot.Slot
		dedupes[i], providers[i], queues[i], priorities[i] = string(t.Dedupe), t.Provider, t.Queue, t.Priority
		prints[i], versions[i], inputHashes[i], hashes[i] = t.Fingerprint[:], t.FingerprintV, t.InputHash[:], t.ConfigHash
		traces[i], traceparents[i], parents[i], budgets[i] = null(t.TraceID), null(t.Traceparent), t.ParentID, null(t.BudgetID)
		if t.BudgetID != "" {
			sends[i] = &t.BudgetSends
		}
		occurred[i], runs[i], deadlines[i], afters[i] = t.OccurredAt, t.RunAt, t.Deadline, t.DeadlineAfter
		metas[i], effects[i], inputs[i], batches[i] = t.Metadata, t.Effects, t.Input, t.Batch
		if t.Origin != nil {
			origins[i] = t.Origin()
		}
		if virtuals[i] = t.Virtual; t.Virtual.IsZero() {
			virtuals[i] = VirtualOrigin
		}
	}
	rows, err := db.Query(ctx, insertTasks, ids, tenants, kinds, keys, slots, dedupes, providers, priorities, prints, versions,
		inputHashes, hashes, traces, parents, budgets, sends, occurred, runs, deadlines, afters, metas, effects, inputs, queues, batches, virtuals, origins, traceparents)
	if err != nil {
		return nil, fmt.Errorf("insert tasks: %w", err)
	}
	defer rows.Close()
	won := make(map[task.ID]Inserted, n)
	for rows.Next() {
		var id task.ID
		var in Inserted
		if err := rows.Scan(&id, &in.CreatedAt, &in.RunAt, &in.Deadline); err != nil {
			return nil, fmt.Errorf("insert tasks: %w", err)
		}
		won[id] = in
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("insert tasks: %w", err)
	}
	return won, nil
}

func collectIDs(rows pgx.Rows) (map[task.ID]bool, error) {
	defer rows.Close()
	out := map[task.ID]bool{}
	for rows.Next() {
		var id task.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out[id] = true
	}
	return out, rows.Err()
}
