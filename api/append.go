package api

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Append adds t to dst as one JSON object, with Result and Metadata exactly as
// they are: encoding/json would compact and escape them. Both must be valid
// JSON or empty; this is not checked here.
func (t *Task) Append(dst []byte) ([]byte, error) {
	bare := *t
	bare.Result, bare.Metadata = nil, nil
	dst, err := appendObject(dst, &bare)
	if err != nil {
		return nil, fmt.Errorf("encode task %s: %w", t.ID, err)
	}
	dst = appendMember(dst, "metadata", t.Metadata)
	return appendMember(dst, "result", t.Result), nil
}

// Append adds s to dst as the body of POST /v1/tasks, with Input, Effects and
// Metadata exactly as they are. It refuses what is not one JSON value, for
// spliced in it would change the members around it.
func (s *Submit) Append(dst []byte) ([]byte, error) {
	verbatim := []struct {
		name string
		raw  json.RawMessage
	}{{"input", s.Input}, {"effects", s.Effects}, {"metadata", s.Metadata}}
	for _, m := range verbatim {
		if len(m.raw) > 0 && !json.Valid(m.raw) {
			return nil, Errorf(CodeInvalidJSON, "%s is not one well-formed JSON value", m.name).WithField(m.name)
		}
	}
	bare := struct {
		*Submit
		Input    *struct{} `json:"input,omitempty"`
		Effects  *struct{} `json:"effects,omitempty"`
		Metadata *struct{} `json:"metadata,omitempty"`
	}{Submit: s}
	dst, err := appendObject(dst, &bare)
	if err != nil {
		return nil, fmt.Errorf("encode submit: %w", err)
	}
	for _, m := range verbatim {
		dst = appendMember(dst, m.name, m.raw)
	}
	return dst, nil
}

// appendObject adds v, which must encode to an object with at least one member.
func appendObject(dst []byte, v any) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// appendMember puts one more member before the closing brace that ends dst.
func appendMember(dst []byte, name string, raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return dst
	}
	dst = append(dst[:len(dst)-1], `,"`+name+`":`...)
	return append(append(dst, raw...), '}')
}
