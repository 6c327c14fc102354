package submit

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/quota"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// Newest finds the configuration that new tasks of a kind run under.
type Newest func(kind string) (*config.Kind, bool)

// Rules are what a submit is checked by.
type Rules struct {
	Newest Newest
	// Effects says what is wrong with the effects that a submit brings; nil where
	// whoever submits may name any.
	Effects func(ctx context.Context, tenant string, kind *config.Kind, raw []byte) error
	// Fair gives new tasks and new runs their places; nil: they are read from the
	// database, and given out inside the transaction.
	Fair *fair.Clock
	// Admitted: whoever submits has asked for room within the tenant's quotas.
	// Otherwise they are read from the database.
	Admitted bool
}

// Rules are those of this process's configuration.
func (s *Service) Rules() Rules {
	return Rules{Newest: s.Kinds.Newest, Effects: s.Outbox.CheckSubmitted, Fair: s.Fair, Admitted: true}
}

// MaySend says whether effects that a tenant names itself may go to a destination.
func (s *Service) MaySend(ctx context.Context, tenant, destination string) (bool, error) {
	to, err := s.Outbox.Destinations.Known(ctx, nil, destination)
	return to != nil && to.Allows(tenant), err
}

// InTx is Many inside a transaction that the caller began and ends: the same
// keys, fingerprints and folding, and nothing of it is there unless the caller
// commits. It returns one outcome for each request, and the queues to notify
// after the commit. A refused request has changed nothing, and the transaction
// can go on. Any other error ends it.
//
// A key that another open transaction has just inserted is waited for. Under
// REPEATABLE READ and SERIALIZABLE a key that was inserted since the snapshot
// gives 40001, as any write there: the caller's retry then finds it.
//
// Tasks continue the trace that ctx stands in, where a request names none.
//
// Duplicates are not counted here: the count's row would stay locked as long as
// the caller likes.
func InTx(ctx context.Context, tx pgx.Tx, rules Rules, requests []Request) ([]Outcome, []string, error) {
	b := &inTx{tx: tx, rules: rules, out: make([]Outcome, len(requests))}
	here := tracing.From(ctx)
	for i, r := range requests {
		if r.Traceparent == "" && r.TraceID == "" {
			r.Traceparent = here
			r.TraceID = tracing.TraceID(here)
		}
		n, kind, err := prepare(rules.Newest, r)
		if err != nil {
			b.out[i].Err = err
			continue
		}
		b.news, b.kinds, b.at = append(b.news, n), append(b.kinds, kind), append(b.at, i)
	}
	if len(b.news) == 0 {
		return b.out, nil, nil
	}
	var err error
	if b.holds, err = gate.ReadHolds(ctx, tx); err != nil {
		return nil, nil, err
	}
	got, err := b.insert(ctx)
	if err != nil {
		return nil, nil, err
	}
	queues, err := b.judge(ctx, got)
	return b.out, queues, err
}

// inTx is one call of InTx.
type inTx struct {
	tx    pgx.Tx
	rules Rules
	out   []Outcome
	news  []*store.New
	kinds []*config.Kind
	at    []int      // where in out each of news belongs
	holds gate.Holds // as the transaction sees them
}

// insert gives each of news its row: its own, or that of its key. Those without
// one have their outcome already.
func (b *inTx) insert(ctx context.Context) (map[int]landed, error) {
	got := map[int]landed{}
	open, err := b.look(ctx, got)
	for round := 0; err == nil && len(open) > 0; round++ {
		if round > maxRounds {
			return nil, api.Errorf(api.CodeUnavailable, "the key changes hands too fast").WithRetryAfter(time.Second)
		}
		first, members := fold(b.news, open)
		if err := b.rules.place(ctx, b.tx, first); err != nil {
			return nil, err
		}
		var won map[task.ID]store.Inserted
		if won, err = store.InsertTasks(ctx, b.tx, first); err != nil {
			return nil, err
		}
		var results map[int]landed
		if results, open, err = read(ctx, b.tx, first, members, won, false); err != nil {
			return nil, err
		}
		for i, l := range results {
			got[i] = l
		}
	}
	return got, err
}

