package config_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/config"
)

const sourceHead = `
providers: {p: {type: openai, base_url: "http://x.example"}}
kinds: {event: {provider: p}, w: {provider: p, dedupe: "window: 1h"}, free: {provider: p, dedupe: none}}
sources:
  s: `

func parseSource(text string) (*config.Source, error) {
	env := map[string]string{"GOOD": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "SHORT": "whsec_AAAA", "BAD": "whsec_!!!", "TEXT": "a text of many letters"}
	cfg, err := config.Parse("f.yaml", []byte(sourceHead+text+"\n"), config.Opts{SkipSecrets: true, Getenv: func(n string) string { return env[n] }})
	if err != nil {
		return nil, err
	}
	return cfg.Sources["s"], nil
}

// What is wrong with a source stops the start, and the message says what.
func TestSourceProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "there is no scheme",
		`{scheme: pigeon, tenant: a, kind: event, secret_env: GOOD}`:                                                                           `"pigeon" is not allowed`,
		`{scheme: github, tenant: A B, kind: event, secret_env: TEXT}`:                                                                         "cannot be the name of a tenant",
		`{scheme: github, tenant: a, kind: evnt, secret_env: TEXT}`:                                                                            "did you mean event?",
		`{scheme: github, tenant: a, kind: event}`:                                                                                             "there is no secret",
		`{scheme: github, tenant: a, kind: event, secret_env: NONE}`:                                                                           "is not set",
		`{scheme: standard-webhooks, tenant: a, kind: event, secret_env: SHORT}`:                                                               "3 bytes, which can be guessed",
		`{scheme: standard-webhooks, tenant: a, kind: event, secret_env: BAD}`:                                                                 "is not base64",
		`{scheme: standard-webhooks, tenant: a, kind: event, secrets: []}`:                                                                     "there is no secret",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, tolerance: 1m}`:                                                            "signs no time",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, duplicate_status: 301}`:                                                    "301 would tell the sender something else",
		`{scheme: github, tenant: a, kind: free, secret_env: TEXT}`:                                                                            "dedupes nothing",
		`{scheme: github, tenant: a, kind: w, secret_env: TEXT}`:                                                                               "occurred_at",
		`{scheme: hmac, tenant: a, kind: event, secret_env: TEXT, key: document}`:                                                              "must say where its signature stands",
		`{scheme: hmac, tenant: a, kind: event, secret_env: TEXT, hmac: {header: X-S}}`:                                                        "has no id that it is known by",
		`{scheme: hmac, tenant: a, kind: event, secret_env: TEXT, hmac: {header: X-S, signed: "{timestamp}.{body}"}, key: document}`:           "timestamp_header does not say where it stands",
		`{scheme: hmac, tenant: a, kind: event, secret_env: TEXT, hmac: {header: X-S, timestamp_header: X-T}, key: document}`:                  "the time is not signed",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "same"}`:                                                              "the same for all events",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{.id}}"}`:                                                           "there is none",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{now}}", sample: {id: 1}}`:                                          "bad template",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{.type}}:{{.received_at}}", sample: {type: x, received_at: 1}}`:     "changes with each delivery",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{.data.Retry_Count}}", sample: {data: {Retry_Count: 1}}}`:           "changes with each delivery",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{if .id}}{{.id}}{{end}}", sample: {id: 1}}`:                         "cannot have if",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{default \"x\" .id}}", sample: {id: 1}}`:                            "cannot use default",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{.id}}", sample: {id: ""}}`:                                         "a value of the key is empty",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{.data.id}}", sample: {id: 1}}`:                                     "the field .data.id is missing",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, input: {a: "{{.b}}"}, sample: {id: 1}}`:                                    "the field .b is missing",
		`{scheme: github, tenant: a, kind: event, secret_env: TEXT, secrets: [{secret_env: TEXT}]}`:                                            "keep one of the two ways",
		`{scheme: github, tenant: a, kind: event, secrets: [{secret_env: TEXT, from: "2026-01-02T00:00:00Z", until: "2026-01-01T00:00:00Z"}]}`: "it ends before it begins",
	} {
		_, err := parseSource(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The key is the same for every delivery of one event, and what is no key as it stands is hashed.
func TestSourceKey(t *testing.T) {
	t.Parallel()
	src, err := parseSource(`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: "{{.tenant}}:{{lower .type}}:{{.data.id}}",
    input: {id: "{{json .data.id}}", type: "{{.type}}"}, sample: {tenant: t, type: X, data: {id: 1}}}`)
	if err != nil {
		t.Fatal(err)
	}
	document, err := parseSource(`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: document, input: {id: "{{json .data.id}}"}, sample: {data: {id: 1}}}`)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := parseSource(`{scheme: github, tenant: a, kind: event, secret_env: TEXT}`)
	if err != nil {
		t.Fatal(err)
	}
	const (
		one   = `{"tenant":"t","type":"PAID","data":{"id":12345678901234567890},"retry_count":1}`
		again = `{"retry_count":2,"data":{"id":12345678901234567890},"type":"PAID","tenant":"t"}`
	)
	for _, c := range []struct {
		src       *config.Source
		event, id string
		want      string
	}{
		{src, one, "x", "t:paid:12345678901234567890"},
		{src, again, "y", "t:paid:12345678901234567890"},
		{plain, one, "delivery", "delivery"},
		{plain, one, "döner", "sha256-" + hashed("döner")},
	} {
		input, err := c.src.Input([]byte(c.event))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.src.Key([]byte(c.event), input, c.id)
		if err != nil || got != c.want {
			t.Errorf("got %q (%v), want %q", got, err, c.want)
		}
	}
	keys := []string{}
	for _, event := range []string{one, again, `{"data":{"id":2}}`} {
		input, err := document.Input([]byte(event))
		if err != nil {
			t.Fatal(err)
		}
		key, err := document.Key([]byte(event), input, "")
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if keys[0] != keys[1] || keys[0] == keys[2] {
		t.Errorf("got %q, want the first two alike and the third another", keys)
	}
	input, err := src.Input([]byte(one))
	if diff := cmp.Diff(string(input), `{"id":12345678901234567890,"type":"PAID"}`); err != nil || diff != "" {
		t.Errorf("got -, want +:\n%s%v", diff, err)
	}
	for event, want := range map[string]string{`{"tenant":"","type":"a","data":{"id":1}}`: "empty", `{"tenant":"t"}`: "missing", `[1]`: "not a JSON object"} {
		if _, err := src.Key([]byte(event), nil, "id"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", event, err, want)
		}
	}
	if _, err := plain.Key([]byte(one), nil, " "); err == nil {
		t.Error("a delivery without an id got a key")
	}
}

// FuzzSourceKey: whatever a key template and an event are, the key keeps the grammar and is the same twice.
func FuzzSourceKey(f *testing.F) {
	f.Add("{{.a}}:{{.b.c}}", `{"a":1,"b":{"c":"x"}}`)
	f.Add("{{lower .a}}", `{"a":"Ä"}`)
	f.Add("{{json .}}", `{}`)
	f.Fuzz(func(t *testing.T, key, event string) {
		if strings.ContainsAny(key, "\n\r\"'\\") {
			t.Skip()
		}
		src, err := parseSource(`{scheme: github, tenant: a, kind: event, secret_env: TEXT, key: '` + key + `', sample: {a: 1, b: {c: 2}}}`)
		if err != nil {
			t.Skip()
		}
		one, err1 := src.Key([]byte(event), nil, "")
		two, err2 := src.Key([]byte(event), nil, "")
		if one != two || (err1 == nil) != (err2 == nil) {
			t.Fatalf("got %q, then %q", one, two)
		}
		if err1 == nil && (len(one) == 0 || len(one) > 255 || strings.HasPrefix(one, "onefold:")) {
			t.Fatalf("%q is no key", one)
		}
	})
}
