package submit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// landed is where one submit came to: on its own row, or on another's.
type landed struct {
	row     *task.Row
	created bool
	refused error // an operator stopped new tasks of its sort, or its tenant is over a quota; nothing was stored
}

// How often a flush looks again when the row that took a slot vanished before
// it could be read (it was purged meanwhile), and how long an unclear commit is
// resolved before the callers are told to ask again.
const (
	maxRounds    = 5
	resolveFor   = 20 * time.Second
	resolvePause = 100 * time.Millisecond
)

// insert is one flush: it serves many submits in one transaction.
//
// Before its commit nothing is there, and a caller whose process dies then sends
// the same request again. After its commit every row has its wake-up, so that
// the tasks run even if this process dies before it answers; the callers' next
// tries find their rows.
func (s *Service) insert(ctx context.Context, news []*store.New) ([]landed, error) {
	out := make([]landed, len(news))
	slots := make([]store.Slot, len(news))
	for i, n := range news {
		slots[i] = n.Slot
	}
	found, err := store.TasksBySlot(ctx, s.Pool, slots)
	if err != nil {
		return nil, err
	}
	var open []int
	var expired []task.ID
	for i, n := range news {
		row := found[n.Slot]
		if row == nil || row.Expired() {
			if err := held(s.Gates, n); err != nil {
				out[i] = landed{refused: err}
				continue
			}
		}
		if row != nil && row.Expired() {
			expired = append(expired, row.ID)
			row = nil
		}
		if row == nil {
			open = append(open, i)
			continue
		}
		out[i] = landed{row: row}
	}
	let := tickets{}
	defer func() { let.settle(news, out) }()
	open, err = letIn(news, open, let.ask(ctx, s.Quotas), func(i int, why error) { out[i] = landed{refused: why} })
	if err != nil || len(open) == 0 {
		return out, err
	}
	return out, s.insertOpen(ctx, news, open, expired, out)
}

// insertOpen inserts those whose slot looked free, and resolves an unclear
// commit by running the same insert with the same ids again.
func (s *Service) insertOpen(ctx context.Context, news []*store.New, open []int, expired []task.ID, out []landed) error {
	var until time.Time // set once a commit was unclear
	for round := 0; ; {
		left, err := s.insertOnce(ctx, news, open, expired, out, !until.IsZero())
		switch {
		case err != nil && (store.Unclear(err) || !until.IsZero() && (store.Away(err) || store.Retryable(err))):
			if until.IsZero() {
				until = time.Now().Add(resolveFor)
				s.Log.Warn("commit unclear, asking again", "error", err, "count", len(open))
			}
			if time.Now().After(until) || ctx.Err() != nil {
				return err
			}
			pause(ctx, resolvePause)
			continue
		case err != nil:
			return err
		case len(left) == 0:
			return nil
		case round >= maxRounds:
			return api.Errorf(api.CodeUnavailable, "the key changes hands too fast").WithRetryAfter(time.Second)
		}
		open = left
		round++
	}
}

// insertOnce is one transaction. It returns the indices whose slot was taken by
// a row that is gone again.
func (s *Service) insertOnce(ctx context.Context, news []*store.New, open []int, expired []task.ID, out []landed, resolving bool) (left []int, err error) {
	first, members := fold(news, open)
	defer s.Fair.Insert(first)()
	var results map[int]landed
	conn, err := s.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	defer conn.Release()
	err = pgx.BeginTxFunc(ctx, conn, store.ReadCommitted, func(tx pgx.Tx) error {
		if err := store.RetireExpired(ctx, tx, expired); err != nil {
			return err
		}
		if err := failpoint.Hit(failpoint.SubmitBeforeInsert); err != nil {
			return err
		}
		won, err := store.InsertTasks(ctx, tx, first)
		if err != nil {
			return err
		}
		if err := failpoint.Hit(failpoint.SubmitAfterInsert); err != nil {
			return err
		}
		results, left, err = read(ctx, tx, first, members, won, resolving)
		if err != nil || !resolving {
			return err
		}
		return store.EmitMarker(ctx, tx)
	})
	if err == nil && store.CommitWarned(conn.Conn()) {
		err = store.ErrCommitWarned
	}
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	if err := failpoint.Hit(failpoint.SubmitAfterCommit); err != nil {
		return nil, err
	}
	for i, l := range results {
		out[i] = l
	}
	queues := map[string]bool{}
	for i, l := range results {
		if l.created {
			queues[news[i].Queue] = true
		}
	}
	for q := range queues {
		s.Notifier.Queues(q)
	}
	return left, nil
}

// fold lets one submit of each slot stand for all of this flush that ask for
// the same.
func fold(news []*store.New, open []int) (first []*store.New, members map[store.Slot][]int) {
	members = make(map[store.Slot][]int, len(open))
	for _, i := range open {
		slot := news[i].Slot
		if len(members[slot]) == 0 {
			first = append(first, news[i])
		}
		members[slot] = append(members[slot], i)
	}
	return first, members
}

// read gives each submit its row: its own where it won, else the one that holds
// the slot, read in a statement of its own. After an unclear commit the row
// under the own id comes first: then the earlier try had committed.
func read(ctx context.Context, tx pgx.Tx, first []*store.New, members map[store.Slot][]int,
	won map[task.ID]store.Inserted, resolving bool,
) (results map[int]landed, left []int, err error) {
	results = map[int]landed{}
	own := map[task.ID]*task.Row{}
	if resolving {
		ids := make([]task.ID, len(first))
		for i, n := range first {
			ids[i] = n.ID
		}
		rows, err := store.TasksByID(ctx, tx, ids)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range rows {
			own[r.ID] = r
		}
	}
	var losers []store.Slot
	for _, n := range first {
		if _, mine := won[n.ID]; !mine && own[n.ID] == nil || len(members[n.Slot]) > 1 {
			losers = append(losers, n.Slot)
		}
	}
	holders := map[store.Slot]*task.Row{}
	if len(losers) > 0 {
		if holders, err = store.TasksBySlot(ctx, tx, losers); err != nil {
			return nil, nil, err
		}
	}
	for _, n := range first {
		row := own[n.ID]
		if in, ok := won[n.ID]; ok && row == nil {
			row = newRow(n, in)
		}
		for k, i := range members[n.Slot] {
			switch {
			case k == 0 && row != nil:
				results[i] = landed{row: row, created: true}
			case holders[n.Slot] != nil:
				results[i] = landed{row: holders[n.Slot]}
			default:
				left = append(left, i)
			}
		}
	}
	return results, left, nil
}

// newRow is the row just inserted, as a reader would see it.
func newRow(n *store.New, in store.Inserted) *task.Row {
	return &task.Row{
		ID: n.ID, Tenant: n.Slot.Tenant, Kind: n.Slot.Kind, Key: n.Slot.Key, Slot: n.Slot.Slot, Dedupe: n.Dedupe,
		Provider: n.Provider, Priority: n.Priority, Fingerprint: n.Fingerprint[:], InputHash: n.InputHash[:],
		ConfigHash: n.ConfigHash, TraceID: n.TraceID, Traceparent: n.Traceparent, ParentID: n.ParentID, BatchID: n.Batch, BudgetID: n.BudgetID, BudgetSends: n.BudgetSends,
		Metadata: n.Metadata, State: api.Pending, Run: 1, RunAt: in.RunAt, Deadline: in.Deadline,
		CreatedAt: in.CreatedAt, VirtualAt: n.Virtual, Usage: api.Usage{Billed: api.BilledNo}, Now: in.CreatedAt,
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
