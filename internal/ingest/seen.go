package ingest

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

const seenEvery = time.Second

// seen counts which secret verified how many deliveries, so that one can see when all senders have the new one. The
// counts are written each second; a process that is killed loses the last one's, which is no promise of ours.
type seen struct {
	db  store.DBTX
	log *slog.Logger

	mu     sync.Mutex
	counts map[store.SecretUse]int64
	stop   chan struct{}
	done   chan struct{}
}

func newSeen(db store.DBTX, log *slog.Logger) *seen {
	s := &seen{db: db, log: log, counts: map[store.SecretUse]int64{}, stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *seen) add(source, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[store.SecretUse{Source: source, Secret: secret}]++
}

func (s *seen) close() {
	close(s.stop)
	<-s.done
}

func (s *seen) run() {
	defer close(s.done)
	t := time.NewTicker(seenEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.write()
		case <-s.stop:
			s.write()
			return
		}
	}
}

func (s *seen) write() {
	s.mu.Lock()
	counts := s.counts
	s.counts = map[store.SecretUse]int64{}
	s.mu.Unlock()
	if len(counts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), auditTimeout)
	defer cancel()
	if err := store.AddSecretUses(ctx, s.db, counts); err != nil {
		s.log.Warn("uses of source secrets not counted", "error", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		for use, n := range counts {
			s.counts[use] += n
		}
	}
}
