package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a configuration file, and maxNodes what it may grow to through aliases.
const (
	maxFile  = 512 << 10
	maxNodes = 100_000
)

// yamlReader turns a YAML document into values. It refuses what makes YAML surprising (tags, merge keys, several
// documents, keys that are no text) rather than interpret it.
type yamlReader struct {
	*problems
	anchors map[string]ast.Node
	open    map[string]bool // anchors being expanded
	nodes   int
}

// readYAML parses src. A nil value means that nothing could be read; the problems say why.
func readYAML(p *problems) (v *value) {
	if !readable(p) {
		return nil
	}
	defer func() {
		if r := recover(); r != nil { // the parser of a third party, fed by hand-written files
			p.add(Pos{}, "", "the file cannot be read as YAML", "check indentation and quotes")
			v = nil
		}
	}()
	f, err := parser.ParseBytes(p.src, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p.addSyntax(err)
		return nil
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			p.add(posOf(doc.Body), "", "a second YAML document begins here", "keep one document in the file, without ---")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		p.add(Pos{Line: 1, Column: 1}, "", "the file is empty", "start with providers: and kinds:")
		return nil
	}
	r := &yamlReader{problems: p, anchors: map[string]ast.Node{}, open: map[string]bool{}}
	return r.read(body, "", 0)
}

func readable(p *problems) bool {
	switch {
	case len(p.src) > maxFile:
		p.add(Pos{}, "", fmt.Sprintf("the file has %d bytes, more than the %d that are read", len(p.src), maxFile), "check that this is the right file")
	case !utf8.Valid(p.src) || bytes.IndexByte(p.src, 0) >= 0:
		p.add(Pos{}, "", "the file is not UTF-8 text", "save it as UTF-8")
	case openBrackets(p.src) > maxBrackets:
		p.add(Pos{}, "", fmt.Sprintf("more than %d brackets are open at once", maxBrackets), "close brackets, or make the file simpler")
	default:
		p.src = bytes.TrimPrefix(p.src, []byte("\ufeff"))
		return true
	}
	return false
}

// maxBrackets keeps the parser, whose time grows with the square of the depth, from hanging. Brackets in texts count
// too, so it lies far above what maxDepth allows.
const maxBrackets = 10 * maxDepth

func openBrackets(src []byte) (most int) {
	open := 0
	for _, c := range src {
		switch c {
		case '[', '{':
			open++
			most = max(most, open)
		case ']', '}':
			open = max(open-1, 0)
		}
	}
	return most
}

func (p *problems) addSyntax(err error) {
	var se *yaml.SyntaxError
	if errors.As(err, &se) && se.Token != nil {
		p.add(tokenPos(se.Token), "", "not valid YAML: "+se.Message, "check indentation, quotes and brackets here and on the line before")
		return
	}
	p.add(Pos{}, "", "not valid YAML", "check indentation, quotes and brackets")
}

func tokenPos(t *token.Token) Pos {
	if t == nil || t.Position == nil {
		return Pos{}
	}
	return Pos{Line: t.Position.Line, Column: t.Position.Column}
}

func posOf(n ast.Node) Pos {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return posOf(n.Values[0].Key)
		}
		return tokenPos(n.Start)
	case *ast.MappingValueNode:
		return posOf(n.Key)
	}
	return tokenPos(n.GetToken())
}

// read turns n into a value. It returns nil after a problem.
func (r *yamlReader) read(n ast.Node, path string, depth int) *value {
	r.nodes++
	if depth > maxDepth || r.nodes > maxNodes {
		if r.nodes <= maxNodes+1 {
			r.add(posOf(n), path, "nested too deep or expanded too often", "make the file simpler")
		}
		return nil
	}
	pos := posOf(n)
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(n.Values, pos, path, depth)
	case *ast.MappingValueNode:
		return r.mapping([]*ast.MappingValueNode{n}, pos, path, depth)
	case *ast.SequenceNode:
		v := &value{t: tList, pos: pos}
		for i, item := range n.Values {
			if x := r.read(item, fmt.Sprintf("%s[%d]", path, i), depth+1); x != nil {
				v.items = append(v.items, x)
			}
		}
		return v
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		r.open[name] = true
		v := r.read(n.Value, path, depth+1)
		delete(r.open, name)
		r.anchors[name] = n.Value
		return v
	case *ast.AliasNode:
		return r.alias(n, path, depth)
	}
	return r.scalar(n, pos, path)
}

