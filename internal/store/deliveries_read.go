package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// Delivery is one try at an effect.
type Delivery struct {
	EffectID     task.ID
	Epoch        int64
	Number       int32
	StartedAt    time.Time
	ClosedAt     *time.Time
	Outcome      string
	Status       int
	Code         string
	Message      string
	TotalMS      int32
	LateAt       *time.Time
	LateOutcome  string
	LateStatus   int
	Reply        []byte // the beginning of it
	ReplyBytes   int
	Answer       string
	AnswerStatus int
}

// mostDeliveries is how many deliveries of one effect are read: the newest. Of a
// receiver's reply the first 2 KiB are.
const mostDeliveries = 100

const deliveryColumns = `
d.effect_id, d.epoch, d.number, d.started_at, d.closed_at, coalesce(d.outcome, ''), coalesce(d.status, 0), coalesce(d.code, ''),
coalesce(d.message, ''), coalesce(d.total_ms, 0), d.late_at, coalesce(d.late_outcome, ''), coalesce(d.late_status, 0),
substring(d.reply FOR 2048), coalesce(octet_length(d.reply), 0), coalesce(d.answer, ''), coalesce(d.answer_status, 0)`

func collectDeliveries(rows pgx.Rows, err error) ([]Delivery, error) {
	if err != nil {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Delivery, error) {
		var d Delivery
		err := row.Scan(&d.EffectID, &d.Epoch, &d.Number, &d.StartedAt, &d.ClosedAt, &d.Outcome, &d.Status, &d.Code, &d.Message,
			&d.TotalMS, &d.LateAt, &d.LateOutcome, &d.LateStatus, &d.Reply, &d.ReplyBytes, &d.Answer, &d.AnswerStatus)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	return out, nil
}

// DeliveriesOfTask reads the deliveries of a tenant's task, oldest first: of
// each effect the newest hundred.
func DeliveriesOfTask(ctx context.Context, db DBTX, tenant string, id task.ID) ([]Delivery, error) {
	return collectDeliveries(db.Query(ctx, `
SELECT`+deliveryColumns+`
FROM onefold.effects AS e
CROSS JOIN LATERAL (
    SELECT *
    FROM onefold.deliveries AS d
    WHERE d.effect_id = e.id
    ORDER BY d.epoch DESC
    LIMIT $3
) AS d
WHERE e.task_id = $1 AND ($2 = '' OR e.tenant = $2)
ORDER BY d.effect_id, d.epoch`, id, tenant, mostDeliveries))
}

// Deliveries reads those of effects, oldest first: of each the newest most.
func Deliveries(ctx context.Context, db DBTX, ids []task.ID, most int) (map[task.ID][]Delivery, error) {
	all, err := collectDeliveries(db.Query(ctx, `
SELECT`+deliveryColumns+`
FROM unnest($1::uuid[]) AS e (id)
CROSS JOIN LATERAL (
    SELECT *
    FROM onefold.deliveries AS d
    WHERE d.effect_id = e.id
    ORDER BY d.epoch DESC
    LIMIT $2
) AS d
ORDER BY d.effect_id, d.epoch`, ids, min(most, mostDeliveries)))
	if err != nil {
		return nil, err
	}
	out := map[task.ID][]Delivery{}
	for _, d := range all {
		out[d.EffectID] = append(out[d.EffectID], d)
	}
	return out, nil
}
