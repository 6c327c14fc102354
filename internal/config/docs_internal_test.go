package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docRow is one row of a table of docs/configuration.md.
type docRow struct{ field, typ, fallback string }

// docTables reads the tables under "## Fields of ..." by heading.
func docTables(t *testing.T) map[string][]docRow {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `([a-z_]+)` \\| (.*?) \\| (.*?) \\| .+ \\|$")
	tables, heading := map[string][]docRow{}, ""
	for _, line := range strings.Split(string(text), "\n") {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			heading = h
		}
		if m := row.FindStringSubmatch(line); m != nil && strings.HasPrefix(heading, "Fields of ") {
			tables[heading] = append(tables[heading], docRow{m[1], m[2], m[3]})
		}
	}
	return tables
}

// TestDocsNameEveryField compares the fields the decoder takes with those the documentation has, both ways.
func TestDocsNameEveryField(t *testing.T) {
	t.Parallel()
	p := &problems{src: []byte(`
retention: {tasks: 720h}
providers: {p: {type: httpcall, base_url: "https://a.example", timeouts: {total: 1m}, prices: {m: {input: 1}}}}
destinations:
  d: {url: "https://d.example", check: {path: /x, done: {status: 200}, not_done: {status: 404}}}
  m: {url: "smtps://m.example", from: a@d.example}
sources: {s: {scheme: hmac, tenant: a, kind: k, secrets: [{secret_env: S}], hmac: {header: X-S}, key: document}}
kinds:
  k:
    provider: p
    effects:
      - {name: a, type: webhook, destination: d}
      - {name: b, type: sql, statement: SELECT 1}
      - {name: c, type: http, destination: d}
      - {name: d, type: email, destination: m, to: x, subject: y, body: z}
      - {name: e, type: task, kind: k}
`)}
	d := newDecoder(p, Opts{SkipSources: true})
	d.root(readYAML(p), &Config{Kinds: map[string]*Kind{}, Providers: map[string]*Provider{}, Destinations: map[string]*Destination{}, Sources: map[string]*Source{}})
	if err := p.err(); err != nil {
		t.Fatal(err)
	}
	var effect []string
	for path, fields := range d.fields {
		if strings.Contains(path, "effects[") {
			effect = append(effect, fields...)
		}
	}
	tables := docTables(t)
	for heading, taken := range map[string][]string{
		"Fields of the file": d.fields[""], "Fields of `retention`": d.fields["retention"], "Fields of a provider": d.fields["providers.p"],
		"Fields of `timeouts`": d.fields["providers.p.timeouts"], "Fields of a price": d.fields["providers.p.prices.m"],
		"Fields of a destination": d.fields["destinations.d"], "Fields of `check`": d.fields["destinations.d.check"],
		"Fields of a rule": d.fields["destinations.d.check.done"], "Fields of a source": d.fields["sources.s"],
		"Fields of a source's `secrets`": d.fields["sources.s.secrets[0]"], "Fields of a source's `hmac`": d.fields["sources.s.hmac"],
		"Fields of a kind": d.fields["kinds.k"], "Fields of an effect": effect,
	} {
		var documented []string
		for _, r := range tables[heading] {
			documented = append(documented, r.field)
		}
		slices.Sort(documented)
		slices.Sort(taken)
		if diff := cmp.Diff(documented, slices.Compact(taken)); diff != "" {
			t.Errorf("%s: documented -, taken +:\n%s", heading, diff)
		}
		delete(tables, heading)
	}
	for heading := range tables {
		t.Errorf("%s: a table of nothing", heading)
	}
}

// TestDocumentedDefaults writes every default of the documentation out and expects it to change nothing.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	tables := docTables(t)
	plain := regexp.MustCompile(`^[A-Za-z0-9.-]+`)
	spelled := func(heading string) string {
		var parts []string
		for _, r := range tables[heading] {
			if v := plain.FindString(r.fallback); v != "" && v != "see" && v != "same" && v != "the" {
				parts = append(parts, r.field+": "+v)
			}
		}
		if len(parts) == 0 {
			t.Errorf("%s: no defaults found", heading)
		}
		return strings.Join(parts, ", ")
	}
	build := func(retention, provider, timeouts, destination, kind, effect string) *Config {
		c, err := Parse("f", []byte("retention: {"+retention+"}\nproviders: {p: {type: openai, base_url: \"https://a.example\", timeouts: {"+timeouts+"}, "+provider+"}}\n"+
			"destinations: {d: {url: \"https://d.example\", "+destination+"}}\nkinds: {k: {provider: p, effects: [{name: a, type: http, destination: d, "+effect+"}], "+kind+"}}\n"), Opts{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	bare := build("", "", "", "", "", "")
	full := build(spelled("Fields of `retention`"), spelled("Fields of a provider"), spelled("Fields of `timeouts`"),
		spelled("Fields of a destination"), spelled("Fields of a kind"), spelled("Fields of an effect"))
	if bare.Retention != full.Retention {
		t.Errorf("retention: got %v, documented %v", bare.Retention, full.Retention)
	}
	if got, want := bare.Providers["p"], full.Providers["p"]; got.Hash() != want.Hash() || got.Timeouts != want.Timeouts || got.Stream != want.Stream {
		t.Errorf("provider: got %+v, documented %+v", got, want)
	}
	if got, want := *bare.Destinations["d"], *full.Destinations["d"]; got.Repeat != want.Repeat || got.AllowPrivate != want.AllowPrivate || got.IdempotencyHeader != want.IdempotencyHeader {
		t.Errorf("destination: got %+v, documented %+v", got, want)
	}
	one, two := bare.Kinds["k"].canonical(), full.Kinds["k"].canonical()
	if diff := cmp.Diff(string(one.appendJSON(nil)), string(two.appendJSON(nil))); diff != "" {
		t.Errorf("kind: got -, documented +:\n%s", diff)
	}
}

// TestExampleFile: the example parses with nothing but its two secrets set, and its samples are rendered.
func TestExampleFile(t *testing.T) {
	t.Parallel()
	c, err := Load("../../examples/onefold.yaml", Opts{
		ProviderTypes: map[string]bool{"openai": true}, EffectTypes: Built(nil).EffectTypes,
		Getenv: func(name string) string { return map[string]string{"OPENAI_API_KEY": "x", "CRM_SECRET": "y"}[name] },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(c.Kinds), []string{"invoice.extract", "llm.chat"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := c.SQLStatements()[0].SQL, "INSERT INTO invoices (key, number, total) VALUES ($1, $2, $3)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
