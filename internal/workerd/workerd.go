// Package workerd decides how a worker process is put together, and in which
// order it starts and stops.
package workerd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/doctor"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/quota"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/upkeep"
	"github.com/onefold-dev/onefold/internal/worker"
)

// Opts are a worker process's own settings; zero values mean the defaults.
type Opts struct {
	Grace       time.Duration // how long calls may finish at a stop before they are released; 25 s
	Concurrency int           // tasks at a time of each provider that names no bound; 256
	Upkeep      bool          // whether this process also runs reaper and sweep
	// RescueAfter is when River gives up on a row it thinks stuck; an hour beyond
	// what a task may take where it is 0. A start below that is refused.
	RescueAfter time.Duration
	// Providers stand in the place of what the configuration makes of the
	// providers of these names, for benchmarks.
	Providers map[string]provider.Provider
	// Ready is called once the process fetches work.
	Ready func()
}

const (
	defaultGrace       = 25 * time.Second
	defaultConcurrency = 256
	sqlConns           = 4
)

// Worker is a worker process that has not started yet.
type Worker struct {
	app       *boot.App
	opts      Opts
	effectsDB *pgxpool.Pool
	notifier  *job.Notifier
	lease     *worker.Lease
	gates     *gate.Board
	places    *fair.Clock
	quotas    *quota.Book
	doors     *destination.Book
	outbox    *outbox.Outbox
	upkeep    *upkeep.Upkeep
	submits   *submit.Service
	batches   *batch.Service
	worker    atomic.Pointer[worker.Worker]
	client    *river.Client[pgx.Tx]
}

// Run runs a worker until ctx ends, and then stops it gracefully: nothing new
// is claimed, calls may finish for the grace time, the rest is given back.
func Run(ctx context.Context, app *boot.App, opts Opts) error {
	if opts.Grace <= 0 {
		opts.Grace = defaultGrace
	}
	if opts.Concurrency <= 0 {
		opts.Concurrency = defaultConcurrency
	}
	w := &Worker{app: app, opts: opts}
	if err := w.build(ctx); err != nil {
		return err
	}
	admin, err := app.Admin()
	if err != nil {
		return err
	}
	return boot.Run(ctx, app.Log, admin, boot.Part{Name: "worker", Run: w.run})
}

func (w *Worker) build(ctx context.Context) error {
	cfg := w.app.Kinds.Config()
	expectAuth(cfg)
	if err := outbox.CheckSQL(ctx, w.app.Pool, cfg); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	providers, err := newProviders(cfg)
	if err != nil {
		return err
	}
	maps.Copy(providers, w.opts.Providers)
	ec := w.app.Pool.Config()
	ec.MaxConns = sqlConns
	if w.effectsDB, err = pgxpool.NewWithConfig(ctx, ec); err != nil {
		return fmt.Errorf("open the pool of sql effects: %w", err)
	}
	w.notifier = job.NewNotifier(w.app.Pool, w.app.Log)
	if w.lease, err = worker.StartLease(ctx, w.leaseConfig(providers)); err != nil {
		return err
	}
	w.doors = destination.New(destination.Opts{Config: cfg, Pool: w.app.Pool, Keys: w.app.Config.SealKeys, Log: w.app.Log})
	if w.gates, err = w.newGates(ctx, cfg); err != nil {
		return err
	}
	gate.TellUnserved(ctx, w.app.Pool, w.app.Log)
	if w.places, err = fair.New(ctx, fair.Opts{DB: w.app.Pool, Log: w.app.Log}); err != nil {
		return err
	}
	if w.quotas, err = quota.New(ctx, quota.Opts{DB: w.app.Pool, Log: w.app.Log}); err != nil {
		return err
	}
	w.outbox = outbox.New(outbox.Opts{
		Fair: w.places, Gates: w.gates, Destinations: w.doors,
		Config: cfg, Pool: w.app.Pool, Log: w.app.Log, Notify: w.notifier, Senders: newSenders(),
		Version: boot.Version, Region: w.app.Config.Region, Ended: boot.Ended,
		Incarnation: w.incarnation, Traces: w.app.Traces, MaySend: func() bool { return w.lease.Current() != nil },
	})
	start := time.Now()
	retries := task.NewRetries(func() time.Duration { return time.Since(start) })
	w.upkeep = upkeep.New(upkeep.Config{
		Connect: w.app.Direct, Kinds: w.app.Kinds, Outbox: w.outbox, Notifier: w.notifier, Lease: w.app.Config.Lease, Fair: w.places,
		Longest: longest(cfg), Log: w.app.Log, Retries: retries,
	})
	// Batches go on while no API process is there.
	w.submits = submit.New(submit.Config{Pool: w.app.Pool, Kinds: w.app.Kinds, Outbox: w.outbox, Notifier: w.notifier, Log: w.app.Log, Fair: w.places})
	w.batches = batch.New(batch.Config{Pool: w.app.Pool, Kinds: w.app.Kinds, Submit: w.submits, Notifier: w.notifier, Log: w.app.Log, Quotas: w.quotas})
	made := worker.New(worker.Config{
		Pool: w.app.Pool, EffectsDB: w.effectsDB, Kinds: w.app.Kinds, Providers: providers, Outbox: w.outbox,
		Notifier: w.notifier, Lease: w.lease, Gates: w.gates, Log: w.app.Log, Retries: retries, Reap: w.upkeep.Reap, Traces: w.app.Traces,
	})
	w.worker.Store(made)
	w.client, err = job.NewClient(job.Opts{
		Pool: w.app.Pool, Log: w.app.Log, Task: made.WorkAt, Effect: w.outbox.Work,
		Queues: w.queues(providers), Timeout: longest(cfg) + w.opts.Grace + 2*w.app.Config.Lease, Rescue: w.opts.RescueAfter,
	})
	return err
}

