package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

const canary = "CANARY"

// lines decodes what a logger wrote, without the time.
func lines(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, text := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if text == "" {
			continue
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		delete(m, "time")
		out = append(out, m)
	}
	return out
}

func TestOnlyListedAttributesAreWritten(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	var dropped []string
	l := telemetry.New(&b, &telemetry.Opts{Instance: "w1", Keys: []string{"extra"}, OnDropped: func(k string) { dropped = append(dropped, k) }})
	before := telemetry.Dropped()
	ctx := telemetry.With(t.Context(), slog.String("task_id", "t1"), slog.Int("run", 1))
	ctx = telemetry.With(ctx, slog.Int("run", 2))
	l.With(slog.String("tenant", "a"), slog.String("prompt", canary)).WithGroup("g").InfoContext(ctx, "attempt",
		slog.String("input", canary), slog.Any("state", map[string]string{"x": canary}), slog.Any("code", []byte(canary)),
		slog.Group("more", slog.String("kind", "k"), slog.String("output", canary)), slog.Int("extra", 3),
		slog.Any("reason", struct{ X string }{canary}))
	if got := strings.Count(b.String(), `"run":`); got != 1 {
		t.Errorf("run stands in the line %d times, want once", got)
	}
	want := []map[string]any{{
		"level": "INFO", "msg": "attempt", "instance": "w1", "tenant": "a", "task_id": "t1", "run": 2.0, "kind": "k", "extra": 3.0,
	}}
	if diff := cmp.Diff(lines(t, &b), want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	if diff := cmp.Diff(dropped, []string{"prompt", "input", "state", "code", "output", "reason"}); diff != "" {
		t.Errorf("dropped: got -, want +:\n%s", diff)
	}
	if got := telemetry.Dropped() - before; got < 6 {
		t.Errorf("got %d counted as dropped, want at least 6", got)
	}
}

type recorder struct{ failed []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

func TestForTestFailsAndForeignDoesNot(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := &recorder{}
	l := telemetry.ForTest(r, &b)
	l.Debug("fine", "task_id", "x")
	telemetry.Foreign(l, "river").Info("job", "anything", 1)
	if len(r.failed) != 0 {
		t.Fatalf("failed without cause: %v", r.failed)
	}
	l.Info("request", "body", "x")
	if len(r.failed) != 1 || !strings.Contains(r.failed[0], `"body"`) {
		t.Errorf("got %q, want one failure about body", r.failed)
	}
	if got := lines(t, &b)[1]["component"]; got != "river" {
		t.Errorf("got component %v, want river", got)
	}
}

func TestValuesArePlainAndScrubbed(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := telemetry.ForTest(t, &b)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	l.Info("x", "url", "https://u:CANARY@h/p?key=CANARY#CANARY", "error", errors.New("Bearer CANARY123 was wrong"),
		"duration_ms", 1500*time.Microsecond, "lease_ms", 2*time.Second, "run_at", at, "token", telemetry.NewSecret(canary),
		"task_id", "a\nb\x00\xff", "items", []string{"a", "b"})
	got := lines(t, &b)[0]
	want := map[string]any{
		"level": "INFO", "msg": "x", "url": "https://h/p", "error": "Bearer [redacted] was wrong", "duration_ms": 1.5, "lease_ms": 2000.0,
		"run_at": "2026-01-02T02:04:05Z", "token": "[redacted]", "task_id": "a b\uFFFD", "items": []any{"a", "b"},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("more than one line: %q", b.String())
	}
}

func TestLineIsWrittenOnce(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	line := telemetry.NewLine(telemetry.ForTest(t, &b), telemetry.MsgAttempt, slog.String("kind", "k"))
	ctx := telemetry.WithLine(telemetry.With(t.Context(), slog.String("tenant", "a")), line)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			telemetry.LineFrom(ctx).Add(slog.String("state", "succeeded"))
			telemetry.LineFrom(ctx).Fail(nil)
		})
	}
	wg.Wait()
	line.Fail(errors.New("boom"))
	line.Emit(ctx)
	line.Add(slog.String("state", "late"))
	line.Emit(ctx)
	got := lines(t, &b)
	if len(got) != 1 {
		t.Fatalf("got %d lines, want 1", len(got))
	}
	if _, ok := got[0]["duration_ms"].(float64); !ok {
		t.Errorf("no duration_ms in %v", got[0])
	}
	delete(got[0], "duration_ms")
	want := map[string]any{"level": "ERROR", "msg": "attempt", "tenant": "a", "kind": "k", "state": "succeeded", "error": "boom"}
	if diff := cmp.Diff(got[0], want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	none := telemetry.LineFrom(context.Background())
	none.Add(slog.String("state", "x"))
	none.Fail(errors.New("x"))
	none.Emit(ctx) // must not panic
}

