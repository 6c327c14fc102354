package casetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLedger: every case of the themes built so far is claimed by a test at the
// level its theme asks for, or stands in Later with a reason.
func TestLedger(t *testing.T) {
	t.Parallel()
	best := map[string]Level{}
	for _, claim := range Claims {
		for _, id := range claim.Cases {
			best[id] = max(best[id], claim.Level)
		}
	}
	themes := map[string]bool{}
	for _, c := range All(t) {
		themes[c.Theme] = true
		need, built := Built[c.Theme]
		reason, later := Later[c.ID]
		switch {
		case !built:
		case best[c.ID] < need && !later:
			t.Errorf("%s (%s, %s) is claimed by no test", c.ID, c.Theme, c.Kind)
		case best[c.ID] >= need && later:
			t.Errorf("%s is claimed; take it out of Later", c.ID)
		case later && reason == "":
			t.Errorf("%s stands in Later without a reason", c.ID)
		}
		delete(best, c.ID)
	}
	for id := range best {
		t.Errorf("%s is claimed but is no case", id)
	}
	for theme := range Built {
		if !themes[theme] {
			t.Errorf("%s is built but is no theme", theme)
		}
	}
	for id := range Later {
		Get(t, id)
	}
}

// TestClaimsNameTests: what the ledger names exists, and takes no case twice.
func TestClaimsNameTests(t *testing.T) {
	t.Parallel()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	type pair struct{ test, id string }
	seen := map[pair]bool{}
	for _, claim := range Claims {
		dot := strings.LastIndexByte(claim.Test, '.')
		if dot < 0 || !hasTest(t, filepath.Join(root, claim.Test[:dot]), claim.Test[dot+1:]) {
			t.Errorf("%s is no test", claim.Test)
		}
		if claim.Level != Part && claim.Level != Whole {
			t.Errorf("%s has no level", claim.Test)
		}
		for _, id := range claim.Cases {
			if seen[pair{claim.Test, id}] {
				t.Errorf("%s claims %s twice", claim.Test, id)
			}
			seen[pair{claim.Test, id}] = true
		}
	}
}

// hasTest reports whether a _test.go file in dir has a function of that name.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("parse %s: %v", entry.Name(), err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name && strings.HasPrefix(name, "Test") {
				return true
			}
		}
	}
	return false
}
