package quota

import (
	"context"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

// spareFor is how long a permit that was taken ahead may be used.
const spareFor = 250 * time.Millisecond

// permits are what a process may submit of a tenant at once. They are taken from
// the database, where all processes share them, for a while ahead: as many more
// as were used lately. Permits that are not used in time are lost, never used
// late.
type permits struct {
	mu     sync.Mutex
	spare  int
	until  time.Time // spare ends
	used   int       // since began,
	lately int       // and in the span before
	began  time.Time
	closed time.Time // there is none before
	made   bool      // the row is there
}

func (b *Book) permits(tenant string) *permits {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.rates[tenant]
	if p == nil {
		p = &permits{}
		b.rates[tenant] = p
	}
	return p
}

// take takes up to want permits, and says how long until the next one can be there.
func (p *permits) take(ctx context.Context, db store.DBTX, tenant string, perSecond float64, want int) (got int, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.After(p.until) {
		p.spare = 0
	}
	got = min(want, p.spare)
	p.spare -= got
	defer func() { p.used += got }()
	ahead := p.ahead(now)
	if got == want {
		return got, 0, nil
	}
	if wait = p.closed.Sub(now); wait > 0 {
		return got, wait, nil
	}
	name := store.GateKey{Scope: "tenant", Name: tenant}
	if !p.made {
		if err := store.EnsureRates(ctx, db, []store.GateKey{name}); err != nil {
			return 0, 0, err
		}
		p.made = true
	}
	granted, wait, err := store.TakeRate(ctx, db, name, want-got+ahead, speed(perSecond))
	if err != nil {
		p.made = false
		return 0, 0, err
	}
	now = time.Now()
	more := min(granted, want-got)
	p.spare, p.until = granted-more, now.Add(spareFor)
	if got += more; got == want {
		return got, 0, nil
	}
	p.closed = now.Add(wait)
	return got, wait, nil
}

// ahead is how many more permits will be wanted in this span, going by the one before.
func (p *permits) ahead(now time.Time) int {
	if d := now.Sub(p.began); d > spareFor {
		if p.lately = p.used; d > 2*spareFor {
			p.lately = 0
		}
		p.used, p.began = 0, now
	}
	return max(0, p.lately-p.used)
}

// speed is a rate: what is not used is saved up, for a second at most.
func speed(perSecond float64) store.Rate {
	every := max(time.Duration(float64(time.Second)/perSecond).Truncate(time.Microsecond), time.Microsecond)
	return store.Rate{Every: every, Burst: every * max(1, time.Duration(perSecond))}
}
