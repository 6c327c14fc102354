// Package delta puts a JSON document that was streamed in pieces back together.
//
// Numbers keep their digits. Text is joined before it is judged: half a surrogate pair or half a UTF-8 sequence at the
// end of one piece meets its other half at the start of the next, and only what is then still ill-formed becomes
// U+FFFD.
package delta

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep a document may be nested: what onefold takes as input, it takes as output.
const maxDepth = 200

var errDepth = errors.New("nested too deep")

// Value is one JSON value that pieces can be merged into. The zero of every method's receiver may be nil.
type Value struct {
	kind  byte // n, t, f, 0, ", {, [ as in jsontext.Kind
	raw   []byte
	text  []byte // of a string: UTF-8 in which surrogates may stand alone (as WTF-8)
	items []*Value
	names []string // of an object, beside items
}

// Parse reads one JSON document with nothing after it. Ill-formed Unicode inside strings is kept for later pieces.
func Parse(b []byte) (*Value, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	v, err := parse(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	return v, nil
}

func parse(dec *jsontext.Decoder, depth int) (*Value, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	kind := dec.PeekKind()
	v := &Value{kind: byte(kind)}
	if kind != '{' && kind != '[' {
		raw, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		if kind == '"' {
			v.text = appendUnquoted(nil, raw)
		} else {
			v.raw = bytes.Clone(raw)
		}
		return v, nil
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for end := dec.PeekKind(); end != '}' && end != ']'; end = dec.PeekKind() {
		name := ""
		if kind == '{' {
			raw, err := dec.ReadValue()
			if err != nil {
				return nil, err
			}
			name = string(repaired(appendUnquoted(nil, raw)))
		}
		item, err := parse(dec, depth+1)
		if err != nil {
			return nil, err
		}
		if kind == '{' {
			v.Set(name, item)
		} else {
			v.items = append(v.items, item)
		}
	}
	_, err := dec.ReadToken()
	return v, err
}

// Get returns the member of an object, nil when there is none.
func (v *Value) Get(names ...string) *Value {
	for _, name := range names {
		if v == nil || v.kind != '{' {
			return nil
		}
		var found *Value
		for i, n := range v.names {
			if n == name {
				found = v.items[i]
			}
		}
		v = found
	}
	return v
}

// Set puts a member into an object, replacing one of the same name.
func (v *Value) Set(name string, item *Value) {
	for i, n := range v.names {
		if n == name {
			v.items[i] = item
			return
		}
	}
	v.names, v.items = append(v.names, name), append(v.items, item)
}

// Delete takes a member out of an object.
func (v *Value) Delete(name string) {
	for i, n := range v.names {
		if n == name {
			v.names = append(v.names[:i:i], v.names[i+1:]...)
			v.items = append(v.items[:i:i], v.items[i+1:]...)
			return
		}
	}
}

// Items returns the items of an array, nil for anything else.
func (v *Value) Items() []*Value {
	if v == nil || v.kind != '[' {
		return nil
	}
	return v.items
}

// Has says whether v is there and not null.
func (v *Value) Has() bool { return v != nil && v.kind != 'n' }

// IsObject says whether v is an object.
func (v *Value) IsObject() bool { return v != nil && v.kind == '{' }

// IsArray says whether v is an array.
func (v *Value) IsArray() bool { return v != nil && v.kind == '[' }

// IsString says whether v is a string.
func (v *Value) IsString() bool { return v != nil && v.kind == '"' }

// Text returns a string's text with U+FFFD for what is ill-formed, and "" for anything else.
func (v *Value) Text() string {
	if !v.IsString() {
		return ""
	}
	return string(repaired(bytes.Clone(v.text)))
}

// Len is the length in bytes of the text held by v and all below it.
func (v *Value) Len() int {
	if v == nil {
		return 0
	}
	n := len(v.text) + len(v.raw)
	for _, item := range v.items {
		n += item.Len()
	}
	return n
}

// Int returns an integer that fits, else 0 and false. 3.0 and 3e0 are integers too.
func (v *Value) Int() (int64, bool) {
	if v == nil || v.kind != '0' {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(v.raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil || f != float64(int64(f)) || f > 1<<53 || f < -(1<<53) {
		return 0, false
	}
	return int64(f), true
}

// Members ranges over the members of an object in their order.
func (v *Value) Members() iter.Seq2[string, *Value] {
	return func(yield func(string, *Value) bool) {
		if !v.IsObject() {
			return
		}
		for i, name := range v.names {
			if !yield(name, v.items[i]) {
				return
			}
		}
	}
}

// Add appends an item to an array.
func (v *Value) Add(item *Value) { v.items = append(v.items, item) }

// Null makes a null.
func Null() *Value { return &Value{kind: 'n', raw: []byte("null")} }

// NewInt makes a number.
func NewInt(n int64) *Value { return &Value{kind: '0', raw: strconv.AppendInt(nil, n, 10)} }

// NewObject makes an empty object.
func NewObject() *Value { return &Value{kind: '{'} }

// NewArray makes an array.
func NewArray(items ...*Value) *Value { return &Value{kind: '[', items: items} }

// NewString makes a string.
func NewString(s string) *Value { return &Value{kind: '"', text: []byte(s)} }

// Append writes v as JSON without white space.
func (v *Value) Append(b []byte) []byte {
	switch v.kind {
	case '"':
		return appendQuoted(b, v.text)
	case '{', '[':
		b = append(b, v.kind)
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			if v.kind == '{' {
				b = append(appendQuoted(b, []byte(v.names[i])), ':')
			}
			b = item.Append(b)
		}
		return append(b, v.kind+2) // } and ] stand two after { and [
	}
	return append(b, v.raw...)
}

// SetItem puts an item at an index of an array, with nulls before it where there is nothing yet.
func (v *Value) SetItem(i int, item *Value) {
	for len(v.items) <= i {
		v.items = append(v.items, Null())
	}
	v.items[i] = item
}

// Grow appends text to a member of an object, which may be absent. Anything but text is left out.
func (v *Value) Grow(name string, text *Value) {
	if !text.IsString() {
		return
	}
	if old := v.Get(name); old.IsString() {
		old.text = join(old.text, text.text)
		return
	}
	v.Set(name, &Value{kind: '"', text: append([]byte(nil), text.text...)})
}

// IsTrue says whether v is the literal true.
func (v *Value) IsTrue() bool { return v != nil && v.kind == 't' }
