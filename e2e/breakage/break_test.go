package breakage

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/e2e/promises"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

func TestMain(m *testing.M) { proc.Main(m) }

// How many of each there are. Two apis, so that duplicates meet in the database
// alone; three workers, so that some work while others are dead.
const (
	apis    = 2
	workers = 3
	callers = 8
	pollers = 4
)

// TestBreak lets callers submit, poll and cancel while api, worker and database
// processes are killed, stopped and started again, in an order that the seed
// gives. Then it heals everything, waits until all work is done, and checks the
// promises against the database, the model's counts and the receiver.
func TestBreak(t *testing.T) {
	t.Parallel()
	span, seed := settings(t)
	t.Logf("BREAK_TIME=%s BREAK_SEED=%d", span, seed)
	r := newRun(t, seed)
	r.storm(span)
	r.heal()
	r.drain()
	r.replay()
	told := map[string]promises.Told{}
	for _, p := range r.book.all() {
		told[p.last.ID] = promises.Told{Key: p.key, Last: p.last}
	}
	e := promises.Gather(t, r.w, told)
	t.Log(e.Summary())
	r.report(e.Check())
}

func settings(t *testing.T) (span time.Duration, seed uint64) {
	t.Helper()
	text := os.Getenv("BREAK_TIME")
	if text == "" {
		t.Skip("set BREAK_TIME, such as 60s, or run make break")
	}
	span, err := time.ParseDuration(text)
	if err != nil || span <= 0 {
		t.Fatalf("BREAK_TIME: %q is no time: give one such as 60s", text)
	}
	if text = os.Getenv("BREAK_SEED"); text == "" {
		return span, rand.Uint64()
	}
	if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
		t.Fatalf("BREAK_SEED: %q is no whole number: give the one a run printed", text)
	}
	return span, seed
}

// run is one run of TestBreak.
type run struct {
	t       *testing.T
	seed    uint64
	w       *proc.World
	db      *cluster
	apis    []*victim
	workers []*victim
	book    *book
	acts    *journal
}

func newRun(t *testing.T, seed uint64) *run {
	t.Helper()
	r := &run{t: t, seed: seed, acts: newJournal(), db: &cluster{Server: pgtest.Cluster(t)}}
	r.w = proc.New(t, &proc.Opts{Config: promises.Config, Cluster: r.db.Server, Answer: answer})
	if _, err := r.w.Pool.Exec(t.Context(), promises.Table); err != nil {
		t.Fatal(err)
	}
	for range apis {
		r.apis = append(r.apis, &victim{Process: r.w.API(t), name: "api " + strconv.Itoa(len(r.apis))})
	}
	for range workers {
		p := r.w.Worker(t, "--grace", "1s")
		r.workers = append(r.workers, &victim{Process: p, name: "worker " + strconv.Itoa(len(r.workers)), worker: true})
	}
	r.book = newBook(r.w.Key, r.apis)
	return r
}

// storm runs callers, pollers and whoever breaks things until span is over or a
// mistake is seen.
func (r *run) storm(span time.Duration) {
	ctx, stop := context.WithTimeout(context.Background(), span)
	defer stop()
	r.book.stop = stop
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { r.book.call(ctx, r.random(i)) })
	}
	for i := range pollers {
		all.Go(func() { r.book.poll(ctx, r.random(100+i)) })
	}
	all.Go(func() { r.breakThings(ctx, r.random(1000)) })
	all.Wait()
	r.t.Logf("the storm is over: %s", r.book.counts())
}

// random is a source of its own for each goroutine, all from the seed.
func (r *run) random(n int) *rand.Rand { return rand.New(rand.NewPCG(r.seed, uint64(n))) }

// answer is the receiver. Some deliveries take as long as it takes to be killed
// or stopped in them; the first of some effects fails, at the destination where
// a repeat is safe.
func answer(id string, body []byte, n int) int {
	switch p := pick("slow"+id, 100); {
	case p < 15:
		wait(context.Background(), 1500*time.Millisecond)
	case p < 25:
		wait(context.Background(), 4*time.Second)
	}
	if n == 1 && repeatable(body) && pick(id, 20) == 0 {
		return 500
	}
	return 204
}
