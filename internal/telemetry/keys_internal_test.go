package telemetry

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestKeysInTheSourceAreListed looks through the whole module for attributes with a literal key and fails at one that
// is not on the list: it would be dropped in production, where nobody sees that it is missing.
func TestKeysInTheSourceAreListed(t *testing.T) {
	t.Parallel()
	fset, found := token.NewFileSet(), 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "tools" || name == "bench" || strings.HasPrefix(name, ".") && len(name) > 2) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return nil //nolint:nilerr // the compiler tells better
		}
		ast.Inspect(f, func(n ast.Node) bool {
			for _, key := range keysOf(n) {
				found++
				if !allowed[key.text] {
					t.Errorf("%s: the attribute %q is not in keys.go", fset.Position(key.pos), key.text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("found only %d attributes in the module", found)
	}
}

type key struct {
	text string
	pos  token.Pos
}

var (
	attrMakers = []string{"String", "Int", "Int64", "Uint64", "Float64", "Bool", "Duration", "Time", "Any"}
	logMethods = []string{"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"}
)

// keysOf returns the literal keys in slog.String("key", ...) and in log.Info("message", "key", value, ...).
func keysOf(n ast.Node) (out []key) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "slog" && slices.Contains(attrMakers, sel.Sel.Name) && len(call.Args) == 2 {
		return literal(call.Args[0])
	}
	if !slices.Contains(logMethods, sel.Sel.Name) {
		return nil
	}
	first := 1
	if strings.HasSuffix(sel.Sel.Name, "Context") {
		first = 2
	}
	for i := first; i+1 < len(call.Args); i += 2 {
		if _, isCall := call.Args[i].(*ast.CallExpr); isCall { // an Attr stands alone
			i--
			continue
		}
		out = append(out, literal(call.Args[i])...)
	}
	return out
}

func literal(e ast.Expr) []key {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return nil
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return nil
	}
	return []key{{text, lit.Pos()}}
}
