package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
)

// maxQueued is how many effects of one destination wait in this process for a place within its bounds, and enterFor how
// long: less than a lease, so that the sweep does not take their wake-ups for lost.
const (
	maxQueued = 8
	enterFor  = 8 * time.Second
)

// queued counts the effects that wait for a place, by destination.
type queued struct {
	mu sync.Mutex
	at map[string]int
}

func (q *queued) begin(destination string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at == nil {
		q.at = map[string]int{}
	}
	if q.at[destination] >= maxQueued {
		return false
	}
	q.at[destination]++
	return true
}

func (q *queued) end(destination string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at[destination]--; q.at[destination] == 0 {
		delete(q.at, destination)
	}
}

// bounded says whether a destination has a bound over all processes.
func bounded(to *config.Destination) bool { return to != nil && (to.Concurrency > 0 || to.Rate > 0) }

// enter waits until one more delivery may begin at the effect's destination. It owns nothing meanwhile: the effect waits,
// and whoever marks it first has it. full says that it waited in vain, or that enough others wait here already.
func (o *Outbox) enter(ctx context.Context, id uuid.UUID) (pass *gate.Pass, full bool, err error) {
	if o.Gates == nil || !o.anyBounded() {
		return nil, false, nil
	}
	name, err := store.DestinationOf(ctx, o.Pool, id)
	if err != nil {
		return nil, false, err
	}
	n := gate.Destination(name)
	if !bounded(o.destination(name)) || !o.Gates.Open(n) { // a closed one is put back by the mark
		return nil, false, nil
	}
	if !o.queued.begin(name) {
		return nil, true, nil
	}
	defer o.queued.end(name)
	limit, cancel := context.WithTimeout(ctx, enterFor)
	defer cancel()
	pass, err = o.Gates.Enter(limit, n)
	return pass, err != nil, nil
}

func (o *Outbox) anyBounded() bool {
	for _, to := range o.Destinations.All() {
		if bounded(to) {
			return true
		}
	}
	return false
}
