package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../onefold.json")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("onefold.json is not current (%v): go generate ./deploy/grafana/dashboard", err)
	}
}

// Each panel can be read by itself, none covers another, and every one asks the
// data source that the reader chose. Whether the queries find anything is tested
// on real processes, in e2e/seeing.
func TestPanels(t *testing.T) {
	t.Parallel()
	text, err := render()
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating["list"].([]any) {
		variables[v.(map[string]any)["name"].(string)] = true
	}
	ids, covered := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, twice := ids[p.ID]; twice {
			t.Errorf("%q and %q have one id", p.Title, other)
		}
		ids[p.ID] = p.Title
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q reaches over the right edge", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := covered[[2]int{x, y}]; other != "" && other != p.Title {
					t.Fatalf("%q covers %q", p.Title, other)
				}
				covered[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" {
			checkPanel(t, p, variables)
		}
	}
}

var variable = regexp.MustCompile(`\$\{?(\w+)`)

func checkPanel(t *testing.T, p drawn, variables map[string]bool) {
	t.Helper()
	unit, _ := p.FieldConfig["defaults"].(map[string]any)["unit"].(string)
	if unit == "" || p.Description == "" || p.Title == "" || len(p.Targets) == 0 {
		t.Errorf("%q lacks a unit, a description or a query", p.Title)
	}
	if p.Datasource["uid"] != "${datasource}" {
		t.Errorf("%q asks %v", p.Title, p.Datasource)
	}
	for _, target := range p.Targets {
		expr, _ := target["expr"].(string)
		if legend, _ := target["legendFormat"].(string); legend == "" || expr == "" {
			t.Errorf("%q has a line without a name or a query: %v", p.Title, target)
		}
		for _, v := range variable.FindAllStringSubmatch(expr, -1) {
			if !variables[v[1]] {
				t.Errorf("%q uses $%s, which nobody declares", p.Title, v[1])
			}
		}
		if strings.Contains(expr, "tenant") {
			t.Errorf("%q asks by tenant, which is no label", p.Title)
		}
	}
}

// A playbook that a panel names is there.
func TestPlaybooks(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`Onefold[A-Z]\w+`)
	for _, r := range rows() {
		for _, p := range r.panels {
			for _, name := range slices.Compact(named.FindAllString(p.why, -1)) {
				if _, err := os.Stat("../../../docs/playbooks/" + name + ".md"); err != nil {
					t.Errorf("%q: %v", p.title, err)
				}
			}
		}
	}
}
