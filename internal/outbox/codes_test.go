package outbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/onefold-dev/onefold/api"
)

// A code that callers see without a line that says what it means would leave
// them alone with it.
func TestEveryCodeIsListed(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`(?m)^\s*(?:const )?Code[A-Z]\w*\s+= "([a-z_]+)"`)
	wire := regexp.MustCompile(`string\(api\.(Code\w+)\)`)
	constants := regexp.MustCompile(`(?m)^\s*(Code\w+)\s+Code = "([a-z_]+)"`)
	words := map[string]string{}
	src, err := os.ReadFile("../../api/codes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range constants.FindAllSubmatch(src, -1) {
		words[string(m[1])] = string(m[2])
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range append(files, more...) {
		if ok, _ := filepath.Match("*_test.go", filepath.Base(name)); ok {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range own.FindAllSubmatch(src, -1) {
			seen[string(m[1])] = true
		}
		for _, m := range wire.FindAllSubmatch(src, -1) {
			seen[words[string(m[1])]] = true
		}
	}
	if len(seen) < 20 {
		t.Fatalf("found %d codes only; does the test still read them?", len(seen))
	}
	for code := range seen {
		if _, ok := api.EffectCodes[api.Code(code)]; !ok {
			t.Errorf("%q is not in api.EffectCodes", code)
		}
	}
}
