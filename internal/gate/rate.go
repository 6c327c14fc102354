package gate

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

const (
	rateTimeout = 5 * time.Second
	// spareFor is how long a permit that was not used may be used by the next one.
	spareFor = time.Second
	// firstGuess is how many tokens a call is thought to take while none has been
	// counted; learn is how much each one counted moves the guess.
	firstGuess = 1000
	learn      = 0.1
	ratePause  = 500 * time.Millisecond // between two tries while the database is away
)

// rate hands out permits to begin something. One goroutine takes them from the
// database for all who wait, several at a time: the row is written once for many.
type rate struct {
	b    *Board
	name Name
	max  store.Rate // Cost is that of one token
	kick chan struct{}
	over chan struct{} // closed when the bound is no more

	mu      sync.Mutex
	waiters []chan float64 // told how many tokens were guessed
	spare   []spare
	guess   float64
	owed    float64 // tokens taken beyond those guessed, not yet told
}

type spare struct {
	tokens float64
	until  time.Time
}

// newRate makes a bound that holds for any span of Per: what may be saved up,
// a thirtieth of it, is taken off the speed, and so is the second by which a
// permit may be used late.
func newRate(b *Board, n Name, limit Limit) *rate {
	r := &rate{b: b, name: n, guess: firstGuess, kick: make(chan struct{}, 1), over: make(chan struct{})}
	if limit.Per <= 0 {
		limit.Per = time.Minute
	}
	speed := func(n int, per time.Duration) (every, burst time.Duration) {
		saved := max(1, n/30)
		every = (per + spareFor) / time.Duration(n-saved+1)
		if every > time.Microsecond { // the database counts in these
			every = (every + time.Microsecond - 1).Truncate(time.Microsecond)
		}
		return every, every * time.Duration(saved)
	}
	if limit.Requests > 0 {
		r.max.Every, r.max.Burst = speed(limit.Requests, limit.Per)
	}
	if limit.TokensPerMinute > 0 {
		r.max.Cost, r.max.TokenBurst = speed(limit.TokensPerMinute, time.Minute)
	}
	return r
}

// acquire waits for a permit and returns the tokens guessed for it.
func (r *rate) acquire(ctx context.Context) (float64, error) {
	r.mu.Lock()
	for len(r.spare) > 0 {
		s := r.spare[0]
		r.spare = r.spare[1:]
		if time.Now().Before(s.until) {
			r.mu.Unlock()
			return s.tokens, nil
		}
	}
	mine := make(chan float64, 1)
	r.waiters = append(r.waiters, mine)
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	select {
	case tokens := <-mine:
		return tokens, nil
	case <-r.over: // another bound has taken its place, or none: the caller goes on
		return 0, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	i := slices.Index(r.waiters, mine)
	if i >= 0 {
		r.waiters = slices.Delete(r.waiters, i, i+1)
	}
	r.mu.Unlock()
	if i < 0 {
		r.back(<-mine)
	}
	return 0, ctx.Err()
}

// end lets go of all who wait: the bound is no more.
func (r *rate) end() { close(r.over) }

// run takes permits for those who wait until ctx or the bound ends.
func (r *rate) run(ctx context.Context) {
	for {
		wait := r.take(ctx)
		if wait < 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.over:
				return
			case <-r.kick:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.over:
			return
		case <-time.After(wait):
		}
	}
}

// take takes permits once and says how long until there can be more; less than
// 0 when nobody waits.
func (r *rate) take(ctx context.Context) time.Duration {
	r.mu.Lock()
	want, guess := len(r.waiters), r.guess
	r.mu.Unlock()
	if want == 0 {
		return -1
	}
	got, wait, err := r.ask(ctx, want, guess)
	if err != nil {
		if ctx.Err() == nil {
			r.b.Log.Warn("permits not taken", "name", r.name.Name, "error", err)
		}
		return ratePause
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range got {
		if len(r.waiters) == 0 {
			r.spare = append(r.spare, spare{guess, time.Now().Add(spareFor)})
			continue
		}
		r.waiters[0] <- guess
		r.waiters = r.waiters[1:]
	}
	if got == want {
		return 0
	}
	return min(wait+time.Duration(r.b.Random()*float64(wait)/10), time.Second)
}

func (r *rate) ask(ctx context.Context, want int, guess float64) (int, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	max := r.max
	max.Cost = time.Duration(guess * float64(r.max.Cost))
	return store.TakeRate(ctx, r.b.Pool, r.name, want, max)
}

// back takes a permit back that was not used.
func (r *rate) back(tokens float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiters) > 0 {
		r.waiters[0] <- tokens
		r.waiters = r.waiters[1:]
		return
	}
	r.spare = append(r.spare, spare{tokens, time.Now().Add(spareFor)})
}

// took learns what a call took.
func (r *rate) took(guessed, tokens float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed += tokens - guessed
	if tokens > 0 {
		r.guess = max(1, r.guess+learn*(tokens-r.guess))
	}
}

// correct tells what was taken beyond the guesses. What a crash keeps from
// being told is what one process guessed wrong in a second.
func (r *rate) correct(ctx context.Context) error {
	r.mu.Lock()
	owed := r.owed
	r.owed = 0
	r.mu.Unlock()
	by := time.Duration(math.Round(owed * float64(r.max.Cost)))
	if r.max.Cost == 0 || by.Abs() < time.Millisecond {
		if r.max.Cost > 0 {
			r.mu.Lock()
			r.owed += owed
			r.mu.Unlock()
		}
		return nil
	}
	if err := store.CorrectTokens(ctx, r.b.Pool, r.name, by); err != nil {
		r.mu.Lock()
		r.owed += owed
		r.mu.Unlock()
		return err
	}
	return nil
}
