package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// spec is openapi.yaml as it is served.
type spec struct {
	doc  map[string]any
	seen map[string]bool // operation and status, as "GET /v1/tasks 200"
}

func readSpec(t *testing.T, b *bundle) *spec {
	t.Helper()
	r := b.do(t, call{method: "GET", path: "/openapi.yaml", key: "-"})
	var doc any
	if err := yaml.Unmarshal(r.body, &doc); err != nil {
		t.Fatalf("openapi.yaml is not YAML: %v", err)
	}
	// Through JSON, so that numbers and maps are of one sort.
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	s := &spec{seen: map[string]bool{}}
	if err := json.Unmarshal(text, &s.doc); err != nil {
		t.Fatal(err)
	}
	return s
}

// at walks down the document; nil where there is nothing.
func (s *spec) at(path ...string) any {
	var v any = s.doc
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// responses are all declared answers, as "GET /v1/tasks 200".
func (s *spec) responses() []string {
	var out []string
	for path, item := range s.doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			for status := range op.(map[string]any)["responses"].(map[string]any) {
				out = append(out, strings.ToUpper(method)+" "+path+" "+status)
			}
		}
	}
	slices.Sort(out)
	return out
}

// check checks one answer of the route with that path against the document.
func (s *spec) check(t *testing.T, method, route string, r reply) {
	t.Helper()
	name := fmt.Sprintf("%s %s %d", method, route, r.status)
	s.seen[name] = true
	declared, ok := s.at("paths", route, strings.ToLower(method), "responses", fmt.Sprint(r.status)).(map[string]any)
	if !ok {
		t.Errorf("%s is not declared: %s", name, r.body)
		return
	}
	for header := range declared["headers"].(map[string]any) {
		if header == "Request-Id" && r.header.Get(header) == "" {
			t.Errorf("%s: no %s", name, header)
		}
	}
	for header := range r.header {
		if describedHeaders[header] && declared["headers"].(map[string]any)[canonical(header)] == nil {
			t.Errorf("%s: the header %s is not declared", name, header)
		}
	}
	content, _ := declared["content"].(map[string]any)
	if content == nil {
		if len(r.body) > 0 {
			t.Errorf("%s: a body where none is declared: %s", name, r.body)
		}
		return
	}
	media, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	m, ok := content[media].(map[string]any)
	if !ok {
		t.Errorf("%s: the media type %q is not declared", name, media)
		return
	}
	if schema, ok := m["schema"].(map[string]any); ok {
		d := json.NewDecoder(bytes.NewReader(r.body))
		var v any
		if err := d.Decode(&v); err != nil {
			t.Errorf("%s: %v in %s", name, err, r.body)
			return
		}
		for _, problem := range s.judge(schema, v, "") {
			t.Errorf("%s: %s in %s", name, problem, r.body)
		}
	}
}

// describedHeaders are those of our own that a description must name.
var describedHeaders = map[string]bool{
	"Location": true, "Retry-After": true, "Etag": true, "Idempotent-Replayed": true, "Preference-Applied": true, "Request-Id": true,
}

func canonical(header string) string {
	if header == "Etag" {
		return "ETag"
	}
	return header
}

// judge checks a value against the part of JSON Schema that the document uses.
func (s *spec) judge(schema map[string]any, v any, at string) (problems []string) {
	if ref, ok := schema["$ref"].(string); ok {
		return s.judge(s.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(map[string]any), v, at)
	}
	for keyword := range schema {
		if !knownKeywords[keyword] {
			problems = append(problems, "this test does not know the keyword "+keyword)
		}
	}
	if types := list(schema["type"]); len(types) > 0 && !slices.Contains(types, typeOf(v)) && !(typeOf(v) == "integer" && slices.Contains(types, "number")) {
		return append(problems, fmt.Sprintf("%s is of type %s, want %v", at, typeOf(v), types))
	}
	if enum := list(schema["enum"]); len(enum) > 0 && !slices.Contains(enum, fmt.Sprint(v)) {
		problems = append(problems, fmt.Sprintf("%s is %v, want one of %v", at, v, enum))
	}
	if schema["format"] == "date-time" {
		if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v)); err != nil || !strings.HasSuffix(fmt.Sprint(v), "Z") {
			problems = append(problems, at+" is no time in UTC")
		}
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range list(schema["required"]) {
			if _, ok := v[name]; !ok {
				problems = append(problems, at+"."+name+" is missing")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if p, ok := properties[name].(map[string]any); ok {
				problems = append(problems, s.judge(p, v[name], at+"."+name)...)
			} else if schema["additionalProperties"] == false {
				problems = append(problems, at+"."+name+" is not declared")
			}
		}
	case []any:
		if items, ok := schema["items"].(map[string]any); ok {
			for i, e := range v {
				problems = append(problems, s.judge(items, e, fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	}
	return problems
}

var knownKeywords = map[string]bool{
	"type": true, "enum": true, "format": true, "properties": true, "required": true, "additionalProperties": true, "items": true, "description": true,
}

func list(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, fmt.Sprint(e))
		}
	}
	return out
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
