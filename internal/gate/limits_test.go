package gate_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// sharer is one worker process that shares limits with others.
type sharer struct {
	*gate.Board
	inc  task.ID
	stop func()
}

func share(t *testing.T, db *pgtest.DB, limits map[gate.Name]gate.Limit) *sharer {
	t.Helper()
	s := &sharer{inc: task.NewToken()}
	pool := db.Pool(t)
	if err := store.RegisterWorker(t.Context(), pool, store.Worker{Incarnation: s.inc, Process: s.inc, Instance: "i", Host: "h", Version: "v"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	var err error
	s.Board, err = gate.New(t.Context(), gate.Opts{
		Pool: pool, Log: slog.New(slog.NewTextHandler(&lines{}, nil)), Limits: limits, Incarnation: func() task.ID { return s.inc },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(s.stop)
	return s
}

// kill ends a process as a crash does: its lease runs out, its shares stay.
func (s *sharer) kill(t *testing.T) {
	t.Helper()
	s.stop()
	if _, err := s.Pool.Exec(t.Context(), `UPDATE onefold.workers SET expires_at = now() WHERE incarnation = $1`, s.inc); err != nil {
		t.Fatal(err)
	}
}

// Several processes want more than the bound: together they never have more
// under way, each gets its part, and what a dead one had goes to the others.
func TestConcurrencyIsShared(t *testing.T) {
	t.Parallel()
	const limit = 6
	db := pgtest.New(t)
	limits := map[gate.Name]gate.Limit{llm: {Concurrency: limit}}
	all := []*sharer{share(t, db, limits), share(t, db, limits), share(t, db, limits)}
	var now, most, total atomic.Int64
	var served [3]atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	loop := func(i int, ctx context.Context) {
		for {
			p, err := all[i].Enter(ctx, llm)
			if err != nil {
				return
			}
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			served[i].Add(1)
			total.Add(1)
			select {
			case <-time.After(time.Duration(1+rand.IntN(5)) * time.Millisecond):
			case <-ctx.Done():
			}
			now.Add(-1)
			p.Leave()
		}
	}
	dying, die := context.WithCancel(ctx)
	for i := range all {
		c := ctx
		if i == 0 {
			c = dying
		}
		for range 20 {
			wg.Go(func() { loop(i, c) })
		}
	}
	until(t, "every process was served", func() bool {
		return served[0].Load() > 50 && served[1].Load() > 50 && served[2].Load() > 50
	})
	die()
	all[0].kill(t)
	rest := func() string {
		return texts(t, all[1].Pool, `SELECT coalesce(sum(slots), 0)::text FROM onefold.shares JOIN onefold.workers AS w USING (incarnation) WHERE w.expires_at > now()`)[0]
	}
	until(t, "the living share everything", func() bool { return rest() == fmt.Sprint(limit) })
	cancel()
	wg.Wait()
	if most.Load() > limit {
		t.Errorf("%d were under way at once, %d may be", most.Load(), limit)
	}
}

// A process that holds a reserve and does nothing gives it to one that needs it.
func TestIdleShareIsGivenAway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	limits := map[gate.Name]gate.Limit{llm: {Concurrency: 4}}
	idle, busy := share(t, db, limits), share(t, db, limits)
	until(t, "the idle one holds a reserve", func() bool {
		p, ok := idle.TryEnter(llm)
		p.Leave()
		return ok
	})
	var all []*gate.Pass
	for range 4 {
		p, err := busy.Enter(t.Context(), llm)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if _, ok := busy.TryEnter(llm); ok {
		t.Error("a fifth was let in")
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, err := idle.Enter(ctx, llm)
		waits <- err
	}()
	all[0].Leave() // the idle one is no longer idle: it gets its part
	if err := <-waits; err != nil {
		t.Error(err)
	}
	cancel()
	for _, p := range all[1:] {
		p.Leave()
		p.Leave() // twice is once
	}
}

// In no span of Per do more begin than may, over all processes.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	const requests, per = 40, 2 * time.Second
	db := pgtest.New(t)
	limits := map[gate.Name]gate.Limit{llm: {Requests: requests, Per: per}}
	all := []*sharer{share(t, db, limits), share(t, db, limits)}
	var mu sync.Mutex
	var at []time.Time
	ctx, cancel := context.WithTimeout(context.Background(), 3*per)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for {
				p, err := all[i%2].Enter(ctx, llm)
				if err != nil {
					return
				}
				mu.Lock()
				at = append(at, time.Now())
				mu.Unlock()
				p.Leave()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(at, time.Time.Compare)
	if len(at) < requests/2 {
		t.Errorf("only %d began", len(at))
	}
	for i := range at {
		n := 0
		for _, x := range at[i:] {
			if x.Sub(at[i]) < per {
				n++
			}
		}
		if n > requests {
			t.Fatalf("%d began within %s, %d may", n, per, requests)
		}
	}
}

// A permit that was not used goes to the next one.
func TestUnusedPermit(t *testing.T) {
	t.Parallel()
	s := share(t, pgtest.New(t), map[gate.Name]gate.Limit{llm: {Requests: 1, Per: time.Hour}})
	for range 5 {
		p, err := s.Enter(t.Context(), llm)
		if err != nil {
			t.Fatal(err)
		}
		p.Unused()
	}
	p, err := s.Enter(t.Context(), llm)
	if err != nil {
		t.Fatal(err)
	}
	p.Leave()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Enter(ctx, llm); err == nil {
		t.Error("a second one began within the hour")
	}
}

// What calls took is counted against tokens a minute, and calls to come are
// guessed by it.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := share(t, pgtest.New(t), map[gate.Name]gate.Limit{llm: {TokensPerMinute: 60_000}})
	p, err := s.Enter(t.Context(), llm)
	if err != nil {
		t.Fatal(err)
	}
	p.Took(600_000) // ten minutes' worth
	p.Leave()
	until(t, "it is told", func() bool {
		return texts(t, s.Pool, `SELECT (tokens_at > now() + interval '5 min')::text FROM onefold.rates`)[0] == "true"
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Enter(ctx, llm); err == nil {
		t.Error("another call began while tokens are owed")
	}
}
