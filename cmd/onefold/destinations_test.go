package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/seal"
	"github.com/onefold-dev/onefold/internal/store"
)

// TestDestinations holds, lists and releases what a worker has made known.
func TestDestinations(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	n, ring := gate.Destination("crm"), seal.NewKey("k")
	if err := store.EnsureGates(t.Context(), pool, []store.GateKey{n}, [][]byte{make([]byte, 32)}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args string
		exit int
		says string
	}{
		{"destinations list", 0, "crm   open"},
		{"destinations hold crm", 2, "--reason"},
		{"destinations hold crn --reason r", 2, `there is no destination "crn"`},
		{"destinations hold crm --reason duplicates", 0, "crm is held"},
		{"destinations list", 0, "duplicates"},
		{"destinations list -o json", 0, `"state":"held"`},
		{"destinations show crm", 0, "0 waiting, 0 delivering, 0 held, 0 unknown"},
		{"destinations show crn", 2, "there is no destination"},
		{"destinations put hook", 0, "its signing secret, shown this once: whsec_"},
		{"destinations put hook", 0, "hook is changed"},
		{"destinations show hook", 0, "https://93.184.216.34/in"},
		{"destinations rotate hook --reason yearly", 0, "the former ones sign, too, for 168h0m0s"},
		{"destinations rotate crm", 6, "no stored destination"},
		{"destinations rewrap", 0, "0 secrets and addresses"},
		{"destinations test hook --to a@b.example", 1, "Give it at a mail server"},
		{"destinations delete hook", 2, "--reason"},
		{"destinations delete hook --reason over", 0, "hook is deleted"},
		{"destinations key 2026", 0, "2026:"},
		{"destinations release crm --reason mended", 0, "crm is open"},
		{"destinations list", 0, "crm   open"},
	} {
		var out bytes.Buffer
		env := func(name string) string {
			return map[string]string{"ONEFOLD_DATABASE_URL": db.URL(), "ONEFOLD_SEAL_KEYS": ring}[name]
		}
		if exit := run(t.Context(), strings.Fields(step.args), strings.NewReader(`{"url":"https://93.184.216.34/in?token=s3cret"}`), &out, &out, env); exit != step.exit || !strings.Contains(out.String(), step.says) {
			t.Errorf("%s: exit %d, want %d, and %q in\n%s", step.args, exit, step.exit, step.says, out.String())
		}
	}
	acts := 0
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM onefold.audit WHERE action IN ('gate.hold', 'gate.release')`).Scan(&acts); err != nil || acts != 2 {
		t.Errorf("%d acts in the audit, %v; want 2", acts, err)
	}
}
