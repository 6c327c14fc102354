package onefold_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file.
type source struct {
	pkg  string // folder below the root, "" for the root
	name string // path below the root
	test bool
	file *ast.File
	fset *token.FileSet
}

// sources parses every Go file of the module, whatever its build tags, so that
// the rules also hold for builds nobody tried.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata" || ownModule(p)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(p))
		if pkg == "." {
			pkg = ""
		}
		all = append(all, source{pkg, p, strings.HasSuffix(p, "_test.go"), f, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go file found")
	}
	return all
}

func ownModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// imports lists a file's imports.
func (s source) imports() []string {
	var all []string
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err == nil {
			all = append(all, p)
		}
	}
	return all
}

// ours lists the packages of this module that a file imports, as folders.
func (s source) ours() []string {
	var all []string
	for _, p := range s.imports() {
		if p == module {
			all = append(all, "")
		} else if rest, ok := strings.CutPrefix(p, module+"/"); ok {
			all = append(all, rest)
		}
	}
	return all
}

func (s source) at(n ast.Node) string { return s.fset.Position(n.Pos()).String() }

// forEachUse calls f for each use of one of the names of an imported package.
func forEachUse(s source, imported string, names []string, f func(*ast.SelectorExpr)) {
	local := ""
	for _, i := range s.file.Imports {
		if i.Path.Value != strconv.Quote(imported) {
			continue
		}
		local = path.Base(imported)
		if i.Name != nil {
			local = i.Name.Name
		}
	}
	if local == "" {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
			f(sel)
		}
		return true
	})
}
