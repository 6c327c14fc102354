package gate

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
)

// Act is what an operator asks of a gate.
type Act struct {
	Gate      Name
	Actor     string
	Reason    string
	RequestID string
}

// Hold closes a gate until it is released, and returns it. If the process dies
// before the commit nothing has happened; after it no process begins anything
// there, a second later at the latest.
func (b *Board) Hold(ctx context.Context, a Act) (store.Gate, error) {
	if a.Reason == "" {
		return store.Gate{}, noReason()
	}
	return b.act(ctx, a, "hold", func(g *store.Gate) bool {
		if closed(g) && g.Code == CodeOperator {
			return false
		}
		g.Epoch++
		g.State, g.Until, g.Code, g.Reason, g.Actor = api.GateHeld, nil, CodeOperator, a.Reason, a.Actor
		return true
	})
}

// Release opens a gate, whatever closed it, forgets what was counted and which
// credentials were refused, and returns it. What waits is woken by upkeep.
func (b *Board) Release(ctx context.Context, a Act) (store.Gate, error) {
	return b.act(ctx, a, "release", func(g *store.Gate) bool {
		g.Failures, g.Suspects, g.Refused, g.NeedsAttention = 0, nil, nil, false
		if g.State != api.GateOpen {
			to(g, api.GateOpen, nil, "", "")
		}
		return true
	})
}

func noReason() error {
	return api.Errorf(api.CodeInvalidField, "reason is missing").WithField("reason").WithFix("Say in a few words why.")
}

func (b *Board) act(ctx context.Context, a Act, action string, f func(g *store.Gate) bool) (store.Gate, error) {
	m := &Moved{b: b}
	var g store.Gate
	err := pgx.BeginTxFunc(ctx, b.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		rows, _, err := b.lock(ctx, tx, []Name{a.Gate})
		if err != nil {
			return err
		}
		was := rows[0].Epoch
		g = rows[0]
		if !f(&g) {
			return nil
		}
		m.gates = []store.Gate{g}
		if g.Epoch != was {
			m.news = m.gates
		}
		if err := store.PutGates(ctx, tx, m.gates); err != nil {
			return err
		}
		err = store.InsertAudit(ctx, tx, store.AuditEntry{
			Actor: a.Actor, Action: "gate." + action, TargetType: a.Gate.Scope, TargetID: a.Gate.Name, Reason: a.Reason, RequestID: a.RequestID,
			Details: map[string]string{"from": string(rows[0].State)},
		})
		if err != nil {
			return err
		}
		return failpoint.Hit(failpoint.GateActBeforeCommit)
	})
	if err != nil {
		return store.Gate{}, fmt.Errorf("%s %s %s: %w", action, a.Gate.Scope, a.Gate.Name, err)
	}
	m.Committed()
	return g, nil
}

// renewed releases gates that closed because of a credential which has been
// changed: the one of this process was never turned away. A credential that
// comes back in a running process is tried again.
func (b *Board) renewed(ctx context.Context) error {
	for _, n := range b.credentialed() {
		now := b.Fingerprint(n)
		if now == nil {
			continue
		}
		b.mu.Lock()
		before, seen := b.given[n]
		b.given[n] = now
		g := b.gates[n]
		b.mu.Unlock()
		changed := seen && !bytes.Equal(before, now)
		refused := known(g.Refused, now)
		held := g.State == api.GateHeld && g.Code != CodeOperator && len(g.Refused) > 0
		if !(held && !refused) && !(changed && refused) {
			continue
		}
		if err := b.renew(ctx, n, now); err != nil {
			return err
		}
	}
	return nil
}

func (b *Board) renew(ctx context.Context, n Name, credential []byte) error {
	_, err := b.act(ctx, Act{Gate: n, Actor: "onefold", Reason: "the credential was changed"}, "release", func(g *store.Gate) bool {
		held := g.State == api.GateHeld && g.Code != CodeOperator
		if !held && !known(g.Refused, credential) {
			return false // another process was faster
		}
		g.Refused = slices.DeleteFunc(g.Refused, func(f []byte) bool { return bytes.Equal(f, credential) })
		g.Suspects = nil
		if held {
			to(g, api.GateOpen, nil, "", "")
		}
		return true
	})
	return err
}