func TestFromCarriesTheAttributes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	ctx := telemetry.WithLogger(t.Context(), telemetry.ForTest(t, &b))
	telemetry.From(telemetry.With(ctx, slog.String("kind", "k"))).Info("x")
	telemetry.From(context.Background()).Info("nowhere")
	if diff := cmp.Diff(lines(t, &b), []map[string]any{{"level": "INFO", "msg": "x", "kind": "k"}}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := telemetry.NewSecret(canary)
	src := telemetry.SecretFromEnv("NAME", func(string) string { return canary })
	if _, err := src.Get(); err != nil {
		t.Fatal(err)
	}
	type holder struct {
		S       telemetry.Secret
		P       *telemetry.Secret
		Src     *telemetry.SecretSource
		private telemetry.Secret
		m       map[string]telemetry.Secret
	}
	h := holder{S: s, P: &s, Src: src, private: s, m: map[string]telemetry.Secret{"a": s}}
	for _, v := range []any{s, &s, h, &h, []any{h}, src, *new(telemetry.Secret), map[telemetry.Secret]int{s: 1}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%10.2v"} {
			if got := fmt.Sprintf(verb, v); leaks(got) {
				t.Errorf("%s of %T gives %s", verb, v, got)
			}
		}
		if b, err := json.Marshal(v); err == nil && leaks(string(b)) {
			t.Errorf("json of %T gives %s", v, b)
		}
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
		slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
		if leaks(b.String()) {
			t.Errorf("slog of %T gives %s", v, b.String())
		}
	}
	if err := fmt.Errorf("with %v", s); leaks(err.Error()) {
		t.Error(err)
	}
	if got := s.Reveal(); got != canary {
		t.Errorf("got %q, want the text", got)
	}
	if !s.Equal(telemetry.NewSecret(canary)) || s.Equal(telemetry.NewSecret("CANARX")) || s.Equal(telemetry.Secret{}) {
		t.Error("Equal does not compare the texts")
	}
}

// leaks reports whether text holds the canary, plain or in the usual disguises.
func leaks(text string) bool {
	hexed := fmt.Sprintf("%x", canary)
	return strings.Contains(text, canary) || strings.Contains(strings.ToLower(text), hexed) || strings.Contains(text, "67 65 78")
}

func TestSecretFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	src := telemetry.SecretFromFile(path)
	if _, err := src.Get(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("absent file: got %v", err)
	}
	for _, c := range []struct{ name, content, want, wrong string }{
		{"newline at the end", "sk-1\n", "sk-1", ""},
		{"windows", "\xef\xbb\xbfsk-2\r\n\r\n", "sk-2", ""},
		{"spaces belong to it", " a b ", " a b ", ""},
		{"rotated, same size", " a c ", " a c ", ""},
	} {
		write(t, path, c.content)
		got, err := src.Get()
		if err != nil || got.Reveal() != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got.Reveal(), err, c.want)
		}
	}
	// What cannot be used leaves the last good value, and Err tells.
	for _, bad := range []string{"", "\n", "two\nlines", "nul\x00", "\xff\xfe", strings.Repeat("x", 70_000)} {
		write(t, path, bad)
		got, err := src.Get()
		if err != nil || got.Reveal() != " a c " || src.Err() == nil {
			t.Errorf("%.10q: got %q, %v, Err %v", bad, got.Reveal(), err, src.Err())
		}
		if _, err := telemetry.SecretFromFile(path).Get(); err == nil {
			t.Errorf("%.10q: a first read succeeded", bad)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := src.Get(); err != nil || got.Reveal() != " a c " {
		t.Errorf("removed: got %q, %v", got.Reveal(), err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSecretEnv(t *testing.T) {
	t.Parallel()
	var nothing *telemetry.SecretSource
	if s, err := nothing.Get(); err != nil || !s.Empty() {
		t.Errorf("nil source: got %v, %v", s.Reveal(), err)
	}
	_, err := telemetry.SecretFromEnv("OPENAI_API_KEY", func(string) string { return "" }).Get()
	if err == nil || err.Error() != "environment variable OPENAI_API_KEY is not set" {
		t.Errorf("got %v", err)
	}
	if s, _ := telemetry.SecretFromValue(telemetry.NewSecret("x")).Get(); s.Reveal() != "x" {
		t.Errorf("got %q, want x", s.Reveal())
	}
}
