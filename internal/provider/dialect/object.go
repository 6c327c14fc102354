package dialect

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrBody is what a request that is no JSON object gives; it does not quote the body.
var ErrBody = errors.New("the request is not one JSON object")

// Object is a JSON object of which members can be set while all others keep their bytes: numbers and strings are not
// decoded.
type Object struct{ members []member }

type member struct {
	name  string // quoted, as it came
	value []byte
}

// ParseObject takes an object apart.
func ParseObject(b []byte) (*Object, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b))
	if dec.PeekKind() != '{' {
		return nil, ErrBody
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, ErrBody
	}
	o := &Object{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return nil, ErrBody
		}
		m := member{name: string(name)}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, ErrBody
		}
		m.value = bytes.Clone(value)
		o.members = append(o.members, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, ErrBody
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, ErrBody
	}
	return o, nil
}

// Get returns a member's bytes, nil when there is none.
func (o *Object) Get(name string) []byte {
	for _, m := range o.members {
		if m.name == `"`+name+`"` {
			return m.value
		}
	}
	return nil
}

// Delete takes a member out and returns what it was.
func (o *Object) Delete(name string) []byte {
	for i, m := range o.members {
		if m.name == `"`+name+`"` {
			o.members = append(o.members[:i:i], o.members[i+1:]...)
			return m.value
		}
	}
	return nil
}

// Set puts a member at the end, in place of one of that name.
func (o *Object) Set(name string, value []byte) {
	o.Delete(name)
	o.members = append(o.members, member{`"` + name + `"`, value})
}

// Append writes the object without white space between its members.
func (o *Object) Append(out []byte) []byte {
	out = append(out, '{')
	for i, m := range o.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.name...), ':'), m.value...)
	}
	return append(out, '}')
}

// Bytes is the object on its own.
func (o *Object) Bytes() []byte {
	n := 2
	for _, m := range o.members {
		n += len(m.name) + len(m.value) + 2
	}
	return o.Append(make([]byte, 0, n))
}
