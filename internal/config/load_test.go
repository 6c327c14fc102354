package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

func getenv(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestWithoutAFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		o        config.Opts
		url, key string
		wrong    string
	}{
		{"key", config.Opts{Getenv: getenv("OPENAI_API_KEY", "k1")}, "https://api.openai.com/v1", "k1", ""},
		{"own server", config.Opts{Getenv: getenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1?a=b")}, "http://127.0.0.1:8000/v1?a=b", "", ""},
		{"both", config.Opts{Getenv: getenv("OPENAI_BASE_URL", "http://llm/v1", "OPENAI_API_KEY", "k2")}, "http://llm/v1", "k2", ""},
		{"nothing", config.Opts{}, "", "", "set OPENAI_API_KEY"},
		{"nothing, for a program that sends nothing", config.Opts{SkipSecrets: true}, "https://api.openai.com/v1", "", ""},
		{"bad address", config.Opts{Getenv: getenv("OPENAI_BASE_URL", "llm:8000")}, "", "", "is not"},
		{"address that tries to be YAML", config.Opts{Getenv: getenv("OPENAI_BASE_URL", "http://h/\"}\nx: y")}, "", "", "is not a URL"},
	} {
		cfg, err := config.Load("", c.o)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		k, ok := cfg.Kind("llm.chat")
		if !ok || k.Provider != "openai" {
			t.Fatalf("%s: kind %v", c.name, k)
		}
		p := cfg.Providers[k.Provider]
		secret, _ := p.APIKey.Get()
		if p.BaseURL.Reveal() != c.url || secret.Reveal() != c.key {
			t.Errorf("%s: got %s and %q, want %s and %q", c.name, p.BaseURL.Reveal(), secret.Reveal(), c.url, c.key)
		}
	}
}

func TestSigningSecrets(t *testing.T) {
	t.Parallel()
	const text = "providers: {p: {type: openai, base_url: \"https://a.example\"}}\ndestinations: {d: {url: \"https://d.example\", secret_env: S}}\nkinds: {k: {provider: p}}\n"
	for secret, wrong := range map[string]string{
		"whsec_Q0FOQVJZ": "", "whsec_Q0FOQVI=": "", "any text": "",
		"whsec_CANARY!": "not base64", "whsec_": "not base64", "": "is not set",
	} {
		_, err := config.Parse("f", []byte(text), config.Opts{Getenv: getenv("S", secret)})
		if (err == nil) != (wrong == "") || err != nil && (!strings.Contains(err.Error(), wrong) || holdsCanary(err.Error())) {
			t.Errorf("%q: got %v, want %q", secret, err, wrong)
		}
		if _, err := config.Parse("f", []byte(text), config.Opts{Getenv: getenv("S", secret), SkipSecrets: true}); err != nil {
			t.Errorf("%q, unread: %v", secret, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := parse(t, "providers:\n  p: {type: openai, base_url: \"https://a.example\"}\n  slow: {type: openai, base_url: \"https://a.example\", stream: false}\n"+
		"  svc: {type: httpcall, base_url: \"https://a.example\"}\n  known: {type: httpcall, base_url: \"https://a.example\", status: /jobs}\n"+
		"destinations: {d: {url: \"https://d.example\"}}\nkinds: {k: {provider: p}, slow: {provider: slow}, svc: {provider: svc}, known: {provider: known}}\n")
	k := c.Kinds["k"]
	got := []any{k.Output, k.MaxAttempts, k.MaxRuns, k.ReopenFailed, k.OnUnknown, k.OnCut, k.Dedupe.Mode, k.Deadline, k.Concurrency}
	want := []any{config.OutputResponse, 3, 3, true, config.UnknownRetry, config.CutRegenerate, config.DedupeKey, 24 * time.Hour, 0}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("kind: got -, want +:\n%s", diff)
	}
	if got := c.Kinds["svc"].OnUnknown; got != config.UnknownReview {
		t.Errorf("httpcall without status: got %s, want review", got)
	}
	if got := c.Kinds["known"].OnUnknown; got != config.UnknownRetry {
		t.Errorf("httpcall with status: got %s, want retry", got)
	}
	if got := []bool{c.Providers["p"].Stream, c.Providers["slow"].Stream, c.Providers["svc"].Stream}; !cmp.Equal(got, []bool{true, false, false}) {
		t.Errorf("stream: got %v", got)
	}
	if got, want := c.TimeoutsOf(k), (config.Timeouts{Connect: 5 * time.Second, FirstByte: 2 * time.Minute, Idle: time.Minute, Total: 10 * time.Minute}); got != want {
		t.Errorf("timeouts: got %v, want %v", got, want)
	}
	if got := c.TimeoutsOf(c.Kinds["slow"]).FirstByte; got != 10*time.Minute {
		t.Errorf("first_byte, not streamed: got %v, want 10m", got)
	}
	if got := c.Destinations["d"]; got.Repeat != config.RepeatUnsafe || got.AllowPrivate || got.Allows("any") {
		t.Errorf("destination: got %+v", got)
	}
	if got, want := c.Retention, (config.Retention{Tasks: 720 * time.Hour, Payload: 720 * time.Hour, Tombstones: 2160 * time.Hour, ClientSchedule: 24 * time.Hour, Compensation: 24 * time.Hour, ManualReplay: 72 * time.Hour}); got != want {
		t.Errorf("retention: got %v, want %v", got, want)
	}
	if got := c.PayloadRetentionOf(k); got != 720*time.Hour {
		t.Errorf("payload retention: got %v", got)
	}
}

func TestTimeoutsOverlay(t *testing.T) {
	t.Parallel()
	c := parse(t, "providers: {p: {type: openai, base_url: \"https://a.example\", timeouts: {first_byte: 3m, total: 20m}}}\n"+
		"kinds: {plain: {provider: p}, short: {provider: p, timeouts: {total: 30s}}, shorter: {provider: p, timeouts: {total: 2s}}, idle: {provider: p, timeouts: {idle: 5s}}}\n")
	for name, want := range map[string]config.Timeouts{
		"plain":   {Connect: 5 * time.Second, FirstByte: 3 * time.Minute, Idle: time.Minute, Total: 20 * time.Minute},
		"short":   {Connect: 5 * time.Second, FirstByte: 30 * time.Second, Idle: 30 * time.Second, Total: 30 * time.Second},
		"shorter": {Connect: 2 * time.Second, FirstByte: 2 * time.Second, Idle: 2 * time.Second, Total: 2 * time.Second},
		"idle":    {Connect: 5 * time.Second, FirstByte: 3 * time.Minute, Idle: 5 * time.Second, Total: 20 * time.Minute},
	} {
		if got := c.TimeoutsOf(c.Kinds[name]); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestRetentionOfKinds(t *testing.T) {
	t.Parallel()
	c := parse(t, "retention: {tasks: 1000h, payload: 500h}\nproviders: {p: {type: openai, base_url: \"https://a.example\"}}\n"+
		"kinds: {plain: {provider: p}, own: {provider: p, retention: 300h}, both: {provider: p, retention: 900h, payload_retention: 2h}}\n")
	for name, want := range map[string][2]time.Duration{
		"plain": {1000 * time.Hour, 500 * time.Hour}, "own": {300 * time.Hour, 300 * time.Hour}, "both": {900 * time.Hour, 2 * time.Hour},
	} {
		k := c.Kinds[name]
		if got := [2]time.Duration{c.RetentionOf(k), c.PayloadRetentionOf(k)}; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestDestinationTenants(t *testing.T) {
	t.Parallel()
	c := parse(t, "providers: {p: {type: openai, base_url: \"https://a.example\"}}\ndestinations: {some: {url: \"https://d.example\", tenants: [a, b]}, all: {url: \"https://d.example\", tenants: ['*']}}\nkinds: {k: {provider: p}}\n")
	for _, x := range []struct {
		dest, tenant string
		want         bool
	}{{"some", "a", true}, {"some", "c", false}, {"some", "*", false}, {"some", "", false}, {"all", "c", true}} {
		if got := c.Destinations[x.dest].Allows(x.tenant); got != x.want {
			t.Errorf("%s for %q: got %v, want %v", x.dest, x.tenant, got, x.want)
		}
	}
}

// TestRetentionSpan holds the sum of the start-up check in the numbers of its parts.
func TestRetentionSpan(t *testing.T) {
	t.Parallel()
	const head = "providers: {p: {type: openai, base_url: \"https://a.example\", timeouts: {connect: 1s, total: 1m}}}\ndestinations: {d: {url: \"https://d.example\"}}\n"
	c := parse(t, head+"kinds: {k: {provider: p, max_attempts: 8, effects: [{name: a, type: webhook, destination: d}]}}\n")
	parts, sum := c.Span(c.Kinds["k"])
	want := []config.Part{
		{Name: "client_schedule", Span: 24 * time.Hour},
		{Name: "8 attempts of connect and total timeout", Span: 8 * 61 * time.Second},
		{Name: "backoff between them", Span: (1 + 2 + 4 + 8 + 16 + 32 + 60) * time.Second},
		{Name: "waits while nothing can be sent", Span: 8 * (68200*time.Millisecond + 5*time.Second)},
		{Name: "effect schedule", Span: 63365*time.Second*12/10 + 8*28*time.Second},
		{Name: "compensation", Span: 24 * time.Hour},
		{Name: "manual_replay", Span: 72 * time.Hour},
	}
	if diff := cmp.Diff(parts, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	var total time.Duration
	for _, p := range want {
		total += p.Span
	}
	if sum != total {
		t.Errorf("got %v, want %v", sum, total)
	}
	// A retention of an hour is allowed where nobody retries for longer than 25 minutes, and not a minute more.
	short := func(schedule string) error {
		_, err := config.Parse("f", []byte(head+"retention: {tasks: 1h, client_schedule: "+schedule+", compensation: 1m, manual_replay: 1m}\nkinds: {k: {provider: p}}\n"), config.Opts{})
		return err
	}
	if err := short("20m"); err != nil {
		t.Errorf("a span of less than half an hour: %v", err)
	}
	if err := short("22m"); err == nil || !strings.Contains(err.Error(), "keep tasks at least twice as long, 2h") {
		t.Errorf("a span of more than half an hour: got %v", err)
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	c := parse(t, "providers: {p: {type: openai, base_url: \"https://a.example\", prices: {gpt-4.1: {input: \"2.00\", cached: 0.50, output: 8, reasoning: \"0.000000000001\"}}}}\nkinds: {k: {provider: p}, own: {provider: p, prices: {gpt-4.1: {input: 1}}}}\n")
	p, ok := c.PriceOf(c.Kinds["k"], "gpt-4.1")
	if !ok {
		t.Fatal("no price")
	}
	if own, ok := c.PriceOf(c.Kinds["own"], "gpt-4.1"); !ok || own.Input.String() != "1" || own.Output.String() != "0" {
		t.Errorf("a kind's own price: got %v, %v", own, ok)
	}
	if _, ok := c.PriceOf(c.Kinds["k"], "other"); ok {
		t.Error("a price of a model that has none")
	}
	got := []string{p.Input.String(), p.Cached.String(), p.Output.String(), p.Reasoning.String(), p.Input.Rat().String(), p.Reasoning.Rat().String(), config.Decimal{}.Rat().String()}
	want := []string{"2", "0.5", "8", "0.000000000001", "2/1", "1/1000000000000", "0/1"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

// TestSecretsAreNeverPrinted prints a configuration full of secrets in every way there is.
func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("CANARY-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "providers: {p: {type: openai, base_url: \"https://a.example/v1?key=CANARY\", api_key_file: key}}\n" +
		"destinations: {d: {url: \"https://d.example?token=CANARY\", secret_env: S, previous_secret_env: S}}\n" +
		"kinds: {k: {provider: p, effects: [{name: a, type: webhook, destination: d}]}}\n"
	path := filepath.Join(dir, "onefold.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, config.Opts{Getenv: getenv("S", "whsec_CANARY")})
	if err != nil {
		t.Fatal(err)
	}
	p, d, k := c.Providers["p"], c.Destinations["d"], c.Kinds["k"]
	if s, err := p.APIKey.Get(); err != nil || s.Reveal() != "CANARY-file" {
		t.Fatalf("a file beside the configuration: got %q, %v", s.Reveal(), err)
	}
	for _, v := range []any{c, *c, p, *p, d, *d, k, *k, p.BaseURL, &p.BaseURL, d.Secret, []any{*p, *d}, map[string]config.Provider{"a": *p}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			if got := fmt.Sprintf(verb, v); holdsCanary(got) {
				t.Errorf("%s of %T: %s", verb, v, got)
			}
		}
		if b, err := json.Marshal(v); err == nil && holdsCanary(string(b)) {
			t.Errorf("json of %T: %s", v, b)
		}
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
		slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
		telemetry.New(&b, nil).Info("x", "provider", v)
		if holdsCanary(b.String()) {
			t.Errorf("slog of %T: %s", v, b.String())
		}
	}
	if holdsCanary(string(k.Body())) {
		t.Errorf("the stored body: %s", k.Body())
	}
	if holdsCanary(c.At("providers.p.base_url", "x", "y").Error()) {
		t.Error("At quotes the file")
	}
}

func holdsCanary(s string) bool {
	return strings.Contains(s, "CANARY") || strings.Contains(strings.ToUpper(s), fmt.Sprintf("%X", "CANARY")) || strings.Contains(s, "67 65 78 65 82 89")
}
