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

// EffectSeen is an effect as its wake-up finds it, locked.
type EffectSeen struct {
	State       api.EffectState
	Due         bool
	Type        string
	Destination string
	Tenant      string
	Tried       bool // at least once
	JobID       *int64
}

// LockEffects locks effects in id order and says where they stand. What is
// sent is read later, by those that are marked.
func LockEffects(ctx context.Context, tx DBTX, ids []task.ID) (map[task.ID]EffectSeen, error) {
	rows, err := tx.Query(ctx, `
SELECT id, state, next_at <= now(), type, coalesce(destination, ''), tenant, epoch > 0, job_id
FROM onefold.effects
WHERE id = ANY ($1)
ORDER BY id
FOR UPDATE`, ids)
	if err != nil {
		return nil, fmt.Errorf("lock effects: %w", err)
	}
	defer rows.Close()
	out := make(map[task.ID]EffectSeen, len(ids))
	for rows.Next() {
		var id task.ID
		var e EffectSeen
		if err := rows.Scan(&id, &e.State, &e.Due, &e.Type, &e.Destination, &e.Tenant, &e.Tried, &e.JobID); err != nil {
			return nil, fmt.Errorf("lock effects: %w", err)
		}
		out[id] = e
	}
	return out, rows.Err()
}

// EffectMark is the claim of one effect for one delivery.
type EffectMark struct {
	ID    task.ID
	Owner task.ID
	Token task.ID
}

// MarkedEffect is an effect that is being delivered, with what is sent.
type MarkedEffect struct {
	Effect
	Token       task.ID
	JobID       *int64
	Misses      int16
	FirstGap    time.Duration // since the first of the misses in a row; 0 where there is none
	Method      string
	Path        string
	Headers     []byte
	Body        []byte
	Order       string // "" = none
	Traceparent string
	Asked       int16 // checks since the last delivery of unknown outcome
}

// OrderKey names its order; false where it has none.
func (e *MarkedEffect) OrderKey() (OrderKey, bool) {
	return OrderKey{Tenant: e.Tenant, Destination: e.Destination, Key: e.Order}, e.Order != ""
}

// markEffect counts the attempt and opens the delivery's row.
const markEffect = `
WITH m AS (
    UPDATE onefold.effects
    SET state = 'delivering',
        epoch = epoch + 1,
        owner = $2,
        token = $3,
        attempts = attempts + 1
    WHERE id = $1 AND state = 'waiting'
    RETURNING *
), d AS (
    INSERT INTO onefold.deliveries (effect_id, epoch, number, incarnation, token)
    SELECT m.id, m.epoch, m.attempts, m.owner, m.token
    FROM m
)
SELECT` + markedColumns + `
FROM m`

const markedColumns = `
    m.id, m.task_id, m.tenant, m.run, m.name, m.outcome, m.type, coalesce(m.destination, ''), m.created_at, m.state, m.epoch,
    m.attempts, m.unclear, m.token, m.job_id, m.misses, coalesce(now() - m.first_miss_at, interval '0'),
    coalesce(m.method, ''), coalesce(m.path, ''), m.headers, m.body, coalesce(m.reference, ''), coalesce(m.order_key, ''), m.asked, coalesce(m.traceparent, '')`

func (e *MarkedEffect) targets() []any {
	return []any{
		&e.ID, &e.TaskID, &e.Tenant, &e.Run, &e.Name, &e.Outcome, &e.Type, &e.Destination, &e.CreatedAt, &e.State, &e.Epoch,
		&e.Attempts, &e.Unclear, &e.Token, &e.JobID, &e.Misses, &e.FirstGap,
		&e.Method, &e.Path, &e.Headers, &e.Body, &e.Reference, &e.Order, &e.Asked, &e.Traceparent,
	}
}

// MarkEffects moves waiting effects, locked before, to delivering. One that is
// not returned was not waiting any more.
func MarkEffects(ctx context.Context, tx DBTX, marks []EffectMark) (map[task.ID]*MarkedEffect, error) {
	b := &pgx.Batch{}
	out := make(map[task.ID]*MarkedEffect, len(marks))
	for _, m := range marks {
		b.Queue(markEffect, m.ID, m.Owner, m.Token).QueryRow(func(row pgx.Row) error {
			e := new(MarkedEffect)
			err := row.Scan(e.targets()...)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			out[m.ID] = e
			return err
		})
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("mark effects: %w", err)
	}
	return out, nil
}

// MarkedBy reads effects that are being delivered under these tokens: which of
// the marks of an unclear commit are there.
func MarkedBy(ctx context.Context, db DBTX, marks []EffectMark) (map[task.ID]*MarkedEffect, error) {
	ids, tokens := make([]task.ID, len(marks)), make([]task.ID, len(marks))
	for i, m := range marks {
		ids[i], tokens[i] = m.ID, m.Token
	}
	rows, err := db.Query(ctx, `
SELECT`+markedColumns+`
FROM unnest($1::uuid[], $2::uuid[]) AS q (id, token)
JOIN onefold.effects AS m USING (id, token)
WHERE m.id = ANY ($1) AND m.state = 'delivering'`, ids, tokens)
	if err != nil {
		return nil, fmt.Errorf("read marked effects: %w", err)
	}
	defer rows.Close()
	out := make(map[task.ID]*MarkedEffect, len(marks))
	for rows.Next() {
		e := new(MarkedEffect)
		if err := rows.Scan(e.targets()...); err != nil {
			return nil, fmt.Errorf("read marked effects: %w", err)
		}
		out[e.ID] = e
	}
	return out, rows.Err()
}

