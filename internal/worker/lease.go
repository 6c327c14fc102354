package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// ErrLeaseLost is the cause of a context whose incarnation is no longer alive.
var ErrLeaseLost = errors.New("the worker's lease ran out")

// LeaseConfig says who leases and for how long.
type LeaseConfig struct {
	Connect func(ctx context.Context) (*pgx.Conn, error) // a connection of its own
	Worker  store.Worker                                 // Incarnation is set here
	Lease   time.Duration
	Log     *slog.Logger
	Clock   func() time.Duration // suspend-proof; nil means the machine's
	// OnBeat is called after each good heartbeat, on the lease's connection.
	OnBeat func(ctx context.Context, conn *pgx.Conn, incarnation task.ID)
}

// Lease keeps this process's incarnation alive. The age of the lease counts
// from the start of the last good heartbeat. Past two thirds of it all local
// work is cancelled, the old row is never refreshed again, and a fresh
// incarnation is registered: whoever holds the old one is fenced.
type Lease struct {
	c LeaseConfig

	mu   sync.Mutex
	now  *Incarnation
	stop context.CancelFunc
	done chan struct{}
	conn *pgx.Conn
}

// Incarnation is one life of this process as an owner of tasks. Its context
// ends, with cause ErrLeaseLost, when it must not work any more.
type Incarnation struct {
	ID  task.ID
	Ctx context.Context

	end   context.CancelCauseFunc
	lease *Lease
	good  time.Duration // clock at the start of the last good heartbeat
}

// StartLease registers the first incarnation and keeps it alive until Stop.
func StartLease(ctx context.Context, c LeaseConfig) (*Lease, error) {
	if c.Clock == nil {
		c.Clock = bootClock
	}
	l := &Lease{c: c, done: make(chan struct{})}
	if err := l.register(ctx); err != nil {
		return nil, err
	}
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.run(loop)
	return l, nil
}

// Current is the living incarnation, or nil while there is none.
func (l *Lease) Current() *Incarnation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil || !l.fresh(l.now) {
		return nil
	}
	return l.now
}

// Fresh says whether i may still send: it is read again just before each send.
func (i *Incarnation) Fresh() bool {
	i.lease.mu.Lock()
	defer i.lease.mu.Unlock()
	return i.lease.now == i && i.lease.fresh(i)
}

func (l *Lease) fresh(i *Incarnation) bool { return l.c.Clock()-i.good < l.c.Lease*2/3 }

// Stop ends the incarnation: its row says that nothing will be sent any more.
// All local work must have ended before.
func (l *Lease) Stop(ctx context.Context) {
	l.stop()
	<-l.done
	if i := l.now; i != nil {
		i.end(ErrLeaseLost)
		err := failpoint.Hit(failpoint.SignOffBefore)
		if err == nil {
			err = l.signOff(ctx, i.ID)
		}
		if err != nil {
			l.c.Log.Warn("incarnation not signed off", "incarnation", i.ID, "error", err)
		}
	}
	l.close(ctx)
}

func (l *Lease) signOff(ctx context.Context, id task.ID) error {
	limit, cancel := context.WithTimeout(ctx, l.c.Lease/4)
	defer cancel()
	if err := l.connect(limit); err != nil { // the last beat may have lost it
		return err
	}
	return store.StopWorker(limit, l.conn, id)
}

func (l *Lease) run(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(l.c.Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.beat(ctx)
	}
}

// beat renews the incarnation, or replaces it when it is too old.
func (l *Lease) beat(ctx context.Context) {
	l.mu.Lock()
	i := l.now
	if i != nil && !l.fresh(i) {
		l.lose(i)
		i = nil
	}
	l.mu.Unlock()
	if i == nil {
		if err := l.register(ctx); err != nil {
			l.c.Log.Warn("no new incarnation yet", "error", err)
		}
		return
	}
	if failpoint.Hit(failpoint.HeartbeatBefore) != nil {
		return
	}
	// A stop waits for a beat under way: cut off, it would take the connection
	// with it over which the incarnation is signed off.
	ctx = context.WithoutCancel(ctx)
	start := l.c.Clock()
	alive, err := l.renew(ctx, i.ID)
	if err != nil {
		l.c.Log.Warn("heartbeat missed", "incarnation", i.ID, "error", err)
		l.close(ctx)
		return
	}
	l.mu.Lock()
	if !alive {
		l.lose(i)
		l.mu.Unlock()
		return
	}
	i.good = start
	l.mu.Unlock()
	if l.c.OnBeat != nil {
		limit, cancel := context.WithTimeout(ctx, l.c.Lease/4)
		defer cancel()
		l.c.OnBeat(limit, l.conn, i.ID)
	}
}

// lose ends an incarnation for good; the caller holds mu.
func (l *Lease) lose(i *Incarnation) {
	i.end(ErrLeaseLost)
	l.now = nil
	leasesLost.WithLabelValues().Inc()
	l.c.Log.Error("lease lost: all local work was cancelled", "incarnation", i.ID, "age_ms", (l.c.Clock() - i.good).Milliseconds())
}

func (l *Lease) renew(ctx context.Context, id task.ID) (bool, error) {
	limit, cancel := context.WithTimeout(ctx, l.c.Lease/4)
	defer cancel()
	if err := l.connect(limit); err != nil {
		return false, err
	}
	return store.Heartbeat(limit, l.conn, id, l.c.Lease)
}

func (l *Lease) register(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, l.c.Lease)
	defer cancel()
	if err := l.connect(limit); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.IncarnationRegisters); err != nil {
		return err
	}
	w := l.c.Worker
	w.Incarnation = task.NewToken()
	start := l.c.Clock()
	if err := store.RegisterWorker(limit, l.conn, w, l.c.Lease); err != nil {
		l.close(ctx)
		return err
	}
	life, end := context.WithCancelCause(context.Background())
	l.mu.Lock()
	l.now = &Incarnation{ID: w.Incarnation, Ctx: life, end: end, lease: l, good: start}
	l.mu.Unlock()
	return nil
}

func (l *Lease) connect(ctx context.Context) error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	conn, err := l.c.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect for the heartbeat: %w", err)
	}
	l.conn = conn
	return nil
}

func (l *Lease) close(ctx context.Context) {
	if l.conn == nil {
		return
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = l.conn.Close(limit)
	l.conn = nil
}
