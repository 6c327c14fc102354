package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/enqueue"
)

func TestTaskAndOrderCommitTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var task *api.Task
	run := func(end error) error {
		return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
			if task, err = order(t.Context(), tx, "7", submit(`{"n": 1.0}`)); err != nil {
				return err
			}
			return end
		})
	}
	if err := run(errBack); !errors.Is(err, errBack) {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT (SELECT count(*) FROM public.orders) + (SELECT count(*) FROM onefold.tasks) + (SELECT count(*) FROM onefold.river_job)`); n != 0 {
		t.Fatalf("%d rows are left of a transaction that was rolled back", n)
	}
	if err := run(nil); err != nil {
		t.Fatal(err)
	}
	if !*task.Created || task.State != api.Pending || task.Key != "order:7" {
		t.Errorf("got %+v", task)
	}
	if n := b.count(t, `
SELECT count(*)
FROM public.orders AS o
JOIN onefold.tasks AS t ON t.id = o.task
JOIN onefold.river_job AS j ON j.id = t.job_id AND (j.args ->> 'id')::uuid = t.id
WHERE o.id = '7' AND j.state = 'available' AND j.queue = 'p-p'`); n != 1 {
		t.Errorf("%d orders with a task and its wake-up, want 1", n)
	}
	seen, err := b.api.Get(t.Context(), task.ID, nil)
	if err != nil || seen.InputHash != task.InputHash {
		t.Errorf("over the API: %+v, %v", seen, err)
	}
	if raw, err := b.api.Input(t.Context(), task.ID); err != nil || string(raw) != `{"n": 1.0}` {
		t.Errorf("the input came back as %s, %v", raw, err)
	}
}

// One key means one task, whichever way it comes in; a refusal leaves the
// transaction in working order.
func TestFold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.api.Submit(t.Context(), "order:7", submit(`{"a":1,"b":[1,2]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `INSERT INTO onefold.budgets (tenant, id, sends) VALUES ('shop', 'run', 5)`)
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		again, err := enqueue.Tx(t.Context(), tx, "shop", "order:7", submit(`{"b":[1.0,2],"a":1}`))
		if err != nil || *again.Created || again.ID != first.ID {
			t.Errorf("the same payload: %+v, %v", again, err)
		}
		_, err = enqueue.Tx(t.Context(), tx, "shop", "order:7", submit(`{"a":2}`))
		var e *api.Error
		if !errors.As(err, &e) || !errors.Is(err, api.ErrKeyReused) || cmp.Diff(e.Mismatch, []string{"input.a", "input.b"}) != "" || enqueue.Retryable(err) {
			t.Errorf("another payload: %v", err)
		}
		for _, bad := range []struct {
			key string
			s   api.Submit
		}{
			{"", submit(`1`)},
			{"a b", submit(`1`)},
			{"onefold:x", submit(`1`)},
			{"x", api.Submit{Kind: "nosuch", Input: []byte(`1`)}},
			{"x", submit(`{"a":1,"a":2}`)},
			{"x", submit(`{`)},
			{enqueue.NoKey, submit(`1`)},
			{"x", api.Submit{Kind: submit(`1`).Kind, Input: []byte(`1`), Budget: &api.Budget{ID: "run", Sends: 4}}}, // it has 5
		} {
			if _, err := enqueue.Tx(t.Context(), tx, "shop", bad.key, bad.s); !errors.Is(err, api.ErrInvalid) {
				t.Errorf("%+v: got %v", bad, err)
			}
		}
		other, err := enqueue.Tx(t.Context(), tx, "other", "order:7", submit(`{"a":2}`))
		if err != nil || !*other.Created {
			t.Errorf("another tenant's: %+v, %v", other, err)
		}
		_, err = order(t.Context(), tx, "8", submit(`8`))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != 3 {
		t.Errorf("%d tasks, want 3", n)
	}
}

func TestMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	item := func(key, kind, input string) api.Keyed {
		return api.Keyed{Key: key, Submit: api.Submit{Kind: kind, Input: []byte(input)}}
	}
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		got, err := enqueue.Many(t.Context(), tx, "shop", []api.Keyed{
			item("a", "k", `1`), item("a", "k", `1`), item("a", "k", `2`), item("a", "open", `1`), item("", "k", `1`),
			item(enqueue.NoKey, "free", `1`), item(enqueue.NoKey, "free", `1`),
		})
		if err != nil {
			return err
		}
		var told []string
		for _, a := range got {
			if a.Err != nil {
				told = append(told, fmt.Sprint(errors.Is(a.Err, api.ErrKeyReused), errors.Is(a.Err, api.ErrInvalid)))
				continue
			}
			told = append(told, fmt.Sprint(*a.Task.Created))
		}
		want := []string{"true", "false", "true false", "true", "false true", "true", "true"}
		if diff := cmp.Diff(told, want); diff != "" {
			t.Errorf("-got +want:\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A duplicate of a task that failed by the system's fault runs it again, in the
// caller's transaction, and not at all if that is rolled back.
func TestReopen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.api.Submit(t.Context(), "order:7", submit(`1`), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE onefold.tasks SET state = 'failed', error_code = 'attempts_exhausted', error_permanent = false, finished_at = now(), expires_at = now() + interval '1 h'`)
	for _, end := range []error{errBack, nil} {
		_ = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			again, err := enqueue.Tx(t.Context(), tx, "shop", "order:7", submit(`1`))
			if err != nil || !again.Reopened || again.Run != 2 || again.State != api.Pending {
				t.Errorf("got %+v, %v", again, err)
			}
			return end
		})
		want := api.Failed
		if end == nil {
			want = api.Pending
		}
		if now, err := b.api.Get(t.Context(), first.ID, nil); err != nil || now.State != want {
			t.Errorf("after %v: got %+v, %v", end, now, err)
		}
	}
}

// Callers under SERIALIZABLE meet each other and the API on the same keys: each
// runs its transaction again until it commits, and one task a key comes of it.
func TestSerializable(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.Serializable, pgx.RepeatableRead} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			const keys, callers = 8, 6
			var all sync.WaitGroup
			for n := range callers {
				all.Go(func() {
					for _, k := range rand.Perm(keys) {
						if n == 0 {
							if _, err := b.api.Submit(context.Background(), fmt.Sprint("order:", k), submit(fmt.Sprint(k)), nil); err != nil {
								t.Errorf("over the API: %v", err)
							}
							continue
						}
						b.until(t, level, func(tx pgx.Tx) error {
							_, err := order(context.Background(), tx, fmt.Sprint(k), submit(fmt.Sprint(k)))
							return err
						})
					}
				})
			}
			all.Wait()
			if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != keys {
				t.Errorf("%d tasks for %d keys", n, keys)
			}
			if n := b.count(t, `SELECT count(*) FROM public.orders AS o JOIN onefold.tasks AS t ON t.id = o.task AND t.key = 'order:' || o.id`); n != keys {
				t.Errorf("%d orders have their task, want %d", n, keys)
			}
		})
	}
}

// until runs a transaction until it commits.
func (b *bundle) until(t *testing.T, level pgx.TxIsoLevel, f func(pgx.Tx) error) {
	t.Helper()
	for {
		err := pgx.BeginTxFunc(context.Background(), b.pool, pgx.TxOptions{IsoLevel: level}, f)
		if err == nil {
			return
		}
		if !enqueue.Retryable(err) {
			t.Errorf("got %v, want an error after which the transaction can be run again", err)
			return
		}
	}
}

// Transactions that commit or change their mind, and the API, at the same keys
// at the same time: what committed has its task, what did not has left nothing.
func TestRaceWithTheAPI(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const keys, callers = 12, 8
	var mu sync.Mutex
	created, told := map[string]int{}, map[string]map[string]bool{}
	note := func(key string, task *api.Task) {
		mu.Lock()
		defer mu.Unlock()
		if *task.Created {
			created[key]++
		}
		if told[key] == nil {
			told[key] = map[string]bool{}
		}
		told[key][task.ID] = true
	}
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			for _, k := range rand.Perm(keys) {
				key := fmt.Sprint("order:", k)
				if n%2 == 0 {
					task, err := b.api.Submit(context.Background(), key, submit(fmt.Sprint(k)), nil)
					if err != nil {
						t.Errorf("over the API: %v", err)
						continue
					}
					note(key, task)
					continue
				}
				var task *api.Task
				back := rand.IntN(2) == 0
				err := pgx.BeginFunc(context.Background(), b.pool, func(tx pgx.Tx) (err error) {
					if task, err = order(context.Background(), tx, fmt.Sprint(k), submit(fmt.Sprint(k))); err == nil && back {
						err = errBack
					}
					return err
				})
				switch {
				case err == nil:
					note(key, task)
				case !errors.Is(err, errBack) && !enqueue.Retryable(err):
					t.Errorf("in a transaction: %v", err)
				}
			}
		})
	}
	all.Wait()
	for key, ids := range told {
		if len(ids) != 1 || created[key] != 1 {
			t.Errorf("%s: %d ids, created %d times", key, len(ids), created[key])
		}
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != keys {
		t.Errorf("%d tasks for %d keys", n, keys)
	}
	if n := b.count(t, `SELECT count(*) FROM public.orders AS o LEFT JOIN onefold.tasks AS t ON t.id = o.task WHERE t.id IS NULL`); n != 0 {
		t.Errorf("%d orders without a task", n)
	}
}

// What an operator stopped is stopped here, too: a new task is refused, a
// duplicate answered, and the transaction goes on.
func TestHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.api.Submit(t.Context(), "order:7", submit(`7`), nil)
	if err != nil {
		t.Fatal(err)
	}
	failed, err := b.api.Submit(t.Context(), "order:8", submit(`8`), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `DELETE FROM onefold.river_job`)
	b.exec(t, `UPDATE onefold.tasks SET state = 'failed', error_code = 'deadline', error_message = 'late', error_permanent = false, finished_at = now(), expires_at = now() + interval '1 day', job_id = NULL WHERE id = $1::text::uuid`, failed.ID)
	b.exec(t, `INSERT INTO onefold.holds (id, tenant, kind, stops, reason, actor) VALUES (gen_random_uuid(), 'shop', 'k', '{submits}', 'a test', 'test')`)
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		var e *api.Error
		if _, err := enqueue.Tx(t.Context(), tx, "shop", "order:9", submit(`9`)); !errors.As(err, &e) || e.Code != api.CodeHeld || e.RetryAfter == 0 {
			t.Errorf("a new task: %v", err)
		}
		if again, err := enqueue.Tx(t.Context(), tx, "shop", "order:7", submit(`7`)); err != nil || again.ID != first.ID {
			t.Errorf("a duplicate: %+v, %v", again, err)
		}
		if again, err := enqueue.Tx(t.Context(), tx, "shop", "order:8", submit(`8`)); err != nil || again.State != api.Failed || again.Run != 1 {
			t.Errorf("a duplicate of a failed task: %+v, %v", again, err)
		}
		if other, err := enqueue.Tx(t.Context(), tx, "other", "order:9", submit(`9`)); err != nil || !*other.Created {
			t.Errorf("another tenant's: %+v, %v", other, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != 3 {
		t.Errorf("%d tasks, want 3", n)
	}
}
