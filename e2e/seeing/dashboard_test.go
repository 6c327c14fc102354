package seeing

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onefold-dev/onefold/e2e/proc"
)

// dashboardConfig has something of everything that a panel shows.
const dashboardConfig = `
retention: {tasks: 720h}
providers:
  model:
    type: openai
    base_url: "{{FAKELLM}}"
    timeouts: {connect: 5s, first_byte: 20s, idle: 20s, total: 30s}
  refuses: {type: openai, base_url: "{{FAKELLM}}"}
  stalls: {type: openai, base_url: "{{STALLS}}"}
  hangs: {type: openai, base_url: "{{FAKELLM}}", timeouts: {connect: 1s, first_byte: 1s, idle: 1s, total: 1s}}
destinations:
  crm: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
  dead: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
sources:
  shop:
    scheme: standard-webhooks
    tenant: e2e
    kind: event
    secrets: [{secret_env: NEW_SECRET}, {secret_env: E2E_SECRET}]
kinds:
  llm.chat: {provider: model}
  work: {provider: model, output: text, request: &r {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}, sample: &s {model: "fake:ok", text: "hello"},
    prices: {"fake:ok": {input: "1000", output: "1000"}},
    effects: [{name: notify, type: webhook, destination: crm, body: '{"text": {{json .result}}}'}]}
  waits: {provider: refuses, output: text, request: *r, sample: *s}
  unsure: {provider: hangs, output: text, request: *r, sample: *s, on_unknown: review}
  loses: {provider: model, output: text, request: *r, sample: *s, effects: [{name: lost, type: webhook, destination: dead, body: '{"lose": true}'}]}
  again: {provider: model, output: text, request: *r, sample: *s, max_attempts: 1}
  stalls: {provider: stalls, output: text, request: *r, sample: *s}
  notices: {provider: model, output: text, request: *r, sample: *s, effects: [{name: notify, type: webhook, destination: crm, body: '{"stall": true}'}]}
  event: {provider: model, output: text, request: {model: "fake:ok", messages: [{role: user, content: "{{.input.type}}"}]}, sample: {type: x}}
`

// needsIncident are the queries that find something only once a worker was lost:
// the test looks at them after it has stopped one for longer than its lease.
var needsIncident = regexp.MustCompile(`onefold_(tasks_reaped|fenced_writes|fenced_deliveries)_total`)

// TestDashboard scrapes real processes under a small load with a real Prometheus
// and asks it every query of the dashboard and every rule: each is answered, and
// with a number.
func TestDashboard(t *testing.T) {
	t.Parallel()
	prometheusProgram(t)
	s := &stalls{over: make(chan struct{})}
	model := httptest.NewServer(s)
	t.Cleanup(model.Close)
	b := setup(t, &proc.Opts{
		Config: strings.ReplaceAll(dashboardConfig, "{{STALLS}}", model.URL),
		Env:    []string{"NEW_SECRET=whsec_" + strings.Repeat("b25l", 10)},
		Answer: s.answer,
	})
	p := b.prometheus(repository(t, "deploy", "prometheus", "onefold.rules.yaml"))
	p.scrapes("api", b.api)
	p.scrapes("worker", b.work)
	l := &load{bundle: b}
	l.begin()
	missing := dashboardQueries(t)
	for _, r := range p.rules() {
		missing = append(missing, selectors(r)...)
	}
	t.Logf("%d queries", len(missing))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("nothing found by:\n%s", strings.Join(missing, "\n"))
		}
	})
	proc.Until(t, "every query finds something, but those for an incident", func() bool {
		l.round()
		missing = slices.DeleteFunc(missing, p.finds)
		return !slices.ContainsFunc(missing, func(q string) bool { return !needsIncident.MatchString(q) })
	})
	if len(missing) == 0 {
		t.Error("no query needs an incident: the list is wrong")
	}
	for _, r := range p.rules() {
		if r.Health != "ok" {
			t.Errorf("%s: %s %s", r.Name, r.Health, r.Error)
		}
	}
	if a := p.firing()["OnefoldAuthFailure"]; len(a) == 0 || a[0]["name"] != "refuses" {
		t.Errorf("a provider refuses the credential, and what fires is %v", p.firing())
	}
	l.stopWorker(p, s)
	proc.Until(t, "the queries for an incident find something", func() bool {
		missing = slices.DeleteFunc(missing, p.finds)
		return len(missing) == 0
	})
}

