package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// age makes the open delivery of an effect look begun that long ago.
func (b *bench) age(id task.ID, d time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE onefold.deliveries SET started_at = now() - $2::interval WHERE effect_id = $1 AND closed_at IS NULL`, id, d)
}

// TestReap: when an effect is taken from its owner, and where it goes.
func TestReap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, effect string
		lost         bool // the owner's lease ran out
		age          time.Duration
		attempts     int
		want         string
	}{
		{"living owner", toSafe, false, 0, 1, "delivering epoch 1 attempts 1"},
		{"lost, safe: at once", toSafe, true, 0, 1, "waiting epoch 2 attempts 1"},
		{"lost, unsafe: the send may be under way", toOnce, true, outbox.SendLimit + lease - time.Second, 1, "delivering epoch 1 attempts 1"},
		{"lost, unsafe: the send is over", toOnce, true, outbox.SendLimit + lease + time.Second, 1, "unknown epoch 2 attempts 1"},
		{"overran, safe", toSafe, false, outbox.SendLimit + 2*lease + time.Second, 1, "waiting epoch 2 attempts 1"},
		{"overran, unsafe", toOnce, false, outbox.SendLimit + 2*lease + time.Second, 1, "unknown epoch 2 attempts 1"},
		{"long, but within the limit", toSafe, false, outbox.SendLimit + 2*lease - time.Second, 1, "delivering epoch 1 attempts 1"},
		{"lost at the last attempt", toSafe, true, 0, len(outbox.Schedule), "dead epoch 2 attempts 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withEffects(t, c.effect), outbox.Opts{Senders: senders(answers(200))})
			id := b.effect()
			b.mark(b.box, id)
			b.age(id, c.age)
			b.exec(`UPDATE onefold.effects SET attempts = $1`, c.attempts)
			if c.lost {
				b.exec(`UPDATE onefold.workers SET expires_at = now()`)
			}
			r := b.upkeep(b.box.ReapEffects)
			got := b.state(id)
			expect(t, "effect", got, c.want)
			moved := got[:10] != "delivering"
			if (r.Count == 1) != moved {
				t.Errorf("got %+v, want a count of what moved", r)
			}
			if !moved {
				return
			}
			expect(t, "deliveries", b.deliveries(id), []string{"1 lost -"})
			if !one[bool](b, `SELECT unclear FROM onefold.effects`) {
				t.Error("the lost delivery left no doubt; it may have arrived")
			}
			if got[:7] == "waiting" {
				b.hasOneWake(id, "available")
			} else if n := b.wakes(id); n != 0 {
				t.Errorf("got %d wake-ups, want none", n)
			}
			if again := b.upkeep(b.box.ReapEffects); again.Count != 0 {
				t.Errorf("a second round took %d", again.Count)
			}
		})
	}
}

// TestReapersDoNotWait: rows that another round holds are left to it.
func TestReapersDoNotWait(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	id := b.effect()
	b.mark(b.box, id)
	b.exec(`UPDATE onefold.workers SET expires_at = now()`)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if first, err := b.box.ReapEffects(t.Context(), tx, lease); err != nil || first.Count != 1 {
		t.Fatalf("got %+v, %v", first, err)
	}
	if second := b.upkeep(b.box.ReapEffects); second.Count != 0 {
		t.Errorf("got %d, want none while the first round holds the row", second.Count)
	}
}

// TestSweep: which waiting effects get a wake-up.
func TestSweep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, do string
		woken    bool
	}{
		{"available", ``, false},
		{"no row", `DELETE FROM onefold.river_job`, true},
		{"completed: fetched and forgotten", `UPDATE onefold.river_job SET state = 'completed', finalized_at = now()`, true},
		{"discarded", `UPDATE onefold.river_job SET state = 'discarded', finalized_at = now()`, true},
		{"running", `UPDATE onefold.river_job SET state = 'running', attempted_at = now()`, false},
		{"running for longer than a lease", `UPDATE onefold.river_job SET state = 'running', attempted_at = now() - interval '16 s'`, true},
		{"scheduled and overdue", `UPDATE onefold.river_job SET state = 'scheduled', scheduled_at = now() - interval '31 s'`, true},
		{"scheduled, a little late", `UPDATE onefold.river_job SET state = 'scheduled', scheduled_at = now() - interval '20 s'`, false},
		{"parked", `DELETE FROM onefold.river_job; UPDATE onefold.effects SET job_id = NULL`, true},
		{"parked and not due", `DELETE FROM onefold.river_job; UPDATE onefold.effects SET job_id = NULL, next_at = now() + interval '1 h'`, false},
		{"not due", `DELETE FROM onefold.river_job; UPDATE onefold.effects SET next_at = now() + interval '1 h'`, false},
		{"held", `DELETE FROM onefold.river_job; UPDATE onefold.effects SET job_id = NULL, state = 'held'`, false},
		{"dead", `DELETE FROM onefold.river_job; UPDATE onefold.effects SET job_id = NULL, state = 'dead', finished_at = now()`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
			id := b.effect()
			if c.do != "" {
				b.exec(c.do)
			}
			before := one[int64](b, `SELECT coalesce(max(job_id), 0) FROM onefold.effects`)
			r := b.upkeep(b.box.SweepEffects)
			after := one[int64](b, `SELECT coalesce(max(job_id), 0) FROM onefold.effects`)
			if (before != after) != c.woken || (len(r.Queues) == 1) != c.woken {
				t.Errorf("job %d became %d, round %+v; want a new wake-up: %t", before, after, r, c.woken)
			}
			if c.woken {
				b.hasOneWake(id, "available")
			}
		})
	}
}

// TestStrays: what the database says is ours and is not in memory is taken when it is seen twice, by the same rule.
func TestStrays(t *testing.T) {
	t.Parallel()
	for effect, want := range map[string]string{toSafe: "waiting epoch 2 attempts 1", toOnce: "unknown epoch 2 attempts 1"} {
		b := setup(t, withEffects(t, effect), outbox.Opts{Senders: senders(answers(200))})
		id, held := b.effect(), b.effect()
		b.mark(b.box, held)
		b.mark(b.box, id)
		b.box.Release(id) // the mark's answer got lost
		see := func() int {
			r, err := b.box.Strays(t.Context(), b.me, lease)
			if err != nil {
				t.Fatal(err)
			}
			return r.Count
		}
		if n := see(); n != 0 {
			t.Errorf("seen once: got %d taken, want none", n)
		}
		if effect == toOnce {
			if n := see(); n != 0 {
				t.Errorf("unsafe and young: got %d taken, want none", n)
			}
			b.age(id, outbox.SendLimit+lease+time.Second)
		}
		if n := see(); n != 1 {
			t.Errorf("seen twice: got %d taken, want 1", n)
		}
		expect(t, "stray", b.state(id), want)
		expect(t, "in memory", b.state(held), "delivering epoch 1 attempts 1")
	}
}

// TestUnknownToThisProcess: the effect is put back for others, again and again, and never sent or lost.
func TestUnknownToThisProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: map[string]outbox.Sender{}})
	id := b.effect()
	first := one[int64](b, `SELECT job_id FROM onefold.effects`)
	for range 2 {
		b.box.Work(t.Context(), id)
		expect(t, "effect", b.state(id), "waiting epoch 0 attempts 0")
		b.hasOneWake(id, "scheduled")
	}
	if one[int64](b, `SELECT job_id FROM onefold.effects`) == first {
		t.Error("the wake-up was not renewed")
	}
	after := one[time.Duration](b, `SELECT scheduled_at - now() FROM onefold.river_job`)
	if after < 0 || after > 15*time.Second {
		t.Errorf("put back %s ahead, want 5 to 15 s", after)
	}
	knows, _ := b.another(outbox.Opts{Senders: senders(answers(200))})
	knows.Work(t.Context(), id)
	expect(t, "effect", b.state(id), "delivered epoch 1 attempts 1")
}

// TestBeyondTheDestinationsPlaces: the effects beyond wait without a wake-up, and each outcome wakes the next.
func TestBeyondTheDestinationsPlaces(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	begun := make(chan task.ID, 10)
	send := func(_ context.Context, d outbox.Delivery) outbox.Outcome {
		begun <- d.ID
		<-release
		return answered(200)
	}
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(scripted(send)), PerDestination: 1})
	first, second, third := b.effect(), b.effect(), b.effect()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.box.Work(t.Context(), first)
	}()
	<-begun
	b.box.Work(t.Context(), second) // returns at once
	b.box.Work(t.Context(), third)
	for _, id := range []task.ID{second, third} {
		expect(t, "beyond", b.state(id), "waiting epoch 0 attempts 0")
		if n := b.wakes(id); n != 0 {
			t.Errorf("got %d wake-ups of one beyond, want none", n)
		}
	}
	if r := b.upkeep(b.box.SweepEffects); len(r.Queues) != 0 {
		t.Errorf("the sweep woke %d while the destination has no place", r.Count)
	}
	close(release)
	<-done
	b.hasOneWake(second, "available")
	if n := b.wakes(third); n != 0 {
		t.Errorf("got %d wake-ups of the third, want none yet", n)
	}
	b.box.Work(t.Context(), second)
	b.hasOneWake(third, "available")
	b.box.Work(t.Context(), third)
	if n := one[int](b, `SELECT count(*) FROM onefold.effects WHERE state = 'delivered'`); n != 3 {
		t.Errorf("got %d delivered, want 3", n)
	}
}

// TestWindow: of many effects of one destination only so many hold a wake-up; another destination is not touched by it.
func TestWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe, `{name: other, type: webhook, destination: once, on: failed}`), outbox.Opts{
		Senders: senders(answers(503)), Window: 5, PerDestination: 3,
	})
	var rows []*task.Row
	for range 4 {
		rows = append(rows, b.insertTask(api.Succeeded, `{"n":1}`), b.insertTask(api.Succeeded, `{"n":1}`), b.insertTask(api.Failed, ""))
	}
	count := func() string {
		return one[string](b, `SELECT string_agg(destination || ' ' || n, ', ' ORDER BY destination) FROM (
		    SELECT destination, count(j.id) AS n FROM onefold.effects AS e LEFT JOIN onefold.river_job AS j ON j.id = e.job_id GROUP BY destination) AS x`)
	}
	if err := b.settle(rows[:6]...); err != nil {
		t.Fatal(err)
	}
	expect(t, "after the first group", count(), "once 2, safe 4")
	if err := b.settle(rows[6:]...); err != nil {
		t.Fatal(err)
	}
	expect(t, "after the second", count(), "once 4, safe 5")

	// Failing one after the other: each retry keeps a wake-up only within the window, and the next is woken.
	for range 8 {
		id := one[task.ID](b, `SELECT e.id FROM onefold.effects AS e JOIN onefold.river_job AS j ON j.id = e.job_id
		    WHERE destination = 'safe' ORDER BY j.state = 'available' DESC, j.id LIMIT 1`)
		b.box.Work(t.Context(), id)
	}
	expect(t, "all tried once", one[int](b, `SELECT count(*) FROM onefold.effects WHERE destination = 'safe' AND attempts = 1`), 8)
	if n := one[int](b, `SELECT count(job_id) FROM onefold.effects WHERE destination = 'safe'`); n > 5 {
		t.Errorf("got %d wake-ups of retries, want at most 5", n)
	}

	// All become due; the sweep starts the chain of those without.
	b.exec(`DELETE FROM onefold.river_job; UPDATE onefold.effects SET job_id = NULL, next_at = now() WHERE destination = 'safe'`)
	if r := b.upkeep(b.box.SweepEffects); r.Count != 3+3 { // of "once", too, whose rows were deleted
		t.Errorf("got %+v, want 3 woken of each", r)
	}
	expect(t, "after the sweep", count(), "once 3, safe 3")
}

// TestDoubledWakesInOneFlush: one is marked, the other finds nothing.
func TestDoubledWakesInOneFlush(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	id := b.effect()
	got, err := b.box.Mark(t.Context(), id, id, task.NewID())
	if err != nil || got[0] == nil || got[1] != nil || got[2] != nil {
		t.Errorf("got %v, %v, want the first only", got, err)
	}
	expect(t, "effect", b.state(id), "delivering epoch 1 attempts 1")
}

// TestStillAtWorkHere: taken by the reaper while its send goes on in this process, an effect is not taken a second time
// by the same process.
func TestStillAtWorkHere(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	id := b.effect()
	m := b.mark(b.box, id)
	b.exec(`UPDATE onefold.workers SET expires_at = now()`)
	b.upkeep(b.box.ReapEffects)
	again, err := b.box.Mark(t.Context(), id)
	if err != nil || again[0] != nil {
		t.Fatalf("got %v, %v, want nothing", again, err)
	}
	expect(t, "effect", b.state(id), "waiting epoch 2 attempts 1")
	b.hasOneWake(id, "scheduled")
	b.box.Release(m.ID)
	b.mark(b.box, id)
}

// TestPlans: the statements that look for work read only what is theirs, beside fifty thousand finished effects.
func TestPlans(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	b.many(10_000, "parked", "once", "waiting")
	b.many(20_000, "done", "safe", "delivered")
	b.exec(`ANALYZE onefold.effects; ANALYZE onefold.tasks`)
	id := b.effect()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	read := func() (n int64) {
		err := tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid)
		    + (SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index AS i WHERE i.indrelid = c.oid)
		    FROM pg_class AS c WHERE c.oid = 'onefold.effects'::regclass`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, f := range map[string]func() error{
		"wake next": func() error {
			_, err := store.WakeNextEffects(t.Context(), tx, map[string]int{"safe": 8, "once": 8}, "effects")
			return err
		},
		"idle destinations": func() error { _, err := store.IdleDestinations(t.Context(), tx, 8, []string{}); return err },
		"wake": func() error {
			_, err := store.WakeEffects(t.Context(), tx, []store.EffectWake{{ID: id}}, "effects", 64)
			return err
		},
		"sleepless": func() error { _, _, err := store.SleeplessEffects(t.Context(), tx, lease, 500); return err },
		"lost": func() error {
			_, err := store.LostEffects(t.Context(), tx, []string{"safe"}, lease, lease, 500)
			return err
		},
		"mark": func() error {
			_, err := store.MarkEffects(t.Context(), tx, []store.EffectMark{{ID: id, Owner: b.me, Token: task.NewToken()}})
			return err
		},
		"insert": func() error {
			_, err := store.InsertEffects(t.Context(), tx, []store.NewEffect{{
				ID: task.NewID(), TaskID: one[task.ID](b, `SELECT task_id FROM onefold.effects WHERE id = $1`, id), Tenant: "acme", Run: 2,
				Name: "x", Outcome: api.Failed, Type: "webhook", Destination: "once", State: api.EffectWaiting,
			}}, "effects", 64)
			return err
		},
	} {
		before := read()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := read() - before; n > 500 {
			t.Errorf("%s: read %d tuples of effects, want at most 500", name, n)
		}
	}
}

// many inserts tasks with one effect each, without wake-ups.
func (b *bench) many(n int, prefix, destination, state string) {
	b.t.Helper()
	b.exec(fmt.Sprintf(`INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash,
	    deadline_after, input, config_hash, deadline, state, finished_at)
	SELECT gen_random_uuid(), 'acme', 'k', '%s-' || i, 'key', 'p', sha256('x'), 1, sha256('x'), interval '1 h', 'null', $1, now(), 'cancelled', now()
	FROM generate_series(1, %d) AS i`, prefix, n), b.cfg.Kinds["k"].Hash())
	b.exec(`INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, body, state, finished_at)
	SELECT gen_random_uuid(), t.id, 'acme', 1, 'n', 'cancelled', 'webhook', $2, '{}', $3, CASE WHEN $3 = 'delivered' THEN now() END
	FROM onefold.tasks AS t WHERE t.key LIKE $1 || '-%'`, prefix, destination, state)
}
