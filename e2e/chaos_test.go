package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
)

// chaosConfig sends four effects a task to a receiver in trouble, once for each
// promise a destination can make about repeats. doomed also meets what stops a
// destination or an effect for good.
const chaosConfig = `
retention: {tasks: 720h}
providers: {here: {type: fake}}
destinations:
  safe: {url: "CHAOS/safe", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
  once: {url: "CHAOS/once", secret_env: E2E_SECRET, repeat: unsafe, allow_private: true}
  asked:
    url: "CHAOS/asked"
    secret_env: E2E_SECRET
    repeat: unsafe
    allow_private: true
    check: {path: "/check?reference={{.effect.reference}}", after: 1s, done: {status: 200}, not_done: {status: 404}}
  doomed: {url: "CHAOS/doomed", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
kinds:
  work:
    provider: here
    output: text
    request: {model: any, messages: [{role: user, content: "{{.input.n}}"}]}
    sample: {n: 1}
    effects:
      - {name: safe, type: webhook, destination: safe, body: '{"n": {{json .input.n}}}'}
      - {name: once, type: webhook, destination: once, body: '{"n": {{json .input.n}}}'}
      - {name: asked, type: webhook, destination: asked, body: '{"n": {{json .input.n}}}'}
      - {name: doomed, type: webhook, destination: doomed, body: '{"n": {{json .input.n}}}'}
`

const (
	chaosEffects  = 240
	chaosReleases = 20 // of the destination that refuses the credential now and then
)

// chaos is the run with what it found.
type chaos struct {
	*proc.World
	t        *testing.T
	r        *troubledReceiver
	ops      *client.Client
	effects  int
	releases int
}

