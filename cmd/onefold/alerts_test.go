package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

var metricName = regexp.MustCompile(`\bonefold_[a-z_]+`)

// Every metric that an alert reads is declared, and every alert has its playbook
// and its tests. What the rules do is tested by scripts/test-alerts.sh.
func TestAlerts(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, m := range telemetry.Metrics() {
		declared[m.Name] = true
		if m.Type == "histogram" {
			declared[m.Name+"_bucket"], declared[m.Name+"_sum"], declared[m.Name+"_count"] = true, true, true
		}
	}
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rules, tests := read("deploy", "prometheus", "onefold.rules.yaml"), read("deploy", "prometheus", "onefold.rules_test.yaml")
	for _, name := range metricName.FindAllString(rules, -1) {
		if !declared[name] {
			t.Errorf("a rule reads %s, which nobody declares", name)
		}
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 12 {
		t.Errorf("found %d alerts", len(alerts))
	}
	for _, a := range alerts {
		if book := read("docs", "playbooks", a[1]+".md"); !strings.Contains(book, "**Do**") {
			t.Errorf("the playbook of %s does not say what to do", a[1])
		}
		for _, kind := range []string{" fires", " is silent"} {
			if !strings.Contains(tests, "name: "+a[1]+kind) {
				t.Errorf("no test in which %s%s", a[1], kind)
			}
		}
	}
}
