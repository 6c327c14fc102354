package config_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var built = config.Opts{
	ProviderTypes: map[string]bool{"openai": true}, EffectTypes: map[string]bool{"webhook": true, "sql": true}, Getenv: env,
}

// TestErrorListings compares every problem of a bad file, as a terminal shows them, with a golden file.
func TestErrorListings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/errors/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = config.Parse(filepath.Base(file), data, built)
			var es config.Errors
			if !errors.As(err, &es) {
				t.Fatalf("got %T %v, want Errors", err, err)
			}
			var b strings.Builder
			if err := es.Write(&b, false); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String()+es.Error(), "CANARY") {
				t.Errorf("a secret is shown:\n%s", b.String())
			}
			for _, e := range es {
				if e.Message == "" || e.Fix == "" {
					t.Errorf("%v: no message or no fix", e)
				}
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(b.String(), string(want)); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

func TestErrorsInColour(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("onefold.yaml", []byte("kinds: {k: {providr: p}}\n"), built)
	var es config.Errors
	if !errors.As(err, &es) {
		t.Fatalf("got %v", err)
	}
	var b strings.Builder
	if err := es.Write(&b, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\x1b[31m^\x1b[0m") {
		t.Errorf("no coloured mark in %q", b.String())
	}
	var one *config.Error
	if !errors.As(err, &one) || one.Line != 1 {
		t.Errorf("errors.As gives %v", one)
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("onefold.yaml", []byte(strings.Repeat("a: 1\n", 1000)), built)
	var es config.Errors
	if !errors.As(err, &es) || len(es) != 201 {
		t.Fatalf("got %d problems, want 201", len(es))
	}
	if got, want := es[200].Message, "there are 802 more problems"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"binary":                  {"\x00\x01", "is not UTF-8 text"},
		"latin-1":                 {"a: \xe9\n", "is not UTF-8 text"},
		"large":                   {strings.Repeat("# x\n", 200_000), "more than the 524288 that are read"},
		"brackets":                {strings.Repeat("[", 3000), "more than 2000 brackets are open"},
		"deep":                    {"a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), "nested too deep"},
		"laughs":                  {"a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n", "expanded too often"},
		"alias inside its anchor": {"a: &x 1\nb: &x [*x]\n", "b[0]: alias *x has no anchor before it"},
		"byte mark":               {"\ufeffproviders: 1\n", "providers: must be a mapping"},
		"crlf":                    {"providers:\r\n  a: {typ: x}\r\n", "2:7: providers.a.typ: unknown field"},
	} {
		_, err := config.Parse("f.yaml", []byte(c.text), built)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %.300v, want %q", name, err, c.want)
		}
	}
	_, err := config.Load("testdata/absent.yaml", built)
	var es config.Errors
	if !errors.As(err, &es) || !strings.Contains(err.Error(), "testdata/absent.yaml: cannot be read: no such file") {
		t.Errorf("got %v", err)
	}
}
