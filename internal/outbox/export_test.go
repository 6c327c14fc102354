package outbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Marked is an effect as Mark hands it out.
type Marked = claimed

// Mark is one flush of marks.
func (o *Outbox) Mark(ctx context.Context, ids ...task.ID) ([]*Marked, error) {
	claims := make([]*claim, len(ids))
	for i, id := range ids {
		claims[i] = &claim{id: id}
	}
	return o.flushMarks(ctx, claims)
}

// ResolveMarks is what follows an unclear commit of marks.
func (o *Outbox) ResolveMarks(ctx context.Context, marks []store.EffectMark) (map[task.ID]*store.MarkedEffect, error) {
	return o.resolveMarks(ctx, marks)
}

// Record is one flush of one outcome.
func (o *Outbox) Record(ctx context.Context, m *Marked, v Verdict, out Outcome) (bool, error) {
	recorded, err := o.flushOutcomes(ctx, []*ending{newEnding(m, v, tried{out: out}, 0)})
	if err != nil {
		return false, err
	}
	return recorded[0], nil
}

// Release gives back the place of an effect that Mark handed out.
func (o *Outbox) Release(id task.ID) { o.flights.end(id) }

// Statement executes an sql effect's statement.
func (o *Outbox) Statement(ctx context.Context, tx pgx.Tx, e *config.RenderedEffect) error {
	return o.statement(ctx, tx, e)
}
