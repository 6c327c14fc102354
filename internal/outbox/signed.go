package outbox

import (
	"context"
	"sync"

	"github.com/onefold-dev/onefold/internal/store"
)

// signed counts the deliveries each secret signed since they were last told.
type signed struct {
	mu sync.Mutex
	n  map[[2]string]int64 // destination, secret
}

func (s *signed) add(destination string, secrets []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = map[[2]string]int64{}
	}
	for _, id := range secrets {
		s.n[[2]string{destination, id}]++
	}
}

func (s *signed) take() map[[2]string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.n
	s.n = nil
	return n
}

func (s *signed) back(n map[[2]string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = map[[2]string]int64{}
	}
	for k, v := range n {
		s.n[k] += v
	}
}

// CountSigned adds what was signed to what is counted in the database. It is called every few seconds and at the end;
// what a killed process had not told stands in its deliveries alone.
func (o *Outbox) CountSigned(ctx context.Context) error {
	n := o.signed.take()
	if len(n) == 0 {
		return nil
	}
	all := make([]store.Signer, 0, len(n))
	for k, v := range n {
		all = append(all, store.Signer{Destination: k[0], Secret: k[1], Deliveries: v})
	}
	err := store.AddSigned(ctx, o.Pool, all)
	if err != nil {
		o.signed.back(n)
	}
	return err
}
