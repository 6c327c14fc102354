// Package upkeep decides what becomes of work that nobody finishes: tasks whose
// worker is gone, tasks without a wake-up, deadlines that pass while a task
// waits, rows past their retention.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

var reapedTotal = telemetry.Counter("tasks_reaped_total", "Running tasks taken from workers whose lease ran out.", "kind")

// Config is what upkeep works with; all fields but Fair, Retries,
// Random and Clock are required.
type Config struct {
	Connect  func(ctx context.Context) (*pgx.Conn, error) // a connection of its own
	Kinds    *kinds.Book
	Outbox   *outbox.Outbox
	Notifier *job.Notifier
	Fair     *fair.Clock // where stopped tasks go on; nil: where they were
	Lease    time.Duration
	// Longest is the largest total timeout of any kind: a task that runs longer
	// than it and two leases is taken, whoever owns it.
	Longest time.Duration
	Log     *slog.Logger
	// Reviewed is told what the reconciler puts into review; nil: only the log is.
	Reviewed func(what api.ReviewWhat, reason api.ReviewReason, count int)
	Retries  *task.Retries // the process's budget for calling again; nil means no limit
	Random   func() float64
	Clock    func() time.Duration
}

// most bounds the rows of one round's transaction.
const most = 200

// Upkeep runs the rounds of one process. Any number of processes may run it:
// each round is held by one of them.
type Upkeep struct {
	Config
	conn    *pgx.Conn
	process task.ID // names this Upkeep in elections
	began   time.Time

	mu    sync.Mutex // one round at a time in this process
	since time.Duration
	last  time.Duration
	round int
	looks looks

	queues  []string // hints of the transaction under way
	settled []outbox.Moved
	taken   map[string]int // tasks taken from lost workers, by kind
}

// New makes an Upkeep; Run works it.
func New(c Config) *Upkeep {
	if c.Random == nil {
		c.Random = task.Random
	}
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() time.Duration { return time.Since(start) }
	}
	return &Upkeep{Config: c, since: -1, process: task.NewToken(), began: time.Now()}
}

// Run works rounds until ctx ends: one every quarter of a lease, at least every
// second.
func (u *Upkeep) Run(ctx context.Context) {
	every := max(100*time.Millisecond, min(time.Second, u.Lease/4))
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer u.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := u.Round(ctx); err != nil && ctx.Err() == nil {
			u.Log.Warn("upkeep round not done", "error", err)
		}
	}
}

// Round works one round. It judges workers only after it has read the database
// without a gap for one lease: after a restart of Postgres everyone looks dead.
func (u *Upkeep) Round(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	limit, cancel := context.WithTimeout(ctx, max(u.Lease, 10*time.Second))
	defer cancel()
	if err := u.connect(limit); err != nil {
		u.since = -1
		return err
	}
	now := u.Clock()
	if u.since < 0 || now-u.last > u.Lease/2 {
		u.since = now
	}
	steps := []func(context.Context) error{u.gates, u.promote, u.overdue, u.sweep, u.effects}
	if now-u.since >= u.Lease {
		steps = append(steps, u.reap)
		if !u.looks.done || now-u.looks.at >= reconcileEvery {
			u.looks.done, u.looks.at = true, now
			steps = append(steps, u.reconcile)
		}
	}
	u.round++
	var errs []error
	for _, step := range steps {
		if err := step(limit); err != nil {
			errs = append(errs, err)
		}
	}
	err := errors.Join(errs...)
	if err != nil && (u.conn == nil || u.conn.IsClosed() || store.Away(err)) {
		u.since = -1
		u.close()
		return err
	}
	u.last = u.Clock()
	return err
}

// locks are the advisory locks of the kinds of rounds ("of" and a number): each
// is held within one short transaction, never by a session, for a stopped
// holder would stop all upkeep.
const (
	lockReap int64 = 0x6f660001 + iota
	lockSweep
	lockOverdue
	lockEffects
	lockPurge
	lockGates
	lockReconcile
	lockDue
)

// elected runs f in a transaction if no other process is at the same round.
func (u *Upkeep) elected(ctx context.Context, lock int64, f func(tx pgx.Tx) error) error {
	u.queues, u.settled, u.taken = nil, nil, map[string]int{}
	if err := electedOn(ctx, u.conn, lock, f); err != nil {
		return err
	}
	u.Notifier.Queues(u.queues...)
	outbox.CountMoved(u.settled)
	for kind, n := range u.taken {
		reapedTotal.WithLabelValues(kind).Add(float64(n))
	}
	for _, m := range u.settled {
		u.Notifier.Settled(m.Row.ID)
	}
	return nil
}

func electedOn(ctx context.Context, conn *pgx.Conn, lock int64, f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, conn, store.ReadCommitted, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, lock).Scan(&mine); err != nil {
			return fmt.Errorf("take the upkeep lock: %w", err)
		}
		if !mine {
			return nil
		}
		return f(tx)
	})
}

// hint notes whom to tell once the present transaction has committed.
func (u *Upkeep) hint(queues []string, settled []outbox.Moved) {
	u.queues = append(u.queues, queues...)
	u.settled = append(u.settled, settled...)
}

func (u *Upkeep) connect(ctx context.Context) error {
	if u.conn != nil && !u.conn.IsClosed() {
		return nil
	}
	conn, err := u.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect for upkeep: %w", err)
	}
	u.conn = conn
	return nil
}

func (u *Upkeep) close() {
	if u.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = u.conn.Close(ctx)
	u.conn = nil
}
