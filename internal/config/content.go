package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

// tree is a value whose texts are templates. Only texts are rendered: names, numbers and structure come from the file,
// so nothing in the data can change the shape of what is sent.
type tree struct {
	v      *value // a value without texts below it
	leaf   *leaf
	items  []*tree
	names  []string
	fields []*tree
}

func (d *decoder) compileTree(v *value, path string, roots []string) *tree {
	switch v.t {
	case tString:
		l := d.compileLeaf(v, path, modePlain, roots)
		if l == nil {
			return &tree{v: v}
		}
		return &tree{v: v, leaf: l}
	case tList:
		t := &tree{v: v, items: []*tree{}}
		for i, item := range v.items {
			t.items = append(t.items, d.compileTree(item, fmt.Sprintf("%s[%d]", path, i), roots))
		}
		return t
	case tObject:
		t := &tree{v: v}
		for _, f := range v.fields {
			if d.from != fromAnswer && strings.Contains(f.name, "{{") {
				d.add(f.pos, join(path, f.name), "a name cannot be a template", "only values are rendered")
			}
			t.names = append(t.names, f.name)
			t.fields = append(t.fields, d.compileTree(f.v, join(path, f.name), roots))
		}
		return t
	}
	return &tree{v: v}
}

// leaves calls f with every compiled text.
func (t *tree) leaves(f func(*leaf)) {
	if t.leaf != nil {
		f(t.leaf)
	}
	for _, x := range slices.Concat(t.items, t.fields) {
		x.leaves(f)
	}
}

func (t *tree) append(dst []byte, s *scope) ([]byte, error) {
	var err error
	switch {
	case t.leaf != nil:
		if dst, err = t.leaf.appendJSON(dst, s); len(dst) > s.limit() {
			return nil, problem("gives more than %d bytes", s.limit())
		}
		return dst, err
	case t.v.t == tList:
		dst = append(dst, '[')
		for i, item := range t.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = item.append(dst, s); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case t.v.t == tObject:
		dst = append(dst, '{')
		for i, f := range t.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, t.names[i]), ':')
			if dst, err = f.append(dst, s); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	}
	return t.v.appendJSON(dst), nil
}

// appendJSON appends the rendered text as a JSON string, or the value of a text that is just {{json ...}}.
func (l *leaf) appendJSON(dst []byte, s *scope) ([]byte, error) {
	if l.from != nil && l.value {
		if raw, ok := s.raw(l.from); ok {
			return append(dst, raw...), nil
		}
	}
	data, err := s.data()
	if err != nil {
		return nil, err
	}
	text, err := l.executeMax(data, s.limit())
	if err != nil {
		return nil, err
	}
	if l.value {
		return append(dst, text...), nil
	}
	return appendString(dst, text), nil
}

// content is a body: a tree, or a text that is JSON or something else.
type content struct {
	tree *tree
	leaf *leaf
	json bool
}

func (d *decoder) compileContent(v *value, path string, isJSON bool, roots []string) *content {
	if v.t == tString {
		m := modePlain
		if isJSON {
			m = modeJSON
		}
		l := d.compileLeaf(v, path, m, roots)
		if l == nil {
			return nil
		}
		c := &content{leaf: l, json: isJSON}
		if isJSON {
			if err := l.looksLikeJSON(); err != nil {
				d.add(v.pos, path, "does not give JSON: "+jsonMessage(err), "write JSON, or set another Content-Type under headers")
			}
		}
		return c
	}
	if !isJSON {
		d.wrongType(v, path, tString)
		return nil
	}
	return &content{tree: d.compileTree(v, path, roots), json: true}
}

// looksLikeJSON tries the text with a stand-in for each printed value. A text with if or range in it is left for the
// sample.
func (l *leaf) looksLikeJSON() error {
	out := &output{}
	text := l.text
	if l.t != nil {
		for _, n := range l.t.Root.Nodes {
			switch n := n.(type) {
			case *parse.TextNode:
				_, _ = out.Write(n.Text)
			case *parse.ActionNode:
				if len(n.Pipe.Decl) == 0 && !out.inString {
					_, _ = out.Write([]byte("0"))
				}
			default:
				return nil
			}
		}
		text = out.b.String()
	}
	_, err := parseJSON([]byte(text))
	return err
}

