package batch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// end ends a batch of which no line is open, and tells its destination. If the
// process dies before the commit the batch ends at the next step; the note of it
// is inserted under one key a run, so that it is told once.
func (s *Service) end(ctx context.Context, tx pgx.Tx, b *store.Batch) error {
	open, err := store.HasOpenLines(ctx, tx, b.ID)
	if err != nil || open {
		return err
	}
	state := api.BatchCompleted
	switch {
	case b.State == api.BatchCancelling:
		state = api.BatchCancelled
	case !b.Deadline.After(b.Now):
		late, err := store.HasLines(ctx, tx, b.ID, lineExpired, lineFailed)
		if err != nil {
			return err
		}
		if late {
			state = api.BatchExpired
		}
	}
	at, err := store.EndBatch(ctx, tx, b.ID, state, s.Kinds.Config().Retention.Tasks)
	if err != nil {
		return err
	}
	b.State, b.EndedAt = state, &at
	if b.Webhook != "" {
		if err := s.tell(ctx, tx, b); err != nil {
			return err
		}
	}
	s.Log.Info("batch ended", "batch_id", b.ID, "tenant", b.Tenant, "state", string(state), "count", b.Lines)
	return failpoint.Hit(failpoint.BatchEndBeforeCommit)
}

// NoteKind is the kind of the note that a batch has ended: a task that was never
// pending, whose one effect tells the batch's destination. It lets the telling
// be retried, seen and decided like any other effect.
const NoteKind = "onefold.batch"

// wakeUps is how many effects of one destination may hold a wake-up at a time, as
// in package outbox; the others are woken by the outcomes of those.
const wakeUps = 64

// Ended is what a destination is told, in the form of Standard Webhooks.
type Ended struct {
	Type      string     `json:"type"` // batch.completed, batch.cancelled, batch.expired
	Timestamp time.Time  `json:"timestamp"`
	Data      *api.Batch `json:"data"`
}

func (s *Service) tell(ctx context.Context, tx pgx.Tx, b *store.Batch) error {
	total, err := store.SumBatch(ctx, tx, b)
	if err != nil {
		return err
	}
	data := wire(b, sum{BatchSum: total})
	body, err := json.Marshal(Ended{Type: "batch." + string(b.State), Timestamp: b.EndedAt.UTC(), Data: data})
	if err != nil {
		return fmt.Errorf("encode the note: %w", err)
	}
	note := store.Note{
		ID: task.NewID(), Tenant: b.Tenant, Kind: NoteKind, Key: fmt.Sprintf("onefold:batch:%s:%d", b.ID, b.Run), Batch: b.ID,
		Body: body, Retention: s.Kinds.Config().Retention.Tasks,
	}
	if err := store.InsertNote(ctx, tx, note); err != nil {
		return err
	}
	_, err = store.InsertEffects(ctx, tx, []store.NewEffect{{
		ID: task.NewID(), TaskID: note.ID, Tenant: b.Tenant, Run: 1, Name: "batch", Outcome: api.Succeeded, Type: "webhook",
		Destination: b.Webhook, Body: body, State: api.EffectWaiting,
	}}, job.EffectQueue, wakeUps)
	return err
}
