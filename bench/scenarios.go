package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/submit"
)

// scenario is one thing that is measured.
type scenario struct {
	name   string
	title  string // the same for people
	group  string
	target float64 // ratio to pgbench with 8 clients that the design's prototype reached, 0 where it says nothing
	timed  bool    // what counts is how long each took, not how many there were
	run    func(ctx context.Context, c *cluster, o options, m *meter) error
}

// all lists the scenarios in the order in which they run: peers among them.
func all() []scenario {
	list := []scenario{{name: "pgbench/1", group: "pgbench, single-row insert", title: "1 client", run: pgbenchScenario(1)}}
	list = append(list, scenario{name: "pgbench/8", group: "pgbench, single-row insert", title: "8 clients", run: pgbenchScenario(8)})
	for n, target := range map4(0, 0, 1.7, 2.9) {
		list = append(list, scenario{name: fmt.Sprintf("submit/%d", n), group: "submit, in process", title: callers(n), target: target, run: submitScenario(n)})
	}
	for _, n := range []int{8, 64} {
		list = append(list, scenario{name: fmt.Sprintf("river/%d", n), group: "River, InsertTx", title: callers(n), run: riverScenario(n)})
	}
	for n, target := range map4(0, 0, 1.0, 1.0) {
		list = append(list, scenario{name: fmt.Sprintf("http/%d", n), group: "submit, over HTTP", title: callers(n), target: target, run: httpScenario(n)})
	}
	for _, n := range []int{64, 256} {
		list = append(list, scenario{name: fmt.Sprintf("duplicates/%d", n), group: "duplicates, in process", title: callers(n), target: 11, run: duplicatesScenario(n)})
	}
	for _, n := range []int{64, 256} {
		list = append(list, scenario{name: fmt.Sprintf("http-duplicates/%d", n), group: "duplicates, over HTTP", title: callers(n), run: httpDuplicatesScenario(n)})
	}
	list = append(list, scenario{name: "drain", group: "drain of a full queue", title: "1 worker", target: 0.95, run: drainScenario})
	for _, n := range []int{5, 50} {
		list = append(list, scenario{name: fmt.Sprintf("latency/%d", n), group: "submit to result", title: fmt.Sprintf("%d/s", n), timed: true, run: latencyScenario(n)})
	}
	return list
}

func map4(targets ...float64) func(yield func(int, float64) bool) {
	return func(yield func(int, float64) bool) {
		for i, n := range []int{1, 8, 64, 256} {
			if !yield(n, targets[i]) {
				return
			}
		}
	}
}

func callers(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return strconv.Itoa(n) + " callers"
}

func choose(o options) (out []scenario) {
	for _, s := range all() {
		if o.only.MatchString(s.name) {
			out = append(out, s)
		}
	}
	return out
}

// measure warms up and measures f at a number of callers.
func measure(ctx context.Context, m *meter, callers int, d time.Duration, f func(ctx context.Context, caller, i int) error) error {
	const warming = 1 << 40 // so that the calls of both have numbers of their own
	if _, _, err := load(ctx, callers, warm(d), func(ctx context.Context, c, i int) error { return f(ctx, c, i+warming) }); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	each, took, err := load(ctx, callers, d, f)
	if err != nil {
		return err
	}
	return m.end(ctx, len(each), took, each)
}

// in runs f in a world of its own.
func (c *cluster) in(ctx context.Context, f func(w *world) error) error {
	w, err := c.newWorld(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(w), w.close())
}

func key(caller, i int) string { return "order-" + strconv.Itoa(caller) + "-" + strconv.Itoa(i) }

func submitScenario(n int) func(context.Context, *cluster, options, *meter) error {
	return func(ctx context.Context, c *cluster, o options, m *meter) error {
		return c.in(ctx, func(w *world) error {
			s, err := w.submits(ctx)
			if err != nil {
				return err
			}
			return measure(ctx, m, n, o.time, func(ctx context.Context, caller, i int) error {
				a, err := s.Submit(ctx, request(key(caller, i)))
				if err == nil && !a.Created {
					err = errors.New("a new key was taken for a duplicate")
				}
				return err
			})
		})
	}
}

func request(key string) submit.Request {
	return submit.Request{Tenant: tenant, Key: key, KeySent: true, Body: []byte(body), Actor: "bench"}
}

func httpScenario(n int) func(context.Context, *cluster, options, *meter) error {
	return func(ctx context.Context, c *cluster, o options, m *meter) error {
		return c.in(ctx, func(w *world) error {
			addr, secret, err := w.api(ctx)
			if err != nil {
				return err
			}
			all, end, err := dialAll(n, addr, secret, "")
			if err != nil {
				return err
			}
			defer end()
			return measure(ctx, m, n, o.time, func(_ context.Context, caller, i int) error {
				return all[caller].expect(key(caller, i), http.StatusAccepted)
			})
		})
	}
}

// known is how many keys the duplicates ask for.
const known = 1000

func knownKey(i int) string { return "known-" + strconv.Itoa(i) }

func duplicatesScenario(n int) func(context.Context, *cluster, options, *meter) error {
	return func(ctx context.Context, c *cluster, o options, m *meter) error {
		return c.in(ctx, func(w *world) error {
			s, err := w.submits(ctx)
			if err != nil {
				return err
			}
			if err := fill(ctx, s, known, knownKey); err != nil {
				return err
			}
			return measure(ctx, m, n, o.time, func(ctx context.Context, _, _ int) error {
				a, err := s.Submit(ctx, request(knownKey(rand.IntN(known))))
				if err == nil && a.Created {
					err = errors.New("a duplicate was taken for new")
				}
				return err
			})
		})
	}
}

