package breakage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/pg"
)

// victim is a process that is broken by one fault at a time.
type victim struct {
	*proc.Process
	name   string
	worker bool
	busy   sync.Mutex
}

type cluster struct {
	*pg.Server
	busy sync.Mutex
}

// lease is that of the workers (proc.WorkerSpec): the shortest there is.
const lease = 3 * time.Second

// fault is one way to break a victim. It ends only when the victim works again,
// at once when ctx ends.
type fault struct {
	name  string
	share int
	run   func(r *run, ctx context.Context, v *victim, rnd *rand.Rand)
}

var ofWorkers = []fault{
	{"kill -9", 6, (*run).kill},
	{"stop beyond the lease", 5, func(r *run, ctx context.Context, v *victim, rnd *rand.Rand) {
		r.pause(ctx, v, lease+between(rnd, 300*time.Millisecond, 2*lease))
	}},
	{"stop for a moment", 2, func(r *run, ctx context.Context, v *victim, rnd *rand.Rand) {
		r.pause(ctx, v, between(rnd, 100*time.Millisecond, lease*2/3))
	}},
	{"SIGTERM", 2, (*run).terminate},
}

var ofAPIs = []fault{
	{"kill -9", 5, (*run).kill},
	{"stop for a moment", 2, func(r *run, ctx context.Context, v *victim, rnd *rand.Rand) {
		r.pause(ctx, v, between(rnd, 100*time.Millisecond, 2*time.Second))
	}},
	{"SIGTERM", 1, (*run).terminate},
}

// breakThings breaks one thing after the other; faults overlap, but never on
// one victim. It returns when all that it broke works again.
func (r *run) breakThings(ctx context.Context, rnd *rand.Rand) {
	var all sync.WaitGroup
	defer all.Wait()
	for wait(ctx, between(rnd, 200*time.Millisecond, 1200*time.Millisecond)) {
		own := rand.New(rand.NewPCG(rnd.Uint64(), 1))
		switch what := rnd.IntN(100); {
		case what < 10:
			r.start(&all, &r.db.busy, func() { r.crash(ctx, own) })
		case what < 35:
			r.breakOne(ctx, &all, r.apis[rnd.IntN(len(r.apis))], ofAPIs, own)
		default:
			r.breakOne(ctx, &all, r.workers[rnd.IntN(len(r.workers))], ofWorkers, own)
		}
	}
}

func (r *run) start(all *sync.WaitGroup, busy *sync.Mutex, f func()) {
	if !busy.TryLock() {
		return // broken already
	}
	all.Go(func() {
		defer busy.Unlock()
		f()
	})
}

func (r *run) breakOne(ctx context.Context, all *sync.WaitGroup, v *victim, faults []fault, rnd *rand.Rand) {
	total := 0
	for _, f := range faults {
		total += f.share
	}
	n := rnd.IntN(total)
	for _, f := range faults {
		if n -= f.share; n < 0 {
			r.start(all, &v.busy, func() {
				r.acts.note("%s: %s", v.name, f.name)
				f.run(r, ctx, v, rnd)
			})
			return
		}
	}
}

func (r *run) kill(ctx context.Context, v *victim, rnd *rand.Rand) {
	if err := v.End(); err != nil {
		r.book.mistake("", "%s: %v", v.name, err)
	}
	wait(ctx, between(rnd, 0, 1500*time.Millisecond))
	r.revive(v)
}

func (r *run) terminate(_ context.Context, v *victim, _ *rand.Rand) {
	if err := v.Signal(syscall.SIGTERM); err != nil {
		r.acts.note("%s: %v", v.name, err) // it had ended by itself
	}
	if _, err := v.Exit(); err != nil {
		r.book.mistake("", "%s: a stop that never ends: %v", v.name, err)
		_ = v.End()
	}
	r.revive(v)
}

func (r *run) pause(ctx context.Context, v *victim, d time.Duration) {
	if err := v.Signal(syscall.SIGSTOP); err != nil {
		r.acts.note("%s: %v", v.name, err)
		r.revive(v)
		return
	}
	wait(ctx, d)
	if err := v.Signal(syscall.SIGCONT); err != nil {
		r.book.mistake("", "%s: %v", v.name, err)
	}
	r.acts.note("%s: goes on after %s", v.name, d.Round(time.Millisecond))
}

// revive starts a dead process, as an orchestrator does: a start that meets a
// dying database fails and is made again.
func (r *run) revive(v *victim) {
	for try := 0; ; try++ {
		select {
		case <-v.Done():
		default:
			return
		}
		err := v.Start()
		if err == nil {
			r.acts.note("%s: started", v.name)
			return
		}
		r.acts.note("%s: not started: %v", v.name, err)
		if try == 20 {
			r.book.mistake("", "%s: it cannot be started any more: %v", v.name, err)
			return
		}
		wait(context.Background(), 500*time.Millisecond)
	}
}

// crash stops Postgres as a power cut would and starts it again on the same
// port and the same folder.
func (r *run) crash(ctx context.Context, rnd *rand.Rand) {
	r.acts.note("postgres: stopped, immediate")
	if err := r.db.Stop("immediate"); err != nil {
		r.book.mistake("", "stop postgres: %v", err)
	}
	wait(ctx, between(rnd, 0, 2*time.Second))
	var err error
	for range 10 { // another process may have got the port for a connection of its own
		if err = r.db.Restart(context.Background()); err == nil {
			r.acts.note("postgres: started")
			return
		}
		wait(context.Background(), 2*time.Second)
	}
	r.book.mistake("", "start postgres again: %v", err)
}

// heal starts whatever ended by itself; all faults have ended.
func (r *run) heal() {
	for _, v := range append(r.apis, r.workers...) {
		r.revive(v)
	}
	r.w.Pool.Reset() // of connections to a database that crashed
	r.acts.note("healed")
}

func between(rnd *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rnd.Int64N(int64(most-least)))
}

// wait waits for d and says whether ctx still goes on.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// journal is what was broken when, for the story.
type journal struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
}

func newJournal() *journal { return &journal{begin: time.Now()} }

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%7.3fs %s", time.Since(j.begin).Seconds(), fmt.Sprintf(format, args...)))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}