// TestEffectsInTrouble delivers many effects to a receiver that answers at random
// with what receivers are known to answer, hangs, and breaks off, while one of
// two workers is killed and the other one is stopped beyond its lease. What
// arrived is what left; the bodies of one id are equal; what is unsafe to repeat
// is repeated only after a refusal or after the receiver said that it does not
// have it; every effect ends delivered, dead, held or unknown.
//
// Between deliveries the test moves the waits of the schedule to now, so that
// their hours pass in seconds. ONEFOLD_CHAOS_EFFECTS says how many effects, 240
// without it; ONEFOLD_CHAOS_SEED repeats a receiver.
func TestEffectsInTrouble(t *testing.T) {
	t.Parallel()
	c := &chaos{t: t, effects: chaosNumber(t, "ONEFOLD_CHAOS_EFFECTS", chaosEffects)}
	c.r = newTroubledReceiver(t, uint64(chaosNumber(t, "ONEFOLD_CHAOS_SEED", 1)))
	c.World = proc.New(t, &proc.Opts{Config: c.r.config(chaosConfig)})
	front := c.API(t)
	key, _, err := auth.Create(t.Context(), c.Pool, auth.NewKey{Tenant: auth.AnyTenant, Name: "ops", Actor: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	if c.ops, err = client.New(front.URL(), key, nil); err != nil {
		t.Fatal(err)
	}
	killed, stopped := c.Worker(t), c.Worker(t)
	c.submit(c.Client(t, front))

	c.until("a quarter has arrived", func() bool { return c.r.distinct() >= c.effects/4 })
	killed.Kill(t)
	killed.Restart(t)
	c.until("half has arrived", func() bool { return c.r.distinct() >= c.effects/2 })
	stopped.Pause(t)
	c.until("the lease of the stopped worker is over", func() bool {
		return c.Count(t, `SELECT count(*) FROM onefold.workers WHERE expires_at < now() AND stopped_at IS NULL`) > 0
	})
	stopped.Resume(t)
	for open := c.effects; open > 0; {
		before := open
		c.until("more effects have ended", func() bool {
			open = c.effects - c.Count(t, `SELECT count(*) FROM onefold.effects WHERE state NOT IN ('waiting', 'delivering')`)
			return open < before
		})
	}
	c.r.release()
	c.judge()
}

func chaosNumber(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number from 1 on", name, s)
	}
	return n
}

func (c *chaos) submit(cl *client.Client) {
	c.t.Helper()
	items := make([]api.Keyed, c.effects/4)
	c.effects = 4 * len(items)
	for i := range items {
		items[i] = api.Keyed{Key: fmt.Sprint("chaos-", i), Submit: api.Submit{Kind: "work", Input: fmt.Appendf(nil, `{"n":%d}`, i)}}
	}
	for i, s := range cl.SubmitMany(c.t.Context(), items) {
		if s.Err != nil {
			c.t.Fatalf("submit %d: %v", i, s.Err)
		}
	}
}

// until lets time pass until ok.
func (c *chaos) until(what string, ok func() bool) {
	c.t.Helper()
	proc.Until(c.t, what, func() bool {
		c.timePasses()
		c.letGo()
		return ok()
	})
}

// timePasses moves what waits for its time to now. A statement that meets a
// worker's locks the wrong way round is given up; the next one comes soon.
func (c *chaos) timePasses() {
	for _, sql := range []string{
		`UPDATE onefold.effects SET next_at = now() WHERE state = 'waiting' AND next_at > now() AND next_at < 'infinity'`,
		`UPDATE onefold.effects SET first_miss_at = first_miss_at - interval '1 hour' WHERE first_miss_at > now() - interval '1 hour'`,
		`UPDATE onefold.river_job SET state = 'available', scheduled_at = now() WHERE kind = 'effect' AND state = 'scheduled'`,
		`UPDATE onefold.gates SET until = now() WHERE state = 'cooling' AND until > now()`,
	} {
		if _, err := c.Pool.Exec(c.t.Context(), sql); err != nil {
			c.t.Logf("let time pass: %v", err)
		}
	}
}

// letGo releases the destination whose credential was refused, some times.
func (c *chaos) letGo() {
	c.t.Helper()
	if c.releases == chaosReleases || c.Count(c.t, `SELECT count(*) FROM onefold.gates WHERE scope = 'destination' AND state = 'held'`) == 0 {
		return
	}
	c.releases++
	if _, err := c.ops.ReleaseDestination(c.t.Context(), "doomed", "the credential is good"); err != nil {
		c.t.Fatal(err)
	}
}

// judge compares what the receiver got with what the database says.
func (c *chaos) judge() {
	c.t.Helper()
	type ended struct {
		ID, Name, State    string
		Answered, Attempts int
	}
	rows, err := c.Pool.Query(c.t.Context(), `
SELECT e.id::text AS id, e.name, e.state, count(d.status) AS answered, count(d.effect_id) AS attempts
FROM onefold.effects AS e
LEFT JOIN onefold.deliveries AS d ON d.effect_id = e.id
GROUP BY e.id`)
	if err != nil {
		c.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[ended])
	if err != nil {
		c.t.Fatal(err)
	}
	states := map[string]int{}
	left := map[string]bool{}
	for _, e := range all {
		states[e.Name+" "+e.State]++
		got := c.r.got(e.ID)
		switch {
		case e.Answered > 0 && got == nil:
			c.t.Errorf("effect %s (%s) was answered and never arrived", e.ID, e.Name)
		case e.State == "delivered" && (got == nil || !got.took):
			c.t.Errorf("effect %s (%s) is delivered, the receiver does not have it", e.ID, e.Name)
		case e.State == "dead" && e.Name != "doomed" && got != nil && got.took:
			c.t.Errorf("effect %s (%s) is dead, the receiver has it", e.ID, e.Name)
		}
		if e.Attempts > 0 {
			left[e.ID] = true
		}
		switch e.State {
		case "delivered", "dead", "held", "unknown":
		default:
			c.t.Errorf("effect %s (%s) ended as %s", e.ID, e.Name, e.State)
		}
	}
	for _, id := range c.r.ids() {
		if !left[id] {
			c.t.Errorf("effect %s arrived, and no delivery of it is on record", id)
		}
	}
	for _, wrong := range c.r.wrong() {
		c.t.Error(wrong)
	}
	if len(all) != c.effects {
		c.t.Errorf("got %d effects, want %d", len(all), c.effects)
	}
	c.t.Logf("%d effects, %d arrivals of %d ids, %d checks, %d releases: %v; behaviour %v",
		len(all), c.r.arrivals(), c.r.distinct(), c.r.checks(), c.releases, states, c.r.played())
}
