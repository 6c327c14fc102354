package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
)

// mixedConfig has a provider in trouble, one that is well, and one whose
// credential stops to be good in the middle.
const mixedConfig = `
retention: {tasks: 720h}
providers:
  troubled: {type: openai, base_url: "{{FAKELLM}}", concurrency: 100, timeouts: {connect: 3s, first_byte: 3s, idle: 3s, total: 10s}}
  well: {type: openai, base_url: "{{FAKELLM}}", concurrency: 20}
  keyed: {type: openai, base_url: "{{FAKELLM}}", concurrency: 4}
kinds:
  troubled: {provider: troubled, max_attempts: 3}
  well: {provider: well, max_attempts: 3}
  keyed: {provider: keyed, max_attempts: 3}
`

// trouble is what the provider in trouble answers.
const trouble = "20%status=429,retry_after=0.5|5%status=500|2%hang|2%cut=400|ok"

// Of the tasks of the provider in trouble so many share a budget of so many
// sends, which does not always suffice. The others are a tenth each.
const (
	mixedTasks  = 500
	shareBudget = 10
	budgetSends = 12
)

// mixed is the run with what it found.
type mixed struct {
	*proc.World
	t     *testing.T
	cl    *client.Client
	ops   *client.Client // an operator's
	start time.Time
}

// TestMixedProvider runs many tasks against a provider that turns away a fifth
// of its calls, fails some, hangs in some and breaks off some. All tasks become
// final; no task and no budget is sent more often than it may be; retries stay
// within what a process may spend on them; another provider's tasks do not wait
// behind it; and a credential that is refused in the middle loses nothing.
//
// ONEFOLD_MIXED_TASKS says how many tasks, 500 without it.
func TestMixedProvider(t *testing.T) {
	t.Parallel()
	n := mixedTasks
	if s := os.Getenv("ONEFOLD_MIXED_TASKS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 100 {
			t.Fatalf("ONEFOLD_MIXED_TASKS=%q is no number of tasks from 100 on", s)
		}
	}
	m := &mixed{World: proc.New(t, &proc.Opts{Config: mixedConfig}), t: t}
	for model, script := range map[string]string{"troubled": trouble, "well": "latency=20ms", "keyed": "latency=100ms"} {
		if err := m.Model.Script(model, script); err != nil {
			t.Fatal(err)
		}
	}
	front := m.API(t)
	m.cl = m.Client(t, front)
	key, _, err := auth.Create(t.Context(), m.Pool, auth.NewKey{Tenant: auth.AnyTenant, Name: "ops", Actor: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	if m.ops, err = client.New(front.URL(), key, nil); err != nil {
		t.Fatal(err)
	}
	m.submit("troubled", n)
	m.submit("keyed", n/10)
	m.start = time.Now()
	m.Worker(t, "--lease", "15s")
	proc.Until(t, "the provider in trouble is at work", func() bool { return m.Model.Calls().ByModel["troubled"] > n/20 })
	m.submit("well", n/10) // behind all others
	m.revoke()
	m.settled(n)
	m.judgeTasks(n)
	m.judgeBudgets()
	m.judgeRetries()
	m.judgeOthers()
}

func (m *mixed) submit(kind string, n int) {
	m.t.Helper()
	items := make([]api.Keyed, n)
	for i := range items {
		input := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"the work number %d of %s"}]}`, kind, i, kind)
		items[i] = api.Keyed{Key: fmt.Sprintf("%s-%d", kind, i), Submit: api.Submit{Kind: kind, Input: input}}
		if kind == "troubled" {
			items[i].Budget = &api.Budget{ID: fmt.Sprint("run-", i/shareBudget), Sends: budgetSends}
		}
	}
	for i, s := range m.cl.SubmitMany(m.t.Context(), items) {
		if s.Err != nil {
			m.t.Fatalf("%s %d: %v", kind, i, s.Err)
		}
	}
}

// revoke has one provider refuse its credential, waits until it is held, makes
// the credential good again and lets the calls go on.
func (m *mixed) revoke() {
	m.t.Helper()
	script := func(s string) {
		if err := m.Model.Script("keyed", s); err != nil {
			m.t.Fatal(err)
		}
	}
	script("status=401")
	proc.Until(m.t, "the provider is held", func() bool {
		all, err := m.ops.Providers(m.t.Context())
		if err != nil {
			m.t.Fatal(err)
		}
		for _, p := range all {
			if p.Name == "keyed" {
				return p.State == api.GateHeld
			}
		}
		return false
	})
	script("ok")
	if out := m.Count(m.t, `SELECT count(*) FROM onefold.tasks WHERE kind = 'keyed' AND state = 'failed'`); out != 0 {
		m.t.Errorf("%d tasks failed for a credential", out)
	}
	if _, err := m.ops.ReleaseProvider(m.t.Context(), "keyed", "the key is good again"); err != nil {
		m.t.Fatal(err)
	}
}

// settled waits until every task is final, for as long as so many may take.
func (m *mixed) settled(n int) {
	m.t.Helper()
	late := time.After(2*time.Minute + time.Duration(n)*100*time.Millisecond)
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for m.Count(m.t, `SELECT count(*) FROM onefold.tasks WHERE finished_at IS NULL`) > 0 {
		select {
		case <-look.C:
		case <-late:
			m.t.Fatalf("%d tasks are not final", m.Count(m.t, `SELECT count(*) FROM onefold.tasks WHERE finished_at IS NULL`))
		}
	}
	m.t.Logf("all final after %.0f s", time.Since(m.start).Seconds())
}

func (m *mixed) rows(sql string, each func(pgx.CollectableRow) error) {
	m.t.Helper()
	rows, err := m.Pool.Query(m.t.Context(), sql)
	if err != nil {
		m.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		m.t.Fatal(err)
	}
}

// judgeTasks: each task is final for a good reason, used no more attempts than
// it may, and the provider got as many calls of it as the ledger has.
func (m *mixed) judgeTasks(n int) {
	m.t.Helper()
	calls := m.Model.Calls()
	seen, ends := 0, map[string]int{}
	m.rows(`
