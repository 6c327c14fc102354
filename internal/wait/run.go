package wait

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// The listening connection: how long a silence is believed before the server is
// asked for a sign of life, and the pauses between two tries to connect.
const (
	silence    = 30 * time.Second
	signOfLife = 5 * time.Second
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// maxRead bounds the ids of one query.
	maxRead = 10_000
)

// Run reads for those who wait until ctx ends. Those still waiting then go on
// to their own time limits.
func (w *Waiter) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { w.listen(ctx) })
	both.Go(func() { w.read(ctx) })
	both.Wait()
	return nil
}

// read serves one round after another: what came while one was read is in the
// next, so that many who begin to wait at once share a query.
func (w *Waiter) read(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.mu.Lock()
			w.all = true
			w.mu.Unlock()
		case <-w.ring:
		}
		if ids := w.take(); len(ids) > 0 {
			w.round(ctx, ids)
		}
	}
}

// take is what is to be read now.
func (w *Waiter) take() []task.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = false
	var ids []task.ID
	for id, t := range w.tasks {
		if all || t.dirty {
			if len(ids) == maxRead {
				w.all = true
				w.wake()
				break
			}
			t.dirty = false
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *Waiter) round(ctx context.Context, ids []task.ID) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	rows, err := store.TasksWaited(ctx, w.cfg.Pool, ids)
	if err != nil {
		w.cfg.Log.Warn("waited tasks not read", "error", err, "waiters", len(ids))
	}
	found := make(map[task.ID]*task.Row, len(rows))
	for _, r := range rows {
		found[r.ID] = r
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		t := w.tasks[id]
		if t == nil {
			continue
		}
		for me := range t.waiters {
			me.tell(news{row: found[id], err: err})
		}
	}
}

// tell replaces news that was not fetched yet. The caller holds the lock, so
// that nobody else tells at the same time.
func (me *waiter) tell(n news) {
	select {
	case <-me.news:
	default:
	}
	me.news <- n
}

// listen turns hints into reads. While it cannot listen, the rounds of read go
// on by themselves.
func (w *Waiter) listen(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		w.cfg.Log.Warn("not listening for settled tasks, reading them every round", "error", err)
		if time.Since(began) > maxPause {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// session listens on one connection until it breaks.
func (w *Waiter) session(ctx context.Context) error {
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(bye)
	}()
	w.hint(nil) // what was said before is lost
	for {
		n, err := next(ctx, conn)
		if err != nil {
			return err
		}
		if ids, all := store.SettledIDs(n); all {
			w.hint(nil)
		} else {
			w.hint(ids)
		}
	}
}

func (w *Waiter) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, signOfLife)
	defer cancel()
	conn, err := w.cfg.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := store.ListenSettled(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// next is the payload of the next hint. In a long silence it asks the server
// for a sign of life: a connection that died silently would otherwise be
// listened to for ever.
func next(ctx context.Context, conn *pgx.Conn) (string, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, silence)
		n, err := conn.WaitForNotification(wait)
		cancel()
		if err == nil {
			return n.Payload, nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed() {
			return "", fmt.Errorf("wait for hints: %w", err)
		}
		ping, cancel := context.WithTimeout(ctx, signOfLife)
		err = conn.Ping(ping)
		cancel()
		if err != nil {
			return "", fmt.Errorf("look whether the server lives: %w", err)
		}
	}
}
