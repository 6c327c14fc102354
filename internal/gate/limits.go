package gate

import (
	"context"
	"time"
)

// Limit bounds what is under way over all processes; zero fields do not.
type Limit struct {
	Concurrency int
	// Requests may begin in any span of Per (a minute if zero).
	Requests int
	Per      time.Duration
	// TokensPerMinute are counted with what the calls took; what is under way is
	// guessed from the calls before.
	TokensPerMinute int
}

type limits struct{}

func newLimits(*Board) *limits { return &limits{} }

func (l *limits) run(ctx context.Context) { <-ctx.Done() }
