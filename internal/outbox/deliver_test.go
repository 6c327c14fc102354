package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	looks := 0
	b := setup(t, withEffects(t, toOnce), outbox.Opts{Senders: senders(scripted(send)), MaySend: func() bool { looks++; return looks == 2 }})
	id := b.effect()
	b.box.Work(t.Context(), id) // not even marked
	expect(t, "effect", b.state(id), "waiting epoch 0 attempts 0")
	b.hasOneWake(id, "scheduled")
	b.box.Work(t.Context(), id) // marked, but by then too old to send
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
