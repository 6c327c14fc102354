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
