package gate

import (
	"context"
	"slices"
	"sync"
)

// slots is this process's share of one bound. used exceeds it only where it
// became smaller while more was under way.
type slots struct {
	name  Name
	limit int
	kick  func()

	mu      sync.Mutex
	share   int
	used    int
	asked   int // tries that failed since the last look
	waiters []chan struct{}
}

func (s *slots) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // also where there is room: whoever enters again and again would never hear of its end
	}
	s.mu.Lock()
	if s.used < s.share && len(s.waiters) == 0 {
		s.used++
		s.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	s.waiters = append(s.waiters, mine)
	s.mu.Unlock()
	s.kick()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiters, mine); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
		return ctx.Err()
	}
	s.used-- // given while we left
	s.serve()
	return ctx.Err()
}

func (s *slots) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used < s.share && len(s.waiters) == 0 {
		s.used++
		return true
	}
	s.asked++
	s.kick()
	return false
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.serve()
}

// serve lets in those who wait; the caller holds mu.
func (s *slots) serve() {
	for s.used < s.share && len(s.waiters) > 0 {
		close(s.waiters[0])
		s.waiters = s.waiters[1:]
		s.used++
	}
}

// demand is how many this process could use, and the bound of all.
func (s *slots) demand() (wanted, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.used+len(s.waiters)+s.asked, s.limit), s.limit
}

// resize changes the bound of all. A share that is too large by now is taken back by the next round.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.share = min(s.share, limit)
}

func (s *slots) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters)+s.asked > 0
}

// lower makes the share at most n and returns how many are under way: more than
// n may be, and none is let in before they are fewer.
func (s *slots) lower(n int) (used int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = min(s.share, n)
	s.asked = 0
	return s.used
}

// set is the share that was committed.
func (s *slots) set(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = n
	s.serve()
}

// divide gives each of several who want something of limit as much of it as is
// fair: whoever wants less than an equal part gets that, the others share what
// is left. What nobody wants is held in reserve in equal parts, so that the
// next one need not ask first. turn says who comes first where it does not come
// out even: everybody in turn, so that a bound of one is no bound to one process.
func divide(limit int, wants []int, turn int) []int {
	turn %= max(1, len(wants))
	wants = append(slices.Clone(wants[turn:]), wants[:turn]...)
	parts := divided(limit, wants)
	turn = len(parts) - turn
	return append(parts[turn:], parts[:turn]...)
}

func divided(limit int, wants []int) []int {
	parts := make([]int, len(wants))
	left := limit
	for left > 0 {
		var open []int
		for i, w := range wants {
			if parts[i] < w {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			break
		}
		each := max(1, left/len(open))
		for _, i := range open {
			n := min(each, wants[i]-parts[i], left)
			parts[i] += n
			left -= n
		}
	}
	for i := range parts {
		n := left / (len(parts) - i)
		parts[i] += n
		left -= n
	}
	return parts
}
