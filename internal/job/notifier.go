package job

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
)

// Notifier sends hints after commits: which queues have new rows, and which
// tasks have settled. What comes while one hint is under way goes out together
// in the next, so that a busy process sends few. A lost hint costs time only.
type Notifier struct {
	db  store.DBTX
	log *slog.Logger

	mu     sync.Mutex
	closed bool
	queues map[string]bool
	ids    []uuid.UUID
	ring   chan struct{}
	done   chan struct{}
}

// NewNotifier starts a notifier; Close stops it.
func NewNotifier(db store.DBTX, log *slog.Logger) *Notifier {
	n := &Notifier{db: db, log: log, queues: map[string]bool{}, ring: make(chan struct{}, 1), done: make(chan struct{})}
	go n.run()
	return n
}

// Queues says that rows were committed into queues.
func (n *Notifier) Queues(names ...string) {
	n.mu.Lock()
	for _, q := range names {
		n.queues[q] = true
	}
	n.mu.Unlock()
	n.wake(len(names))
}

// Settled says that tasks were committed into a settled state.
func (n *Notifier) Settled(ids ...uuid.UUID) {
	n.mu.Lock()
	n.ids = append(n.ids, ids...)
	n.mu.Unlock()
	n.wake(len(ids))
}

func (n *Notifier) wake(what int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if what == 0 || n.closed {
		return
	}
	select {
	case n.ring <- struct{}{}:
	default:
	}
}

// Close sends what is left and stops. What is added afterwards is not sent.
func (n *Notifier) Close() {
	n.mu.Lock()
	n.closed = true
	close(n.ring)
	n.mu.Unlock()
	<-n.done
}

func (n *Notifier) run() {
	defer close(n.done)
	for range n.ring {
		n.flush()
	}
	n.flush()
}

func (n *Notifier) flush() {
	n.mu.Lock()
	queues, ids := n.queues, n.ids
	n.queues, n.ids = map[string]bool{}, nil
	n.mu.Unlock()
	if failpoint.Hit(failpoint.SubmitBeforeNotify) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := store.NotifyQueues(ctx, n.db, queues); err != nil {
		n.log.Debug("hint lost", "error", err)
	}
	if len(ids) > 0 {
		if err := store.NotifySettled(ctx, n.db, ids); err != nil {
			n.log.Debug("hint lost", "error", err)
		}
	}
}
