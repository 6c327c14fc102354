package migrations_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/pg"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

var update = flag.Bool("update", false, "write docs/schema.sql anew")

const schemaHead = `-- The schema as all migrations leave it, for readers: River's tables and ours. Made by pg_dump; do not edit.
-- Renew it with: go generate ./migrations
`

// TestSchemaDoc keeps docs/schema.sql to what the migrations make.
func TestSchemaDoc(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "schema.sql")
	want := schemaHead + dump(t, pgtest.New(t))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(got), "\n"), strings.Split(want, "\n")); diff != "" {
		t.Errorf("docs/schema.sql is stale; run: go generate ./migrations\n-got +want:\n%s", diff)
	}
}

// dump is the schema of a database as pg_dump writes it, less what differs
// between versions of Postgres and between machines.
func dump(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), pgDump(t), "--schema-only", "--schema=onefold", "--no-owner", "--no-privileges", "--dbname", db.URL())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if strings.Contains(stderr.String(), "server version mismatch") {
		t.Skipf("the server is newer than the pg_dump here:\n%s", stderr.String())
	}
	if err != nil {
		t.Fatalf("dump the schema: %v\n%s", err, stderr.String())
	}
	return normal(string(out))
}

// pgDump is the program that came with the newest server here, which can read
// older servers, too.
func pgDump(t *testing.T) string {
	t.Helper()
	if dir, _, err := pg.Find(); err == nil {
		if p := filepath.Join(dir, "pg_dump"); exec.Command(p, "--version").Run() == nil {
			return p
		}
	}
	p, err := exec.LookPath("pg_dump")
	if err != nil {
		t.Skip("there is no pg_dump here: install the Postgres client programs")
	}
	return p
}

var (
	// What a dump says to a session, and to a reader about itself.
	sessionLines = regexp.MustCompile(`(?m)^(--.*|SET .*;|SELECT pg_catalog\.set_config\(.*|\\(un)?restrict .*)\n`)
	blankLines   = regexp.MustCompile(`\n{3,}`)
)

func normal(dump string) string {
	s := sessionLines.ReplaceAllString(strings.ReplaceAll(dump, "\r\n", "\n"), "")
	return "\n" + strings.TrimSpace(blankLines.ReplaceAllString(s, "\n\n")) + "\n"
}

// A newer pg_dump says more about itself; the schema it writes is the same.
func TestNormal(t *testing.T) {
	t.Parallel()
	newer := "--\n-- PostgreSQL database dump\n--\n\n\\restrict k3Y\n\n-- Dumped from database version 18.1\n\nSET statement_timeout = 0;\n" +
		"SET transaction_timeout = 0;\nSELECT pg_catalog.set_config('search_path', '', false);\n\n--\n-- Name: onefold; Type: SCHEMA\n--\n\n" +
		"CREATE SCHEMA onefold;\n\n\nSET default_table_access_method = heap;\n\nCREATE TABLE onefold.a (\n    b text -- c\n);\n\n\n\\unrestrict k3Y\n\n"
	want := "\nCREATE SCHEMA onefold;\n\nCREATE TABLE onefold.a (\n    b text -- c\n);\n"
	if diff := cmp.Diff(normal(newer), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}