// DeliveryEnd is how one delivery ended, and where its effect goes.
type DeliveryEnd struct {
	task.Fence
	To           api.EffectState
	After        time.Duration // with To waiting
	GiveBack     bool          // the attempt does not count
	Misses       int16         // answers that say "not there" in a row; 0 forgets the first
	Unclear      bool          // a delivery of this effect has no known outcome
	Asked        int16         // checks since then
	Outcome      string        // of the delivery
	Answer       string        // what a check said of an earlier one; "" = none was made
	AnswerStatus int
	Signed       []string // the ids of the secrets that signed
	Status       int      // 0 = none
	Code         string
	Message      string
	Took         time.Duration
	Reply        []byte
}

// The guard is the same as a task's: id and state and epoch and token.
const endDelivery = `
WITH ended AS (
    UPDATE onefold.effects
    SET state = $4,
        owner = NULL,
        token = NULL,
        job_id = NULL,
        next_at = CASE WHEN $4 = 'waiting' THEN now() + $5::interval ELSE next_at END,
        attempts = attempts - CASE WHEN $6 THEN 1 ELSE 0 END,
        misses = $7::smallint,
        first_miss_at = CASE WHEN $7::smallint > 0 THEN coalesce(first_miss_at, now()) END,
        unclear = $8,
        asked = $15,
        finished_at = CASE WHEN $4 IN ('delivered', 'unknown', 'dead') THEN now() END,
        error_code = CASE WHEN $4 <> 'delivered' THEN $9 END,
        error_message = CASE WHEN $4 <> 'delivered' THEN $10 END
    WHERE id = $1 AND state = 'delivering' AND epoch = $2 AND token = $3
    RETURNING id
), closed AS (
    UPDATE onefold.deliveries
    SET closed_at = now(),
        outcome = $11,
        status = $12,
        code = $9,
        message = $10,
        total_ms = $13,
        reply = $14,
        answer = $16,
        answer_status = $17,
        signed = $18
    WHERE effect_id = $1 AND epoch = $2 AND token = $3 AND outcome IS NULL AND EXISTS (SELECT FROM ended)
)
SELECT id
FROM ended`

// EndDeliveries locks the effects in id order and records how their deliveries
// ended. An id that is not returned was fenced, or was recorded before.
func EndDeliveries(ctx context.Context, tx DBTX, ends []DeliveryEnd) (map[task.ID]bool, error) {
	ids := make([]task.ID, len(ends))
	for i, e := range ends {
		ids[i] = e.ID
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT id FROM onefold.effects WHERE id = ANY ($1) ORDER BY id FOR UPDATE`, ids)
	ended := make(map[task.ID]bool, len(ends))
	for _, e := range ends {
		b.Queue(endDelivery, e.ID, e.Epoch, e.Token, string(e.To), e.After, e.GiveBack, e.Misses, e.Unclear, null(e.Code),
			null(e.Message), e.Outcome, status(e.Status), e.Took.Milliseconds(), e.Reply, e.Asked, null(e.Answer), status(e.AnswerStatus), e.Signed,
		).QueryRow(func(row pgx.Row) error {
			var id task.ID
			err := row.Scan(&id)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			ended[e.ID] = true
			return err
		})
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("end deliveries: %w", err)
	}
	return ended, nil
}

func status(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// RecordedDeliveries says which of these deliveries were closed by their own
// outcome before: a repeated try meets what its first one committed.
func RecordedDeliveries(ctx context.Context, tx DBTX, fences []task.Fence) (map[task.ID]bool, error) {
	ids, epochs, tokens := make([]task.ID, len(fences)), make([]int64, len(fences)), make([]task.ID, len(fences))
	for i, f := range fences {
		ids[i], epochs[i], tokens[i] = f.ID, f.Epoch, f.Token
	}
	rows, err := tx.Query(ctx, `
SELECT d.effect_id
FROM unnest($1::uuid[], $2::bigint[], $3::uuid[]) AS q (effect_id, epoch, token)
JOIN onefold.deliveries AS d USING (effect_id, epoch, token)
WHERE d.effect_id = ANY ($1) AND d.closed_at IS NOT NULL AND d.outcome <> 'lost'`, ids, epochs, tokens)
	if err != nil {
		return nil, fmt.Errorf("read recorded deliveries: %w", err)
	}
	done, err := collectIDs(rows)
	if err != nil {
		return nil, fmt.Errorf("read recorded deliveries: %w", err)
	}
	return done, nil
}

// LateDelivery is the outcome of a delivery that was fenced meanwhile.
type LateDelivery struct {
	task.Fence
	Incarnation task.ID
	Number      int32
	Outcome     string
	Status      int
}

// KeepLate writes what a fenced delivery learned onto its own row and touches
// nothing else. It is an upsert: the row may have been lost with its mark. A row
// of another token under the same epoch is left alone.
func KeepLate(ctx context.Context, tx DBTX, late []LateDelivery) error {
	b := &pgx.Batch{}
	for _, l := range late {
		b.Queue(`
INSERT INTO onefold.deliveries AS d (effect_id, epoch, number, incarnation, token, closed_at, outcome, late_at, late_outcome, late_status)
SELECT e.id, $2, $4, $5, $3, now(), 'lost', now(), $6, $7
FROM onefold.effects AS e
WHERE e.id = $1
ON CONFLICT (effect_id, epoch) DO UPDATE
SET late_at = coalesce(d.late_at, now()),
    late_outcome = coalesce(d.late_outcome, excluded.late_outcome),
    late_status = coalesce(d.late_status, excluded.late_status)
WHERE d.token = excluded.token`, l.ID, l.Epoch, l.Token, l.Number, l.Incarnation, l.Outcome, status(l.Status))
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return fmt.Errorf("keep late outcomes: %w", err)
	}
	return nil
}
