package seeing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// prometheusProgram is prometheus from the path, or from where `make prometheus`
// puts it. A machine that has none skips the test.
func prometheusProgram(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("prometheus"); err == nil {
		return path
	}
	path := repository(t, "bin", "prometheus", "usr", "bin", "prometheus")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	t.Skip("SKIPPED: there is no Prometheus here: make prometheus, or apt-get install --no-install-recommends prometheus")
	return ""
}

// repository is the path of a file of the repository.
func repository(t *testing.T, path ...string) string {
	t.Helper()
	root, err := casetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{root}, path...)...)
}

func repositoryText(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(repository(t, path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// prometheus is a real Prometheus that reads deploy/prometheus/prometheus.yml.
// Three things differ from the file: it looks every 500 ms, its rules are the
// ones that the test names, and its targets are the test's processes.
type prometheus struct {
	t    *testing.T
	dir  string
	url  string
	http *http.Client
}

var discovery = regexp.MustCompile(`dns_sd_configs: \[\{names: \[(\w+)\],[^\n]*`)

// prometheus starts one with the rules of a file. What it scrapes is said later.
func (b *bundle) prometheus(rules string) *prometheus {
	b.t.Helper()
	p := &prometheus{t: b.t, dir: b.Dir, http: b.http}
	text := repositoryText(b.t, "deploy", "prometheus", "prometheus.yml")
	text = discovery.ReplaceAllString(text, "file_sd_configs: [{files: ["+b.Dir+"/targets-$1.json], refresh_interval: 1s}]")
	text = strings.NewReplacer("15s", "500ms", "onefold.rules.yaml", rules).Replace(text)
	file := filepath.Join(b.Dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p.url = "http://" + addr
	p.start(exec.Command(prometheusProgram(b.t), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(b.Dir, "tsdb"), "--web.listen-address="+addr, "--log.level=warn"))
	return p
}

// start runs the program until the test ends, and returns when it answers.
func (p *prometheus) start(cmd *exec.Cmd) {
	p.t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("prometheus:\n%s", log.Bytes())
		}
	})
	proc.Until(p.t, "prometheus is ready", func() bool {
		resp, err := p.http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// scrapes says which processes a service of the compose file stands for.
func (p *prometheus) scrapes(service string, processes ...*proc.Process) {
	p.t.Helper()
	type group struct {
		Targets []string `json:"targets"`
	}
	var g group
	for _, one := range processes {
		g.Targets = append(g.Targets, admin(p.t, one))
	}
	text, err := json.Marshal([]group{g})
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "new.json"), text, 0o600)
	}
	if err == nil { // whole or not at all
		err = os.Rename(filepath.Join(p.dir, "new.json"), filepath.Join(p.dir, "targets-"+service+".json"))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (s sample) number() string { text, _ := s.Value[1].(string); return text }

// query asks for an expression's values now. An expression that cannot be
// parsed or evaluated fails the test.
func (p *prometheus) query(expr string) []sample {
	p.t.Helper()
	var out struct {
		Result []sample `json:"result"`
	}
	p.get("/api/v1/query?query="+url.QueryEscape(expr), expr, &out)
	return out.Result
}

// finds says whether an expression has a value now that is a number.
func (p *prometheus) finds(expr string) bool {
	p.t.Helper()
	for _, s := range p.query(expr) {
		if s.number() != "NaN" {
			return true
		}
	}
	return false
}

// rule is one rule as Prometheus evaluates it.
type rule struct {
	Name   string `json:"name"`
	Query  string `json:"query"`
	Type   string `json:"type"`
	State  string `json:"state"`
	Health string `json:"health"`
	Error  string `json:"lastError"`
}

func (p *prometheus) rules() (all []rule) {
	p.t.Helper()
	var out struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	p.get("/api/v1/rules", "the rules", &out)
	for _, g := range out.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// firing are the alerts that fire now, with the labels that name what about.
func (p *prometheus) firing() map[string][]map[string]string {
	p.t.Helper()
	var out struct {
		Alerts []struct {
			Labels map[string]string `json:"labels"`
			State  string            `json:"state"`
		} `json:"alerts"`
	}
	p.get("/api/v1/alerts", "the alerts", &out)
	all := map[string][]map[string]string{}
	for _, a := range out.Alerts {
		if a.State == "firing" {
			all[a.Labels["alertname"]] = append(all[a.Labels["alertname"]], a.Labels)
		}
	}
	return all
}

func (p *prometheus) get(path, what string, into any) {
	p.t.Helper()
	resp, err := p.http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	if err == nil && answer.Status != "success" {
		err = fmt.Errorf("%s", answer.Error)
	}
	if err == nil {
		err = json.Unmarshal(answer.Data, into)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}
