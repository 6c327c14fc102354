package outbox_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/webhook"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/seal"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// storedBench is a bench whose destinations may be stored, with a receiver that remembers requests.
type storedBench struct {
	*bench
	doors *destination.Book
	url   string

	mu     sync.Mutex
	got    []received
	status int
}

type received struct {
	header http.Header
	body   []byte
}

func setupStored(t *testing.T, effects ...string) *storedBench {
	t.Helper()
	s := &storedBench{status: 200}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, received{r.Header, body})
		status := s.status
		s.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	pool := pgtest.New(t).Pool(t)
	cfg := withEffects(t, effects...)
	s.doors = destination.New(destination.Opts{Config: cfg, Pool: pool, Keys: telemetry.SecretFromValue(telemetry.NewSecret(seal.NewKey("k")))})
	board, err := gate.New(t.Context(), gate.Opts{Pool: pool, Log: telemetry.New(t.Output(), nil)})
	if err != nil {
		t.Fatal(err)
	}
	sender := webhook.New(nil)
	t.Cleanup(sender.Close)
	s.bench = setupOn(t, pool, cfg, outbox.Opts{Senders: senders(sender), Destinations: s.doors, Gates: board})
	return s
}

func (s *storedBench) last() received {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) == 0 {
		s.t.Fatal("nothing came")
	}
	return s.got[len(s.got)-1]
}

func doorAct(name string) destination.Act { return destination.Act{Name: name, Actor: "t"} }

// verifies says whether a receiver that knows secret accepts what came.
func verifies(t *testing.T, secret string, r received) bool {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return v.Verify(r.body, r.header) == nil
}

// submitted is a settled task whose submit asked for a webhook at a destination.
func (s *storedBench) submitted(destination string) task.ID {
	s.t.Helper()
	row := s.insertTask(api.Succeeded, `{"n":1}`)
	row.Effects = []byte(`[{"name":"tell","type":"webhook","destination":"` + destination + `"}]`)
	row.Tenant = "acme"
	if err := s.settle(row); err != nil {
		s.t.Fatal(err)
	}
	return one[task.ID](s.bench, `SELECT id FROM onefold.effects WHERE task_id = $1 AND destination = $2`, row.ID, destination)
}

