package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/webhook"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

const (
	toSafe = `{name: notify, type: webhook, destination: safe, body: '{"invoice": {{json .result.n}}}'}`
	toOnce = `{name: notify, type: webhook, destination: once}`
)

// state reads where an effect stands.
func (b *bench) state(id task.ID) string {
	b.t.Helper()
	return one[string](b, `SELECT state || ' epoch ' || epoch || ' attempts ' || attempts FROM onefold.effects WHERE id = $1`, id)
}

// deliveries reads the deliveries of an effect: epoch, outcome, and what came late.
func (b *bench) deliveries(id task.ID) []string {
	b.t.Helper()
	return one[[]string](b, `SELECT coalesce(array_agg(epoch || ' ' || coalesce(outcome, 'open') || ' ' || coalesce(status::text, '-')
	    || coalesce(' late ' || late_outcome, '') ORDER BY epoch), '{}') FROM onefold.deliveries WHERE effect_id = $1`, id)
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestDelivered goes the whole way to a real receiver, which verifies the signature over the stored bytes.
func TestDelivered(t *testing.T) {
	t.Parallel()
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	type hit struct{ id, body, attempt string }
	hits := make(chan hit, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Errorf("signature: %v", err)
		}
		hits <- hit{r.Header.Get("webhook-id"), string(body), r.Header.Get("Onefold-Attempt")}
	}))
	t.Cleanup(srv.Close)
	cfg := withEffects(t, `{name: notify, type: webhook, destination: safe, body: '{"text": {{json .result.text}}}'}`)
	cfg.Destinations["safe"].URL = config.NewURL(srv.URL)
	b := setup(t, cfg, outbox.Opts{Senders: senders(webhook.New(nil))})
	r := b.insertTask(api.Succeeded, `{"text":"<b>& 😀 1.10"}`)
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	id := one[task.ID](b, `SELECT id FROM onefold.effects`)
	b.box.Work(t.Context(), id)
	got := <-hits
	if want := (hit{id.String(), `{"text": "<b>& 😀 1.10"}`, "1"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	expect(t, "effect", b.state(id), "delivered epoch 1 attempts 1")
	expect(t, "deliveries", b.deliveries(id), []string{"1 delivered 200"})
	if n := b.wakes(id); n != 0 {
		t.Errorf("got %d wake-ups left, want none", n)
	}
	b.box.Work(t.Context(), id) // a doubled wake-up
	if len(hits) != 0 {
		t.Error("a doubled wake-up delivered again")
	}
}

// TestOutcomes: where the effect goes after each sort of answer, and what is written down.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, effect string
		out          outbox.Outcome
		state        string
		delivery     string
		wake         string
		min, max     time.Duration
	}{
		{"500, safe", toSafe, answered(500), "waiting epoch 1 attempts 1", "1 retry 500", "scheduled", 4 * time.Second, 6 * time.Second},
		{"500, unsafe", toOnce, answered(500), "unknown epoch 1 attempts 1", "1 unknown 500", "", 0, 0},
		{"429", toOnce, outbox.Outcome{Class: outbox.Answered, Status: 429, RetryAfter: time.Hour}, "waiting epoch 1 attempts 0", "1 deferred 429", "scheduled", time.Hour, 72 * time.Minute},
		{"400", toOnce, answered(400), "dead epoch 1 attempts 1", "1 dead 400", "", 0, 0},
		{"401", toOnce, answered(401), "waiting epoch 1 attempts 1", "1 retry 401", "scheduled", 4 * time.Second, 6 * time.Second},
		{"not sent", toOnce, outbox.Outcome{Class: outbox.NotSent, Code: "c", Message: "m"}, "waiting epoch 1 attempts 1", "1 not_sent -", "scheduled", 4 * time.Second, 6 * time.Second},
		{"unclear", toOnce, outbox.Outcome{Class: outbox.Unclear, Code: "c", Message: "m"}, "unknown epoch 1 attempts 1", "1 unknown -", "", 0, 0},
		{"blocked", toSafe, outbox.Outcome{Class: outbox.Blocked, Code: "blocked", Message: "m"}, "dead epoch 1 attempts 1", "1 dead -", "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			send := func(context.Context, outbox.Delivery) outbox.Outcome { return c.out }
			b := setup(t, withEffects(t, c.effect), outbox.Opts{Senders: senders(scripted(send))})
			id := b.effect()
			b.box.Work(t.Context(), id)
			expect(t, "effect", b.state(id), c.state)
			expect(t, "deliveries", b.deliveries(id), []string{c.delivery})
			if c.wake == "" {
				if n := b.wakes(id); n != 0 {
					t.Errorf("got %d wake-ups, want none", n)
				}
				return
			}
			b.hasOneWake(id, c.wake)
			after := one[time.Duration](b, `SELECT e.next_at - d.closed_at FROM onefold.effects AS e JOIN onefold.deliveries AS d ON d.effect_id = e.id`)
			if after < c.min || after > c.max {
				t.Errorf("next try after %s, want %s to %s", after, c.min, c.max)
			}
			if at := one[time.Duration](b, `SELECT e.next_at - j.scheduled_at FROM onefold.effects AS e JOIN onefold.river_job AS j ON j.id = e.job_id`); at != 0 {
				t.Errorf("the wake-up is %s off", at)
			}
			b.box.Work(t.Context(), id) // woken too early
			expect(t, "effect after an early wake-up", b.state(id), c.state)
			b.hasOneWake(id, c.wake)
		})
	}
}

