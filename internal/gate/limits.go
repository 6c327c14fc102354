package gate

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Limit bounds what is under way over all processes; zero fields do not.
type Limit struct {
	Concurrency int
	// Requests may begin in any span of Per (a minute if zero). Not for kinds.
	Requests int
	Per      time.Duration
	// TokensPerMinute are counted with what the calls took; what is under way is
	// guessed from the calls before. Not for kinds.
	TokensPerMinute int
}

// limits are a process's shares and permits of what is bounded.
type limits struct {
	b    *Board
	kick chan struct{}

	mu    sync.RWMutex
	set   map[Name]Limit
	slots map[Name]*slots
	rates map[Name]*rate
}

func newLimits(b *Board) *limits {
	l := &limits{b: b, set: map[Name]Limit{}, slots: map[Name]*slots{}, rates: map[Name]*rate{}, kick: make(chan struct{}, 1)}
	for n, limit := range b.Limits {
		l.put(n, limit)
	}
	return l
}

// put bounds n by limit from now on. What is under way under another bound gives its place back there.
func (l *limits) put(n Name, limit Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set[n] == limit {
		return
	}
	l.set[n] = limit
	switch s := l.slots[n]; {
	case limit.Concurrency <= 0:
		delete(l.slots, n)
	case s != nil:
		s.resize(limit.Concurrency)
	default:
		l.slots[n] = &slots{name: n, limit: limit.Concurrency, kick: l.want}
	}
	if r := l.rates[n]; r != nil {
		r.end()
		delete(l.rates, n)
	}
	if limit.Requests > 0 || limit.TokensPerMinute > 0 {
		l.rates[n] = newRate(l.b, n, limit)
	}
}

// at is what bounds n, nil where nothing does.
func (l *limits) at(n Name) (*slots, *rate) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.slots[n], l.rates[n]
}

// all are the bounds there are now.
func (l *limits) all() (map[Name]*slots, map[Name]*rate) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return maps.Clone(l.slots), maps.Clone(l.rates)
}

func (l *limits) want() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Pass is leave to begin one thing. A nil Pass bounds nothing.
type Pass struct {
	slots  *slots
	rate   *rate
	tokens float64 // guessed
	once   sync.Once
}

// Enter waits until one more may be under way at n, over all processes, and
// until the rate allows another one to begin. The caller gives the pass back
// with Leave or Unused. The error is ctx's.
func (b *Board) Enter(ctx context.Context, n Name) (*Pass, error) {
	if b == nil {
		return nil, nil
	}
	p := &Pass{}
	p.slots, p.rate = b.limits.at(n)
	if p.slots != nil {
		if err := p.slots.acquire(ctx); err != nil {
			return nil, err
		}
	}
	if p.rate != nil {
		tokens, err := p.rate.acquire(ctx)
		if err != nil {
			p.rate = nil
			p.Leave()
			return nil, err
		}
		p.tokens = tokens
	}
	return p, nil
}

// TryEnter is Enter without waiting, and without the rate: false when this
// process's share of n is used up. It asks for a larger one then.
func (b *Board) TryEnter(n Name) (*Pass, bool) {
	if b == nil {
		return nil, true
	}
	s, _ := b.limits.at(n)
	if s == nil {
		return nil, true
	}
	if !s.try() {
		return nil, false
	}
	return &Pass{slots: s}, true
}

// Bounded says whether what is under way at n has a bound.
func (b *Board) Bounded(n Name) bool {
	if b == nil {
		return false
	}
	s, _ := b.limits.at(n)
	return s != nil
}

// Adopted is a gate that a running process takes on: its present credential, nil where it has none, and its bounds.
type Adopted struct {
	Gate       Name
	Credential func() telemetry.Secret
	Limit      Limit
}

// Adopt takes on gates, in place of what was known of each of them: destinations that were made or changed while the
// process runs. Run has to be running for what is bounded to let anything in.
func (b *Board) Adopt(ctx context.Context, all []Adopted) error {
	var names, rated []Name
	b.mu.Lock()
	for _, a := range all {
		names = append(names, a.Gate)
		if b.Credentials == nil {
			b.Credentials = map[Name]func() telemetry.Secret{}
		}
		if delete(b.Credentials, a.Gate); a.Credential != nil {
			b.Credentials[a.Gate] = a.Credential
		}
		if a.Limit.Requests > 0 || a.Limit.TokensPerMinute > 0 {
			rated = append(rated, a.Gate)
		}
	}
	b.mu.Unlock()
	if err := b.ensure(ctx, b.Pool, names); err != nil {
		return err
	}
	if err := store.EnsureRates(ctx, b.Pool, rated); err != nil {
		return err
	}
	for _, a := range all {
		b.limits.put(a.Gate, a.Limit)
	}
	b.limits.want()
	return nil
}

// Leave gives the place back. What was begun counts for the rate, with the
// tokens that were guessed, unless Took said better.
func (p *Pass) Leave() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		if p.slots != nil {
			p.slots.release()
		}
	})
}

// Unused gives the place back, and the permit, for nothing was begun.
func (p *Pass) Unused() {
	if p == nil {
		return
	}
	if p.rate != nil {
		p.rate.back(p.tokens)
		p.rate = nil
	}
	p.Leave()
}

// Took says how many tokens it was in the end; 0 where the other side turned it
// away.
func (p *Pass) Took(tokens int64) {
	if p == nil || p.rate == nil {
		return
	}
	p.rate.took(p.tokens, float64(tokens))
}
