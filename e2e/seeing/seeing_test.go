// Package seeing plays incidents on real processes and looks at them as a person
// on call does.
package seeing

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
)

func TestMain(m *testing.M) { proc.Main(m) }

type bundle struct {
	*proc.World
	t    *testing.T
	api  *proc.Process
	work *proc.Process
	http *http.Client
}

func setup(t *testing.T, o *proc.Opts, worker ...string) *bundle {
	t.Helper()
	w := proc.New(t, o)
	b := &bundle{World: w, t: t, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	t.Cleanup(b.http.CloseIdleConnections)
	b.api = w.API(t, "--admin-addr", "127.0.0.1:0")
	b.work = w.Worker(t, append([]string{"--admin-addr", "127.0.0.1:0"}, worker...)...)
	return b
}

// post submits a task of kind work and returns the status and the body.
func (b *bundle) post(key, model, text, trace string) (int, string) {
	b.t.Helper()
	body := fmt.Sprintf(`{"kind":"work","input":{"model":%q,"text":%q}}`, model, text)
	req, err := http.NewRequest(http.MethodPost, b.api.URL()+"/v1/tasks", strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + b.Key, "Idempotency-Key": key, "Content-Type": "application/json", "traceparent": trace, "User-Agent": "invoices/2.1",
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text2, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text2)
}

func (b *bundle) drained() {
	b.t.Helper()
	proc.Until(b.t, "all tasks settled, no wake-up left", func() bool {
		return b.Count(b.t, `SELECT count(*) FROM onefold.tasks WHERE finished_at IS NULL`) == 0 &&
			b.Count(b.t, `SELECT count(*) FROM onefold.river_job WHERE kind IN ('task', 'effect')`) == 0
	})
}

// cli is what the command line prints.
func (b *bundle) cli(args ...string) string {
	b.t.Helper()
	p, err := b.Start(proc.Spec{Name: "onefold", Args: args, Env: []string{"ONEFOLD_URL=" + b.api.URL(), "ONEFOLD_API_KEY=" + b.Key}})
	if err != nil {
		b.t.Fatal(err)
	}
	if code, err := p.Exit(); err != nil || code != 0 {
		b.t.Fatalf("onefold %v: exit code %d, %v\n%s%s", args, code, err, p.Output(), p.Log())
	}
	b.t.Logf("$ onefold %s\n%s", strings.Join(args, " "), p.Output())
	return p.Output()
}

var adminAddr = regexp.MustCompile(`"addr":"([^"]+)"`)

// admin is the address of a process's admin listener.
func admin(t *testing.T, p *proc.Process) string {
	t.Helper()
	return adminAddr.FindStringSubmatch(p.AwaitLog(t, "admin listening"))[1]
}

// scrape is what a process's /metrics holds: series and their values.
func (b *bundle) scrape(p *proc.Process) map[string]float64 {
	b.t.Helper()
	resp, err := b.http.Get("http://" + admin(b.t, p) + "/metrics")
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[cut+1:], 64); err == nil {
			out[line[:cut]] = v
		}
	}
	return out
}

// sum adds the series of a metric whose labels hold all of the texts.
func sum(series map[string]float64, name string, labels ...string) int {
	total := 0.0
next:
	for s, v := range series {
		if s != name && !strings.HasPrefix(s, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(s, l) {
				continue next
			}
		}
		total += v
	}
	return int(total)
}

// Under load every process counts what it does; once all is at rest the counts
// are what the database says.
func TestMetricsEqualTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const keys, each = 40, 6
	var all sync.WaitGroup
	for i := range keys {
		for n := range each {
			all.Go(func() {
				text := "hello"
				if n == each-1 {
					text = "another" // whichever comes first, the others are refused
				}
				b.post("key-"+strconv.Itoa(i), "fake:ok", text, "")
			})
		}
	}
	all.Wait()
	b.drained()
	proc.Until(t, "the duplicates are counted", func() bool {
		return b.Count(t, `SELECT coalesce(sum(count + refused), 0) FROM onefold.task_duplicates`) == keys*(each-1)
	})
	api, work := b.scrape(b.api), b.scrape(b.work)
	for _, c := range []struct {
		name string
		got  int
		sql  string
	}{
		{"submits", sum(api, "onefold_submits_total"), `SELECT count(*) + (SELECT sum(count + refused) FROM onefold.task_duplicates) FROM onefold.tasks`},
		{"created", sum(api, "onefold_tasks_created_total"), `SELECT count(*) FROM onefold.tasks`},
		{"folded", sum(api, "onefold_idempotency_hit_total") + sum(api, "onefold_idempotency_inflight_conflict_total"), `SELECT sum(count) FROM onefold.task_duplicates`},
		{"mismatches", sum(api, "onefold_idempotency_mismatch_total"), `SELECT sum(refused) FROM onefold.task_duplicates`},
		{"discarded", sum(api, "onefold_duplicates_discarded_total"), `SELECT sum(count + refused) FROM onefold.task_duplicates`},
		{"succeeded", sum(work, "onefold_tasks_settled_total", `state="succeeded"`), `SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded'`},
		{"attempts", sum(work, "onefold_attempts_total"), `SELECT count(*) FROM onefold.attempts`},
		{"calls timed", sum(work, "onefold_call_seconds_count"), `SELECT count(*) FROM onefold.attempts WHERE dispatched_at IS NOT NULL`},
		{"waits timed", sum(work, "onefold_queue_wait_seconds_count"), `SELECT count(*) FROM onefold.attempts`},
		{"output tokens", sum(work, "onefold_tokens_total", `direction="output"`), `SELECT sum(output_tokens) FROM onefold.attempts`},
		{"deliveries", sum(work, "onefold_deliveries_total", `outcome="delivered"`), `SELECT count(*) FROM onefold.deliveries WHERE outcome = 'delivered'`},
	} {
		if want := b.Count(t, c.sql); c.got != want || want == 0 {
			t.Errorf("%s: /metrics says %d, the database %d", c.name, c.got, want)
		}
	}
}

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// has checks that a text holds all of the words.
func (b *bundle) has(text string, words ...string) {
	b.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			b.t.Errorf("no %q in\n%s", w, text)
		}
	}
}