// TestFourHundredAfterDoubt: an earlier try may have arrived, so a refusal proves nothing.
func TestFourHundredAfterDoubt(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	send := func(context.Context, outbox.Delivery) outbox.Outcome {
		if tries.Add(1) == 1 {
			return answered(500)
		}
		return answered(409)
	}
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(scripted(send))})
	id := b.effect()
	b.box.Work(t.Context(), id)
	b.exec(`UPDATE onefold.effects SET next_at = now()`)
	b.box.Work(t.Context(), id)
	expect(t, "effect", b.state(id), "unknown epoch 2 attempts 2")
	expect(t, "code", one[string](b, `SELECT error_code FROM onefold.effects`), outbox.CodeOutcomeUnknown)
}

// TestWholeSchedule walks an effect through all its tries: the same id and body each time, then dead.
func TestWholeSchedule(t *testing.T) {
	t.Parallel()
	var got []string
	send := func(_ context.Context, d outbox.Delivery) outbox.Outcome {
		got = append(got, fmt.Sprintf("%s %d %s", d.ID, d.Attempt, d.Body))
		return answered(503)
	}
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(scripted(send))})
	id := b.effect()
	var want []string
	for n := 1; n <= len(outbox.Schedule)+1; n++ {
		b.exec(`UPDATE onefold.effects SET next_at = now() WHERE state = 'waiting'`)
		b.box.Work(t.Context(), id)
		if n <= len(outbox.Schedule) {
			want = append(want, fmt.Sprintf("%s %d %s", id, n, `{"invoice": 1}`))
		}
	}
	expect(t, "tries", got, want)
	expect(t, "effect", b.state(id), "dead epoch 8 attempts 8")
	if n := b.wakes(id); n != 0 {
		t.Errorf("got %d wake-ups, want none", n)
	}
}

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

// TestDatabaseGoneWhileSending: the outcome waits for the database to come back.
func TestDatabaseGoneWhileSending(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Cluster(t)
	send := func(context.Context, outbox.Delivery) outbox.Outcome {
		if err := cluster.Stop("immediate"); err != nil {
			t.Errorf("stop: %v", err)
		}
		go func() {
			if err := cluster.Restart(context.Background()); err != nil {
				t.Errorf("restart: %v", err)
			}
		}()
		return answered(200)
	}
	b := setupOn(t, pgtest.NewIn(t, cluster).Pool(t), withEffects(t, toOnce), outbox.Opts{Senders: senders(scripted(send))})
	id := b.effect()
	b.box.Work(t.Context(), id)
	expect(t, "effect", b.state(id), "delivered epoch 1 attempts 1")
	expect(t, "deliveries", b.deliveries(id), []string{"1 delivered 200"})
}

