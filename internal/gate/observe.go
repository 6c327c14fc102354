package gate

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
)

// MsgClosed is the alert: the message of the one line, at level error, that
// tells of a gate which stays closed until somebody does something.
const MsgClosed = "gate closed: what waits there waits for an operator"

// Moved are the gates that a transaction moved; Committed tells of them.
type Moved struct {
	b     *Board
	gates []store.Gate
	news  []store.Gate // those whose state moved
}

// Observe moves gates by what the outcomes of a transaction say, in that
// transaction, as its last step before the commit. If it commits, the gates
// stand as its outcomes say; if the process dies before, neither is there.
// Whoever commits calls Committed afterwards.
//
// It costs nothing where all went well and nothing was counted before.
func (b *Board) Observe(ctx context.Context, tx store.DBTX, all []Observation) (*Moved, error) {
	m := &Moved{b: b}
	if b == nil {
		return m, nil
	}
	by := b.sort(all)
	if len(by) == 0 {
		return m, nil
	}
	names := make([]Name, 0, len(by))
	for n := range by {
		names = append(names, n)
	}
	rows, now, err := b.lock(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	for _, g := range rows {
		was := g.Epoch
		before := g
		fold(&g, by[g.GateKey], now, b.Random)
		if same(before, g) {
			continue
		}
		m.gates = append(m.gates, g)
		if g.Epoch != was {
			m.news = append(m.news, g)
		}
	}
	if err := store.PutGates(ctx, tx, m.gates); err != nil {
		return nil, err
	}
	for _, g := range m.news {
		if !closed(&g) {
			continue
		}
		err := store.InsertAudit(ctx, tx, store.AuditEntry{
			Actor: "onefold", Action: "gate." + string(g.State), TargetType: g.Scope, TargetID: g.Name, Reason: g.Reason,
			Details: map[string]string{"code": g.Code},
		})
		if err != nil {
			return nil, err
		}
	}
	if len(m.gates) == 0 {
		return m, nil
	}
	return m, failpoint.Hit(failpoint.GateMoved)
}

// sort puts observations to their gates and leaves out what would move nothing:
// good news of a gate that counts nothing, and what a credential was told that
// has been changed meanwhile.
func (b *Board) sort(all []Observation) map[Name][]Observation {
	by := map[Name][]Observation{}
	for _, o := range all {
		switch o.What {
		case Healthy:
			s := b.State(o.Gate)
			if s.Failures == 0 && len(s.Suspects) == 0 && !s.NeedsAttention && len(by[o.Gate]) == 0 && !sawElse(all, o.Gate) {
				continue
			}
		case Unauthorized, Quota, Suspect:
			if o.Credential != nil && !bytes.Equal(o.Credential, b.Fingerprint(o.Gate)) {
				continue
			}
		}
		by[o.Gate] = append(by[o.Gate], o)
	}
	return by
}

// sawElse says whether the same transaction has other news of n.
func sawElse(all []Observation, n Name) bool {
	return slices.ContainsFunc(all, func(o Observation) bool { return o.Gate == n && o.What != Healthy })
}

func (b *Board) lock(ctx context.Context, tx store.DBTX, names []Name) ([]store.Gate, time.Time, error) {
	rows, now, err := store.LockGates(ctx, tx, names)
	if err != nil || len(rows) == len(names) {
		return rows, now, err
	}
	if err := b.ensure(ctx, tx, names); err != nil {
		return nil, now, err
	}
	return store.LockGates(ctx, tx, names)
}

func same(a, b store.Gate) bool {
	until := a.Until == nil && b.Until == nil || a.Until != nil && b.Until != nil && a.Until.Equal(*b.Until)
	return until && a.Epoch == b.Epoch && a.Failures == b.Failures && a.NeedsAttention == b.NeedsAttention &&
		len(a.Suspects) == len(b.Suspects) && len(a.Refused) == len(b.Refused)
}

// Committed brings the copy up to date, logs, and tells the other processes.
func (m *Moved) Committed() {
	if m == nil || len(m.gates) == 0 {
		return
	}
	b := m.b
	b.mu.Lock()
	for _, g := range m.gates {
		b.gates[g.GateKey] = g
	}
	b.changed()
	b.mu.Unlock()
	for _, g := range m.news {
		b.tell(g)
	}
	if len(m.news) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hintTimeout)
	defer cancel()
	if slices.ContainsFunc(m.news, func(g store.Gate) bool { return g.Scope == providers }) {
		// Upkeep would do it within a second; the sooner, the fewer are fetched in vain.
		if err := store.PauseQueues(ctx, b.Pool, false); err != nil {
			b.Log.Debug("queues not paused yet", "error", err)
		}
	}
	if err := store.NotifyGates(ctx, b.Pool); err != nil {
		b.Log.Debug("hint lost", "error", err)
	}
}

const hintTimeout = 5 * time.Second

func (b *Board) tell(g store.Gate) {
	attrs := []any{
		slog.String("scope", g.Scope), slog.String("name", g.Name), slog.String("state", string(g.State)),
		slog.String("code", g.Code), slog.String("reason", g.Reason),
	}
	switch {
	case closed(&g):
		b.Log.Error(MsgClosed, attrs...)
	case g.State == api.GateCooling && g.NeedsAttention:
		b.Log.Warn("gate cools after failures in a row", attrs...)
	case g.State == api.GateCooling:
		b.Log.Info("gate cools", attrs...)
	default:
		b.Log.Info("gate opened", attrs...)
	}
}
