package outbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// gated is a bench whose outbox has gates, with a log of what the board says.
type gated struct {
	*bench
	board *gate.Board
	log   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func setupGated(t *testing.T, send scripted, effects ...string) *gated {
	t.Helper()
	pool := pgtest.New(t).Pool(t)
	g := &gated{log: &syncBuffer{}}
	var err error
	g.board, err = gate.New(t.Context(), gate.Opts{
		Pool: pool, Log: slog.New(slog.NewTextHandler(g.log, nil)), Names: []gate.Name{gate.Destination("safe"), gate.Destination("once")},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.bench = setupOn(t, pool, withEffects(t, effects...), outbox.Opts{Senders: senders(send), Gates: g.board})
	return g
}

// refresh reads the gates, as the board does every second.
func (g *gated) refresh() {
	g.t.Helper()
	if err := g.board.Refresh(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

// sweep is a round of upkeep after the board was read.
func (g *gated) sweep() outbox.Round {
	g.t.Helper()
	g.refresh()
	return g.upkeep(g.box.SweepEffects)
}

func (g *gated) gate(name string) string {
	g.t.Helper()
	return one[string](g.bench, `SELECT state || ' ' || coalesce(code, '-') || ' ' || failures || CASE WHEN needs_attention THEN ' attention' ELSE '' END
	FROM onefold.gates WHERE scope = 'destination' AND name = $1`, name)
}

// over makes a cooling gate's pause look over.
func (g *gated) over(name string) {
	g.t.Helper()
	g.exec(`UPDATE onefold.gates SET until = now() - interval '1 ms' WHERE name = $1`, name)
	g.refresh()
}

// TestCooling: one 429 pauses the destination for everybody, uses no attempt, and leaves the others alone.
func TestCooling(t *testing.T) {
	t.Parallel()
	var sent []string
	status := 429
	g := setupGated(t, func(_ context.Context, d outbox.Delivery) outbox.Outcome {
		sent = append(sent, d.URL.Reveal())
		return outbox.Outcome{Class: outbox.Answered, Status: status, RetryAfter: 20 * time.Minute}
	}, toSafe)
	first, second := g.effect(), g.effect()
	g.box.Work(t.Context(), first)
	expect(t, "the one that was told", g.state(first), "waiting epoch 1 attempts 0")
	expect(t, "gate", g.gate("safe"), "cooling rate_limited 0")
	g.box.Work(t.Context(), second)
	expect(t, "another", g.state(second), "waiting epoch 0 attempts 0")
	g.hasOneWake(second, "scheduled")
	after := one[time.Duration](g.bench, `SELECT j.scheduled_at - now() FROM onefold.effects AS e JOIN onefold.river_job AS j ON j.id = e.job_id WHERE e.id = $1`, second)
	if after < 19*time.Minute || after > 21*time.Minute {
		t.Errorf("woken after %s, want when the pause is over", after)
	}
	g.exec(`DELETE FROM onefold.river_job; UPDATE onefold.effects SET job_id = NULL, next_at = now()`)
	if r := g.sweep(); r.Count != 0 {
		t.Errorf("the sweep woke %d at a destination that cools", r.Count)
	}
	g.over("safe")
	if r := g.sweep(); r.Count != 2 {
		t.Errorf("the sweep woke %d after the pause, want 2", r.Count)
	}
	status = 200
	g.box.Work(t.Context(), first)
	g.box.Work(t.Context(), second)
	if len(sent) != 3 {
		t.Errorf("%d sends, want 3", len(sent))
	}
	expect(t, "delivered", g.state(second), "delivered epoch 1 attempts 1")
}

// TestBreaker: five failures in a row, counted by two processes on one row, close the destination and mark it; then one
// is tried at a time, and one that goes well opens it.
func TestBreaker(t *testing.T) {
	t.Parallel()
	status := 503
	begun, finish := make(chan struct{}, 10), make(chan struct{}, 10)
	blocking := false
	g := setupGated(t, func(context.Context, outbox.Delivery) outbox.Outcome {
		if blocking {
			begun <- struct{}{}
			<-finish
		}
		return answered(status)
	}, toSafe)
	otherBoard, err := gate.New(t.Context(), gate.Opts{Pool: g.pool, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := g.another(outbox.Opts{Senders: senders(answers(503)), Gates: otherBoard})
	for n := range 5 {
		id := g.effect()
		if n%2 == 0 {
			g.box.Work(t.Context(), id)
		} else {
			other.Work(t.Context(), id)
		}
		expect(t, "effect", g.state(id), "waiting epoch 1 attempts 1")
	}
	expect(t, "gate", g.gate("safe"), "cooling failing 5 attention")
	waiting := g.effect()
	g.refresh()
	g.box.Work(t.Context(), waiting)
	expect(t, "while it cools", g.state(waiting), "waiting epoch 0 attempts 0")

	g.over("safe")
	blocking, status = true, 200
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.box.Work(t.Context(), waiting)
	}()
	<-begun
	next := g.effect()
	g.box.Work(t.Context(), next)
	expect(t, "a second probe", g.state(next), "waiting epoch 0 attempts 0")
	finish <- struct{}{}
	<-done
	expect(t, "gate after one went well", g.gate("safe"), "open - 0")
	blocking = false
	g.box.Work(t.Context(), next)
	expect(t, "open again", g.state(next), "delivered epoch 1 attempts 1")
}

// TestUnauthorizedHoldsTheDestination: alert, nothing more is sent, nothing is lost; a release lets all go.
func TestUnauthorizedHoldsTheDestination(t *testing.T) {
	t.Parallel()
	status, sends := 401, 0
	g := setupGated(t, func(context.Context, outbox.Delivery) outbox.Outcome { sends++; return answered(status) }, toOnce)
	first, second, third := g.effect(), g.effect(), g.effect()
	g.box.Work(t.Context(), first)
	expect(t, "the one that was told", g.state(first), "held epoch 1 attempts 0")
	expect(t, "its delivery", g.deliveries(first), []string{"1 held 401"})
	expect(t, "gate", g.gate("once"), "held unauthorized 0")
	if n := strings.Count(g.log.String(), gate.MsgClosed); n != 1 {
		t.Errorf("%d alerts, want 1", n)
	}
	g.box.Work(t.Context(), second)
	expect(t, "one that was woken", g.state(second), "held epoch 0 attempts 0")
	g.exec(`DELETE FROM onefold.river_job; UPDATE onefold.effects SET job_id = NULL`)
	g.sweep()
	expect(t, "one that was parked", g.state(third), "held epoch 0 attempts 0")
	if n := one[int](g.bench, `SELECT count(*) FROM onefold.river_job`); n != 0 {
		t.Errorf("%d wake-ups of held effects", n)
	}
	if _, err := g.board.Release(t.Context(), gate.Act{Gate: gate.Destination("once"), Actor: "key:x", Reason: "new token"}); err != nil {
		t.Fatal(err)
	}
	status = 200
	g.sweep()
	for _, id := range []task.ID{first, second, third} {
		g.hasOneWake(id, "available")
		g.box.Work(t.Context(), id)
	}
	if n := one[int](g.bench, `SELECT count(*) FROM onefold.effects WHERE state = 'delivered'`); n != 3 || sends != 4 {
		t.Errorf("%d delivered by %d sends, want 3 by 4", n, sends)
	}
}

// TestGoneDisables: the effect that heard it is dead with its payload, the others wait for a person.
func TestGoneDisables(t *testing.T) {
	t.Parallel()
	g := setupGated(t, answers(410), toOnce)
	first, second := g.effect(), g.effect()
	g.box.Work(t.Context(), first)
	g.box.Work(t.Context(), second)
	expect(t, "the one that was told", g.state(first), "dead epoch 1 attempts 1")
	expect(t, "another", g.state(second), "held epoch 0 attempts 0")
	expect(t, "gate", g.gate("once"), "disabled gone 0")
	expect(t, "payload", one[bool](g.bench, `SELECT body IS NOT NULL AND error_code = 'gone' FROM onefold.effects WHERE id = $1`, first), true)
}

// TestOperatorHolds: a hold of a tenant at a destination, or of retries alone, keeps what it names and nothing else.
func TestOperatorHolds(t *testing.T) {
	t.Parallel()
	status := 503
	g := setupGated(t, func(context.Context, outbox.Delivery) outbox.Outcome { return answered(status) }, toSafe)
	put := func(h store.Hold) task.ID {
		h.ID, h.Reason, h.Actor = task.NewID(), "duplicates", "key:x"
		if _, err := store.PutHold(t.Context(), g.pool, h); err != nil {
			t.Fatal(err)
		}
		g.refresh()
		return h.ID
	}
	tried := g.effect()
	g.box.Work(t.Context(), tried)
	retries := put(store.Hold{Destination: "safe", Stops: []api.Stop{api.StopRetries}})
	fresh := g.effect()
	status = 200
	g.exec(`UPDATE onefold.effects SET next_at = now()`)
	g.box.Work(t.Context(), tried)
	g.box.Work(t.Context(), fresh)
	expect(t, "tried before", g.state(tried), "held epoch 1 attempts 1")
	expect(t, "not tried yet", g.state(fresh), "delivered epoch 1 attempts 1")
	if _, err := store.DeleteHold(t.Context(), g.pool, "", retries); err != nil {
		t.Fatal(err)
	}
	g.sweep()
	g.box.Work(t.Context(), tried)
	expect(t, "after the hold", g.state(tried), "delivered epoch 2 attempts 2")

	put(store.Hold{Tenant: "acme", Destination: "safe", Stops: []api.Stop{api.StopClaims}})
	put(store.Hold{Tenant: "other", Stops: []api.Stop{api.StopClaims}})
	mine := g.effect()
	g.box.Work(t.Context(), mine)
	expect(t, "of the tenant", g.state(mine), "held epoch 0 attempts 0")
	g.sweep()
	expect(t, "after a sweep", g.state(mine), "held epoch 0 attempts 0")
}

// TestHoldMeetsRelease: the board's copy says held while a release has opened the gate already: nothing is held, and the
// sweep wakes it.
func TestHoldMeetsRelease(t *testing.T) {
	t.Parallel()
	g := setupGated(t, answers(200), toSafe)
	id := g.effect()
	if _, err := g.board.Hold(t.Context(), gate.Act{Gate: gate.Destination("safe"), Actor: "key:x", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	g.exec(`UPDATE onefold.gates SET state = 'open', code = NULL WHERE name = 'safe'`)
	g.box.Work(t.Context(), id)
	expect(t, "effect", g.state(id), "waiting epoch 0 attempts 0")
	if n := g.wakes(id); n != 0 {
		t.Errorf("%d wake-ups, want it parked", n)
	}
	g.sweep()
	g.hasOneWake(id, "available")

	// The other way round: the move to held waits for a release that is under way, and then holds nothing.
	if _, err := g.board.Hold(t.Context(), gate.Act{Gate: gate.Destination("safe"), Actor: "key:x", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	tx, err := g.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `UPDATE onefold.gates SET state = 'open', code = NULL WHERE name = 'safe'`); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.box.Work(t.Context(), id)
	}()
	g.awaitLock()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	expect(t, "effect", g.state(id), "waiting epoch 0 attempts 0")
}

// TestGateMovesWithTheOutcome: an outcome that was fenced moves no gate.
func TestGateMovesWithTheOutcome(t *testing.T) {
	t.Parallel()
	g := setupGated(t, answers(401), toSafe)
	id := g.effect()
	m := g.mark(g.box, id)
	g.exec(`UPDATE onefold.workers SET expires_at = now()`)
	g.upkeep(g.box.ReapEffects)
	recorded, err := g.box.Record(t.Context(), m, outbox.Triage(outbox.Standing{Attempts: 1}, answered(401), half), answered(401))
	if err != nil || recorded {
		t.Fatalf("got %t, %v, want it fenced", recorded, err)
	}
	expect(t, "gate", g.gate("safe"), "open - 0")
}

// TestManyHeldGroups: each tenant's at each destination is released on its own.
func TestManyHeldGroups(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	b.many(30, "parked", "once", "held")
	b.many(20, "more", "safe", "held")
	b.exec(`UPDATE onefold.effects SET tenant = 'b' WHERE destination = 'once' AND id IN (SELECT id FROM onefold.effects WHERE destination = 'once' LIMIT 10)`)
	groups, err := store.HeldGroups(t.Context(), b.pool)
	if err != nil || len(groups) != 3 {
		t.Fatalf("got %v, %v, want three groups", groups, err)
	}
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		freed, err := store.ReleaseEffects(t.Context(), tx, groups, 15)
		expect(t, "freed", freed, map[string]int{"once": 25, "safe": 15})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
