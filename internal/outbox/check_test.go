package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/task"
)

// withCheck is a configuration whose destination once can be asked.
func withCheck(t *testing.T, effect string) *config.Config {
	t.Helper()
	return parse(t, `destinations:
  safe: {url: "http://127.0.0.1:1/", repeat: safe, allow_private: true}
  once:
    url: "http://127.0.0.1:1/"
    allow_private: true
    check: {path: "/orders?ref={{.effect.reference}}&key={{.task.key}}", after: 30s, done: {status: 200, present: id}, not_done: {status: 404}}
kinds:
  k: {provider: p, output: json, effects: [`+effect+`]}
`)
}

const toAsked = `{name: order, type: http, destination: once, reference: "o-{{.result.n}}", body: {ref: "o-{{.result.n}}"}}`

// ordersAPI is a scripted API: it takes what is sent and answers questions by what it took, or as told.
type ordersAPI struct {
	sends, asks []string
	send        func(n int) outbox.Outcome
	ask         func(n int) outbox.Outcome
}

func (r *ordersAPI) Send(_ context.Context, d outbox.Delivery) outbox.Outcome {
	if d.Check {
		r.asks = append(r.asks, d.Method+" "+d.Path)
		return r.ask(len(r.asks))
	}
	r.sends = append(r.sends, d.ID.String())
	return r.send(len(r.sends))
}

func says(status int, body string) func(int) outbox.Outcome {
	return func(int) outbox.Outcome {
		return outbox.Outcome{Class: outbox.Answered, Status: status, Reply: []byte(body)}
	}
}

func (b *bench) due() { b.exec(`UPDATE onefold.effects SET next_at = now() WHERE state = 'waiting'`) }

// TestAskBeforeRepeat: after a delivery of unknown outcome the destination is asked; what it says is done.
func TestAskBeforeRepeat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		ask        func(int) outbox.Outcome
		second     int // the answer to a second send
		want       string
		sends      int
		deliveries []string
	}{
		{"it arrived", says(200, `{"id":7}`), 200, "delivered epoch 2 attempts 1", 1, []string{"1 unknown -", "2 delivered -"}},
		{"it did not", says(404, `{}`), 200, "delivered epoch 2 attempts 2", 2, []string{"1 unknown -", "2 delivered 200"}},
		{"it did not, and now it is refused", says(404, `{}`), 422, "dead epoch 2 attempts 2", 2, []string{"1 unknown -", "2 dead 422"}},
		{"it did not, and again nobody knows", says(404, `{}`), 500, "waiting epoch 2 attempts 2", 2, []string{"1 unknown -", "2 unknown 500"}},
		{"an answer that says nothing", says(200, `{"id":null}`), 200, "waiting epoch 2 attempts 1", 1, []string{"1 unknown -", "2 deferred -"}},
		{"no answer", func(int) outbox.Outcome { return outbox.Outcome{Class: outbox.Unclear, Code: "timeout", Message: "m"} }, 200, "waiting epoch 2 attempts 1", 1, []string{"1 unknown -", "2 deferred -"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &ordersAPI{ask: c.ask, send: func(n int) outbox.Outcome {
				if n == 1 {
					return outbox.Outcome{Class: outbox.Unclear, Code: "timeout", Message: "m"}
				}
				return answered(c.second)
			}}
			b := setup(t, withCheck(t, toAsked), outbox.Opts{Senders: map[string]outbox.Sender{"http": r}})
			id := b.effect()
			b.box.Work(t.Context(), id)
			expect(t, "after the first", b.state(id), "waiting epoch 1 attempts 1")
			if wait := one[time.Duration](b, `SELECT next_at - now() FROM onefold.effects`); wait < 25*time.Second || wait > 31*time.Second {
				t.Errorf("asked after %s, want the check's 30 s", wait)
			}
			b.due()
			b.box.Work(t.Context(), id)
			expect(t, "effect", b.state(id), c.want)
			expect(t, "deliveries", b.deliveries(id), c.deliveries)
			key := one[string](b, `SELECT key FROM onefold.tasks`)
			expect(t, "asked", r.asks, []string{"GET /orders?ref=o-1&key=" + key})
			if len(r.sends) != c.sends {
				t.Errorf("%d sends, want %d", len(r.sends), c.sends)
			}
			if strings.HasPrefix(c.want, "delivered") && one[bool](b, `SELECT unclear OR error_code IS NOT NULL FROM onefold.effects`) {
				t.Error("a delivered effect is in doubt still")
			}
		})
	}
}