func (c *content) leaves(f func(*leaf)) {
	switch {
	case c == nil:
	case c.tree != nil:
		c.tree.leaves(f)
	default:
		f(c.leaf)
	}
}

func (c *content) render(s *scope) ([]byte, error) {
	if c.tree != nil {
		return c.tree.append(nil, s)
	}
	data, err := s.data()
	if err != nil {
		return nil, err
	}
	text, err := c.leaf.executeMax(data, s.limit())
	if err != nil {
		return nil, err
	}
	if c.json {
		if _, err := parseJSON([]byte(text)); err != nil {
			return nil, &renderError{msg: "what was rendered is not JSON: " + jsonMessage(err), leaf: c.leaf}
		}
	}
	return []byte(text), nil
}

// scope is the data of one rendering, parsed when first asked for.
type scope struct {
	d      TemplateData
	effect *RenderedEffect // being rendered: then result, outcome and error exist
	doc    json.RawMessage // a source's event, which is then the whole data
	parsed map[string]any
	// max bounds what one effect may render to, in bytes; 0 is maxRendered.
	max int
}

// own makes r the effect whose templates are rendered next.
func (s *scope) own(r *RenderedEffect) {
	s.effect = r
	if s.parsed != nil {
		s.parsed["effect"] = r.own()
	}
}

func (r *RenderedEffect) own() map[string]any {
	return map[string]any{"id": r.ID.String(), "name": r.Name}
}

func (s *scope) limit() int {
	if s.max > 0 {
		return s.max
	}
	return maxRendered
}

// data is what templates see.
func (s *scope) data() (map[string]any, error) {
	if s.parsed != nil {
		return s.parsed, nil
	}
	if s.doc != nil {
		v, err := decodeAny(s.doc)
		m, ok := v.(map[string]any)
		if err != nil || !ok {
			return nil, problem("the event is not a JSON object")
		}
		s.parsed = m
		return m, nil
	}
	input, err := decodeAny(s.d.Input)
	if err != nil {
		return nil, problem("the input is not JSON")
	}
	t := s.d.Task
	m := map[string]any{
		"input": input,
		"task":  map[string]any{"id": t.ID, "key": t.Key, "kind": t.Kind, "tenant": t.Tenant, "run": t.Run},
	}
	if s.effect != nil {
		m["effect"] = s.effect.own()
		m["outcome"] = s.d.Outcome
		m["result"] = s.result()
		m["error"] = nil
		if e := s.d.Error; e != nil {
			m["error"] = map[string]any{"code": e.Code, "message": e.Message}
		}
	}
	s.parsed = m
	return m, nil
}

// result is the parsed result, or its text when it is no JSON, or nil when there is none.
func (s *scope) result() any {
	if len(s.d.Result) == 0 {
		return nil
	}
	v, err := decodeAny(s.d.Result)
	if err != nil {
		return strings.ToValidUTF8(string(s.d.Result), "\uFFFD")
	}
	return v
}

// decodeAny parses data into maps, lists, strings and json.Number.
func decodeAny(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("parse JSON: %w", err)
	}
	if dec.More() {
		return nil, fmt.Errorf("parse JSON: more than one value")
	}
	return v, nil
}

// raw returns the bytes of the field at path as they were submitted: digits, order and spacing kept.
func (s *scope) raw(path []string) (json.RawMessage, bool) {
	var v json.RawMessage
	rest := path[1:]
	switch {
	case s.doc != nil:
		v, rest = s.doc, path
	case path[0] == "input":
		v = s.d.Input
	case path[0] == "result" && s.effect != nil && len(s.d.Result) > 0:
		v = s.d.Result
	default:
		return nil, false
	}
	for _, name := range rest {
		var m map[string]json.RawMessage
		if json.Unmarshal(v, &m) != nil {
			return nil, false
		}
		next, ok := m[name]
		if !ok {
			return nil, false
		}
		v = next
	}
	return bytes.TrimSpace(v), json.Valid(v)
}

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