// The demo's incident: the model hangs, the caller loses patience and asks
// again; there is one result, and the timeline tells why.
func TestUpstreamTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, &proc.Opts{Config: strings.Replace(proc.DefaultConfig, "connect: 5s, first_byte: 60s", "connect: 1s, first_byte: 2s", 1)})
	b.post("invoice-7", "fake:hang;ok", "one invoice", trace)
	for range 25 {
		b.post("invoice-7", "fake:hang;ok", "one invoice", trace)
	}
	b.post("invoice-7", "fake:hang;ok", "another invoice", trace)
	b.drained()
	proc.Until(t, "the duplicates are counted", func() bool {
		return b.Count(t, `SELECT coalesce(sum(count + refused), 0) FROM onefold.task_duplicates`) == 26
	})
	b.has(b.cli("timeline", "invoice-7", "--kind", "work"), "25 duplicates, 1 refused", "invoices/2.1", "attempt 1", "first_byte_timeout", "tried again after",
		"attempt 2", "succeeded", "queue ", "total ", "and 5 duplicates more, counted only", "webhook notify to crm: delivered", "delivery 1", "4bf92f3577b34da6a3ce929d0e0e4736")
	b.has(b.cli("diagnose", "invoice-7", "--kind", "work"), "T1", "attempt 1 was sent and its outcome is not known", "T2", "K14", "do:")
	if n := b.Count(t, `SELECT count(*) FROM onefold.task_submits WHERE what = 'folded'`); n != 20 {
		t.Errorf("%d duplicates are kept one by one, want 20", n)
	}
}

// A caller that makes a key for each try: each is a task of its own, and the
// diagnosis of any of them lists the others.
func TestKeyMadeAnew(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for i := range 3 {
		b.post("try-"+strconv.Itoa(i), "fake:ok", "one invoice", trace)
	}
	b.drained()
	b.has(b.cli("diagnose", "try-1", "--kind", "work"), "T5", "key try-0 has the same input in the same trace", "key try-2")
	b.has(b.cli("list", "--trace", "4bf92f3577b34da6a3ce929d0e0e4736"), "try-0", "try-1", "try-2")
}

// The provider refuses the credential: the task waits, the timeline says behind what.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.post("k1", "fake:status=401,code=invalid_api_key", "x", "")
	proc.Until(t, "the gate is held", func() bool { return b.Count(t, `SELECT count(*) FROM onefold.gates WHERE state = 'held'`) == 1 })
	proc.Until(t, "the failure is counted", func() bool {
		return sum(b.scrape(b.work), "onefold_auth_failures_total", `side="provider"`, `name="model"`) > 0
	})
	b.has(b.cli("timeline", "k1", "--kind", "work"), "unauthorized", "status 401", "provider model: gate.held")
	b.has(b.cli("diagnose", "k1", "--kind", "work"), "T9", "provider model was held")
}

// A dead destination: the result is there, what did not leave is told.
func TestDeadDestination(t *testing.T) {
	t.Parallel()
	b := setup(t, &proc.Opts{Answer: func(string, []byte, int) int { return http.StatusUnprocessableEntity }})
	b.post("k1", "fake:ok", "x", "")
	proc.Until(t, "the effect is dead", func() bool { return b.Count(t, `SELECT count(*) FROM onefold.effects WHERE state = 'dead'`) == 1 })
	b.has(b.cli("timeline", "k1", "--kind", "work"), "webhook notify to crm: dead", "status 422", "succeeded")
	b.has(b.cli("diagnose", "k1", "--kind", "work"), "cannot tell")
}
