package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

const metricsHead = `# Metrics

Made from the declarations in the code; do not edit. Renew it with ` + "`go generate ./cmd/onefold`" + `.

Both daemons serve ` + "`/metrics`" + ` on their admin listener (` + "`--admin-addr`" + `, ` + "`ONEFOLD_ADMIN_ADDR`" + `), which belongs on an address that only
operators reach. Counters and histograms are each process's own: sum them over instances. A process that dies between a commit and
its count loses that one count; the database is the truth. What stands in the database (queue depth, outbox, review, gates, Postgres
itself) is read every 10 s by one worker that an election picks, and shown by that one alone: ` + "`max by (...)`" + ` over instances is right at
any time, and ` + "`onefold_gauges_read_timestamp_seconds`" + ` says how old it is.

Labels take their values from the configuration or from lists in the code: there are no tenants, keys, ids or models among them.

| name | type | labels | meaning |
|---|---|---|---|
`

// TestMetricsDoc keeps docs/metrics.md to what the programs declare.
func TestMetricsDoc(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "metrics.md")
	var b strings.Builder
	b.WriteString(metricsHead)
	if err := telemetry.WriteMetricsDoc(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), b.String()); diff != "" {
		t.Errorf("docs/metrics.md is stale; run: go generate ./cmd/onefold\n-got +want:\n%s", diff)
	}
}
