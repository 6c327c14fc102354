package casetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCopyIsUnchanged compares the copies with their origin where that stands
// beside the repository.
func TestCopyIsUnchanged(t *testing.T) {
	t.Parallel()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cases.json", "reports.md"} {
		origin, err := os.ReadFile(filepath.Join(root, "..", "shared", "cases", name))
		if errors.Is(err, fs.ErrNotExist) {
			t.Skip("the origin of the cases is not beside this repository")
		}
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(filepath.Join(root, "testdata", "cases", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(kept, origin) {
			t.Errorf("testdata/cases/%s is not byte for byte its origin", name)
		}
	}
}

// TestCasesAreWhole reads every case, so that a form nobody knows is noticed.
func TestCasesAreWhole(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range All(t) {
		if seen[c.ID] {
			t.Errorf("%s stands twice", c.ID)
		}
		seen[c.ID] = true
		if c.ID == "" || c.Theme == "" || c.Type() == "" || len(c.Expected) == 0 {
			t.Errorf("%s is not whole: %+v", c.ID, c)
		}
		if c.Type() == "submit" {
			submitIsWhole(t, c)
		}
		checkTexts(t, c)
	}
	if len(seen) < 200 {
		t.Errorf("only %d cases", len(seen))
	}
}

func submitIsWhole(t *testing.T, c Case) {
	submits := Submits(t, c)
	if len(submits) == 0 {
		t.Errorf("%s has no requests", c.ID)
	}
	for i, s := range submits {
		if len(s.Keys) == 0 || len(s.Input) == 0 {
			t.Errorf("%s: request %d has no key or no body", c.ID, i)
		}
	}
	var want SubmitAnswer
	if err := decodeStrict(c.Expected, &want); err != nil {
		t.Errorf("%s: expected: %v", c.ID, err)
	}
	if n := len(want.Statuses); n > 0 && n != len(submits) {
		t.Errorf("%s: %d statuses for %d requests", c.ID, n, len(submits))
	}
}

// checkTexts finds every generated text in a case, wherever it stands, and
// reads it; those of a gibibyte are only decoded.
func checkTexts(t *testing.T, c Case) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			form, isForm := v["gen"].(map[string]any)
			if !isForm {
				form, isForm = v["gen_nested"].(map[string]any)
			}
			if isForm {
				if form["n"].(float64) > 1<<20 {
					form["n"] = 3
				}
				raw, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				if text, err := Text(raw); err != nil || len(text) == 0 {
					t.Errorf("%s: %s: %d bytes, %v", c.ID, raw, len(text), err)
				}
				return
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	var input any
	if err := json.Unmarshal(c.Input, &input); err != nil {
		t.Fatal(err)
	}
	walk(input)
}

func TestText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"a\u0041"`: "aA",
		`{"gen":{"prefix":"<","unit":"ab","n":3,"suffix":">"}}`:                              "<ababab>",
		`{"gen_nested":{"prefix":"<","open":"[","leaf":"1","close":"]","n":2,"suffix":">"}}`: "<[[1]]>",
		`{"gen_nested":{"open":"{\"a\":","leaf":"1","close":"}","n":2}}`:                     `{"a":{"a":1}}`,
		"null": "",
	} {
		got, err := Text(json.RawMessage(raw))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{`{}`, `{"gen":{"n":1,"times":2}}`, `{"other":1}`, `{"gen":{},"gen_nested":{}}`, `1`} {
		if got, err := Text(json.RawMessage(raw)); err == nil {
			t.Errorf("%s: accepted as %q", raw, got)
		}
	}
}

func TestSubmits(t *testing.T) {
	t.Parallel()
	type short struct {
		Keys   []string
		Header string
		Body   string
	}
	read := func(id string) []short {
		var out []short
		for _, s := range Submits(t, Get(t, id)) {
			body := string(s.Body())
			out = append(out, short{s.Keys, s.HeaderName, body[:min(len(body), 40)]})
		}
		return out
	}
	const wrapped = `{"kind":"llm.chat","input":{"model":"m",`
	for id, want := range map[string][]short{
		"C001": {{[]string{""}, "Idempotency-Key", wrapped}},
		"C008": {{[]string{"caf\xe9"}, "Idempotency-Key", wrapped}},
		"C012": {{[]string{"same-1"}, "idempotency-key", wrapped}, {[]string{"same-1"}, "IDEMPOTENCY-KEY", wrapped}},
		"C014": {{[]string{"a", "b"}, "Idempotency-Key", wrapped}},
		"C021": {{[]string{"r2"}, "Idempotency-Key", `{"model":`}, {[]string{"r2"}, "Idempotency-Key", wrapped}},
		"C057": {{[]string{"f"}, "Idempotency-Key", "\ufeff" + `{"model":"m","messages":[{"role":"use`}},
		"C074": {{[]string{"d"}, "Idempotency-Key", `{"model":"m","x":` + strings.Repeat("[", 23)}},
	} {
		if diff := cmp.Diff(want, read(id)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	key := Submits(t, Get(t, "C006"))[0].Keys[0]
	if len(key) != 3000 || strings.Trim(key, "0123456789abcdef") != "" {
		t.Errorf("C006: %d bytes, not 3000 random hex digits", len(key))
	}
	if again := Submits(t, Get(t, "C006"))[0].Keys[0]; again == key {
		t.Error("C006: the same random key twice")
	}
}