func (r *yamlReader) alias(n *ast.AliasNode, path string, depth int) *value {
	name := n.Value.GetToken().Value
	target, ok := r.anchors[name]
	if !ok || r.open[name] {
		r.add(posOf(n), path, fmt.Sprintf("alias *%s has no anchor before it", name), "define &"+name+" above this line")
		return nil
	}
	v := r.read(target, path, depth+1)
	if v != nil {
		v.pos = posOf(n)
	}
	return v
}

func (r *yamlReader) scalar(n ast.Node, pos Pos, path string) *value {
	switch n := n.(type) {
	case *ast.NullNode:
		return &value{t: tNull, pos: pos}
	case *ast.BoolNode:
		return &value{t: tBool, s: fmt.Sprint(n.Value), pos: pos}
	case *ast.IntegerNode:
		return r.number(n.Token, pos, path)
	case *ast.FloatNode:
		return r.number(n.Token, pos, path)
	case *ast.StringNode:
		if n.Token.Type == token.StringType && looksNumeric.MatchString(n.Value) {
			return r.number(n.Token, pos, path) // the parser takes 1e3 and what overflows a uint64 for texts
		}
		return &value{t: tString, s: n.Value, pos: pos}
	case *ast.LiteralNode:
		return &value{t: tString, s: n.Value.Value, pos: pos}
	case *ast.TagNode:
		r.add(pos, path, "YAML tags such as "+n.Start.Value+" are not supported", "remove the tag; put quotes around a text")
	case *ast.InfinityNode, *ast.NanNode:
		r.add(pos, path, n.GetToken().Value+" is not a number JSON can carry", "write an ordinary number")
	default:
		r.add(pos, path, "this kind of YAML is not supported here", "use mappings, lists and plain values")
	}
	return nil
}

// looksNumeric is what a plain scalar of YAML 1.2 is a number by.
var looksNumeric = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

func (r *yamlReader) number(t *token.Token, pos Pos, path string) *value {
	if !isJSONNumber(t.Value) {
		r.add(pos, path, fmt.Sprintf("%s is not a decimal number", clip(t.Value)), "write it as in JSON (0.5, 10, 1e3), or in quotes if it is a text")
		return nil
	}
	return &value{t: tNumber, s: t.Value, pos: pos}
}

func (r *yamlReader) mapping(values []*ast.MappingValueNode, pos Pos, path string, depth int) *value {
	v := object()
	v.pos = pos
	seen := map[string]Pos{}
	for _, mv := range values {
		name, ok := r.key(mv.Key, path)
		if !ok {
			continue
		}
		at := posOf(mv.Key)
		if first, twice := seen[name]; twice {
			r.add(at, join(path, name), fmt.Sprintf("%q is here twice, first on line %d", clip(name), first.Line), "remove one of the two")
			continue
		}
		seen[name] = at
		if x := r.read(mv.Value, join(path, name), depth+1); x != nil {
			v.fields = append(v.fields, field{name: name, pos: at, v: x})
		}
	}
	return v
}

func (r *yamlReader) key(k ast.MapKeyNode, path string) (string, bool) {
	if k.IsMergeKey() {
		r.add(posOf(k), path, "merge keys (<<) are not supported", "write the fields out, or alias the whole value")
		return "", false
	}
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true // "on" and "1" are names like any other
	}
	r.add(posOf(k), path, "this key is not a plain text", "use a plain name before the colon")
	return "", false
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// clip shortens text taken from a file for a message.
func clip(s string) string {
	rs := []rune(strings.ToValidUTF8(s, "\uFFFD"))
	if len(rs) > 60 {
		return string(rs[:57]) + "..."
	}
	return s
}
