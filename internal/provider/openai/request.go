package openai

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// errBody is what a request that is no JSON object gives; it does not quote the body.
var errBody = errors.New("the request is not one JSON object")

type member struct{ name, value jsontext.Value }

// shape returns the request as it is sent: every field as the caller wrote it, but stream and stream_options as the
// call needs them. Numbers and strings are not decoded.
func shape(body []byte, stream, usage bool) ([]byte, error) {
	members, err := split(body)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(body)+64), '{')
	options := []byte(nil)
	for _, m := range members {
		switch string(m.name) {
		case `"stream"`:
			continue
		case `"stream_options"`:
			options = m.value
			continue
		}
		out = appendMember(out, m)
	}
	if stream {
		out = appendMember(out, member{jsontext.Value(`"stream"`), jsontext.Value("true")})
		if usage {
			out = appendMember(out, member{jsontext.Value(`"stream_options"`), withUsage(options)})
		} else if options != nil {
			out = appendMember(out, member{jsontext.Value(`"stream_options"`), options})
		}
	}
	return append(out, '}'), nil
}

// withUsage sets include_usage in the caller's stream_options.
func withUsage(options []byte) []byte {
	members, _ := split(options) // null or nonsense: there is nothing to keep
	out := []byte{'{'}
	for _, m := range members {
		if string(m.name) != `"include_usage"` {
			out = appendMember(out, m)
		}
	}
	return append(appendMember(out, member{jsontext.Value(`"include_usage"`), jsontext.Value("true")}), '}')
}

func appendMember(out []byte, m member) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(append(append(out, m.name...), ':'), m.value...)
}

// split takes a JSON object apart into raw names and values.
func split(b []byte) ([]member, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b))
	if dec.PeekKind() != '{' {
		return nil, errBody
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, errBody
	}
	var members []member
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return nil, errBody
		}
		m := member{name: bytes.Clone(name)}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, errBody
		}
		m.value = bytes.Clone(value)
		members = append(members, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, errBody
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errBody
	}
	return members, nil
}
