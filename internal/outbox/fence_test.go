package outbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// TestMarkersRace: many processes are woken for the same effects; each is sent once.
func TestMarkersRace(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[task.ID]int{}
	send := func(_ context.Context, d outbox.Delivery) outbox.Outcome {
		mu.Lock()
		defer mu.Unlock()
		sent[d.ID]++
		return answered(204)
	}
	opts := outbox.Opts{Senders: senders(scripted(send)), PerDestination: 1000}
	b := setup(t, withEffects(t, toOnce), opts)
	boxes := []*outbox.Outbox{b.box}
	for range 2 {
		box, _ := b.another(opts)
		boxes = append(boxes, box)
	}
	var ids []task.ID
	for range 30 {
		ids = append(ids, b.effect())
	}
	var all sync.WaitGroup
	for i, box := range boxes {
		for j := range ids {
			id := ids[(j*(2*i+1))%len(ids)] // each in an order of its own
			all.Go(func() { box.Work(t.Context(), id) })
			all.Go(func() { box.Work(t.Context(), id) })
		}
	}
	all.Wait()
	for _, id := range ids {
		if sent[id] != 1 {
			t.Errorf("effect %s was sent %d times, want once", id, sent[id])
		}
	}
	if n := one[int](b, `SELECT count(*) FROM onefold.effects WHERE state = 'delivered' AND epoch = 1`); n != len(ids) {
		t.Errorf("got %d delivered, want %d", n, len(ids))
	}
}

// TestFencedOutcome: a stopped owner comes back after its effect was taken and delivered by another. What it learned
// stands on its own delivery row, and nothing else has changed.
func TestFencedOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	id := b.effect()
	stopped := b.mark(b.box, id)
	b.exec(`UPDATE onefold.workers SET expires_at = now() WHERE incarnation = $1`, b.me)
	if r := b.upkeep(b.box.ReapEffects); r.Count != 1 || len(r.Queues) != 1 {
		t.Fatalf("reap: got %+v, want one effect", r)
	}
	expect(t, "reaped", b.state(id), "waiting epoch 2 attempts 1")
	b.hasOneWake(id, "available")
	box, _ := b.another(outbox.Opts{Senders: senders(answers(200))})
	box.Work(t.Context(), id)
	expect(t, "taken over", b.state(id), "delivered epoch 3 attempts 2")
	before := b.row("effects", "true")

	v := outbox.Verdict{To: api.EffectDead, Delivery: "dead", Code: "rejected"}
	for range 2 { // the second time as after an unclear commit
		recorded, err := b.box.Record(t.Context(), stopped, v, answered(400))
		if err != nil || recorded {
			t.Fatalf("got recorded %t, %v, want fenced", recorded, err)
		}
	}
	expect(t, "the effect", b.row("effects", "true"), before)
	expect(t, "deliveries", b.deliveries(id), []string{"1 lost - late dead", "3 delivered 200"})
}

// TestEveryPartOfTheGuard: an outcome under another epoch or token, or for an effect that is not being delivered,
// changes nothing.
func TestEveryPartOfTheGuard(t *testing.T) {
	t.Parallel()
	delivered := outbox.Verdict{To: api.EffectDelivered, Delivery: "delivered"}
	for name, bend := range map[string]func(b *bench, m *outbox.Marked){
		"token": func(_ *bench, m *outbox.Marked) { m.Token = task.NewToken() },
		"epoch": func(_ *bench, m *outbox.Marked) { m.Epoch++ },
		"state": func(b *bench, m *outbox.Marked) {
			b.exec(`UPDATE onefold.effects SET state = 'waiting', owner = NULL, token = NULL WHERE id = $1`, m.ID)
		},
		"token repeated with the epoch": func(b *bench, m *outbox.Marked) { // as after a failover: marked again under the same epoch
			b.exec(`UPDATE onefold.effects SET token = gen_random_uuid() WHERE id = $1`, m.ID)
			b.exec(`UPDATE onefold.deliveries SET token = (SELECT token FROM onefold.effects WHERE id = $1)`, m.ID)
		},
	} {
		b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
		m := b.mark(b.box, b.effect())
		bend(b, m)
		before := b.row("effects", "true")
		recorded, err := b.box.Record(t.Context(), m, delivered, answered(200))
		if err != nil || recorded {
			t.Errorf("%s: got recorded %t, %v, want fenced", name, recorded, err)
		}
		expect(t, name, b.row("effects", "true"), before)
		if late := one[int](b, `SELECT count(*) FROM onefold.deliveries WHERE token <> $1 AND late_at IS NOT NULL`, m.Token); late != 0 {
			t.Errorf("%s: what came late was written onto the delivery of another token", name)
		}
	}
}

// TestLateOutcomeOfALostRow: the failover lost the mark with its delivery row; what was learned is kept all the same.
func TestLateOutcomeOfALostRow(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	id := b.effect()
	m := b.mark(b.box, id)
	b.exec(`DELETE FROM onefold.deliveries`)
	b.exec(`UPDATE onefold.effects SET state = 'waiting', owner = NULL, token = NULL, epoch = 0, attempts = 0`)
	recorded, err := b.box.Record(t.Context(), m, outbox.Verdict{To: api.EffectDelivered, Delivery: "delivered"}, answered(200))
	if err != nil || recorded {
		t.Fatalf("got recorded %t, %v, want fenced", recorded, err)
	}
	expect(t, "effect", b.state(id), "waiting epoch 0 attempts 0")
	expect(t, "deliveries", b.deliveries(id), []string{"1 lost - late delivered"})
}

// TestLostCommitOfAnOutcome: the answer to the COMMIT is lost and the same outcome comes again. It counts as recorded,
// and nothing happens twice.
func TestLostCommitOfAnOutcome(t *testing.T) {
	t.Parallel()
	for _, v := range []outbox.Verdict{
		{To: api.EffectDelivered, Delivery: "delivered"},
		{To: api.EffectWaiting, After: time.Minute, Delivery: "retry", Unclear: true},
		{To: api.EffectUnknown, Delivery: "unknown", Unclear: true},
	} {
		b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
		m := b.mark(b.box, b.effect())
		var rows [3]map[string]any
		for i := range rows {
			recorded, err := b.box.Record(t.Context(), m, v, answered(200))
			if err != nil || !recorded {
				t.Errorf("%s, try %d: got recorded %t, %v, want recorded", v.To, i, recorded, err)
			}
			rows[i] = b.row("effects", "true")
		}
		expect(t, "second try", rows[1], rows[0])
		if n := one[int](b, `SELECT count(*) FROM onefold.deliveries WHERE late_at IS NOT NULL`); n != 0 {
			t.Errorf("%s: got %d late outcomes, want none", v.To, n)
		}
		if n := one[int](b, `SELECT count(*) FROM onefold.river_job`); (n == 1) != (v.To == api.EffectWaiting) {
			t.Errorf("%s: got %d wake-ups", v.To, n)
		}
	}
}

// TestLostCommitOfAMark: whether it stands is found out by the tokens.
func TestLostCommitOfAMark(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	there, not := b.mark(b.box, b.effect()), b.effect()
	got, err := b.box.ResolveMarks(t.Context(), []store.EffectMark{
		{ID: there.ID, Owner: b.me, Token: there.Token}, {ID: not, Owner: b.me, Token: task.NewToken()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[there.ID] == nil || string(got[there.ID].Body) != string(there.Body) || got[there.ID].Attempts != 1 {
		t.Errorf("got %v, want the one that was committed, whole", got)
	}
}
