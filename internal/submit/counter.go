package submit

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// countEvery bounds how far the shown number of duplicates may lag behind.
const countEvery = 500 * time.Millisecond

// counter gathers duplicates and writes them in batches, off the path of the
// answers. A process that dies loses the counts of its last half second;
// duplicates are for people to read, no promise rests on them.
type counter struct {
	db  store.DBTX
	log *slog.Logger

	mu     sync.Mutex
	counts map[task.ID]int64
	// refused submits, by the pattern of their key
	conflicts map[store.ConflictKey]store.Conflict
	stop      chan struct{}
	done      chan struct{}
}

func newCounter(db store.DBTX, log *slog.Logger) *counter {
	c := &counter{db: db, log: log, counts: map[task.ID]int64{}, conflicts: map[store.ConflictKey]store.Conflict{}, stop: make(chan struct{}), done: make(chan struct{})}
	go c.run()
	return c
}

func (c *counter) add(id task.ID) {
	c.mu.Lock()
	c.counts[id]++
	c.mu.Unlock()
}

func (c *counter) close() {
	close(c.stop)
	<-c.done
}

func (c *counter) run() {
	defer close(c.done)
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.flush()
			c.flushConflicts()
		case <-c.stop:
			c.flush()
			c.flushConflicts()
			return
		}
	}
}

func (c *counter) flush() {
	c.mu.Lock()
	counts := c.counts
	c.counts = map[task.ID]int64{}
	c.mu.Unlock()
	if len(counts) == 0 {
		return
	}
	ids := make([]task.ID, 0, len(counts))
	for id := range counts {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b task.ID) int { return bytes.Compare(a[:], b[:]) })
	n := make([]int64, len(ids))
	for i, id := range ids {
		n[i] = counts[id]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := store.AddDuplicates(ctx, c.db, ids, n); err != nil {
		c.log.Debug("duplicates not counted yet", "error", err)
		c.mu.Lock()
		for id, k := range counts {
			c.counts[id] += k
		}
		c.mu.Unlock()
	}
}
