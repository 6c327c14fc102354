package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/pg/proxytest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Whatever becomes of the COMMIT of a mark or an outcome on its way, the effect
// is sent once and its delivery is told once, also where a repeat does harm.
func TestUnclearCommits(t *testing.T) {
	t.Parallel()
	for step, match := range map[string]string{"mark": "INSERT INTO onefold.deliveries", "outcome": "UPDATE onefold.deliveries"} {
		for name, fate := range map[string]proxytest.Fate{
			"never arrived": proxytest.CutBefore, "reply lost": proxytest.DropReply, "cut while it commits": proxytest.CutDuring,
		} {
			t.Run(step+" "+name, func(t *testing.T) {
				t.Parallel()
				var sent atomic.Int32
				b, p := cuttable(t, withEffects(t, toOnce), scripted(func(context.Context, outbox.Delivery) outbox.Outcome {
					sent.Add(1)
					return answered(204)
				}))
				id := b.effect()
				f := p.AtCommit(match, 1, fate)
				b.box.Work(t.Context(), id)
				select {
				case <-f.Hit():
				case <-time.After(time.Minute):
					t.Fatal("the commit never came")
				}
				if strings.HasPrefix(b.state(id), "waiting") { // as the sweep would wake it
					b.box.Work(t.Context(), id)
				}
				expect(t, "effect", b.state(id), "delivered epoch 1 attempts 1")
				expect(t, "deliveries", b.deliveries(id), []string{"1 delivered 204"})
				if n := sent.Load(); n != 1 {
					t.Errorf("sent %d times, want once", n)
				}
				if n := b.wakes(id); n != 0 {
					t.Errorf("got %d wake-ups, want none", n)
				}
			})
		}
	}
}

// cuttable is a bench whose way to the database leads through a proxy.
func cuttable(t *testing.T, cfg *config.Config, s outbox.Sender) (*bench, *proxytest.Proxy) {
	t.Helper()
	p := proxytest.New(t, pgtest.New(t).URL())
	pool, err := pgxpool.New(context.Background(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return setupOn(t, pool, cfg, outbox.Opts{Senders: senders(s)}), p
}

// The mark is still being committed when its process looks what became of it:
// it waits, for reading alone would find nothing and the effect would be left
// being delivered by nobody.
func TestResolveMarksWaitsForTheCommitInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, withEffects(t, toOnce), outbox.Opts{Senders: senders(answers(204))})
	id := b.effect()
	mark := store.EffectMark{ID: id, Owner: b.me, Token: task.NewToken()}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if got, err := store.MarkEffects(t.Context(), tx, []store.EffectMark{mark}); err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	found := make(chan int, 1)
	go func() {
		got, err := b.box.ResolveMarks(context.Background(), []store.EffectMark{mark})
		if err != nil {
			t.Error(err)
		}
		found <- len(got)
	}()
	for waiting := false; !waiting; {
		select {
		case n := <-found:
			t.Fatalf("got %d marks while the commit was in flight", n)
		default:
		}
		waiting = one[int](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'`) > 0
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-found; n != 1 {
		t.Errorf("got %d marks, want the one", n)
	}
}
