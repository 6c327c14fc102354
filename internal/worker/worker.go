// Package worker decides how one attempt at a task runs: claim it under a fence,
// make one call, finish it; and how long this process may own what it claimed.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/group"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// errReleased is the cause of a call cut because this process stops.
var errReleased = errors.New("the worker stops")

// errCancelled is the cause of a call cut because its task was cancelled.
var errCancelled = errors.New("the task was cancelled")

// errDeadline is the cause of a call cut by its task's deadline.
var errDeadline = errors.New("the task's deadline passed")

// Config is what a Worker works with; all fields but Random, Retries and Gates
// are required.
type Config struct {
	Pool      *pgxpool.Pool
	EffectsDB *pgxpool.Pool // the small pool that sql effects run on
	Kinds     *kinds.Book
	Providers map[string]provider.Provider // by name
	Outbox    *outbox.Outbox
	Notifier  *job.Notifier
	Lease     *Lease
	Gates     *gate.Board // nil: everything is open and nothing bounded
	Log       *slog.Logger
	Random    func() float64
	Traces    *tracing.Tracer // nil: no spans are made
	Retries   *task.Retries   // this process's budget for calling again; nil means one of its own
	// Reap applies the reaper's rule to tasks, by id and epoch, that this process
	// owns by the database's word and does not hold.
	Reap func(ctx context.Context, owned map[task.ID]int64)
}

// Worker runs attempts. Its Work is the handler of task wake-ups.
type Worker struct {
	Config
	claims *group.Group[claimRequest, *claimed]
	marks  *group.Group[task.Fence, bool]
	jobs   *group.Group[store.Job, bool]
	ends   *group.Group[*ending, *store.Ended]

	mu       sync.Mutex
	held     map[task.ID]*attempt // nil value: being claimed
	strays   map[task.ID]bool
	passed   map[task.ID]time.Time // tasks put back because this worker cannot run them
	stopping bool
	work     sync.WaitGroup
	waiting  map[task.ID]bool      // held, and not yet let in
	parked   map[store.Parked]bool // groups with tasks parked here for want of a place
	leaving  context.Context       // ends when a stop begins
	leave    context.CancelFunc
}

// New makes a worker; Close ends it after Drain.
func New(c Config) *Worker {
	if c.Random == nil {
		c.Random = task.Random
	}
	if c.Retries == nil {
		start := time.Now()
		c.Retries = task.NewRetries(func() time.Duration { return time.Since(start) })
	}
	w := &Worker{Config: c, held: map[task.ID]*attempt{}, strays: map[task.ID]bool{}, passed: map[task.ID]time.Time{}, waiting: map[task.ID]bool{}, parked: map[store.Parked]bool{}}
	w.leaving, w.leave = context.WithCancel(context.Background())
	w.claims = group.New(w.claim, nil, &group.Opts{Max: 64})
	w.marks = group.New(w.mark, nil, &group.Opts{Max: 256, Flushers: 1})
	w.jobs = group.New(w.noteJobs, nil, &group.Opts{Max: 256, Flushers: 1})
	w.ends = group.New(w.endGroup, (*ending).size, &group.Opts{Max: 128, Single: oneAtFault})
	return w
}

// oneAtFault says that an error of a grouped finish is one member's: its data,
// or its effects.
func oneAtFault(err error) bool {
	var e *outbox.EffectError
	return store.DataError(err) || errors.As(err, &e)
}

// Work serves one wake-up of a task: it claims the task and runs one attempt,
// or finds that there is nothing to do. It keeps no promise by returning: what
// is not claimed stays pending and is found by the sweep.
func (w *Worker) Work(ctx context.Context, id task.ID) { w.WorkAt(ctx, "", id) }

// WorkAt is Work of a task that calls the provider: it first waits, without
// owning the task, until the provider's bounds let one more call begin.
func (w *Worker) WorkAt(_ context.Context, provider string, id task.ID) {
	if failpoint.Hit(failpoint.WorkFetched) != nil {
		return
	}
	if !w.hold(id) {
		return
	}
	defer w.drop(id)
	pass, full := w.enter(provider, id)
	defer pass.Leave()
	inc := w.Lease.Current()
	if inc == nil || w.leaving.Err() != nil {
		pass.Unused()
		return
	}
	c, err := w.claims.Do(inc.Ctx, claimRequest{id: id, owner: inc.ID, token: task.NewToken(), full: full})
	if err != nil {
		w.Log.Warn("claim not done", "task_id", id, "error", err)
	}
	if err != nil || c == nil {
		pass.Unused()
		return
	}
	c.pass = pass
	defer w.leaveKind(c)
	if c.alone {
		if err := w.settleAlone(id); err != nil {
			w.Log.Warn("task not settled", "task_id", id, "error", err)
		}
		return
	}
	if failpoint.Hit(failpoint.ClaimAfterCommit) != nil {
		return
	}
	w.run(inc, c)
}

// hold reserves a task in this process; a task it already holds is refused, for
// a claim lost in a crash could otherwise be made again by the same incarnation.
func (w *Worker) hold(id task.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, here := w.held[id]; here || w.stopping {
		return false
	}
	w.held[id] = nil
	w.work.Add(1)
	return true
}

func (w *Worker) drop(id task.ID) {
	w.mu.Lock()
	delete(w.held, id)
	w.mu.Unlock()
	w.work.Done()
}

// Drain stops claiming, lets calls under way finish for the grace time, and
// then releases those that may be called again; calls whose kind is reviewed go
// on to their own timeouts, unless they only poll a stored job. It returns when
// nothing runs.
func (w *Worker) Drain(grace time.Duration) {
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	w.leave()
	done := make(chan struct{})
	go func() {
		w.work.Wait()
		close(done)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	w.mu.Lock()
	for _, a := range w.held {
		if a != nil && (a.kind.OnUnknown != onUnknownReview || a.polling.Load()) {
			a.cut(errReleased)
		}
	}
	w.mu.Unlock()
	<-done
}

// Close ends the groups; nothing may run any more.
func (w *Worker) Close() {
	w.claims.Close()
	w.marks.Close()
	w.jobs.Close()
	w.ends.Close()
}

// Running is the number of tasks this process holds.
func (w *Worker) Running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}
