package api_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

var update = flag.Bool("update", false, "write docs/errors.md anew")

var classes = map[error]string{
	api.ErrInvalid: "ErrInvalid", api.ErrUnauthorized: "ErrUnauthorized", api.ErrForbidden: "ErrForbidden",
	api.ErrNotFound: "ErrNotFound", api.ErrExpired: "ErrExpired", api.ErrKeyReused: "ErrKeyReused",
	api.ErrConflict: "ErrConflict", api.ErrRateLimited: "ErrRateLimited", api.ErrUnavailable: "ErrUnavailable",
	api.ErrUnknown: "ErrUnknown", api.ErrFailed: "ErrFailed", api.ErrInternal: "ErrInternal",
}

const docHead = `# Errors

Made from the table in ` + "`api/codes.go`" + `; do not edit. Renew it with ` + "`go generate ./api`" + `.

A request that is not done is answered with ` + "`application/problem+json`" + `:

` + "```json" + `
{
  "code": "key_reused",
  "status": 422,
  "detail": "the key was used before with another payload",
  "fix": "Use a new key for a new intent, or send the payload of the first request; mismatch names the fields that differ.",
  "mismatch": ["input.messages[0].content"],
  "request_id": "0199..."
}
` + "```" + `

Decide by ` + "`code`" + `: it is stable, the texts are not. In Go every code has a class: ` + "`errors.Is(err, api.ErrNotFound)`" + `.
Sending the same request again with the same key is safe, whatever the error was: while the key is kept, it never makes a second task.
`

// TestErrorsDoc keeps docs/errors.md to the table.
func TestErrorsDoc(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "errors.md")
	want := errorsDoc()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/errors.md is stale; run: go generate ./api\n-got +want:\n%s", diff)
	}
}

func errorsDoc() string {
	var requests, clients, tasks []api.Code
	for code, row := range api.Codes {
		switch {
		case row.Status != 0:
			requests = append(requests, code)
		case row.Class == api.ErrUnavailable:
			clients = append(clients, code)
		default:
			tasks = append(tasks, code)
		}
	}
	var b strings.Builder
	b.WriteString(docHead)
	section(&b, "Answers to a request", "", requests, true)
	section(&b, "Made by the client", "No server sent these: there was no answer, or not in time.", clients, false)
	section(&b, "Of a task", "These stand in a task's `error.code`; reading such a task is answered with 200.", tasks, false)
	b.WriteString("\n## Of an effect\n\nThese stand in an effect's `error.code`.\n\n| code | meaning | what to do |\n|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(api.EffectCodes)) {
		row := api.EffectCodes[code]
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", code, cell(row.Meaning), cell(row.Fix))
	}
	b.WriteString("\n## Of an attempt\n\nWhat stands in an attempt's `code` is in [failures.md](failures.md).\n")
	return b.String()
}

func section(b *strings.Builder, title, text string, codes []api.Code, status bool) {
	slices.SortFunc(codes, func(x, y api.Code) int {
		if d := api.Codes[x].Status - api.Codes[y].Status; d != 0 {
			return d
		}
		return strings.Compare(string(x), string(y))
	})
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if text != "" {
		fmt.Fprintf(b, "%s\n\n", text)
	}
	if status {
		b.WriteString("| status | code | class | meaning | what to do |\n|---|---|---|---|---|\n")
	} else {
		b.WriteString("| code | class | meaning | what to do |\n|---|---|---|---|\n")
	}
	for _, code := range codes {
		row := api.Codes[code]
		if status {
			fmt.Fprintf(b, "| %d ", row.Status)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", code, classes[row.Class], cell(row.Meaning), cell(row.Fix))
	}
}

func cell(s string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s) }

// TestEveryCodeIsInTheTable reads the constants from the source, for Go cannot
// list them: a code without a row would be answered without status or fix.
func TestEveryCodeIsInTheTable(t *testing.T) {
	t.Parallel()
	declared := declaredCodes(t)
	if len(declared) < 40 {
		t.Fatalf("found only %d constants of type Code; does the test still read them?", len(declared))
	}
	for name, code := range declared {
		if _, ok := api.Codes[code]; !ok {
			t.Errorf("%s = %q is not in the table Codes", name, code)
		}
	}
	values := slices.Sorted(maps.Values(declared))
	if n := len(slices.Compact(values)); n != len(declared) {
		t.Errorf("%d constants share %d values", len(declared), n)
	}
	for code, row := range api.Codes {
		if !slices.Contains(values, code) {
			t.Errorf("%q is in the table but has no constant", code)
		}
		if classes[row.Class] == "" {
			t.Errorf("%s: its class %v is not one that callers know", code, row.Class)
		}
		for name, s := range map[string]string{"meaning": row.Meaning, "fix": row.Fix} {
			if !strings.HasSuffix(s, ".") {
				t.Errorf("%s: its %s %q is no sentence", code, name, s)
			}
		}
		if row.Status != 0 && (row.Status < 400 || row.Status > 599) {
			t.Errorf("%s: status %d", code, row.Status)
		}
	}
}

func declaredCodes(t *testing.T) map[string]api.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]api.Code{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
				continue
			}
			s, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes[v.Names[0].Name] = api.Code(s)
		}
	}
	return codes
}
