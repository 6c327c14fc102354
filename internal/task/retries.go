package task

import (
	"math"
	"sync"
	"time"
)

// What a process may spend on calling again (design section 7): a tenth of its
// calls, and 5 a second where it makes few.
const (
	retryShare = 0.1
	retryFloor = 5.0             // a second
	retryBurst = 2.0             // seconds of the rate that may be used at once
	retrySpan  = 3 * time.Second // over which the rate of calls is taken
)

// Retries is a process's budget for calling again. It delays and never fails:
// a provider in trouble is not buried under the second tries of everything that
// went wrong before. It is safe for concurrent use.
type Retries struct {
	clock func() time.Duration

	mu     sync.Mutex
	at     time.Duration // when the two below were brought up to date
	rate   float64       // calls a second, lately
	tokens float64       // may be negative: what was promised ahead
}

// NewRetries makes a budget on a clock that never goes back.
func NewRetries(clock func() time.Duration) *Retries {
	return &Retries{clock: clock, at: clock(), tokens: retryFloor * retryBurst}
}

// Called notes a call, first or not.
func (r *Retries) Called() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	r.rate += 1 / retrySpan.Seconds()
}

// Take takes one retry and says how long it is to be put off, usually not at all.
func (r *Retries) Take() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	r.tokens--
	if r.tokens >= 0 {
		return 0
	}
	return time.Duration(-r.tokens / r.allowed() * float64(time.Second))
}

// Pace puts a retry that is due after a time off as far as the budget asks for,
// but never so far that a call of that length would not fit in before what is
// left runs out: it delays and never fails.
func (r *Retries) Pace(after, left, call time.Duration) time.Duration {
	return max(after, min(after+r.Take(), left-call))
}

// allowed is how many retries a second there may be.
func (r *Retries) allowed() float64 { return max(retryFloor, retryShare*r.rate) }

// update lets the time since the last look pass: the rate of calls fades, and
// tokens come in.
func (r *Retries) update() {
	now := r.clock()
	d := (now - r.at).Seconds()
	r.at = now
	r.tokens = min(r.tokens+d*r.allowed(), r.allowed()*retryBurst)
	r.rate *= math.Exp(-d / retrySpan.Seconds())
}