// TestStoredDestination: an effect of a submit goes to a destination made through the API, known to this process since
// this moment, through a rotation; who signed is counted; and it cannot be deleted while something waits there.
func TestStoredDestination(t *testing.T) {
	t.Parallel()
	s := setupStored(t, `{name: n, type: webhook, destination: once, on: failed}`)
	// Made by another process: this one's book has not heard of it when the effect comes into being.
	other := destination.New(destination.Opts{Config: s.cfg, Pool: s.pool, Keys: s.doors.Keys})
	put, err := other.Put(t.Context(), doorAct("hook"), []byte(`{"url":"`+s.url+`","allow_private":true,"tenants":["acme"]}`))
	if err != nil {
		t.Fatal(err)
	}
	id := s.submitted("hook")
	expect(t, "the effect", s.state(id), "waiting epoch 0 attempts 0")
	s.box.Work(t.Context(), id)
	expect(t, "while this process does not know it", s.state(id), "waiting epoch 0 attempts 0")
	var conflict *api.Error
	if err := other.Delete(t.Context(), doorAct("hook")); !errors.As(err, &conflict) || conflict.Code != api.CodeConflict {
		t.Errorf("deleted while an effect waits there: %v", err)
	}
	refresh := func() {
		t.Helper()
		if err := s.doors.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	s.box.Work(t.Context(), id)
	expect(t, "the effect", s.state(id), "delivered epoch 1 attempts 1")
	first := put.Secret.Reveal()
	if !verifies(t, first, s.last()) {
		t.Error("the secret that was told does not verify")
	}
	rotated, err := other.Rotate(t.Context(), doorAct("hook"), "", destination.DefaultOverlap)
	if err != nil {
		t.Fatal(err)
	}
	refresh()
	second := rotated.Secret.Reveal()
	s.box.Work(t.Context(), s.submitted("hook"))
	if r := s.last(); !verifies(t, first, r) || !verifies(t, second, r) || len(strings.Fields(r.header.Get("webhook-signature"))) != 2 {
		t.Errorf("during the overlap the signatures are %q", r.header.Get("webhook-signature"))
	}
	s.exec(`UPDATE onefold.destination_secrets SET retires_at = now() WHERE retires_at IS NOT NULL`)
	s.exec(`UPDATE onefold.destinations SET updated_at = now()`)
	refresh()
	s.box.Work(t.Context(), s.submitted("hook"))
	if r := s.last(); verifies(t, first, r) || !verifies(t, second, r) {
		t.Error("after the overlap the former secret signs still, or the new one does not")
	}
	if err := s.box.CountSigned(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, "counts", one[string](s.bench, `SELECT string_agg(deliveries::text, ' ' ORDER BY first_at, deliveries) FROM onefold.destination_signers WHERE destination = 'hook'`), "2 2")
	if n := one[int](s.bench, `SELECT deliveries::int FROM onefold.destination_signers WHERE secret = $1`, rotated.ID); n != 2 {
		t.Errorf("the new secret signed %d, want 2", n)
	}
	if err := other.Delete(t.Context(), doorAct("hook")); err != nil {
		t.Errorf("nothing waits there any more: %v", err)
	}
}

// TestTestOfADestination: one signed event; its status and time are told; a held gate does not keep it, a failure counts
// nowhere, and there is no effect of it.
func TestTestOfADestination(t *testing.T) {
	t.Parallel()
	s := setupStored(t, toSafe)
	put, err := s.doors.Put(t.Context(), doorAct("hook"), []byte(`{"url":"`+s.url+`","allow_private":true}`))
	if err != nil {
		t.Fatal(err)
	}
	s.exec(`UPDATE onefold.gates SET state = 'held', code = 'operator', reason = 'r', epoch = 1 WHERE name = 'hook'`)
	ctx, cancel := context.WithCancel(t.Context())
	tended := make(chan struct{})
	go func() {
		defer close(tended)
		s.box.Tend(ctx)
	}()
	t.Cleanup(func() { cancel(); <-tended })
	before := one[string](s.bench, `SELECT g::text FROM onefold.gates AS g WHERE name = 'hook'`)
	for _, status := range []int{200, 500, 401, 410, 429} {
		s.mu.Lock()
		s.status = status
		s.mu.Unlock()
		got, err := s.doors.Test(t.Context(), doorAct("hook"), "")
		if err != nil {
			t.Fatal(err)
		}
		if got.Class != "answered" || got.Status != status || got.Accepted != (status == 200) || len(got.SignedBy) != 1 || got.TotalMS < 0 {
			t.Errorf("%d: got %+v", status, got)
		}
		r := s.last()
		if !verifies(t, put.Secret.Reveal(), r) || r.header.Get("webhook-id") != got.ID || !strings.Contains(string(r.body), `"type":"onefold.test"`) {
			t.Errorf("%d: what came is no signed test: %v %s", status, r.header, r.body)
		}
	}
	if after := one[string](s.bench, `SELECT g::text FROM onefold.gates AS g WHERE name = 'hook'`); after != before {
		t.Errorf("the gate moved:\n%s\n%s", before, after)
	}
	if n := one[int](s.bench, `SELECT (SELECT count(*) FROM onefold.effects) + (SELECT count(*) FROM onefold.deliveries)`); n != 0 {
		t.Errorf("%d effects and deliveries of tests, want none", n)
	}
	expect(t, "audit", one[int](s.bench, `SELECT count(*) FROM onefold.audit WHERE action = 'destination.test'`), 5)
	cancel()
	<-tended
	s.mu.Lock()
	n := len(s.got)
	s.mu.Unlock()
	if n != 5 {
		t.Errorf("%d requests came, want one a test", n)
	}
}

// TestLostTest: a worker that dies at a test leaves it without an end; nobody sends it again.
func TestLostTest(t *testing.T) {
	t.Parallel()
	s := setupStored(t, toSafe)
	if _, err := s.doors.Put(t.Context(), doorAct("hook"), []byte(`{"url":"`+s.url+`","allow_private":true}`)); err != nil {
		t.Fatal(err)
	}
	s.exec(`INSERT INTO onefold.destination_tests (id, destination, actor, started_at) VALUES (gen_random_uuid(), 'hook', 't', now())`)
	s.exec(`INSERT INTO onefold.destination_tests (id, destination, actor, requested_at) VALUES (gen_random_uuid(), 'hook', 't', now() - $1::interval)`, destination.TestBegin+time.Second)
	s.exec(`INSERT INTO onefold.destination_tests (id, destination, actor) VALUES (gen_random_uuid(), 'nosuch', 't')`)
	if made, err := s.box.Test(t.Context()); made || err != nil {
		t.Errorf("made %v, %v; want none: one is begun, one too old, one of an unknown destination", made, err)
	}
}

// TestTenThousandBehindADeadDestination: what waits at a destination that never answers, ten thousand effects, holds back
// nothing of another one. The bound is a guard at five times the second that is promised; the figure is logged.
func TestTenThousandBehindADeadDestination(t *testing.T) {
	t.Parallel()
	const many, guard = 10_000, 5 * time.Second
	hanging, alive := receive(t), receive(t)
	close(alive.open)
	cfg := withEffects(t, toSafe, `{name: alive, type: webhook, destination: once, on: failed}`)
	cfg.Destinations["safe"].URL, cfg.Destinations["once"].URL = config.NewURL(hanging.url), config.NewURL(alive.url)
	b := setup(t, cfg, outbox.Opts{Senders: senders(webhook.New(nil))})
	for range 100 { // more than hold a wake-up at a time
		b.effect()
	}
	b.exec(`
INSERT INTO onefold.effects (id, task_id, tenant, run, name, outcome, type, destination, body, state)
SELECT gen_random_uuid(), e.task_id, e.tenant, e.run, 'more-' || n, e.outcome, e.type, e.destination, e.body, 'waiting'
FROM (SELECT * FROM onefold.effects LIMIT 1) AS e, generate_series(1, $1::int) AS n`, many-100)
	expect(t, "waiting", one[int](b, `SELECT count(*) FROM onefold.effects WHERE state = 'waiting'`), many)
	stop := b.fetch()
	defer stop()
	hanging.await(t, 8) // all its places in this process
	began := time.Now()
	if err := b.settle(b.insertTask(api.Failed, "")); err != nil {
		t.Fatal(err)
	}
	alive.await(t, 1)
	took := time.Since(began)
	t.Logf("delivered %s after its outcome, behind %d effects of a dead destination", took, many)
	if took > guard {
		t.Errorf("it took %s, want less than %s", took, guard)
	}
	close(hanging.open)
}
