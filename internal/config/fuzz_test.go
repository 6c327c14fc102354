package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/config"
)

// FuzzParse feeds arbitrary files. Nothing panics, every problem has words, and a file that is accepted gives kinds
// that can be rebuilt from their bodies under the same hash.
func FuzzParse(f *testing.F) {
	f.Add(issueExample)
	files, _ := filepath.Glob("testdata/errors/*.yaml")
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil {
			f.Add(string(b))
		}
	}
	f.Add(file + "    request: {a: \"{{json .input}}\", b: [1, {c: \"{{range .input.x}}{{.}}{{end}}\"}]}\n    sample: {x: [1]}\n")
	f.Add("a: &a [*a]\n")
	f.Add(strings.Repeat("[", 300))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Parse("f.yaml", []byte(text), config.Opts{SkipSecrets: true})
		var es config.Errors
		if err != nil {
			if !errors.As(err, &es) || len(es) == 0 || c != nil {
				t.Fatalf("got %T %v", err, err)
			}
			for _, e := range es {
				if e.Message == "" || e.Fix == "" {
					t.Errorf("no words: %v", e)
				}
			}
			var b strings.Builder
			if err := es.Write(&b, true); err != nil {
				t.Error(err)
			}
			return
		}
		for name, k := range c.Kinds {
			again, err := config.KindFromBody(name, k.Body(), config.Opts{})
			if err != nil || again.Hash() != k.Hash() {
				t.Errorf("%s: rebuilt: %v\n%s", name, err, k.Body())
			}
			_, _ = k.Render(config.TemplateData{Input: []byte(`{"x":["a"]}`)})
			_, _ = k.RenderEffects("succeeded", config.TemplateData{Input: []byte(`{}`), Result: []byte(`1`)})
		}
	})
}

// FuzzResult feeds arbitrary messages. What is accepted as JSON is JSON.
func FuzzResult(f *testing.F) {
	for _, s := range []string{`{"a":1}`, "```json\n{\"a\": \"\\ud83d\"}\n```", "x ``` 1 ```", "[1e9999999]", "\xff\"\\u0000\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k := kindWith(t, "output: json")
		res, err := k.Result(config.Reply{Text: text})
		if err != nil {
			return
		}
		checkJSON(t, text, res)
	})
}
