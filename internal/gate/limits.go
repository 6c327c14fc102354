package gate

import (
	"context"
	"sync"
	"time"
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
	b     *Board
	slots map[Name]*slots
	rates map[Name]*rate
	kick  chan struct{}
}

func newLimits(b *Board) *limits {
	l := &limits{b: b, slots: map[Name]*slots{}, rates: map[Name]*rate{}, kick: make(chan struct{}, 1)}
	for n, limit := range b.Limits {
		if limit.Concurrency > 0 {
			l.slots[n] = &slots{name: n, limit: limit.Concurrency, kick: l.want}
		}
		if limit.Requests > 0 || limit.TokensPerMinute > 0 {
			l.rates[n] = newRate(b, n, limit)
		}
	}
	return l
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
	p := &Pass{slots: b.limits.slots[n], rate: b.limits.rates[n]}
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
	if b == nil || b.limits.slots[n] == nil {
		return nil, true
	}
	s := b.limits.slots[n]
	if !s.try() {
		return nil, false
	}
	return &Pass{slots: s}, true
}

// Bounded says whether what is under way at n has a bound.
func (b *Board) Bounded(n Name) bool { return b != nil && b.limits.slots[n] != nil }

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
