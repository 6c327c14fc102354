package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// typ is the type of a value. The words are those of error messages.
type typ string

const (
	tNull   typ = "empty"
	tBool   typ = "true or false"
	tNumber typ = "a number"
	tString typ = "a text"
	tList   typ = "a list"
	tObject typ = "a mapping"
)

// value is one node of a configuration, whether it came from YAML or from a stored JSON body. Mappings keep their
// order and numbers their digits.
type value struct {
	t      typ
	s      string // text of a tString, digits of a tNumber, "true" or "false"
	items  []*value
	fields []field
	pos    Pos
}

type field struct {
	name string
	pos  Pos
	v    *value
}

func str(s string) *value               { return &value{t: tString, s: s} }
func num(n int) *value                  { return &value{t: tNumber, s: fmt.Sprint(n)} }
func boolean(b bool) *value             { return &value{t: tBool, s: fmt.Sprint(b)} }
func object() *value                    { return &value{t: tObject} }
func (v *value) set(n string, x *value) { v.fields = append(v.fields, field{name: n, v: x}) }

// maxDepth is how deep mappings and lists may be nested, in a file and in a model's JSON.
const maxDepth = 200

var (
	errDepth    = errors.New("nested deeper than 200")
	errTrailing = errors.New("something follows the JSON value")
)

// parseJSON reads exactly one JSON value, strictly: no duplicate names, no ill-formed Unicode, nothing after it.
func parseJSON(data []byte) (*value, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	v, err := readJSON(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errTrailing
	}
	return v, nil
}

func readJSON(dec *jsontext.Decoder) (*value, error) {
	if dec.StackDepth() > maxDepth {
		return nil, errDepth
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return &value{t: tNull}, nil
	case 't', 'f':
		return boolean(tok.Bool()), nil
	case '0':
		return &value{t: tNumber, s: tok.String()}, nil
	case '"':
		return str(tok.String()), nil
	case '[':
		v := &value{t: tList}
		for dec.PeekKind() != ']' {
			item, err := readJSON(dec)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		_, err := dec.ReadToken()
		return v, err
	}
	v := object()
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		n := name.String()
		item, err := readJSON(dec)
		if err != nil {
			return nil, err
		}
		v.set(n, item)
	}
	_, err = dec.ReadToken()
	return v, err
}

// appendJSON appends v as compact JSON in the order it has.
func (v *value) appendJSON(dst []byte) []byte {
	switch v.t {
	case tNull:
		return append(dst, "null"...)
	case tBool, tNumber:
		return append(dst, v.s...)
	case tString:
		return appendString(dst, v.s)
	case tList:
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i, f := range v.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, f.name), ':')
		dst = f.v.appendJSON(dst)
	}
	return append(dst, '}')
}

// appendString appends s as a JSON string. Ill-formed UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	return dst
}

// sorted orders the fields of v by name, not those of deeper values, and returns v.
func (v *value) sorted() *value {
	slices.SortFunc(v.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return v
}

// sortedDeep is v with all mappings below it in order of their names.
func (v *value) sortedDeep() *value {
	c := &value{t: v.t, s: v.s}
	for _, item := range v.items {
		c.items = append(c.items, item.sortedDeep())
	}
	for _, f := range v.fields {
		c.set(f.name, f.v.sortedDeep())
	}
	return c.sorted()
}

// isJSONNumber reports whether s may stand as a number in JSON (RFC 8259).
func isJSONNumber(s string) bool {
	v := jsontext.Value(s)
	return len(s) > 0 && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && v.IsValid() && strings.TrimSpace(s) == s
}
