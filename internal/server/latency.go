package server

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// How long a measurement counts, and what is said while nothing is measured.
const (
	latencyFor     = 15 * time.Second
	latencyTimeout = 2 * time.Second
	maxLatencies   = 10_000
	firstGuess     = 2 * time.Second
	maxHint        = 60 * time.Second
	maxScheduled   = time.Hour // for a task that is due later
)

// latencies knows what a tenant's tasks of a kind took lately.
type latencies struct {
	db    store.DBTX
	now   func() time.Time
	group singleflight.Group

	mu    sync.Mutex
	known map[tenantKind]measured
}

type tenantKind struct{ tenant, kind string }

type measured struct {
	store.Latency
	until time.Time
}

func newLatencies(db store.DBTX) *latencies {
	return &latencies{db: db, now: time.Now, known: map[tenantKind]measured{}}
}

// of is the latency of a tenant's kind; what cannot be measured now is what was
// measured last.
func (l *latencies) of(ctx context.Context, tenant, kind string) store.Latency {
	k := tenantKind{tenant, kind}
	l.mu.Lock()
	m, ok := l.known[k]
	l.mu.Unlock()
	if ok && l.now().Before(m.until) {
		return m.Latency
	}
	v, _, _ := l.group.Do(tenant+"\x00"+kind, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), latencyTimeout)
		defer cancel()
		got, err := store.TaskLatency(ctx, l.db, tenant, kind)
		if err != nil || got.Measured == 0 {
			got = m.Latency
		}
		l.keep(k, got)
		return got, nil
	})
	return v.(store.Latency)
}

func (l *latencies) keep(k tenantKind, got store.Latency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if len(l.known) >= maxLatencies {
		for old := range l.known {
			delete(l.known, old)
			if len(l.known) < maxLatencies/2 {
				break
			}
		}
	}
	l.known[k] = measured{Latency: got, until: now.Add(latencyFor)}
}

// next is after what time asking again about a task makes sense.
func (l *latencies) next(ctx context.Context, row *task.Row) time.Duration {
	return hintFor(l.of(ctx, row.Tenant, row.Kind), row)
}

// hintFor aims at the median; a task older than that at the 95th percentile;
// and beyond it at a share of its age, so that a stuck task is asked about ever
// more rarely.
func hintFor(m store.Latency, row *task.Row) time.Duration {
	if early := row.RunAt.Sub(row.Now); row.State == api.Pending && early > 0 {
		return clamp(early+m.P50, maxScheduled)
	}
	due := row.RunAt
	if row.TotalAttempts > 1 {
		due = row.CreatedAt
	}
	age := max(row.Now.Sub(due), 0)
	switch {
	case m.Measured == 0:
		return clamp(max(firstGuess, age/4), maxHint)
	case age < m.P50:
		return clamp(m.P50-age, maxHint)
	case age < m.P95:
		return clamp(m.P95-age, maxHint)
	}
	return clamp(max(m.P50, age/4), maxHint)
}

func clamp(d, most time.Duration) time.Duration { return min(max(d, time.Second), most) }

// place is an approximate position and time to wait, within the tenant.
func (s *Server) place(ctx context.Context, row *task.Row) (*api.Queue, error) {
	qctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	before, running, err := store.QueuePlace(qctx, s.DB, row)
	if err != nil {
		return nil, err
	}
	q := &api.Queue{Position: before + 1}
	if m := s.latency.of(ctx, row.Tenant, row.Kind); m.Measured > 0 && m.Run > 0 {
		rounds := float64(q.Position) / float64(max(running, 1))
		q.ETASeconds = max(rounds, 1) * m.Run.Seconds()
	}
	return q, nil
}
