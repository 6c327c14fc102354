package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
)

// TestDestinations holds, lists and releases what a worker has made known.
func TestDestinations(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	n := gate.Destination("crm")
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
		{"destinations release crm --reason mended", 0, "crm is open"},
		{"destinations list", 0, "crm   open"},
	} {
		var out bytes.Buffer
		env := func(name string) string {
			if name == "ONEFOLD_DATABASE_URL" {
				return db.URL()
			}
			return ""
		}
		if exit := run(t.Context(), strings.Fields(step.args), strings.NewReader(""), &out, &out, env); exit != step.exit || !strings.Contains(out.String(), step.says) {
			t.Errorf("%s: exit %d, want %d, and %q in\n%s", step.args, exit, step.exit, step.says, out.String())
		}
	}
	acts := 0
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM onefold.audit WHERE action IN ('gate.hold', 'gate.release')`).Scan(&acts); err != nil || acts != 2 {
		t.Errorf("%d acts in the audit, %v; want 2", acts, err)
	}
}
