package quota

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/store"
)

// How often the copy is read and tenants are counted. Where a count takes long it
// is made less often, so that it is at most a twentieth of one connection's time.
const (
	readEvery  = time.Second
	countAge   = 900 * time.Millisecond
	againAfter = 100 * time.Millisecond // between two counts that somebody over the quota asks for
	share      = 20
	timeout    = 5 * time.Second
)

// DB is a pool.
type DB interface {
	store.DBTX
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Opts set up a Book; DB and Log are required.
type Opts struct {
	DB  DB
	Log *slog.Logger
}

// Book is a process's copy of what tenants may have and what they have. A nil
// Book bounds nothing. It is safe for concurrent use.
type Book struct {
	Opts
	counting sync.Mutex // one look at the database at a time

	mu     sync.RWMutex
	set    map[string]store.Bounds
	counts map[string]store.Counted
	took   time.Duration // the last count
	asked  time.Time     // when somebody over the quota had it made anew
	own    map[string]*own
	rates  map[string]*permits
}

// own is what this process let in of a tenant and the count cannot have seen.
type own struct {
	underway int // let in, and not known to be committed
	since    []let
}

// let are tasks whose commit was known at a time.
type let struct {
	at time.Time
	n  int
}

// New makes a Book and reads it for the first time. Run keeps it current.
func New(ctx context.Context, o Opts) (*Book, error) {
	b := &Book{Opts: o, own: map[string]*own{}, rates: map[string]*permits{}}
	return b, b.Refresh(ctx)
}

// Run keeps the copy current until ctx ends, and counts for all processes
// whenever none did in the last second.
func (b *Book) Run(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limit, cancel := context.WithTimeout(ctx, timeout)
		if err := b.Count(limit); err != nil && ctx.Err() == nil {
			b.Log.Warn("quotas not counted", "error", err)
		}
		cancel()
	}
}

// Count counts what tenants have, unless another process did just now, and reads
// the copy again.
func (b *Book) Count(ctx context.Context) error {
	b.counting.Lock()
	defer b.counting.Unlock()
	b.mu.RLock()
	age := max(countAge, share*b.took)
	b.mu.RUnlock()
	return b.recount(ctx, age)
}

// Refresh reads what is set and what was counted.
func (b *Book) Refresh(ctx context.Context) error {
	b.counting.Lock()
	defer b.counting.Unlock()
	return b.reread(ctx)
}

// again counts now for whoever finds a tenant over its quota, for tasks may have
// left the queue meanwhile. Not often: those who come too soon do with the last.
func (b *Book) again(ctx context.Context) error {
	b.counting.Lock()
	defer b.counting.Unlock()
	b.mu.Lock()
	pause := max(againAfter, share*b.took)
	early := time.Since(b.asked) < pause
	if !early {
		b.asked = time.Now()
	}
	b.mu.Unlock()
	if early {
		return nil
	}
	return b.recount(ctx, pause)
}

func (b *Book) recount(ctx context.Context, age time.Duration) error {
	if err := b.count(ctx, age); err != nil {
		return err
	}
	return b.reread(ctx)
}

// count is one transaction: the counts of all tenants are made anew, where any
// has a quota that needs them. If the process dies before the commit another
// one counts a second later.
func (b *Book) count(ctx context.Context, age time.Duration) error {
	return pgx.BeginTxFunc(ctx, b.DB, store.ReadCommitted, func(tx pgx.Tx) error {
		mine, err := store.LockCounts(ctx, tx, age)
		if err != nil || !mine || !b.countsQueued() {
			return err
		}
		began := time.Now()
		if err := store.CountQueued(ctx, tx); err != nil {
			return err
		}
		b.mu.Lock()
		b.took = time.Since(began)
		b.mu.Unlock()
		return nil
	})
}

// countsQueued says whether any tenant has a bound of what is queued.
func (b *Book) countsQueued() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.set {
		if s.Queued != nil {
			return true
		}
	}
	return false
}

func (b *Book) reread(ctx context.Context) error {
	set, err := store.AllBounds(ctx, b.DB)
	if err != nil {
		return err
	}
	began := time.Now()
	var counts []store.Counted
	if len(set) > 0 {
		if counts, err = store.AllCounts(ctx, b.DB); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set, b.counts = make(map[string]store.Bounds, len(set)), make(map[string]store.Counted, len(counts))
	for _, s := range set {
		b.set[s.Tenant] = s
	}
	for _, c := range counts {
		b.counts[c.Tenant] = c
	}
	if last, ok := b.counts[store.AnyTenant]; ok {
		b.forget(began.Add(-last.Age))
	}
	maps.DeleteFunc(b.rates, func(tenant string, _ *permits) bool { return math.IsInf(b.of(tenant).Requests, 1) })
	return nil
}

// forget drops what was committed before a count began: it has seen that. Times
// are this process's own, and only spans of the database's clock are compared
// with them.
func (b *Book) forget(before time.Time) {
	for tenant, o := range b.own {
		kept := o.since[:0]
		for _, l := range o.since {
			if !l.at.Before(before) {
				kept = append(kept, l)
			}
		}
		if o.since = kept; len(kept) == 0 && o.underway == 0 {
			delete(b.own, tenant)
		}
	}
}

// Of are the quotas that hold for a tenant.
func (b *Book) Of(tenant string) Bounds {
	if b == nil {
		return none()
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.of(tenant)
}

func (b *Book) of(tenant string) Bounds {
	any, own, n := b.set[store.AnyTenant], b.set[tenant], none()
	return Bounds{
		Requests: or(own.Requests, or(any.Requests, n.Requests)),
		Queued:   or(own.Queued, or(any.Queued, n.Queued)),
	}
}
