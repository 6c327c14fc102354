// Package job decides how onefold uses River: which queue a wake-up goes to,
// and how the clients that fetch them are built.
package job

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/onefold-dev/onefold/internal/store"
)

// EffectQueue is the queue of all effects.
const EffectQueue = "effects"

// taskQueue begins the names of the queues of tasks.
const taskQueue = "p-"

// Queue is the queue of the tasks that call a provider.
func Queue(provider string) string { return taskQueue + provider }

// TaskArgs is the wake-up of a task.
type TaskArgs struct {
	ID uuid.UUID `json:"id"`
}

// Kind is the River kind of task wake-ups.
func (TaskArgs) Kind() string { return store.WakeTask }

// EffectArgs is the wake-up of an effect.
type EffectArgs struct {
	ID uuid.UUID `json:"id"`
}

// Kind is the River kind of effect wake-ups.
func (EffectArgs) Kind() string { return store.WakeEffect }

// Handler does the work of one wake-up. It returns nothing: River's attempts,
// retries and error texts are never used.
type Handler func(ctx context.Context, id uuid.UUID)

// TaskHandler is a Handler of tasks, which are fetched by provider.
type TaskHandler func(ctx context.Context, provider string, id uuid.UUID)

// Opts configure a client. Every client that may lead registers both kinds.
type Opts struct {
	Pool    *pgxpool.Pool
	Log     *slog.Logger
	Task    TaskHandler
	Effect  Handler
	Queues  map[string]int // queue name -> workers in this process
	Timeout time.Duration  // largest total timeout of any kind + grace + 2 leases
	// Rescue is when River takes a row for stuck; an hour beyond Timeout where 0.
	Rescue time.Duration
}

// Fetch limits: the ceiling for short jobs is workers / cooldown, and a lost
// notification costs one poll interval (measured with River v0.51.2).
const (
	fetchCooldown = 10 * time.Millisecond
	fetchPoll     = 150 * time.Millisecond
	// Rows River completes by itself are stale wake-ups; nobody reads them.
	keepCompleted = 10 * time.Minute
)

type taskWorker struct {
	river.WorkerDefaults[TaskArgs]
	handle  TaskHandler
	timeout time.Duration
}

func (w *taskWorker) Timeout(*river.Job[TaskArgs]) time.Duration { return w.timeout }

func (w *taskWorker) Work(ctx context.Context, j *river.Job[TaskArgs]) error {
	w.handle(ctx, strings.TrimPrefix(j.Queue, taskQueue), j.Args.ID)
	return nil
}

type effectWorker struct {
	river.WorkerDefaults[EffectArgs]
	handle  Handler
	timeout time.Duration
}

func (w *effectWorker) Timeout(*river.Job[EffectArgs]) time.Duration { return w.timeout }

func (w *effectWorker) Work(ctx context.Context, j *river.Job[EffectArgs]) error {
	w.handle(ctx, j.Args.ID)
	return nil
}

// NewClient builds a River client that only fetches wake-ups and hands them to
// the handlers. River's rescue stands far behind ours, as a backstop.
func NewClient(o Opts) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &taskWorker{handle: o.Task, timeout: o.Timeout})
	river.AddWorker(workers, &effectWorker{handle: o.Effect, timeout: o.Timeout})
	queues := make(map[string]river.QueueConfig, len(o.Queues))
	for name, n := range o.Queues {
		queues[name] = river.QueueConfig{MaxWorkers: min(n, river.QueueNumWorkersMax)}
	}
	if o.Rescue == 0 {
		o.Rescue = o.Timeout + time.Hour
	}
	if o.Rescue <= o.Timeout {
		return nil, fmt.Errorf("river's rescue after %s would run tasks twice that may take %s: raise --rescue-after above it, or leave it out", o.Rescue, o.Timeout)
	}
	client, err := river.NewClient(riverpgxv5.New(o.Pool), &river.Config{
		Schema:                      "onefold",
		Logger:                      o.Log,
		Queues:                      queues,
		Workers:                     workers,
		FetchCooldown:               fetchCooldown,
		FetchPollInterval:           fetchPoll,
		JobTimeout:                  o.Timeout,
		RescueStuckJobsAfter:        o.Rescue,
		CompletedJobRetentionPeriod: keepCompleted,
		ReindexerIndexNames:         []string{},
	})
	if err != nil {
		return nil, fmt.Errorf("build river client: %w", err)
	}
	return client, nil
}
