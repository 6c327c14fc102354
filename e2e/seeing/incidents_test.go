package seeing

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/e2e/proc"
)

var update = flag.Bool("update", false, "write docs/incidents.md anew")

// incident is one story: what is played, and what must tell it.
type incident struct {
	name, what string
	opts       func() *proc.Opts
	play       func(b *bundle, p *prometheus)
	alert      string   // what must fire; empty: nothing loud may
	playbook   string   // in docs/playbooks
	timeline   []string // words of each
	diagnosis  []string
	fits       string // what the playbook says that is about this
}

// hurry is how many times faster than in production the rules go by.
const hurry = 60

// quick is the rules file with each window, offset and wait divided by hurry, and
// so the one limit that is a time, the age of an effect. Nothing else is changed:
// rates a second, counts and ratios are the file's own.
func quick(t *testing.T) string {
	t.Helper()
	spans := regexp.MustCompile(`(\[|offset |for: )(\d+)([mhd])`)
	seconds := map[string]int{"m": 60, "h": 3600, "d": 86400}
	text := repositoryText(t, "deploy", "prometheus", "onefold.rules.yaml")
	text = spans.ReplaceAllStringFunc(text, func(s string) string {
		m := spans.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[2])
		return m[1] + strconv.Itoa(n*seconds[m[3]]/hurry) + "s"
	})
	text, age := strings.Replace(text, "onefold_outbox_oldest_seconds) > 300", "onefold_outbox_oldest_seconds) > 5", 1), text
	if text == age {
		t.Fatal("the alert on the age of effects is another one")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var incidents = []incident{
	{
		name: "The provider slows down",
		what: "The model takes longer than the callers' patience. They send again, under the same key; every duplicate folds onto the task that is at work.",
		opts: func() *proc.Opts { return nil },
		play: func(b *bundle, p *prometheus) {
			p.untilFires("OnefoldInflightRising", func() { b.post("invoice-7", "fake:latency=25s", "one invoice", trace) })
			b.drained() // by then it is told that the duplicates came while the call was under way
		},
		alert: "OnefoldInflightRising", playbook: "OnefoldInflightRising",
		timeline: []string{"folded", "attempt 1", "succeeded"}, diagnosis: []string{"T7", "do:"},
		fits: "Processing takes longer than the callers' timeouts",
	},
	{
		name: "The provider refuses the credential",
		what: "The key was revoked. The provider is held, the task waits, and nothing is tried in vain.",
		opts: func() *proc.Opts { return nil },
		play: func(b *bundle, p *prometheus) {
			b.post("invoice-7", "fake:status=401,code=invalid_api_key", "one invoice", trace)
			p.untilFires("OnefoldAuthFailure", func() {})
		},
		alert: "OnefoldAuthFailure", playbook: "OnefoldAuthFailure",
		timeline: []string{"unauthorized", "status 401", "provider model: gate.held"}, diagnosis: []string{"T9", "provider model was held"},
		fits: "Put the new credential into its file or variable",
	},
	{
		name: "A destination is dead",
		what: "The receiver answers 503. The result is there; its webhook waits, and after five failures in a row the destination is left alone for a while.",
		opts: func() *proc.Opts {
			return &proc.Opts{Answer: func(string, []byte, int) int { return http.StatusServiceUnavailable }}
		},
		play: func(b *bundle, p *prometheus) {
			n := 0
			b.post("invoice-7", "fake:ok", "one invoice", trace)
			p.untilFires("OnefoldOutboxOldest", func() {
				if n++; n <= 20 {
					b.post("other-"+strconv.Itoa(n), "fake:ok", "another", "")
				}
			})
		},
		alert: "OnefoldOutboxOldest", playbook: "OnefoldOutboxOldest",
		timeline: []string{"succeeded", "webhook notify to crm: waiting", "status 503"}, diagnosis: []string{"cannot tell"},
		fits: "The destination fails",
	},
	{
		name: "A key is made anew for each try",
		what: "The caller makes the key inside its loop of retries, so that each try is a task of its own. No alert can see that, for to onefold these are different intents; the diagnosis of any of them lists the others.",
		opts: func() *proc.Opts { return nil },
		play: func(b *bundle, p *prometheus) {
			b.post("invoice-7", "fake:ok", "one invoice", trace)
			b.post("invoice-7-again", "fake:ok", "one invoice", trace)
			b.post("invoice-7-and-again", "fake:ok", "one invoice", trace)
			b.drained()
			p.untilFires("", func() {})
		},
		playbook: "duplicates",
		timeline: []string{"succeeded", "delivered"}, diagnosis: []string{"T5", "key invoice-7-again has the same input in the same trace", "invoice-7-and-again"},
		fits: "the caller makes a new key for each try",
	},
}

// untilFires does something again and again, once a second, until an alert fires.
// Without one it gives the others the time that each takes to fire.
func (p *prometheus) untilFires(alert string, again func()) {
	p.t.Helper()
	next, began := time.Time{}, time.Now()
	proc.Until(p.t, "fires: "+alert, func() bool {
		if time.Now().After(next) {
			again()
			next = time.Now().Add(time.Second)
		}
		if alert == "" {
			return time.Since(began) > 20*time.Second && p.finds("onefold_gauges_read_timestamp_seconds")
		}
		return p.fired()[alert] != ""
	})
}

// fired are the alerts that fire or have fired, and how severe they are.
func (p *prometheus) fired() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for _, s := range p.query(`max by (alertname, severity) (max_over_time(ALERTS{alertstate="firing"}[5m]))`) {
		out[s.Metric["alertname"]] = s.Metric["severity"]
	}
	return out
}

