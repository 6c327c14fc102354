package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// NewEffect is an effect to be inserted with its outcome.
type NewEffect struct {
	ID          task.ID
	TaskID      task.ID
	Tenant      string
	Run         int32
	Name        string
	Outcome     api.State
	Type        string
	Destination string
	Method      string
	Path        string
	Headers     []byte // a JSON object
	Body        []byte
	Reference   string // what an outside API knows it by, or the follow-up task's id
	Order       string // "" = none
	OrderSeq    int64
	Behind      bool   // an earlier effect of its order is open
	Traceparent string // what its deliveries continue from
	// State is waiting; delivered where it was done in this transaction; dead
	// where it could not be made, for the reason in Code and Message.
	State         api.EffectState
	Code, Message string
}

// insertEffects gives a waiting effect a wake-up only while fewer than $15 due
// or delivering effects of its destination have one, so that the effects of a
// dead destination never fill the queue. What goes without is woken by the
// outcome of another delivery there (WakeNextEffects), or by the sweep.
const insertEffects = `
WITH r AS (
    SELECT u.*,
           row_number() OVER (PARTITION BY u.destination, u.state, u.behind ORDER BY u.id) AS place
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::text[], $14::text[], $17::text[],
        $18::text[], $19::text[], $20::bigint[], $21::boolean[], $22::text[])
        AS u (id, task_id, tenant, run, name, outcome, type, destination, method, path, headers, body, state,
            error_code, error_message, reference, order_key, order_seq, behind, traceparent)
), busy AS (
    SELECT d.destination,
           (SELECT count(*)
            FROM (
                SELECT
                FROM onefold.effects AS e
                WHERE e.destination = d.destination AND e.finished_at IS NULL AND e.job_id IS NOT NULL
                    AND e.next_at <= now()
                LIMIT $15
            ) AS few) AS n
    FROM (SELECT DISTINCT r.destination FROM r WHERE r.state = 'waiting') AS d
), new AS (
    INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, method, path, headers, body,
        state, error_code, error_message, reference, order_key, order_seq, traceparent, next_at, finished_at, job_id)
    SELECT r.id, r.task_id, r.tenant, r.run, r.name, r.outcome, r.type, r.destination, r.method, r.path, r.headers, r.body,
           r.state, r.error_code, r.error_message, r.reference, r.order_key, r.order_seq, r.traceparent,
           CASE WHEN r.behind THEN 'infinity' ELSE now() END,
           CASE WHEN r.state <> 'waiting' THEN now() END,
           CASE WHEN r.state = 'waiting' AND NOT r.behind AND r.place + b.n <= $15 THEN nextval('onefold.river_job_id_seq') END
    FROM r
    LEFT JOIN busy AS b USING (destination)
    ORDER BY r.id
    RETURNING id, job_id, next_at
)
INSERT INTO onefold.river_job (id, state, max_attempts, scheduled_at, args, kind, queue)
SELECT new.job_id, 'available', 1000, new.next_at, jsonb_build_object('id', new.id), 'effect', $16
FROM new
WHERE new.job_id IS NOT NULL`

// InsertEffects inserts effects and the wake-ups of those that wait, at most
// window of one destination, and returns how many were woken. There is no
// conflict clause: an effect that is there already (effects_once) is a broken
// promise and fails the transaction.
func InsertEffects(ctx context.Context, db DBTX, news []NewEffect, queue string, window int) (woken int, err error) {
	if len(news) == 0 {
		return 0, nil
	}
	n := len(news)
	ids, tasks, runs := make([]task.ID, n), make([]task.ID, n), make([]int32, n)
	tenants, names, outcomes, types, states := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	dests, methods, paths, codes, messages := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	headers, bodies := make([][]byte, n), make([][]byte, n)
	references, orders, seqs, behind := make([]*string, n), make([]*string, n), make([]*int64, n), make([]bool, n)
	traceparents := make([]*string, n)
	for i, e := range news {
		ids[i], tasks[i], runs[i], tenants[i], names[i] = e.ID, e.TaskID, e.Run, e.Tenant, e.Name
		outcomes[i], types[i], states[i] = string(e.Outcome), e.Type, string(e.State)
		dests[i], methods[i], paths[i] = null(e.Destination), null(e.Method), null(e.Path)
		codes[i], messages[i], headers[i], bodies[i] = null(e.Code), null(e.Message), e.Headers, e.Body
		references[i], orders[i], behind[i], traceparents[i] = null(e.Reference), null(e.Order), e.Behind, null(e.Traceparent)
		if e.Order != "" {
			seqs[i] = &e.OrderSeq
		}
	}
	tag, err := db.Exec(ctx, insertEffects, ids, tasks, tenants, runs, names, outcomes, types, dests, methods, paths,
		headers, bodies, states, codes, window, queue, messages, references, orders, seqs, behind, traceparents)
	if err != nil {
		return 0, fmt.Errorf("insert effects: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// Effect is one row of onefold.effects, what it sends apart.
type Effect struct {
	ID           task.ID
	TaskID       task.ID
	Tenant       string
	Run          int32
	Name         string
	Outcome      api.State
	Type         string
	Destination  string
	CreatedAt    time.Time
	State        api.EffectState
	Epoch        int64
	NextAt       *time.Time // nil while it is behind another of its order
	Reference    string
	Attempts     int32
	Unclear      bool
	FinishedAt   *time.Time
	ErrorCode    string
	ErrorMessage string
}

const selectEffects = `
SELECT id, task_id, tenant, run, name, outcome, type, coalesce(destination, ''), created_at, state, epoch, nullif(next_at, 'infinity'),
       coalesce(reference, ''), attempts, unclear, finished_at, coalesce(error_code, ''), coalesce(error_message, '')
FROM onefold.effects`

// EffectsOfTask reads the effects of a tenant's task, oldest first. An empty
// tenant is an instance key's: it sees every tenant.
func EffectsOfTask(ctx context.Context, db DBTX, tenant string, id task.ID) ([]Effect, error) {
	rows, err := db.Query(ctx, selectEffects+`
WHERE task_id = $1 AND ($2 = '' OR tenant = $2)
ORDER BY id`, id, tenant)
	return collectEffects(rows, err)
}

func collectEffects(rows pgx.Rows, err error) ([]Effect, error) {
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Effect, error) {
		var e Effect
		err := row.Scan(&e.ID, &e.TaskID, &e.Tenant, &e.Run, &e.Name, &e.Outcome, &e.Type, &e.Destination, &e.CreatedAt, &e.State,
			&e.Epoch, &e.NextAt, &e.Reference, &e.Attempts, &e.Unclear, &e.FinishedAt, &e.ErrorCode, &e.ErrorMessage)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	return out, nil
}

func countDestinations(rows pgx.Rows) (map[string]int, error) {
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var d string
		if err := rows.Scan(&d); err != nil {
			return nil, fmt.Errorf("count effects by destination: %w", err)
		}
		out[d]++
	}
	return out, rows.Err()
}
