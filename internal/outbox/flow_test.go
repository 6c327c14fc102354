package outbox_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/webhook"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// patience ends a test that waits for what never comes; nothing is measured against it.
const patience = 2 * time.Minute

// fetch starts a River client that hands effect wake-ups to the outbox.
func (b *bench) fetch() (stop func()) {
	b.t.Helper()
	client, err := job.NewClient(job.Opts{
		Pool: b.pool, Log: telemetry.Foreign(telemetry.New(b.t.Output(), nil), "river"), Task: func(context.Context, string, task.ID) {}, Effect: b.box.Work,
		Queues: map[string]int{job.EffectQueue: outbox.Workers}, Timeout: time.Minute,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := client.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		if err := client.Stop(context.WithoutCancel(b.t.Context())); err != nil {
			b.t.Errorf("stop river: %v", err)
		}
	}
}

// receiver counts its calls, rings at each, and answers when it is let.
type receiver struct {
	url       string
	hits      chan struct{}
	now, most atomic.Int32
	open      chan struct{}
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{hits: make(chan struct{}, 100_000), open: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := r.now.Add(1)
		for m := r.most.Load(); n > m && !r.most.CompareAndSwap(m, n); m = r.most.Load() {
		}
		r.hits <- struct{}{}
		<-r.open
		r.now.Add(-1)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

func (r *receiver) await(t *testing.T, n int) {
	t.Helper()
	limit := time.After(patience)
	for i := range n {
		select {
		case <-r.hits:
		case <-limit:
			t.Fatalf("got %d deliveries, want %d", i, n)
		}
	}
}

// TestDeadDestinationDelaysNobody: ten thousand effects of a destination that hangs stand before a few of a healthy one.
// The healthy ones leave while the others hang, the hanging ones take their places and no more, and when the
// destination wakes up, its effects go on.
func TestDeadDestinationDelaysNobody(t *testing.T) {
	t.Parallel()
	const dead, healthy = 10_000, 50
	hanging, alive := receive(t), receive(t)
	close(alive.open)
	cfg := withEffects(t, toSafe, `{name: alive, type: webhook, destination: once, on: failed}`)
	cfg.Destinations["safe"].URL, cfg.Destinations["once"].URL = config.NewURL(hanging.url), config.NewURL(alive.url)
	b := setup(t, cfg, outbox.Opts{Senders: senders(webhook.New(nil))})
	b.crowd(dead)
	stop := b.fetch()
	hanging.await(t, 8)
	for range healthy {
		if err := b.settle(b.insertTask(api.Failed, "")); err != nil {
			t.Fatal(err)
		}
	}
	alive.await(t, healthy)
	if n := hanging.most.Load(); n != 8 {
		t.Errorf("got %d deliveries at a time to the one that hangs, want 8", n)
	}
	if n := one[int](b, `SELECT count(*) FROM onefold.river_job WHERE state IN ('available', 'running', 'scheduled')`); n > 64+healthy {
		t.Errorf("got %d wake-ups, want at most 64 of the one that hangs", n)
	}
	close(hanging.open)
	hanging.await(t, 1000)
	stop()
	if n := hanging.most.Load(); n > 8 {
		t.Errorf("got %d deliveries at a time, want at most 8", n)
	}
	sent := one[int](b, `SELECT count(*) FROM onefold.effects WHERE destination = 'safe' AND state = 'delivered' AND epoch = 1`)
	if got := 1008 + len(hanging.hits); sent != got {
		t.Errorf("got %d delivered, but the receiver got %d", sent, got)
	}
}

// crowd inserts that many effects of destination safe the way Settle does.
func (b *bench) crowd(n int) {
	b.t.Helper()
	b.many(n, "crowd", "safe", "waiting")
	b.exec(`DELETE FROM onefold.effects`)
	ids := one[[]task.ID](b, `SELECT array_agg(id) FROM onefold.tasks`)
	var news []store.NewEffect
	for _, id := range ids {
		news = append(news, store.NewEffect{
			ID: task.NewID(), TaskID: id, Tenant: "acme", Run: 1, Name: "n", Outcome: api.Cancelled, Type: "webhook", Destination: "safe",
			Body: []byte(`{}`), State: api.EffectWaiting,
		})
	}
	for len(news) > 0 {
		group := news[:min(256, len(news))]
		news = news[len(group):]
		err := pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := store.InsertEffects(b.t.Context(), tx, group, job.EffectQueue, 64)
			return err
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestEveryEffectLeaves: effects of a healthy destination far beyond its places and its window all leave, once each,
// from two processes, with the sweep behind them.
func TestEveryEffectLeaves(t *testing.T) {
	t.Parallel()
	const all = 600
	r := receive(t)
	close(r.open)
	cfg := withEffects(t, toSafe)
	cfg.Destinations["safe"].URL = config.NewURL(r.url)
	b := setup(t, cfg, outbox.Opts{Senders: senders(webhook.New(nil))})
	other := &bench{t: t, pool: b.pool, cfg: cfg}
	other.box, other.me = b.another(outbox.Opts{Senders: senders(webhook.New(nil))})
	b.crowd(all)
	stops := []func(){b.fetch(), other.fetch()}
	limit := time.Now().Add(patience)
	for one[int](b, `SELECT count(*) FROM onefold.effects WHERE state <> 'delivered'`) > 0 && time.Now().Before(limit) {
		b.upkeep(b.box.SweepEffects)
	}
	for _, stop := range stops {
		stop()
	}
	if n := one[int](b, `SELECT count(*) FROM onefold.effects WHERE state = 'delivered' AND epoch = 1 AND attempts = 1`); n != all {
		t.Errorf("got %d delivered at the first try, want %d", n, all)
	}
	if n := len(r.hits); n != all {
		t.Errorf("the receiver got %d deliveries, want %d", n, all)
	}
}
