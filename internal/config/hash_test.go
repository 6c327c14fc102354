package config_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/onefold-dev/onefold/internal/config"
)

// part is one field of a kind in the file, with the text of its value.
type part struct{ name, text string }

var (
	// fixed are always there; defaults may be there or not; variants are one of the texts, all meaning the same.
	fixedParts   = []part{{"provider", "openai"}, {"output", "json"}}
	defaultParts = []part{
		{"max_attempts", "3"},
		{"max_runs", "3"},
		{"reopen_failed", "true"},
		{"on_unknown", "retry"},
		{"on_cut", "regenerate"},
		{"dedupe", "key"},
		{"deadline", "24h"},
	}
	unhashedParts = []part{{"sample", "{text: some, n: 1}"}, {"sample_result", "{total: 1}"}}
	variantParts  = [][]part{
		{{"concurrency", "5"}},
		{{"retention", "1000h"}, {"retention", `"60000m"`}},
		{{"timeouts", "{connect: 1s, total: 2m}"}, {"timeouts", "{total: 120s, connect: 1000ms}"}},
		{{"prices", `{gpt: {input: "0.150", output: 2}}`}, {"prices", `{gpt: {output: "2.0", input: 0.15, cached: "0.15", reasoning: 2}}`}},
		{{"schema", "{type: object, required: [total]}"}, {"schema", `{"required": ["total"], "type": "object"}`}},
		{{"request", `{model: m, messages: [{role: user, content: "{{.input.text}}"}], temperature: 0.10}`}, {"request", "&r\n      model: \"m\"\n      messages:\n        - role: user\n          content: '{{.input.text}}'\n      temperature: 0.10"}},
		{
			{"effects", `[{name: a, type: webhook, destination: crm, headers: {A: b, C: d}}, {name: b, type: sql, statement: "SELECT @key"}]`},
			{"effects", `[{on: succeeded, destination: crm, type: webhook, headers: {C: d, A: b}, name: a}, {statement: SELECT @key, type: sql, name: b}]`},
		},
	}
)

// write makes a file of the parts in an order of its own, with comments.
func write(t *rapid.T, parts []part, label string) string {
	var b strings.Builder
	b.WriteString("providers: {openai: {type: openai, base_url: \"https://api.openai.com/v1\"}}\ndestinations: {crm: {url: \"https://crm.example.com\"}}\nkinds:\n  k:\n")
	for _, p := range rapid.Permutation(parts).Draw(t, label) {
		fmt.Fprintf(&b, "    %s: %s\n", p.name, p.text)
		if rapid.Bool().Draw(t, "comment") {
			b.WriteString("    # a comment\n")
		}
	}
	return b.String()
}

// TestHashIsStable writes the same kind in two ways and expects one hash, then changes one thing and expects another.
func TestHashIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var one, two []part
		one, two = append(one, fixedParts...), append(two, fixedParts...)
		for _, p := range append(append([]part(nil), defaultParts...), unhashedParts[0]) {
			if rapid.Bool().Draw(t, "spelled out in one") {
				one = append(one, p)
			}
			if rapid.Bool().Draw(t, "spelled out in two") {
				two = append(two, p)
			}
		}
		for _, vs := range variantParts {
			if !rapid.Bool().Draw(t, "has "+vs[0].name) {
				continue
			}
			one = append(one, rapid.SampledFrom(vs).Draw(t, "variant"))
			two = append(two, rapid.SampledFrom(vs).Draw(t, "variant"))
		}
		a, b := kindOf(t, write(t, one, "order one")), kindOf(t, write(t, two, "order two"))
		if a.Hash() != b.Hash() || !bytes.Equal(a.Body(), b.Body()) {
			t.Fatalf("two hashes for one kind:\n%s\n%s", a.Body(), b.Body())
		}
		again, err := config.KindFromBody("k", a.Body(), config.Opts{})
		if err != nil {
			t.Fatalf("rebuild: %v", err)
		}
		if again.Hash() != a.Hash() || !bytes.Equal(again.Body(), a.Body()) {
			t.Fatalf("the rebuilt kind differs:\n%s\n%s", again.Body(), a.Body())
		}
		in := config.TemplateData{Input: []byte(`{"text":"x"}`)}
		x, errX := a.Render(in)
		y, errY := again.Render(in)
		if !bytes.Equal(x, y) || errX != nil || errY != nil {
			t.Fatalf("the rebuilt kind renders another request:\n%s %v\n%s %v", x, errX, y, errY)
		}
	})
}