SELECT t.id::text, t.kind, t.state, coalesce(t.error_code, ''), t.attempts,
       count(a.*) FILTER (WHERE a.outcome <> 'not_sent'), count(a.*) FILTER (WHERE a.counted)
FROM onefold.tasks AS t LEFT JOIN onefold.attempts AS a ON a.task_id = t.id
GROUP BY t.id, t.kind, t.state, t.error_code, t.attempts`, func(row pgx.CollectableRow) error {
		var id, kind, state, code string
		var used, sends, counted int
		if err := row.Scan(&id, &kind, &state, &code, &used, &sends, &counted); err != nil {
			return err
		}
		seen++
		ends[kind+" "+state+" "+code]++
		good := state == "succeeded" || kind == "troubled" && state == "failed" && (code == "attempts_exhausted" || code == "budget_exhausted")
		if !good || used > 3 || counted > 3 || calls.ByTask[id] != sends {
			m.t.Errorf("%s %s: %s %s, %d attempts used, %d counted, %d in the ledger, %d calls", kind, id, state, code, used, counted, sends, calls.ByTask[id])
		}
		return nil
	})
	if want := n + n/10 + n/10; seen != want {
		m.t.Errorf("%d tasks, want %d", seen, want)
	}
	m.t.Logf("%v; %d calls: %d completed, %d refused or failed, %d cut, %d hung", ends, calls.Received, calls.Completed, calls.Failed, calls.Cut, calls.Hung)
}

// judgeBudgets: no budget is sent more often than it says, by the ledger of
// sends and by its own count.
func (m *mixed) judgeBudgets() {
	m.t.Helper()
	spent, full := 0, 0
	m.rows(`
SELECT t.budget_id, sum(a.sends)
FROM onefold.tasks AS t JOIN onefold.attempts AS a ON a.task_id = t.id
WHERE t.budget_id IS NOT NULL GROUP BY t.budget_id`, func(row pgx.CollectableRow) error {
		var id string
		var sends int
		if err := row.Scan(&id, &sends); err != nil {
			return err
		}
		spent += sends
		if sends == budgetSends {
			full++
		}
		if sends > budgetSends {
			m.t.Errorf("budget %s: %d sends, want at most %d", id, sends, budgetSends)
		}
		return nil
	})
	if spent == 0 {
		m.t.Error("no budget was spent of")
	}
	m.t.Logf("%d sends of budgets, %d budgets used up", spent, full)
}

// judgeRetries: calls again after one that brought nothing stay within 10 % of
// the calls, or 5 a second, and what may be used at once (two seconds of that).
// What was turned away at the gate is no retry.
func (m *mixed) judgeRetries() {
	m.t.Helper()
	var calls, retries, peak int
	var span float64
	if err := m.Pool.QueryRow(m.t.Context(), `
WITH tries AS (
    SELECT claimed_at, lag(outcome) OVER (PARTITION BY task_id ORDER BY epoch) IN ('unknown', 'bad_output') AS again
    FROM onefold.attempts
), rate AS (
    SELECT count(*) AS n FROM tries GROUP BY date_trunc('second', claimed_at)
)
SELECT count(*), count(*) FILTER (WHERE again), (SELECT max(n) FROM rate), extract(epoch FROM max(claimed_at) - min(claimed_at))::float8
FROM tries`).Scan(&calls, &retries, &peak, &span); err != nil {
		m.t.Fatal(err)
	}
	allowed := 5*span + 0.1*float64(calls) + 2*(5+0.1*float64(peak))
	if float64(retries) > allowed {
		m.t.Errorf("%d retries of %d calls in %.0f s, want at most %.0f", retries, calls, span, allowed)
	}
	m.t.Logf("%d calls in %.0f s, %d retries, %.0f allowed", calls, span, retries, allowed)
}

// judgeOthers: the tasks of the provider that is well came last and did not wait
// for the others.
func (m *mixed) judgeOthers() {
	m.t.Helper()
	var after int
	var most, typical float64
	if err := m.Pool.QueryRow(m.t.Context(), `
SELECT (SELECT count(*) FROM onefold.tasks WHERE kind = 'troubled' AND finished_at > max(w.finished_at)),
       extract(epoch FROM max(w.finished_at - w.created_at))::float8,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM w.finished_at - w.created_at)::float8)
FROM onefold.tasks AS w WHERE w.kind = 'well'`).Scan(&after, &most, &typical); err != nil {
		m.t.Fatal(err)
	}
	if after == 0 {
		m.t.Error("the provider in trouble was done before the one that is well")
	}
	m.t.Logf("the last task of the provider that is well was final while %d of the other were not; its tasks took %.2f s in the middle, %.2f s at most", after, typical, most)
}