// TestAskInVain: asked again and again, and in the end a person looks. Nothing was sent twice.
func TestAskInVain(t *testing.T) {
	t.Parallel()
	r := &ordersAPI{ask: says(500, ""), send: func(int) outbox.Outcome { return answered(500) }}
	b := setup(t, withCheck(t, toAsked), outbox.Opts{Senders: map[string]outbox.Sender{"http": r}})
	id := b.effect()
	for range 12 {
		b.due()
		b.box.Work(t.Context(), id)
	}
	expect(t, "effect", b.state(id), "unknown epoch 9 attempts 1")
	if len(r.sends) != 1 || len(r.asks) != len(outbox.Schedule) {
		t.Errorf("%d sends and %d questions, want 1 and %d", len(r.sends), len(r.asks), len(outbox.Schedule))
	}
	expect(t, "answers", one[string](b, `SELECT string_agg(DISTINCT answer || ' ' || answer_status, ',') FROM onefold.deliveries`), "cannot_tell 500")
}

// TestLostUnsafeDelivery: with proof that its process has ended, the destination is asked; without, a person looks. A
// lapsed lease is no proof.
func TestLostUnsafeDelivery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, effect, do string
		ended            bool
		want             string
	}{
		{"lapsed", toAsked, ``, false, "unknown epoch 2 attempts 1"},
		{"signed off", toAsked, `UPDATE onefold.workers SET stopped_at = now()`, false, "waiting epoch 2 attempts 1"},
		{"its machine says so", toAsked, ``, true, "waiting epoch 2 attempts 1"},
		{"its machine says so, at the last attempt", toAsked, `UPDATE onefold.effects SET attempts = 8`, true, "unknown epoch 2 attempts 8"},
		{"signed off, and it cannot be asked", `{name: n, type: http, destination: other}`, `UPDATE onefold.workers SET stopped_at = now()`, true, "unknown epoch 2 attempts 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &ordersAPI{ask: says(404, ""), send: func(int) outbox.Outcome { return answered(200) }}
			cfg := withCheck(t, strings.ReplaceAll(c.effect, "other", "once"))
			if strings.Contains(c.effect, "other") {
				cfg.Destinations["once"].Check = nil
			}
			b := setup(t, cfg, outbox.Opts{Senders: map[string]outbox.Sender{"http": r}, Ended: func(id string) bool { return c.ended && id == "machine/1/2" }})
			id := b.effect()
			b.mark(b.box, id)
			b.box.Release(id)
			b.exec(`UPDATE onefold.workers SET expires_at = now(), identity = 'machine/1/2'`)
			if c.do != "" {
				b.exec(c.do)
			}
			b.age(id, outbox.SendLimit+lease-time.Second)
			if got := b.upkeep(b.box.ReapEffects); got.Count != 0 {
				t.Fatalf("taken before the send must be over")
			}
			b.age(id, outbox.SendLimit+lease+time.Second)
			b.upkeep(b.box.ReapEffects)
			expect(t, "effect", b.state(id), c.want)
			if !strings.HasPrefix(c.want, "waiting") {
				return
			}
			b.due()
			b.box.Work(t.Context(), id)
			expect(t, "after the question", b.state(id), "delivered epoch 3 attempts 2")
			if len(r.asks) != 1 || len(r.sends) != 1 {
				t.Errorf("%d questions and %d sends, want one each", len(r.asks), len(r.sends))
			}
		})
	}
}

// TestConfirmEnded: a process notes which silent ones of its machine have ended; a stopped one has not.
func TestConfirmEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200)), Ended: func(id string) bool { return strings.HasPrefix(id, "dead") }})
	for i, identity := range []string{"dead-1", "dead-1", "alive-2", "dead-3"} {
		expires := "now()"
		if i == 3 {
			expires = "now() + interval '1 h'" // says itself that it lives
		}
		b.exec(`INSERT INTO onefold.workers (incarnation, process, instance, host, pid, version, expires_at, identity)
		VALUES ($1, $1, $2, 'h', 1, 'v', `+expires+`, $3)`, task.NewToken(), fmt.Sprint("p", i), identity)
	}
	if _, err := b.box.Strays(t.Context(), b.me, lease); err != nil {
		t.Fatal(err)
	}
	expect(t, "ended", one[[]string](b, `SELECT array_agg(instance ORDER BY instance) FROM onefold.workers WHERE stopped_at IS NOT NULL`), []string{"p0", "p1"})
}
