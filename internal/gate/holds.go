package gate

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Holds are the holds as they stood at one moment, for whoever has no Board: who
// submits inside a transaction of their own.
type Holds []store.Hold

// ReadHolds reads them.
func ReadHolds(ctx context.Context, db store.DBTX) (Holds, error) {
	all, err := store.Holds(ctx, db, "")
	return all, err
}

// Stopped is the hold that keeps s from something, or nil.
func (h Holds) Stopped(what api.Stop, s Subject) *store.Hold { return stopped(h, what, s) }

// SetHold makes a hold, or adds to the one there is for the same names, with its
// audit entry. If the process dies before the commit nothing has happened;
// after it every process knows within a second.
func (b *Board) SetHold(ctx context.Context, h store.Hold) (*store.Hold, error) {
	switch {
	case h.Reason == "":
		return nil, noReason()
	case h.Tenant == "" && h.Kind == "" && h.Provider == "" && h.Destination == "":
		return nil, api.Errorf(api.CodeInvalidField, "the hold names nothing").WithFix("Name a tenant, kind, provider or destination.")
	case h.Destination != "" && (h.Kind != "" || h.Provider != "" || stops(&h, api.StopSubmits)):
		return nil, api.Errorf(api.CodeInvalidField, "a hold on a destination names no kind or provider and stops no submits").WithField("destination")
	}
	if len(h.Stops) == 0 {
		h.Stops = []api.Stop{api.StopClaims}
	}
	h.ID = task.NewID()
	return b.holding(ctx, "hold.set", h.Actor, h.Reason, func(tx pgx.Tx) (*store.Hold, error) { return store.PutHold(ctx, tx, h) })
}

// TakeHold takes a hold of a tenant away, or any with an empty tenant. Errors:
// CodeNotFound. What waits is woken by upkeep.
func (b *Board) TakeHold(ctx context.Context, tenant string, id task.ID, actor, reason string) (*store.Hold, error) {
	return b.holding(ctx, "hold.release", actor, reason, func(tx pgx.Tx) (*store.Hold, error) {
		h, err := store.DeleteHold(ctx, tx, tenant, id)
		if err == nil && h == nil {
			err = api.Errorf(api.CodeNotFound, "there is no such hold")
		}
		return h, err
	})
}

func (b *Board) holding(ctx context.Context, action, actor, reason string, f func(tx pgx.Tx) (*store.Hold, error)) (h *store.Hold, err error) {
	err = pgx.BeginTxFunc(ctx, b.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		if h, err = f(tx); err != nil {
			return err
		}
		words := make([]string, len(h.Stops))
		for i, s := range h.Stops {
			words[i] = string(s)
		}
		err = store.InsertAudit(ctx, tx, store.AuditEntry{
			Tenant: h.Tenant, Actor: actor, Action: action, TargetType: "hold", TargetID: h.ID.String(), Reason: reason,
			Details: map[string]string{"kind": h.Kind, "provider": h.Provider, "destination": h.Destination, "stops": strings.Join(words, " ")},
		})
		if err != nil {
			return err
		}
		return failpoint.Hit(failpoint.GateActBeforeCommit)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	if err := store.NotifyGates(ctx, b.Pool); err != nil {
		b.Log.Debug("hint lost", "error", err)
	}
	return h, b.Refresh(ctx)
}