func (w *Worker) leaseConfig(providers map[string]provider.Provider) worker.LeaseConfig {
	host, _ := os.Hostname()
	names := make([]string, 0, len(providers))
	for name := range providers {
		names = append(names, name)
	}
	return worker.LeaseConfig{
		Connect: w.app.Direct, Lease: w.app.Config.Lease, Log: w.app.Log,
		Worker: store.Worker{
			Process: task.NewToken(), Instance: w.app.Instance, Host: host, PID: os.Getpid(), Version: boot.Version, Providers: names,
			Identity: boot.Identity(),
		},
		OnBeat: w.onBeat,
	}
}

// onBeat compares what the database says this process owns with what it does.
func (w *Worker) onBeat(ctx context.Context, conn *pgx.Conn, incarnation task.ID) {
	made := w.worker.Load()
	if made == nil {
		return
	}
	made.OnBeat(ctx, conn, incarnation)
	if _, err := w.outbox.Strays(ctx, incarnation, w.app.Config.Lease); err != nil {
		w.app.Log.Warn("owned deliveries not compared", "error", err)
	}
}

func (w *Worker) incarnation() task.ID {
	if i := w.lease.Current(); i != nil {
		return i.ID
	}
	return uuid.Nil
}

func (w *Worker) queues(providers map[string]provider.Provider) map[string]int {
	queues := map[string]int{job.EffectQueue: outbox.Workers}
	for name := range providers {
		queues[job.Queue(name)] = fetches(w.app.Kinds.Config().Providers[name], w.opts.Concurrency)
	}
	return queues
}

// tend looks after what nobody else does until ctx ends.
func (w *Worker) tend(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.upkeep.Run(ctx) })
	all.Go(func() { w.upkeep.RunGauges(ctx, w.app.Pool) })
	all.Go(func() { (&upkeep.Purger{Connect: w.app.Direct, Kinds: w.app.Kinds, Log: w.app.Log}).Run(ctx) })
	all.Go(func() { _ = w.batches.Run(ctx) }) // it returns with its context only
	all.Go(func() {
		doctor.Watch(ctx, doctor.Env{DB: w.app.Pool, Config: w.app.Kinds.Config()}, doctor.Checks, doctor.WatchEvery, w.app.Log)
	})
	all.Wait()
}

// run starts fetching, waits for ctx, and stops in the order in which nothing
// is left owned: no new claims, calls done or given back, deliveries done, the
// incarnation signed off.
func (w *Worker) run(ctx context.Context) error {
	live := context.WithoutCancel(ctx)
	tending, stopTending := context.WithCancel(live)
	tended := make(chan struct{})
	go func() {
		defer close(tended)
		if w.opts.Upkeep {
			w.tend(tending)
		}
	}()
	watching, stopGates := context.WithCancel(live)
	defer stopGates()
	shut := make(chan struct{})
	go func() {
		defer close(shut)
		var all sync.WaitGroup
		all.Go(func() { w.places.Run(watching) })
		all.Go(func() { w.quotas.Run(watching) })
		all.Go(func() { w.gates.Run(watching) })
		all.Go(func() { w.outbox.Tend(watching) })
		all.Wait()
	}()
	if err := w.client.Start(live); err != nil {
		stopTending()
		return fmt.Errorf("start fetching: %w", err)
	}
	w.app.Log.Info("working", "version", boot.Version)
	if w.opts.Ready != nil {
		w.opts.Ready()
	}
	<-ctx.Done()
	w.app.Log.Info("stopping", "reason", context.Cause(ctx).Error())
	made := w.worker.Load()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		made.Drain(w.opts.Grace)
	}()
	err := w.client.Stop(live)
	<-drained
	stopGates()
	<-shut
	stopTending()
	<-tended
	w.submits.Close()
	made.Close()
	w.outbox.Close()
	w.lease.Stop(live)
	w.notifier.Close()
	w.effectsDB.Close()
	if err != nil {
		return fmt.Errorf("stop fetching: %w", err)
	}
	return nil
}
