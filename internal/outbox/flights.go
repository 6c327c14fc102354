package outbox

import (
	"sync"

	"github.com/onefold-dev/onefold/internal/task"
)

// flights are the effects this process is delivering, and how many go to each destination.
type flights struct {
	mu   sync.Mutex
	held map[task.ID]string // effect -> destination
	to   map[string]int
}

func newFlights() *flights {
	return &flights{held: map[task.ID]string{}, to: map[string]int{}}
}

// begin takes a place for an effect; false when this process holds it already or the destination has no place left.
func (f *flights) begin(id task.ID, destination string, limit int) (ok, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, twice := f.held[id]; twice {
		return false, false
	}
	if f.to[destination] >= limit {
		return false, true
	}
	f.held[id] = destination
	f.to[destination]++
	return true, false
}

// end gives the place back.
func (f *flights) end(id task.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to, ok := f.held[id]
	if !ok {
		return
	}
	delete(f.held, id)
	if f.to[to]--; f.to[to] == 0 {
		delete(f.to, to)
	}
}

// holds says whether this process is delivering the effect.
func (f *flights) holds(id task.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.held[id]
	return ok
}

// free is how many places a destination has left, not less than 0.
func (f *flights) free(destination string, limit int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(0, limit-f.to[destination])
}
