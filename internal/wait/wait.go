package wait

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Config is what a Waiter works with. Pool, Connect and Log are required.
type Config struct {
	Pool store.DBTX // for reading
	// Connect opens the connection that listens: a direct one, past any pooler.
	Connect func(context.Context) (*pgx.Conn, error)
	Log     *slog.Logger
	// Every is how often all that is waited for is read without a hint; 2 s when
	// 0. It bounds what a lost hint costs.
	Every time.Duration
	// Timeout of one read; 5 s when 0.
	Timeout time.Duration
}

// Waiter serves all who wait in a process.
type Waiter struct {
	cfg  Config
	ring chan struct{} // there is something to read

	mu    sync.Mutex
	tasks map[task.ID]*waited
	all   bool // every task is to be read
}

// waited is one task somebody waits for.
type waited struct {
	dirty   bool // to be read
	waiters map[*waiter]struct{}
}

// waiter is one who waits. Its channel holds the newest news only.
type waiter struct {
	settled func(*task.Row) bool
	news    chan news
}

// news is what a read found: the row, or nil where there is none, or that the
// read failed.
type news struct {
	row *task.Row
	err error
}

// New makes a Waiter. Nobody is served until Run runs.
func New(c Config) *Waiter {
	if c.Every <= 0 {
		c.Every = 2 * time.Second
	}
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Second
	}
	return &Waiter{cfg: c, ring: make(chan struct{}, 1), tasks: map[task.ID]*waited{}}
}

// Wait reads a task, of any tenant, until settled holds for it or the timeout
// is over, and returns it as last read. The row is shared with others: it must
// not be changed, and a large result is left out (store.MaxWaitedResult). It is
// nil when there is no such task, or no longer.
//
// The error is that of ctx, or that of reading when the task could not be read
// even once; a read that fails later is tried again while time is left.
func (w *Waiter) Wait(ctx context.Context, id task.ID, settled func(*task.Row) bool, timeout time.Duration) (*task.Row, error) {
	me := &waiter{settled: settled, news: make(chan news, 1)}
	w.register(id, me)
	defer w.leave(id, me)
	over := time.NewTimer(timeout)
	defer over.Stop()
	var last *task.Row
	for {
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case n := <-me.news:
			switch {
			case n.err != nil && last == nil:
				return nil, n.err
			case n.err != nil:
			case n.row == nil:
				return nil, nil
			default:
				last = n.row
				if settled(last) {
					return last, nil
				}
			}
		case <-over.C:
			if last == nil {
				return nil, api.Errorf(api.CodeUnavailable, "the task could not be read in time").WithRetryAfter(time.Second)
			}
			return last, nil
		}
	}
}

func (w *Waiter) register(id task.ID, me *waiter) {
	w.mu.Lock()
	t := w.tasks[id]
	if t == nil {
		t = &waited{waiters: map[*waiter]struct{}{}}
		w.tasks[id] = t
	}
	t.waiters[me] = struct{}{}
	t.dirty = true
	w.mu.Unlock()
	w.wake()
}

func (w *Waiter) leave(id task.ID, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tasks[id]
	delete(t.waiters, me)
	if len(t.waiters) == 0 {
		delete(w.tasks, id)
	}
}

// Waiting is how many tasks are waited for.
func (w *Waiter) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tasks)
}

func (w *Waiter) wake() {
	select {
	case w.ring <- struct{}{}:
	default:
	}
}

// hint marks tasks to be read, all of them without ids.
func (w *Waiter) hint(ids []task.ID) {
	w.mu.Lock()
	found := ids == nil && len(w.tasks) > 0
	if ids == nil {
		w.all = true
	}
	for _, id := range ids {
		if t := w.tasks[id]; t != nil {
			t.dirty, found = true, true
		}
	}
	w.mu.Unlock()
	if found {
		w.wake()
	}
}