func kindOf(t interface{ Fatalf(string, ...any) }, text string) *config.Kind {
	c, err := config.Parse("onefold.yaml", []byte(text), config.Opts{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c.Kinds["k"]
}

// TestHashSeesEveryChange changes each field that decides how a task runs.
func TestHashSeesEveryChange(t *testing.T) {
	t.Parallel()
	const head = "providers: {openai: {type: openai, base_url: \"https://a.example\"}, other: {type: openai, base_url: \"https://a.example\"}}\n" +
		"destinations: {crm: {url: \"https://crm.example.com\"}, erp: {url: \"https://erp.example.com\"}}\nkinds: {k: {"
	seen := map[string]string{}
	for _, text := range []string{
		"provider: openai",
		"provider: other",
		"provider: openai, output: text",
		"provider: openai, output: json",
		"provider: openai, output: json, schema: {type: object}",
		"provider: openai, output: json, schema: {type: array}",
		"provider: openai, max_attempts: 4",
		"provider: openai, max_runs: 4",
		"provider: openai, reopen_failed: false",
		"provider: openai, on_unknown: review",
		"provider: openai, on_cut: keep",
		"provider: openai, on_cut: review",
		"provider: openai, dedupe: open",
		"provider: openai, dedupe: none",
		"provider: openai, dedupe: {window: 1h}",
		`provider: openai, dedupe: "window: 2h"`,
		"provider: openai, deadline: 25h",
		"provider: openai, concurrency: 1",
		"provider: openai, retention: 719h",
		"provider: openai, payload_retention: 3h",
		"provider: openai, timeouts: {total: 9m}",
		"provider: openai, prices: {m: {input: 1}}",
		"provider: openai, request: {a: 1, b: 2}",
		"provider: openai, request: {b: 2, a: 1}", // the model sees this order
		"provider: openai, request: {a: 1.0, b: 2}",
		"provider: openai, effects: [{name: a, type: webhook, destination: crm}]",
		"provider: openai, effects: [{name: b, type: webhook, destination: crm}]",
		"provider: openai, effects: [{name: a, type: webhook, destination: erp}]",
		"provider: openai, effects: [{name: a, type: webhook, destination: crm, on: final}]",
		"provider: openai, effects: [{name: a, type: webhook, destination: crm, body: \"1\"}]",
		"provider: openai, effects: [{name: a, type: webhook, destination: crm, headers: {A: b}}]",
		"provider: openai, effects: [{name: a, type: sql, statement: SELECT 1}]",
		"provider: openai, effects: [{name: a, type: sql, statement: SELECT 2}]",
	} {
		h := kindOf(t, head+text+"}}").Hash()
		if other, twice := seen[h]; twice {
			t.Errorf("one hash for\n%s\n%s", text, other)
		}
		seen[h] = text
	}
	if got := len(kindOf(t, head+"provider: openai}}").Hash()); got != 64 {
		t.Errorf("got a hash of %d digits, want 64", got)
	}
}

// TestBodyIsFixed holds the form of a stored body: tasks of an older version name it by its hash.
func TestBodyIsFixed(t *testing.T) {
	t.Parallel()
	k := kindOf(t, "providers: {openai: {type: openai, base_url: \"https://a.example\"}}\nkinds: {k: {provider: openai, request: {z: 1, a: \"{{.input}}\"}}}")
	want := `{"deadline":"24h0m0s","dedupe":"key","max_attempts":3,"max_runs":3,"name":"k","on_cut":"regenerate","on_unknown":"retry",` +
		`"output":"response","provider":"openai","reopen_failed":true,"request":{"z":1,"a":"{{.input}}"}}`
	k.Body()[0] = 'x' // a copy
	if got := string(k.Body()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestKindFromBodyRefuses(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{`:                           "is not JSON",
		`{"name":"k","name":"k"}`:     "is not JSON",
		`[]`:                          "must be a mapping",
		`{"name":"j","provider":"p"}`: "another kind",
		`{"name":"k"}`:                "there is no provider",
		`{"name":"k","provider":"p","from_the_future":1}`:                                  "unknown field",
		`{"name":"k","provider":"p","effects":[{"name":"m","type":"email","on":"final"}]}`: "not available",
	} {
		k, err := config.KindFromBody("k", []byte(body), built)
		if err == nil || !strings.Contains(err.Error(), want) || k != nil {
			t.Errorf("%s: got %v, %v, want %q", body, k, err, want)
		}
	}
	// What the file may leave out, a body may too.
	if _, err := config.KindFromBody("k", []byte(`{"name":"k","provider":"p"}`), built); err != nil {
		t.Errorf("a short body: %v", err)
	}
}

func TestProviderHash(t *testing.T) {
	t.Parallel()
	hash := func(fields string) string {
		c := parse(t, "providers: {p: {"+fields+"}}\nkinds: {k: {provider: p}}")
		return c.Providers["p"].Hash()
	}
	base := hash(`type: openai, base_url: "https://a.example"`)
	same := hash(`base_url: "https://a.example", stream: true, concurrency: 4, api_key_env: OPENAI_API_KEY, type: openai, timeouts: {total: 600s}`)
	if base != same {
		t.Error("the hash changes with what does not change the timing")
	}
	for _, fields := range []string{
		`type: openai, base_url: "https://b.example"`, `type: openai, base_url: "https://a.example", stream: false`,
		`type: openai, base_url: "https://a.example", timeouts: {total: 9m}`, `type: anthropic, base_url: "https://a.example"`,
	} {
		if hash(fields) == base {
			t.Errorf("%s: the same hash", fields)
		}
	}
}
