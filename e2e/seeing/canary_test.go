package seeing

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

const leakConfig = `
providers:
  notfound: {type: openai, base_url: "UPSTREAM/notfound?key=CANARY-1"}
  nodns: {type: openai, base_url: "http://nosuch.invalid/v1?key=CANARY-1"}
  file: {type: openai, base_url: "UPSTREAM/good", api_key_file: "DIR/key"}
  refuses: {type: openai, base_url: "UPSTREAM/refuses"}
kinds:
  notfound: {provider: notfound, output: text, request: {model: m, messages: [{role: user, content: "{{.input.text}}"}]}, sample: {text: x}}
  nodns: {provider: nodns, output: text, request: {model: m, messages: [{role: user, content: "{{.input.text}}"}]}, sample: {text: x}}
  file: {provider: file, output: text, request: {model: m, messages: [{role: user, content: "{{.input.text}}"}]}, sample: {text: x}}
  refuses: {provider: refuses, output: text, request: {model: m, messages: [{role: user, content: "{{.input.text}}"}]}, sample: {text: x}}
`

// TestLogLeakCases plays the cases of log_leak: secrets planted in a provider's
// URL, a key file, an upstream's error and a caller's key stand in no log, metric,
// answer or table.
func TestLogLeakCases(t *testing.T) {
	t.Parallel()
	if n := len(casetest.Claimed(t, "e2e/seeing.TestLogLeakCases")); n != 4 {
		t.Fatalf("%d cases are claimed", n)
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasPrefix(r.URL.Path, "/refuses"):
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"Incorrect API key provided: sk-CANARY2****wxyz","code":"invalid_api_key"}}`))
		case strings.HasPrefix(r.URL.Path, "/good") && r.Header.Get("Authorization") == "Bearer sk-CANARY-0123456789":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"id\":\"1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(up.Close)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("sk-CANARY-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	traces := &spans{}
	collector := httptest.NewServer(traces)
	t.Cleanup(collector.Close)
	b := setup(t, &proc.Opts{
		Config: strings.NewReplacer("UPSTREAM", up.URL, "DIR", dir).Replace(leakConfig),
		Env:    []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=50"},
	})
	answers := ""
	for _, kind := range []string{"notfound", "nodns", "file", "refuses"} {
		req, _ := http.NewRequest(http.MethodPost, b.api.URL()+"/v1/tasks", strings.NewReader(`{"kind":"`+kind+`","input":{"text":"x"}}`))
		req.Header = http.Header{"Authorization": {"Bearer " + b.Key}, "Idempotency-Key": {"k"}, "Content-Type": {"application/json"}}
		resp, err := b.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	bad, _ := http.NewRequest(http.MethodGet, b.api.URL()+"/v1/tasks", nil)
	bad.Header.Set("Authorization", "Bearer of_CANARY3_CANARY-3")
	resp, err := b.http.Do(bad)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("a wrong key: %v, %v", resp, err)
	}
	resp.Body.Close()
	proc.Until(t, "all four were tried", func() bool {
		return b.Count(t, `SELECT count(DISTINCT task_id) FROM onefold.attempts WHERE closed_at IS NOT NULL`) == 4
	})
	if n := b.Count(t, `SELECT count(*) FROM onefold.tasks WHERE kind = 'file' AND state = 'succeeded'`); n != 1 {
		t.Error("a key file that ends with a newline does not work")
	}
	for _, kind := range []string{"notfound", "nodns", "file", "refuses"} {
		answers += b.cli("timeline", "k", "--kind", kind)
	}
	metrics := ""
	for _, p := range []*proc.Process{b.api, b.work} {
		for series := range b.scrape(p) {
			metrics += series + "\n"
		}
	}
	proc.Until(t, "the spans of all four calls came", func() bool { return traces.count("chat m") >= 4 })
	raw := traces.bytes()
	if !strings.Contains(raw, "notfound") { // what is looked through is what was sent
		t.Error("the spans do not name the kinds")
	}
	for where, text := range map[string]string{"the spans": raw, "the log of api": b.api.Log(), "the log of worker": b.work.Log(), "the metrics": metrics, "the answers": answers} {
		if i := strings.Index(text, "CANARY"); i >= 0 {
			t.Errorf("a secret in %s: %.200s", where, text[max(i-120, 0):])
		}
	}
	b.searchTables("CANARY")
}

// searchTables looks for a text in every row of every table, in bytes too.
func (b *bundle) searchTables(text string) {
	b.t.Helper()
	rows, err := b.Pool.Query(b.t.Context(), `SELECT tablename::text FROM pg_tables WHERE schemaname = 'onefold'`)
	if err != nil {
		b.t.Fatal(err)
	}
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			b.t.Fatal(err)
		}
		tables = append(tables, name)
	}
	for _, name := range tables {
		if n := b.Count(b.t, `SELECT count(*) FROM onefold.`+name+` AS r WHERE r::text LIKE '%' || $1::text || '%' OR r::text LIKE '%' || $2::text || '%'`,
			text, hex.EncodeToString([]byte(text))); n > 0 {
			b.t.Errorf("a secret in %d rows of %s", n, name)
		}
	}
}