// look finds the rows that hold the keys already, moves those past their
// retention out of the way, and refuses times that make no sense for what is
// new. It returns what is to be inserted.
func (b *inTx) look(ctx context.Context, got map[int]landed) (open []int, err error) {
	slots := make([]store.Slot, len(b.news))
	for i, n := range b.news {
		slots[i] = n.Slot
	}
	found, err := store.TasksBySlot(ctx, b.tx, slots)
	if err != nil {
		return nil, err
	}
	var expired []task.ID
	for i, n := range b.news {
		row := found[n.Slot]
		switch {
		case row != nil && !row.Expired():
			got[i] = landed{row: row}
			continue
		case row != nil:
			expired = append(expired, row.ID)
		}
		wrong := b.rules.wrong(ctx, n, b.kinds[i])
		if wrong == nil {
			wrong = held(b.holds, n)
		}
		if wrong == nil && n.BudgetID != "" {
			// Read only: a budget made here would be locked as long as the caller
			// likes. The claim makes it.
			have, err := store.BudgetSends(ctx, b.tx, store.BudgetKey{Tenant: n.Slot.Tenant, ID: n.BudgetID})
			if err != nil {
				return nil, err
			}
			wrong = wrongBudget(have, n.BudgetSends)
		}
		if wrong != nil {
			b.out[b.at[i]].Err = wrong
			continue
		}
		open = append(open, i)
	}
	if !b.rules.Admitted {
		ask := func(tenant string, n int) (int, *api.Error, error) { return quota.InTx(ctx, b.tx, tenant, n) }
		if open, err = letIn(b.news, open, ask, func(i int, why error) { b.out[b.at[i]].Err = why }); err != nil {
			return nil, err
		}
	}
	return open, store.RetireExpired(ctx, b.tx, expired)
}

// place gives new tasks their places.
func (r Rules) place(ctx context.Context, tx pgx.Tx, news []*store.New) error {
	if r.Fair == nil {
		return fair.InTx(ctx, tx, news)
	}
	r.Fair.PlaceAll(news)
	return nil
}

// placeRun is the place of a new run.
func (r Rules) placeRun(ctx context.Context, tx pgx.Tx, row *task.Row, provider string) (time.Time, error) {
	n := &store.New{Provider: provider, Slot: store.Slot{Tenant: row.Tenant}, Batch: row.BatchID, Priority: row.Priority}
	err := r.place(ctx, tx, []*store.New{n})
	return n.Virtual, err
}

// wrong says what is wrong with a new task besides its form.
func (r Rules) wrong(ctx context.Context, n *store.New, kind *config.Kind) error {
	if wrong := submission.WrongTimes(n.RunAt, n.Deadline, time.Now()); wrong != nil {
		return wrong
	}
	if n.Effects == nil || r.Effects == nil {
		return nil
	}
	return r.Effects(ctx, n.Slot.Tenant, kind, n.Effects)
}

// judge compares the payloads of duplicates and runs those again that failed by
// the system's fault.
func (b *inTx) judge(ctx context.Context, got map[int]landed) (queues []string, err error) {
	again := map[task.ID]*config.Kind{}
	var ids []task.ID
	for i, l := range got {
		out, n := &b.out[b.at[i]], b.news[i]
		switch {
		case l.created:
			out.Answer = Answer{Row: l.row, Created: true}
			queues = append(queues, n.Queue)
			continue
		case !bytes.Equal(l.row.Fingerprint, n.Fingerprint[:]):
			out.Err = mismatch(ctx, b.tx, l.row, n)
			if !refusal(out.Err) {
				return nil, out.Err
			}
			continue
		case reopens(b.kinds[i], l.row) && !keepsFailed(b.holds, l.row) && again[l.row.ID] == nil:
			may, err := b.mayReopen(ctx, l.row)
			if err != nil {
				return nil, err
			}
			if may {
				again[l.row.ID] = b.kinds[i]
				ids = append(ids, l.row.ID)
			}
		}
		out.Answer = Answer{Row: l.row}
	}
	if len(ids) == 0 {
		return queues, nil
	}
	more, err := b.reopen(ctx, ids, again)
	return append(queues, more...), err
}

// mayReopen says whether a failed task may run again, as far as the quotas of
// its tenant go.
func (b *inTx) mayReopen(ctx context.Context, r *task.Row) (bool, error) {
	if b.rules.Admitted {
		return true, nil
	}
	let, _, err := quota.InTx(ctx, b.tx, r.Tenant, 1)
	return let > 0, err
}

// reopen runs failed tasks again, each under the newest configuration of its
// kind, and puts the rows as they stand then into the answers.
func (b *inTx) reopen(ctx context.Context, ids []task.ID, kinds map[task.ID]*config.Kind) (queues []string, err error) {
	rows, err := store.LockTasks(ctx, b.tx, ids, false)
	if err != nil {
		return nil, err
	}
	reopened := map[task.ID]bool{}
	for _, r := range rows {
		kind := kinds[r.ID]
		if !reopens(kind, r) {
			continue
		}
		queue, err := b.rules.rerun(ctx, b.tx, r, kind.Hash(), kind.Provider)
		if err != nil {
			return nil, err
		}
		reopened[r.ID] = true
		queues = append(queues, queue)
	}
	now, err := store.TasksByID(ctx, b.tx, ids)
	if err != nil {
		return nil, err
	}
	for _, r := range now {
		for i := range b.out {
			if row := b.out[i].Row; row != nil && row.ID == r.ID {
				b.out[i].Answer = Answer{Row: r, Reopened: reopened[r.ID]}
				delete(reopened, r.ID) // further requests for it are duplicates
			}
		}
	}
	return queues, nil
}
