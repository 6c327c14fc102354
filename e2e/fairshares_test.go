package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/submit"
)

// fairConfig lets four calls of a tenth of a second or less run at a time, so
// that who goes first is who is called first.
const fairConfig = `
retention: {tasks: 720h}
providers:
  model: {type: openai, base_url: "{{FAKELLM}}", concurrency: 4, timeouts: {connect: 5s, first_byte: 60s, idle: 60s, total: 90s}}
kinds:
  llm.chat: {provider: model}
`

const fairCall = 20 * time.Millisecond // what one call takes

// queuer hands over n tasks of a tenant.
type queuer func(t *testing.T, tenant string, n int)

// inTurn is what onefold would do without fair shares: all have the same place,
// so the queue serves them in the order in which they came.
func inTurn(t *testing.T, w *proc.World) queuer {
	t.Helper()
	cfg, err := config.Load(w.ConfigFile, config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	book := kinds.New(cfg, config.Opts{SkipSecrets: true})
	if err := book.Store(t.Context(), w.Pool); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	notifier := job.NewNotifier(w.Pool, log)
	s := submit.New(submit.Config{Pool: w.Pool, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log})
	t.Cleanup(func() { s.Close(); notifier.Close() })
	return func(t *testing.T, tenant string, n int) {
		t.Helper()
		for done := 0; done < n; done += submit.MaxBulk {
			var all []submit.Request
			for i := done; i < min(n, done+submit.MaxBulk); i++ {
				body, err := fairTask(tenant, i).Append(nil)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, submit.Request{Tenant: tenant, Key: fmt.Sprint(tenant, i), KeySent: true, Body: body})
			}
			for _, o := range s.Many(context.Background(), all) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
			}
		}
	}
}

// byShares is onefold as it is: an api process, a key for each tenant.
func byShares(t *testing.T, w *proc.World) queuer {
	t.Helper()
	front := w.API(t)
	return func(t *testing.T, tenant string, n int) {
		t.Helper()
		cl, err := client.New(front.URL(), w.NewKey(t, tenant), nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []api.Keyed
		for i := range n {
			all = append(all, api.Keyed{Key: fmt.Sprint(tenant, i), Submit: *fairTask(tenant, i)})
		}
		for _, o := range cl.SubmitMany(t.Context(), all) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
		}
	}
}

func fairTask(tenant string, i int) *api.Submit {
	input := fmt.Sprintf(`{"model":"fake:latency=%s","messages":[{"role":"user","content":"%s %d"}]}`, fairCall, tenant, i)
	return &api.Submit{Kind: "llm.chat", Input: []byte(input)}
}

// backlog is how many tasks a flooding tenant has queued.
func backlog(t *testing.T) int {
	t.Helper()
	s := os.Getenv("ONEFOLD_FAIR_FLOOD")
	if s == "" {
		return 600
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// waited is what a tenant's first task met: how long it was in the queue, and
// how many tasks of the flood were begun meanwhile.
type waited struct {
	long  time.Duration
	ahead int
}

// newcomers are three tenants who come while the flood is served.
func newcomers(t *testing.T, with func(*testing.T, *proc.World) queuer) (all []waited) {
	t.Helper()
	w := proc.New(t, &proc.Opts{Config: fairConfig})
	queue := with(t, w)
	n := backlog(t)
	queue(t, "flood", n)
	w.Worker(t)
	proc.Until(t, "the flood to be served", func() bool { return w.Count(t, begun, "flood") >= 20 })
	for i := range 3 {
		queue(t, fmt.Sprint("new", i), 1)
	}
	until(t, w, "their first tasks", func() bool {
		return w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE tenant LIKE 'new%' AND started_at IS NOT NULL`) == 3
	})
	for i := range 3 {
		var got waited
		err := w.Pool.QueryRow(t.Context(), `
SELECT n.started_at - n.created_at, (
    SELECT count(*) FROM onefold.tasks AS f
    WHERE f.tenant = 'flood' AND f.started_at BETWEEN n.created_at AND n.started_at
)
FROM onefold.tasks AS n
WHERE n.tenant = $1`, fmt.Sprint("new", i)).Scan(&got.long, &got.ahead)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
	return all
}

const begun = `SELECT count(*) FROM onefold.tasks WHERE tenant = $1 AND started_at IS NOT NULL`

// until waits for what a long queue comes before: as long as any task is begun.
func until(t *testing.T, w *proc.World, what string, ok func() bool) {
	t.Helper()
	for last := -1; !ok(); {
		proc.Until(t, what+", or the queue to move", func() bool {
			now := w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE started_at IS NOT NULL`)
			moved := now >= last+100
			if moved {
				last = now
			}
			return moved || ok()
		})
	}
}

// Two kinds of tenants at one provider: one has flooded the queue, the others
// have a single task each. How long these wait, without and with fair shares.
func TestWaitsBesideAFlood(t *testing.T) {
	t.Parallel()
	before := newcomers(t, inTurn)
	after := newcomers(t, byShares)
	n := backlog(t)
	for i := range after {
		t.Logf("newcomer %d beside %d queued: in turn %v (%d of the flood's first), by shares %v (%d)", i, n,
			before[i].long.Round(time.Millisecond), before[i].ahead, after[i].long.Round(time.Millisecond), after[i].ahead)
		// Four are being called and River has fetched the next ones; a few claims are
		// the places in between.
		if after[i].ahead > 30 {
			t.Errorf("newcomer %d: %d tasks of the flood were begun before its own", i, after[i].ahead)
		}
	}
	if least := min(before[0].ahead, before[1].ahead, before[2].ahead); least < n/2 {
		t.Errorf("in turn only %d of the flood's %d came first: this test shows nothing", least, n)
	}
}

// Three tenants with weights 1:2:8, each with a full backlog, who queued it one
// after the other: whose tasks are called first.
func TestSharesByWeight(t *testing.T) {
	t.Parallel()
	weights := map[string]int{"one": 50, "two": 100, "eight": 400}
	n := backlog(t) / 2
	first := n * 11 / 12 // of all; none has run out by then
	called := func(t *testing.T, with func(*testing.T, *proc.World) queuer) map[string]int {
		t.Helper()
		w := proc.New(t, &proc.Opts{Config: fairConfig})
		for tenant, weight := range weights {
			if err := auth.SetWeight(t.Context(), w.Pool, tenant, weight, "test", ""); err != nil {
				t.Fatal(err)
			}
		}
		queue := with(t, w)
		for _, tenant := range []string{"one", "two", "eight"} {
			queue(t, tenant, n)
		}
		w.Worker(t)
		until(t, w, "the first to be called", func() bool {
			return w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE started_at IS NOT NULL`) >= first
		})
		rows, err := w.Pool.Query(t.Context(), `
SELECT tenant, count(*)
FROM (SELECT tenant FROM onefold.tasks WHERE started_at IS NOT NULL ORDER BY started_at LIMIT $1) AS f
GROUP BY tenant`, first)
		if err != nil {
			t.Fatal(err)
		}
		got, tenant, many := map[string]int{}, "", 0
		if _, err := pgx.ForEachRow(rows, []any{&tenant, &many}, func() error { got[tenant] = many; return nil }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	before, after := called(t, inTurn), called(t, byShares)
	t.Logf("of the first %d calls: in turn %v, by shares %v", first, before, after)
	for tenant, weight := range weights {
		want := first * weight / 550
		if off := after[tenant] - want; off < -15 || off > 15 {
			t.Errorf("%s, weight %d, has %d of the first %d calls, want %d", tenant, weight, after[tenant], first, want)
		}
	}
}