// TestWithheld: with an old heartbeat, or when stopping, nothing is sent and the attempt does not count.
func TestWithheld(t *testing.T) {
	t.Parallel()
	send := func(context.Context, outbox.Delivery) outbox.Outcome {
		t.Error("sent")
		return answered(200)
	}
	b := setup(t, withEffects(t, toOnce), outbox.Opts{Senders: senders(scripted(send)), MaySend: func() bool { return false }})
	id := b.effect()
	b.box.Work(t.Context(), id)
	expect(t, "effect", b.state(id), "waiting epoch 1 attempts 0")
	expect(t, "unclear", one[bool](b, `SELECT unclear FROM onefold.effects`), false)
	b.hasOneWake(id, "scheduled")

	var now atomic.Int64
	old, _ := b.another(outbox.Opts{Senders: senders(scripted(send)), Clock: func() time.Duration {
		return time.Duration(now.Add(int64(time.Minute)))
	}})
	b.exec(`UPDATE onefold.effects SET next_at = now()`)
	old.Work(t.Context(), id) // each look at the clock is a minute later: the mark is too old to send on
	expect(t, "effect", b.state(id), "waiting epoch 2 attempts 0")
}

// TestStopping: what may be repeated is cut short; what may not runs to its end.
func TestStopping(t *testing.T) {
	t.Parallel()
	for effect, want := range map[string]string{
		toSafe: "waiting epoch 1 attempts 1", toOnce: "delivered epoch 1 attempts 1",
	} {
		begun, finish := make(chan struct{}), make(chan struct{})
		send := func(ctx context.Context, _ outbox.Delivery) outbox.Outcome {
			close(begun)
			select {
			case <-ctx.Done():
				return outbox.Outcome{Class: outbox.Unclear, Code: "c", Message: "m"}
			case <-finish:
				return answered(200)
			}
		}
		b := setup(t, withEffects(t, effect), outbox.Opts{Senders: senders(scripted(send))})
		id := b.effect()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.box.Work(ctx, id)
		}()
		<-begun
		stop()
		if effect == toOnce {
			close(finish)
		}
		<-done
		expect(t, "effect", b.state(id), want)
		if other := b.effect(); effect == toSafe {
			b.box.Work(ctx, other)
			expect(t, "after the stop", b.state(other), "waiting epoch 0 attempts 0")
		}
	}
}

func TestPanicOfASender(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toOnce), outbox.Opts{Senders: senders(scripted(func(context.Context, outbox.Delivery) outbox.Outcome { panic("oops") }))})
	id := b.effect()
	b.box.Work(t.Context(), id)
	expect(t, "effect", b.state(id), "unknown epoch 1 attempts 1")
}

func TestHeadersAreStored(t *testing.T) {
	t.Parallel()
	var got outbox.Delivery
	send := func(_ context.Context, d outbox.Delivery) outbox.Outcome { got = d; return answered(200) }
	b := setup(t, withEffects(t, `{name: n, type: webhook, destination: once, headers: {X-Team: "{{.task.key}}"}}`), outbox.Opts{Senders: senders(scripted(send))})
	r := b.insertKeyed(api.Succeeded, `{}`, "k-1")
	if err := b.settle(r); err != nil {
		t.Fatal(err)
	}
	b.box.Work(t.Context(), one[task.ID](b, `SELECT id FROM onefold.effects`))
	var stored map[string]string
	if err := json.Unmarshal(one[[]byte](b, `SELECT headers FROM onefold.effects`), &stored); err != nil {
		t.Fatal(err)
	}
	expect(t, "sent", got.Headers, map[string]string{"X-Team": "k-1"})
	expect(t, "stored", stored, got.Headers)
	if got.Safe || len(got.Secrets) != 1 || !got.AllowPrivate {
		t.Errorf("got %+v, want unsafe, one secret, private allowed", got)
	}
}
