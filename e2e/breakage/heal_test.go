package breakage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/promises"
)

// drainPatience bounds the wait for the work that is left: a few of the longest
// calls one after the other, and the third step of the effects' schedule.
const drainPatience = 5 * time.Minute

// undone is what is not finished: no promise is kept by it yet.
const undone = `
SELECT (SELECT count(*) FROM onefold.tasks WHERE finished_at IS NULL),
       (SELECT count(*) FROM onefold.effects WHERE finished_at IS NULL)`

// drain waits until nothing is left to do. That it comes to an end is a promise
// of its own: nothing is stuck.
func (r *run) drain() {
	r.t.Helper()
	if r.book.any(r.random(0)) == nil {
		r.t.Fatal("not one submit was acknowledged: nothing was tested")
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
	defer cancel()
	begin := time.Now()
	for {
		var tasks, effects int
		err := r.w.Pool.QueryRow(ctx, undone).Scan(&tasks, &effects)
		if err == nil && tasks+effects == 0 {
			r.t.Logf("drained after %s", time.Since(begin).Round(time.Millisecond))
			return
		}
		if !wait(ctx, 200*time.Millisecond) {
			r.stuck(err)
			return
		}
	}
}

// stuck tells of what never ended.
func (r *run) stuck(err error) {
	if err != nil && !strings.Contains(err.Error(), "deadline") {
		r.book.mistake("", "the database does not answer after all was healed: %v", err)
		return
	}
	rows, err := r.w.Pool.Query(context.Background(), `
SELECT key, 'task stuck ' || state FROM onefold.tasks WHERE finished_at IS NULL
UNION ALL
SELECT t.key, 'effect ' || e.name || ' stuck ' || e.state
FROM onefold.effects AS e
JOIN onefold.tasks AS t ON t.id = e.task_id
WHERE e.finished_at IS NULL`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key, what string
		if err := rows.Scan(&key, &what); err != nil {
			r.t.Fatal(err)
		}
		r.book.mistake(key, "%s, %s after everything was healed", what, drainPatience)
	}
}

// replay submits every key that cannot run again once more: the answer is the
// one that was given before.
func (r *run) replay() {
	rnd := r.random(1)
	for _, p := range r.book.all() {
		before := r.book.before(p)
		if !before.State.Settled() {
			t, err := r.get(p)
			if err != nil {
				r.book.mistake(p.key, "a poll after everything was healed: %v", err)
				continue
			}
			r.book.saw(p, before, t, "a last poll")
			before = r.book.before(p)
		}
		if before.State == api.Failed && !before.Permanent {
			continue // a duplicate would reopen it
		}
		c, at := r.book.client(rnd)
		t, err := c.Submit(context.Background(), p.key, submit(p.kind, p.key, false), nil)
		if err != nil {
			r.book.mistake(p.key, "a replay at %s: %v", at, err)
			continue
		}
		r.book.saw(p, before, t, "a replay at "+at)
		if !t.State.Settled() {
			r.book.mistake(p.key, "a replay at %s answered %s", at, promises.See(t))
		}
	}
}

func (r *run) get(p *page) (*api.Task, error) {
	c, _ := r.book.client(r.random(2))
	return c.Get(context.Background(), r.book.before(p).ID, nil)
}

func (b *book) all() []*page {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*page(nil), b.known...)
}

// report fails the test with the story of the first mistake.
func (r *run) report(found []promises.Mistake) {
	r.t.Helper()
	all := append(r.book.mistakes, found...)
	if len(all) == 0 {
		return
	}
	first := all[0]
	others := ""
	for _, m := range all[1:min(len(all), 11)] {
		others += fmt.Sprintf("\n  %s: %s", m.Key, m.What)
	}
	r.t.Errorf("%d promises broken. BREAK_SEED=%d\nthe first, of key %q: %s%s\nmore:%s", len(all), r.seed, first.Key, first.What, r.story(first.Key), others)
}
