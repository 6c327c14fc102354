package batch

import (
	"context"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// The states of a line's own row. All but open are ends; invalid and expired are
// no states of a task.
const (
	lineOpen      = "open"
	lineFailed    = "failed"
	lineCancelled = "cancelled"
	lineExpired   = "expired"
	lineInvalid   = "invalid"
)

// maxShown is how many invalid lines a batch shows; its results have all of them.
const maxShown = 20

// sums remembers what running batches added up to, for a moment: their lines are
// counted from the rows, a million of them takes a while, and many may ask.
type sums struct {
	mu    sync.Mutex
	known map[task.ID]sum
}

type sum struct {
	store.BatchSum
	bad   []store.Line
	until time.Time
}

// A count of lines holds for a second, or for ten times as long as it took.
const (
	sumFor   = time.Second
	sumShare = 10
	maxSums  = 1000
)

// Get reads a batch of a tenant with its counts. An empty tenant is an instance
// key's.
func (s *Service) Get(ctx context.Context, tenant string, id task.ID) (*api.Batch, error) {
	b, err := store.BatchByID(ctx, s.Pool, tenant, id)
	if err != nil {
		return nil, s.failed(err)
	}
	if b == nil || past(b) {
		return nil, notFound()
	}
	return s.Wire(ctx, b)
}

// List reads a page of a tenant's batches, newest first, and where the next one
// begins.
func (s *Service) List(ctx context.Context, tenant, key string, before *task.ID, limit int) ([]*api.Batch, *task.ID, error) {
	rows, err := store.Batches(ctx, s.Pool, tenant, key, before, limit)
	if err != nil {
		return nil, nil, s.failed(err)
	}
	out := make([]*api.Batch, len(rows))
	for i, b := range rows {
		if out[i], err = s.Wire(ctx, b); err != nil {
			return nil, nil, err
		}
	}
	if len(rows) < limit {
		return out, nil, nil
	}
	return out, &rows[limit-1].ID, nil
}

// Wire is a batch as callers see it, its counts taken from the rows.
func (s *Service) Wire(ctx context.Context, b *store.Batch) (*api.Batch, error) {
	total, err := s.sum(ctx, b)
	if err != nil {
		return nil, s.failed(err)
	}
	return wire(b, total), nil
}

func wire(b *store.Batch, total sum) *api.Batch {
	out := &api.Batch{
		ID: b.ID.String(), Key: b.Key, State: b.State, Run: int(b.Run), Form: b.Form, Webhook: b.Webhook,
		Lines: int(b.Lines), Bytes: b.Bytes, Counts: total.Counts, Usage: total.Usage, CreatedAt: b.CreatedAt.UTC(),
		StartedAt: utc(b.StartedAt), Deadline: utc(b.Deadline), EndedAt: utc(b.EndedAt), ExpiresAt: utc(b.ExpiresAt),
	}
	if b.Form == api.FormOpenAI {
		out.Kind = b.Kind
	}
	for _, l := range total.bad {
		out.Invalid = append(out.Invalid, api.BadLine{Line: int(l.Number), Code: api.Code(l.Code), Message: l.Message, Field: l.Field})
	}
	return out
}

// sum counts a batch's lines, or gives a count that was made a moment ago. One
// that has ended is always counted anew.
func (s *Service) sum(ctx context.Context, b *store.Batch) (sum, error) {
	live := b.State == api.BatchRunning || b.State == api.BatchStaging
	s.sums.mu.Lock()
	known, ok := s.sums.known[b.ID]
	s.sums.mu.Unlock()
	if ok && live && time.Now().Before(known.until) {
		return known, nil
	}
	began := time.Now()
	got, err := store.SumBatch(ctx, s.Pool, b)
	if err != nil {
		return sum{}, err
	}
	now := sum{BatchSum: got, until: time.Now().Add(max(sumFor, sumShare*time.Since(began)))}
	if got.Counts.Invalid > 0 {
		if now.bad, err = store.BadLines(ctx, s.Pool, b.ID, maxShown); err != nil {
			return sum{}, err
		}
	}
	s.sums.keep(b.ID, now, live)
	return now, nil
}

func (s *sums) keep(id task.ID, now sum, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !live {
		delete(s.known, id)
		return
	}
	if len(s.known) >= maxSums {
		clear(s.known)
	}
	s.known[id] = now
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
