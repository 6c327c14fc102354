package quota

import (
	"context"
	"math"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

var refusedTotal = telemetry.Counter("quota_refused_total", "New tasks refused for a quota of their tenant.", "what")

// Ticket is leave to queue N tasks of a tenant. Settle says how many became one.
type Ticket struct {
	N      int
	b      *Book
	tenant string
}

// Admit lets in as many of n new tasks of a tenant as its quotas allow; why says
// what keeps the others out. Nothing is stored yet: whoever asks calls Settle
// once it is known what was.
func (b *Book) Admit(ctx context.Context, tenant string, n int) (t Ticket, why *api.Error, err error) {
	t = Ticket{N: n}
	if b == nil || !b.bounded(tenant) {
		return t, nil, nil
	}
	if t, why, err = b.queue(ctx, tenant, n); err != nil || t.N == 0 {
		return t, b.refused(why, n), err
	}
	bounds := b.Of(tenant)
	if math.IsInf(bounds.Requests, 1) {
		return t, b.refused(why, n-t.N), nil
	}
	got, wait, err := b.permits(tenant).take(ctx, b.DB, tenant, bounds.Requests, t.N)
	if err != nil {
		t.Settle(0)
		return Ticket{}, nil, err
	}
	if got < t.N {
		t.back(t.N - got)
		why = overRequests(bounds.Requests, wait)
	}
	return t, b.refused(why, n-t.N), nil
}

// refused counts what was refused.
func (b *Book) refused(why *api.Error, n int) *api.Error {
	if why != nil && n > 0 {
		refusedTotal.WithLabelValues(string(why.Quota)).Add(float64(n))
	}
	return why
}

// headroom is the part of what a tenant may have queued that batches leave to
// its other traffic.
const headroom = 0.1

// Room is Admit for lines of a batch, which wait and are no requests of their
// own: the rate does not concern them, and they leave a tenth of the queue to
// others of their tenant.
func (b *Book) Room(ctx context.Context, tenant string, n int) (Ticket, error) {
	if b == nil || !b.bounded(tenant) {
		return Ticket{N: n}, nil
	}
	bound := b.Of(tenant).Queued
	t, _, err := b.queueBelow(ctx, tenant, n, max(1, bound-math.Floor(bound*headroom)))
	return t, err
}

// Reopens says whether a failed task of a tenant may run again: what it has
// queued leaves room.
func (b *Book) Reopens(ctx context.Context, tenant string) (bool, error) {
	if b == nil || !b.bounded(tenant) {
		return true, nil
	}
	t, _, err := b.queue(ctx, tenant, 1)
	t.Settle(t.N)
	return t.N > 0, err
}

// bounded says whether a tenant has any quota.
func (b *Book) bounded(tenant string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.set) > 0 && b.of(tenant) != none()
}

func (b *Book) queue(ctx context.Context, tenant string, n int) (Ticket, *api.Error, error) {
	return b.queueBelow(ctx, tenant, n, b.Of(tenant).Queued)
}

// queueBelow takes up to n places in the queue. Where there are fewer, tenants are
// counted anew first: what this process let in may have left the queue again.
func (b *Book) queueBelow(ctx context.Context, tenant string, n int, bound float64) (Ticket, *api.Error, error) {
	t := b.reserve(tenant, n, bound)
	if t.N == n {
		return t, nil, nil
	}
	if err := b.again(ctx); err != nil {
		t.Settle(0)
		return Ticket{}, nil, err
	}
	more := b.reserve(tenant, n-t.N, bound)
	if t.b == nil {
		t = more
	} else {
		t.N += more.N
	}
	if t.N < n {
		return t, overQueued(b.Of(tenant).Queued), nil
	}
	return t, nil, nil
}

// reserve takes up to n places below bound.
func (b *Book) reserve(tenant string, n int, bound float64) Ticket {
	if math.IsInf(bound, 1) {
		return Ticket{N: n}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.own[tenant]
	if o == nil {
		o = &own{}
		b.own[tenant] = o
	}
	have := b.counts[tenant].Queued + int64(o.underway)
	for _, l := range o.since {
		have += int64(l.n)
	}
	t := Ticket{N: min(n, room(bound, have)), b: b, tenant: tenant}
	o.underway += t.N
	return t
}

// Settle says how many of the tasks let in are there now, each for the first time.
func (t Ticket) Settle(created int) {
	if t.b == nil {
		return
	}
	t.back(t.N)
	if created == 0 {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	o := t.b.own[t.tenant]
	if o == nil {
		o = &own{}
		t.b.own[t.tenant] = o
	}
	o.since = append(o.since, let{time.Now(), created})
}

// back gives places back.
func (t *Ticket) back(n int) {
	t.N -= n
	if t.b == nil {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if o := t.b.own[t.tenant]; o != nil {
		o.underway -= n
	}
}
