// Package casetest loads the cases of testdata/cases for tests.
//
// A case is a small input with the right answer, made from a failure that
// somebody reported in public. Tests range over a theme with [Theme] or ask for
// one case with [Get]; ledger.go says which test covers which case.
package casetest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A Case is one line of cases.json.
type Case struct {
	ID           string          `json:"id"`
	Theme        string          `json:"theme"`
	Kind         string          `json:"kind"`
	Report       string          `json:"report"` // row in reports.md
	Input        json.RawMessage `json:"input"`
	Expected     json.RawMessage `json:"expected"`
	PolicyChoice bool            `json:"policy_choice"` // another rule could be right too
	Source       string          `json:"source"`
}

// Type returns input.type: submit, upstream, scenario and so on.
func (c Case) Type() string {
	var input struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(c.Input, &input); err != nil {
		return ""
	}
	return input.Type
}

// Expect decodes the expected answer into v. It ignores what v has no field
// for, so that each test takes what it can judge.
func (c Case) Expect(tb testing.TB, v any) {
	tb.Helper()
	if err := json.Unmarshal(c.Expected, v); err != nil {
		tb.Fatalf("%s: decode expected: %v", c.ID, err)
	}
}

// All returns every case in the order of the file.
func All(tb testing.TB) []Case {
	tb.Helper()
	cases, err := load()
	if err != nil {
		tb.Fatal(err)
	}
	return cases
}

// Theme returns the cases of one theme in the order of the file, and fails the
// test when there are none.
func Theme(tb testing.TB, theme string) []Case {
	tb.Helper()
	var found []Case
	for _, c := range All(tb) {
		if c.Theme == theme {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		tb.Fatalf("no cases of theme %q", theme)
	}
	return found
}

// Get returns one case by its id.
func Get(tb testing.TB, id string) Case {
	tb.Helper()
	for _, c := range All(tb) {
		if c.ID == id {
			return c
		}
	}
	tb.Fatalf("no case %s", id)
	return Case{}
}

// Root returns the folder of the repository: the nearest one above the test's
// that holds testdata/cases.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "testdata", "cases", "cases.json")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("find the repository: no testdata/cases/cases.json above the working folder")
		}
		dir = up
	}
}

// load reads the file once a process; callers must not change what they get.
var load = sync.OnceValues(func() ([]Case, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(root, "testdata", "cases", "cases.json"))
	if err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	var cases []Case
	if err := json.Unmarshal(raw, &cases); err != nil {
		return nil, fmt.Errorf("decode cases: %w", err)
	}
	return cases, nil
})

// Text returns the bytes that a text in a case stands for: a plain string, or
// one of the generated forms gen and gen_nested. Null and absent give nil.
func Text(raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		var s string
		err := json.Unmarshal(raw, &s)
		return []byte(s), err
	}
	var form struct {
		Gen    *gen `json:"gen"`
		Nested *gen `json:"gen_nested"`
	}
	if err := decodeStrict(raw, &form); err != nil {
		return nil, fmt.Errorf("decode text form: %w", err)
	}
	switch {
	case form.Gen != nil && form.Nested == nil:
		g := form.Gen
		return []byte(g.Prefix + strings.Repeat(g.Unit, g.N) + g.Suffix), nil
	case form.Nested != nil && form.Gen == nil:
		g := form.Nested
		return []byte(g.Prefix + strings.Repeat(g.Open, g.N) + g.Leaf + strings.Repeat(g.Close, g.N) + g.Suffix), nil
	default:
		return nil, fmt.Errorf("a text form needs gen or gen_nested")
	}
}

type gen struct {
	Prefix string `json:"prefix"`
	Suffix string `json:"suffix"`
	N      int    `json:"n"`
	Unit   string `json:"unit"` // of gen
	Open   string `json:"open"` // of gen_nested
	Close  string `json:"close"`
	Leaf   string `json:"leaf"`
}

// decodeStrict refuses fields it does not know, so that a form nobody reads is
// noticed.
func decodeStrict(raw []byte, v any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// Base64 decodes a *_b64 field.
func Base64(s string) ([]byte, error) { return base64.StdEncoding.DecodeString(s) }