func httpDuplicatesScenario(n int) func(context.Context, *cluster, options, *meter) error {
	return func(ctx context.Context, c *cluster, o options, m *meter) error {
		return c.in(ctx, func(w *world) error {
			s, err := w.submits(ctx)
			if err != nil {
				return err
			}
			if err := fill(ctx, s, known, knownKey); err != nil {
				return err
			}
			addr, secret, err := w.api(ctx)
			if err != nil {
				return err
			}
			all, end, err := dialAll(n, addr, secret, "")
			if err != nil {
				return err
			}
			defer end()
			return measure(ctx, m, n, o.time, func(_ context.Context, caller, _ int) error {
				return all[caller].expect(knownKey(rand.IntN(known)), http.StatusOK)
			})
		})
	}
}

// fill submits n tasks in bulk.
func fill(ctx context.Context, s *submit.Service, n int, key func(int) string) error {
	for from := 0; from < n; from += submit.MaxBulk {
		requests := make([]submit.Request, min(submit.MaxBulk, n-from))
		for i := range requests {
			requests[i] = request(key(from + i))
		}
		for _, out := range s.Many(ctx, requests) {
			if out.Err != nil {
				return fmt.Errorf("fill the queue: %w", out.Err)
			}
		}
	}
	return nil
}

// drainScenario starts a worker on a full queue and waits until all has settled.
func drainScenario(ctx context.Context, c *cluster, o options, m *meter) error {
	return c.in(ctx, func(w *world) error {
		s, err := w.submits(ctx)
		if err != nil {
			return err
		}
		if err := fill(ctx, s, o.tasks, func(i int) string { return key(0, i) }); err != nil {
			return err
		}
		db, err := pgxpool.New(ctx, c.URL(w.name))
		if err != nil {
			return fmt.Errorf("open a pool: %w", err)
		}
		defer db.Close()
		if err := m.begin(ctx); err != nil {
			return err
		}
		p := &noop{}
		if err := w.worker(ctx, p); err != nil {
			return err
		}
		start := time.Now()
		if err := settled(ctx, db, p, o.tasks); err != nil {
			return err
		}
		return m.end(ctx, o.tasks, time.Since(start), nil)
	})
}

// settled waits until every task is final. It asks the database only when the
// last call was made.
func settled(ctx context.Context, db *pgxpool.Pool, p *noop, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(n)*time.Millisecond)
	defer cancel()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d calls were made: %w", p.calls.Load(), n, context.Cause(ctx))
		case <-look.C:
		}
		if p.calls.Load() < int64(n) {
			continue
		}
		var open bool
		if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM onefold.tasks WHERE finished_at IS NULL)`).Scan(&open); err != nil {
			return fmt.Errorf("look for open tasks: %w", err)
		}
		if !open {
			break
		}
	}
	var succeeded int
	if err := db.QueryRow(ctx, `SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded' AND total_attempts = 1`).Scan(&succeeded); err != nil {
		return fmt.Errorf("count the tasks: %w", err)
	}
	if succeeded != n {
		return fmt.Errorf("%d of %d tasks succeeded at once", succeeded, n)
	}
	return nil
}

// latencyScenario submits at a steady rate, whatever becomes of it, and measures
// how long each caller waited for its result.
func latencyScenario(rate int) func(context.Context, *cluster, options, *meter) error {
	return func(ctx context.Context, c *cluster, o options, m *meter) error {
		return c.in(ctx, func(w *world) error {
			addr, secret, err := w.api(ctx)
			if err != nil {
				return err
			}
			if err := w.worker(ctx, &noop{}); err != nil {
				return err
			}
			// Room for a second of callers, so that none waits for a connection.
			all, end, err := dialAll(max(rate, 8), addr, secret, "wait=30")
			if err != nil {
				return err
			}
			defer end()
			for i, c := range all { // warming up
				if err := c.await("warm-" + strconv.Itoa(i)); err != nil {
					return err
				}
			}
			if err := m.begin(ctx); err != nil {
				return err
			}
			n := max(1, int(latencyTime(o).Seconds()*float64(rate)))
			each, took, err := steady(ctx, all, rate, n)
			if err != nil {
				return err
			}
			return m.end(ctx, n, took, each)
		})
	}
}

// latencyTime is longer than a scenario's: few are submitted in it.
func latencyTime(o options) time.Duration { return 5 * o.time / 2 }

// steady submits n tasks, one each 1/rate s, and times each to its result.
func steady(ctx context.Context, all []*caller, rate, n int) (each []time.Duration, took time.Duration, err error) {
	free := make(chan *caller, len(all))
	for _, c := range all {
		free <- c
	}
	each = make([]time.Duration, n)
	errs := make([]error, n)
	var calls sync.WaitGroup
	pace := time.NewTicker(time.Second / time.Duration(rate))
	defer pace.Stop()
	start := time.Now()
	for i := range n {
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-pace.C:
		}
		calls.Go(func() {
			began := time.Now()
			c := <-free
			errs[i] = c.await(key(0, i))
			each[i] = time.Since(began)
			free <- c
		})
	}
	calls.Wait()
	return each, time.Since(start), errors.Join(errs...)
}
