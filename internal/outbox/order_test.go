package outbox_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

const ordered = `{name: notify, type: webhook, destination: safe, order: "{{.task.key}}", body: {n: "{{json .result.n}}"}}`

// inOrder settles a fresh task of that key and returns its effect.
func (b *bench) inOrder(key, n string) task.ID {
	b.t.Helper()
	b.exec(`UPDATE onefold.tasks SET key = key || id WHERE key = $1`, key)
	r := b.insertKeyed(api.Succeeded, `{"n":`+n+`}`, key)
	if err := b.settle(r); err != nil {
		b.t.Fatal(err)
	}
	return one[task.ID](b, `SELECT id FROM onefold.effects WHERE task_id = $1`, r.ID)
}

// TestOrder: effects of one key leave one after the other, those of another key do not wait for them, and what a person
// must decide holds the rest back.
func TestOrder(t *testing.T) {
	t.Parallel()
	status := map[string]int{}
	var got []string
	send := func(_ context.Context, d outbox.Delivery) outbox.Outcome {
		got = append(got, string(d.Body))
		return answered(max(200, status[string(d.Body)]))
	}
	b := setup(t, withEffects(t, ordered), outbox.Opts{Senders: senders(scripted(send))})
	first, second, third, other := b.inOrder("k", "1"), b.inOrder("k", "2"), b.inOrder("k", "3"), b.inOrder("x", "9")
	for id, want := range map[task.ID]int{first: 1, second: 0, third: 0, other: 1} {
		if n := b.wakes(id); n != want {
			t.Errorf("got %d wake-ups, want %d", n, want)
		}
	}
	b.box.Work(t.Context(), second) // a wake-up from nowhere
	expect(t, "behind another", b.state(second), "waiting epoch 0 attempts 0")
	status[`{"n":1}`] = 503
	b.box.Work(t.Context(), first)
	if n := b.wakes(second); n != 0 {
		t.Errorf("the next was woken while the first waits for another try")
	}
	status[`{"n":1}`] = 200
	b.exec(`UPDATE onefold.effects SET next_at = now() WHERE id = $1`, first)
	b.box.Work(t.Context(), first)
	b.hasOneWake(second, "available")
	status[`{"n":2}`] = 400
	b.box.Work(t.Context(), second)
	expect(t, "refused", b.state(second), "dead epoch 1 attempts 1")
	b.upkeep(b.box.SweepEffects)
	if n := b.wakes(third); n != 0 {
		t.Error("the third was woken although the second is not decided")
	}
	late := b.inOrder("k", "4")
	if n := b.wakes(late); n != 0 {
		t.Error("a new one overtakes")
	}
	b.exec(`UPDATE onefold.effects SET state = 'discarded' WHERE id = $1`, second)
	b.upkeep(b.box.SweepEffects) // finds the chain that stands still
	b.hasOneWake(third, "available")
	b.box.Work(t.Context(), third)
	b.box.Work(t.Context(), late)
	expect(t, "deliveries", got, []string{`{"n":1}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`})
}

// TestOrderIsThatOfTheCommits: many transactions that take places at once; whoever commits first leaves first, and
// exactly one of a key is free at a time.
func TestOrderIsThatOfTheCommits(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []task.ID
	send := func(_ context.Context, d outbox.Delivery) outbox.Outcome {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, d.ID)
		return answered(200)
	}
	b := setup(t, withEffects(t, strings.ReplaceAll(ordered, "{{.task.key}}", "one")), outbox.Opts{Senders: senders(scripted(send))})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				if err := b.settle(b.insertTask(api.Succeeded, `{"n":1}`)); err != nil {
					t.Errorf("settle: %v", err)
				}
			}
		})
	}
	all.Wait()
	if n := one[int](b, `SELECT count(*) FROM onefold.effects WHERE next_at <> 'infinity'`); n != 1 {
		t.Errorf("%d are free at once, want 1", n)
	}
	want := one[[]task.ID](b, `SELECT array_agg(id ORDER BY order_seq) FROM onefold.effects`)
	for range want {
		b.box.Work(t.Context(), one[task.ID](b, `SELECT id FROM onefold.effects WHERE job_id IS NOT NULL`))
	}
	if !slices.Equal(got, want) {
		t.Errorf("left in another order than they were numbered")
	}
	if n := one[int](b, `SELECT count(DISTINCT order_seq) FROM onefold.effects WHERE order_seq BETWEEN 1 AND 20`); n != 20 {
		t.Errorf("got %d numbers from 1 to 20, want all", n)
	}
}

// TestOrderMeetsAnOutcome: a place is taken while the outcome of the one before is being recorded. Whichever commits
// first, the next one is free afterwards.
func TestOrderMeetsAnOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, ordered), outbox.Opts{Senders: senders(answers(200))})
	first := b.inOrder("k", "1")
	m := b.mark(b.box, first)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	key := store.OrderKey{Tenant: "acme", Destination: "safe", Key: "k"}
	if _, err := store.TakeOrder(t.Context(), tx, map[store.OrderKey]int{key: 1}); err != nil {
		t.Fatal(err)
	}
	recorded := make(chan error, 1)
	go func() {
		_, err := b.box.Record(t.Context(), m, outbox.Verdict{To: api.EffectDelivered, Delivery: "delivered"}, answered(200))
		recorded <- err
	}()
	b.awaitLock()
	if open, err := store.OpenOrders(t.Context(), tx, []store.OrderKey{key}); err != nil || !open[key] {
		t.Fatalf("got %v, %v, want the first one open still", open, err)
	}
	b.exec(`UPDATE onefold.tasks SET key = key || id`)
	r := b.insertKeyed(api.Succeeded, `{}`, "k")
	if err := move(t.Context(), tx, r); err != nil {
		t.Fatal(err)
	}
	if _, err := store.InsertEffects(t.Context(), tx, []store.NewEffect{{
		ID: task.NewID(), TaskID: r.ID, Tenant: "acme", Run: 1, Name: "n", Outcome: api.Succeeded, Type: "webhook", Destination: "safe",
		State: api.EffectWaiting, Order: "k", OrderSeq: 2, Behind: true,
	}}, "effects", 64); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-recorded; err != nil {
		t.Fatal(err)
	}
	if n := one[int](b, `SELECT count(job_id) FROM onefold.effects WHERE state = 'waiting' AND next_at <= now()`); n != 1 {
		t.Errorf("got %d free and woken, want the second", n)
	}
}

// awaitLock waits until a transaction of this database waits for a lock.
func (b *bench) awaitLock() {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	until := time.After(60 * time.Second)
	for {
		var n int
		err := b.pool.QueryRow(b.t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		if err != nil && err != pgx.ErrNoRows {
			b.t.Fatal(err)
		}
		if n > 0 {
			return
		}
		select {
		case <-tick.C:
		case <-until:
			b.t.Fatal("nothing waits for a lock")
		}
	}
}