// TestIncidents plays each incident on real processes that a real Prometheus
// scrapes. The alert fires, no other loud one does, its playbook is there, and
// timeline and diagnosis tell what happened. docs/incidents.md has the transcripts;
// -update writes it.
func TestIncidents(t *testing.T) {
	t.Parallel()
	prometheusProgram(t)
	told := make([]string, len(incidents))
	t.Run("all", func(t *testing.T) {
		for i, in := range incidents {
			t.Run(in.name, func(t *testing.T) {
				t.Parallel()
				told[i] = in.tell(t)
			})
		}
	})
	if t.Failed() {
		return
	}
	file := repository(t, "docs", "incidents.md")
	if *update {
		if err := os.WriteFile(file, []byte(incidentsHead+strings.Join(told, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range incidents {
		_, section, found := strings.Cut(string(text), "## "+in.name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		want := slices.Concat(in.timeline, in.diagnosis, []string{in.what, in.alert, "playbooks/" + in.playbook + ".md"})
		for _, w := range want {
			if !found || !strings.Contains(section, w) {
				t.Errorf("docs/incidents.md does not tell %q of %q: go test ./e2e/seeing -run TestIncidents -update", w, in.name)
			}
		}
	}
}

const incidentsHead = `# Four incidents

Played by a test on an api, a worker and a Prometheus with the rules of deploy/prometheus, their windows and waits sixty times
shorter and one limit of time with them; transcripts of one run. Do not edit: ` + "`go test ./e2e/seeing -run TestIncidents -update`" + `.
`

func (in incident) tell(t *testing.T) string {
	b := setup(t, in.opts(), "--lease", "15s") // as in production: a busy machine is no incident
	p := b.prometheus(quick(t))
	p.scrapes("api", b.api)
	p.scrapes("worker", b.work)
	in.play(b, p)
	fired := p.fired()
	for name, severity := range fired {
		if severity == "critical" && name != in.alert {
			t.Errorf("%s fires, too", name)
		}
	}
	if _, ok := fired[in.alert]; in.alert != "" && !ok {
		t.Errorf("%s does not fire: %v", in.alert, fired)
	}
	book := repositoryText(t, "docs", "playbooks", in.playbook+".md")
	title := strings.TrimPrefix(strings.SplitN(book, "\n", 2)[0], "# ")
	if in.alert != "" && (title != in.alert || !strings.Contains(book, "**Do**")) {
		t.Errorf("the playbook is of %q", title)
	}
	b.has(book, in.fits)
	timeline, diagnosis := b.cli("timeline", "invoice-7", "--kind", "work"), b.cli("diagnose", "invoice-7", "--kind", "work")
	b.has(timeline, in.timeline...)
	b.has(diagnosis, in.diagnosis...)
	firing := strings.Join(slices.Sorted(maps.Keys(fired)), ", ")
	if firing == "" {
		firing = "none"
	}
	return fmt.Sprintf("\n## %s\n\n%s\n\nFires: %s. Playbook: [%s](playbooks/%s.md).\n\n```\n$ onefold timeline invoice-7 --kind work\n%s\n$ onefold diagnose invoice-7 --kind work\n%s```\n",
		in.name, in.what, firing, title, in.playbook, strings.TrimRight(timeline, "\n"), diagnosis)
}