// dashboardQueries are the queries of the dashboard's panels and annotations, with
// every value of every variable chosen.
func dashboardQueries(t *testing.T) (all []string) {
	t.Helper()
	var d struct {
		Templating struct {
			List []struct {
				Name       string
				Definition string
			}
		}
		Annotations struct {
			List []struct{ Expr string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(repositoryText(t, "deploy", "grafana", "onefold.json")), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, a.Expr)
	}
	values := []string{"$__rate_interval", "10m"}
	for _, v := range d.Templating.List {
		values = append(values, "$"+v.Name, ".*")
		if labels := regexp.MustCompile(`label_values\((\w+), (\w+)\)`).FindStringSubmatch(v.Definition); labels != nil {
			all = append(all, `group by (`+labels[2]+`) (`+labels[1]+`)`)
		}
	}
	if len(all) < 60 {
		t.Fatalf("the dashboard has %d queries", len(all))
	}
	for i, q := range all {
		all[i] = strings.NewReplacer(values...).Replace(q)
	}
	return all
}

var selector = regexp.MustCompile(`onefold[_:][a-z0-9_:]+(\{[^}]*\})?`)

// selectors are the queries of a rule that find something though nothing is
// wrong: a recording rule's own, and of an alert the series that it judges.
func selectors(r rule) []string {
	if r.Type == "recording" {
		return []string{r.Query}
	}
	return selector.FindAllString(r.Query, -1)
}

// load is a little of everything, again and again.
type load struct {
	*bundle
	n int
}

// begin makes what stays: a provider that refuses us, an unknown task, effects
// that are not taken, and submits that are held.
func (l *load) begin() {
	l.operator("hold", "--kind", "llm.chat", "--stops", "submits", "--reason", "a test")
	l.submit("unsure", "u", "fake:hang", "x", "")
	l.submit("waits", "w", "fake:status=401,code=invalid_api_key", "x", "")
	proc.Until(l.t, "the provider is held", func() bool { return l.Count(l.t, `SELECT count(*) FROM onefold.gates WHERE state = 'held'`) == 1 })
}

// operator runs a command of those that work on the database.
func (b *bundle) operator(args ...string) string {
	b.t.Helper()
	p, err := b.Start(proc.Spec{Name: "onefold", Args: args, Env: []string{"ONEFOLD_DATABASE_URL=" + b.Database, "ONEFOLD_CONFIG=" + b.ConfigFile}})
	if err != nil {
		b.t.Fatal(err)
	}
	if code, err := p.Exit(); err != nil || code != 0 {
		b.t.Fatalf("onefold %v: exit code %d, %v\n%s%s", args, code, err, p.Output(), p.Log())
	}
	return p.Output()
}

// round adds to every counter, so that each has a rate.
func (l *load) round() {
	l.n++
	n := strconv.Itoa(l.n)
	l.submit("work", "k"+n, "fake:ok", "x", "")
	l.submit("work", "k"+n, "fake:ok", "x", "")
	l.submit("work", "k1", "fake:ok", "x", "")       // a hit
	l.submit("work", "k1", "fake:ok", "another", "") // refused
	l.submit("waits", "w", "fake:status=401,code=invalid_api_key", "x", "")
	l.submit("waits", "w"+n, "fake:ok", "x", "")
	l.submit("loses", "l"+n, "fake:ok", "x", "")
	l.submit("work", "f1", "fake:status=500;ok", "x", "") // perhaps billed
	l.submit("work", "f"+n, "fake:status=500;ok", "x", "")
	l.submit("again", "a"+strconv.Itoa(l.n/10), "fake:status=500;ok", "x", "") // fails, and is run again
	l.submit("work", "r", "fake:status=400", "x", "")
	l.submit("work", "d"+n, "fake:ok", "x", "wait=5")
	l.held()
	l.webhook(n)
	l.stranger()
}

// submit submits a task and does not mind what comes of it.
func (l *load) submit(kind, key, model, text, prefer string) {
	body := `{"kind":"` + kind + `","input":{"model":"` + model + `","text":"` + text + `"}}`
	h := http.Header{"Authorization": {"Bearer " + l.Key}, "Idempotency-Key": {key}, "Prefer": {prefer}}
	if status := l.send("/v1/tasks", body, h); status >= 300 && status != http.StatusUnprocessableEntity {
		l.t.Errorf("submit %s %s: status %d", kind, key, status)
	}
}

// held is a submit that is refused because its kind is held.
func (l *load) held() {
	status := l.send("/v1/tasks", `{"kind":"llm.chat","input":{"model":"fake:ok","messages":[{"role":"user","content":"x"}]}}`,
		http.Header{"Authorization": {"Bearer " + l.Key}, "Idempotency-Key": {"held" + strconv.Itoa(l.n)}})
	if status != http.StatusServiceUnavailable {
		l.t.Errorf("a submit of a held kind: status %d", status)
	}
}

// stranger comes with a key that is none.
func (l *load) stranger() {
	status := l.send("/v1/tasks", `{}`, http.Header{"Authorization": {"Bearer of_nobody_nothing"}})
	if status != http.StatusUnauthorized {
		l.t.Errorf("a key that is none: status %d", status)
	}
}

// webhook delivers an event that is signed with the source's old secret.
func (l *load) webhook(id string) {
	hook, err := standardwebhooks.NewWebhook(proc.Secret)
	if err != nil {
		l.t.Fatal(err)
	}
	now := time.Now()
	body := `{"type":"order.paid","data":{"id":"` + id + `"}}`
	signature, err := hook.Sign(id, now, []byte(body))
	if err != nil {
		l.t.Fatal(err)
	}
	status := l.send("/v1/ingest/shop", body, http.Header{
		"Webhook-Id": {id}, "Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {signature},
	})
	if status >= 300 {
		l.t.Errorf("an event: status %d", status)
	}
}

func (l *load) send(path, body string, h http.Header) (status int) {
	l.t.Helper()
	req, err := http.NewRequest(http.MethodPost, l.api.URL()+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	h.Set("Content-Type", "application/json")
	req.Header = h
	resp, err := l.http.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// stopWorker stops the worker in the middle of calls and deliveries until another
// one has made them again, and lets it go on: what it has to say comes late.
func (l *load) stopWorker(p *prometheus, s *stalls) {
	for i := range stalled {
		l.submit("stalls", "s"+strconv.Itoa(i), "fake:ok", "x", "")
		l.submit("notices", "n"+strconv.Itoa(i), "fake:ok", "x", "")
	}
	proc.Until(l.t, "calls and deliveries are under way", func() bool { return s.calls.Load() == stalled && s.deliveries.Load() == stalled })
	l.work.Pause(l.t)
	close(s.over)
	p.scrapes("worker", l.work, l.Worker(l.t, "--admin-addr", "127.0.0.1:0"))
	proc.Until(l.t, "another worker has made them again", func() bool { return s.calls.Load() == 2*stalled && s.deliveries.Load() == 2*stalled })
	l.work.Resume(l.t)
}

// stalled is how many calls and deliveries the worker is stopped in.
const stalled = 10

// stalls is a model and a receiver whose first answers come when over is closed.
type stalls struct {
	calls, deliveries atomic.Int32
	over              chan struct{}
}

func (s *stalls) wait(n *atomic.Int32) {
	if n.Add(1) <= stalled {
		<-s.over
	}
}

// ServeHTTP is the model.
func (s *stalls) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.wait(&s.calls)
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: {\"id\":\"1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

// answer is the receiver: it takes nothing that is to be lost.
func (s *stalls) answer(_ string, body []byte, _ int) int {
	switch {
	case strings.Contains(string(body), "lose"):
		return http.StatusServiceUnavailable
	case strings.Contains(string(body), "stall"):
		s.wait(&s.deliveries)
	}
	return http.StatusNoContent
}
