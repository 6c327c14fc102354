package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// Round is what a round of upkeep did: how many effects it moved, and the queues to notify after the commit.
type Round struct {
	Count  int
	Queues []string
}

var errStub = errors.New("not built yet")

// Work is the job.Handler of effect wake-ups.
func (o *Outbox) Work(ctx context.Context, id uuid.UUID) {}

// ReapEffects takes deliveries from owners whose lease ran out, or that overran every limit.
func (o *Outbox) ReapEffects(ctx context.Context, tx pgx.Tx, lease time.Duration) (Round, error) {
	return Round{}, errStub
}

// SweepEffects gives due waiting effects without a live wake-up a new one.
func (o *Outbox) SweepEffects(ctx context.Context, tx pgx.Tx, lease time.Duration) (Round, error) {
	return Round{}, errStub
}

// Strays compares the deliveries that the database says an incarnation makes with those this process makes; what it
// sees twice goes by the reaper's rule. Called once a lease, in a transaction of its own.
func (o *Outbox) Strays(ctx context.Context, incarnation task.ID, lease time.Duration) (Round, error) {
	return Round{}, errStub
}

type (
	claim   struct{}
	claimed struct{}
	ending  struct{}
)

func (o *Outbox) flushMarks(context.Context, []*claim) ([]*claimed, error) { return nil, errStub }
func (o *Outbox) flushOutcomes(context.Context, []*ending) ([]bool, error) { return nil, errStub }
